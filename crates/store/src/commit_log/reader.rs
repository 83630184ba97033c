//! Reads records, without locks and without copies.

use super::{CommitLog, DamagedRange};
use crate::record::{Found, look};
use bytes::Bytes;
use wire::message::record::RecordView;

/// What follows a log position.
#[derive(Debug)]
pub(crate) enum Next<R> {
    /// A record.
    Record {
        /// What was made of it.
        made: R,
        /// Its position.
        at: u64,
        /// The position after it.
        end: u64,
    },
    /// Nothing up to the readable end, which is here.
    End(u64),
}

impl CommitLog {
    /// True when the checksum of a record at `at` is to be compared.
    fn crc_is_due(&self, at: u64) -> bool {
        at < self.trusted_from
    }

    /// Calls `read` with the record at `at`, if one starts there; its checksum is not compared.
    pub(crate) fn view<R>(&self, at: u64, read: impl FnOnce(&RecordView<'_>) -> R) -> Option<R> {
        let file = self.files.find(at)?;
        match look(file.stable_from(at), at, false) {
            Found::Record(view) => Some(read(&view)),
            Found::Blank | Found::Nothing => None,
        }
    }

    /// The whole record at `at`, kept alive by the answer; of `size` bytes if that is known.
    pub(crate) fn record(&self, at: u64, size: Option<u32>) -> Option<Bytes> {
        if self.damage_at(at).is_some() {
            return None;
        }
        let file = self.files.find(at)?;
        let Found::Record(view) = look(file.stable_from(at), at, self.crc_is_due(at)) else {
            return None;
        };
        let len = view.total_size();
        let expected = size.is_none_or(|size| usize::try_from(size) == Ok(len));
        expected.then(|| file.bytes(at, len)).flatten()
    }

    /// The next record from `at` on, past blanks and damaged ranges.
    pub(crate) fn next_record<R>(
        &self,
        mut at: u64,
        read: impl FnOnce(&RecordView<'_>) -> R,
    ) -> Next<R> {
        loop {
            let Some(file) = self.files.find(at) else {
                let min = self.files.min();
                if at < min {
                    // What was here has been deleted.
                    at = min;
                    continue;
                }
                return Next::End(at);
            };
            match look(file.stable_from(at), at, self.crc_is_due(at)) {
                Found::Record(view) => {
                    let end = at + view.total_size() as u64;
                    let made = read(&view);
                    return Next::Record { made, at, end };
                }
                Found::Blank => at = file.end(),
                Found::Nothing => match self.damage_at(at) {
                    Some(range) => at = range.to.get(),
                    None => return Next::End(at),
                },
            }
        }
    }

    /// The damaged range that holds `at`.
    pub(crate) fn damage_at(&self, at: u64) -> Option<DamagedRange> {
        let holds = |range: &&DamagedRange| range.from.get() <= at && at < range.to.get();
        self.damaged.iter().find(holds).copied()
    }
}
