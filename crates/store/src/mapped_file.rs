//! One file of the commit log: a region that knows its place in the log.

use crate::disk::Region;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// One file of the commit log, `[base, base + size)`.
#[derive(Debug)]
pub(crate) struct MappedFile {
    base: u64,
    region: Arc<dyn Region>,
    /// Store time of the last record, milliseconds; set when the log goes on in the next file.
    newest_ms: OnceLock<i64>,
    /// Last change by an earlier run, milliseconds since 1970; 0 when not known.
    modified_ms: i64,
}

impl MappedFile {
    pub(crate) fn new(base: u64, region: Arc<dyn Region>) -> Self {
        MappedFile {
            base,
            region,
            newest_ms: OnceLock::new(),
            modified_ms: 0,
        }
    }

    /// A file that an earlier run, or somebody who copied it, changed last at `modified_ms`.
    pub(crate) fn found(base: u64, region: Arc<dyn Region>, modified_ms: i64) -> Self {
        MappedFile {
            modified_ms,
            ..MappedFile::new(base, region)
        }
    }

    /// Last change by an earlier run, milliseconds since 1970; 0 when not known.
    pub(crate) fn modified_ms(&self) -> i64 {
        self.modified_ms
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(self.region.size())
    }

    /// Notes that the last record was stored at `newest_ms` and nothing follows it here.
    pub(crate) fn close_at(&self, newest_ms: i64) {
        self.newest_ms.get_or_init(|| newest_ms);
    }

    /// Store time of the last record, if the file was filled by this process.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        self.newest_ms.get().copied()
    }

    pub(crate) fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    /// The stable bytes from log position `at` to where the published part ends.
    pub(crate) fn stable_from(&self, at: u64) -> &[u8] {
        let Some(from) = at.checked_sub(self.base) else {
            return &[];
        };
        let published = self.region.published();
        usize::try_from(published.saturating_sub(from))
            .ok()
            .and_then(|len| self.region.stable(from, len))
            .unwrap_or_default()
    }

    /// `len` stable bytes at log position `at`, which keep the map alive.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Option<Bytes> {
        let from = at.checked_sub(self.base)?;
        self.region.stable(from, len)?;
        Some(Bytes::from_owner(Slice {
            region: Arc::clone(&self.region),
            from,
            len,
        }))
    }
}

/// Owner of bytes in a map.
struct Slice {
    region: Arc<dyn Region>,
    from: u64,
    len: usize,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        // Published bytes stay published, so this never falls back.
        self.region.stable(self.from, self.len).unwrap_or_default()
    }
}
