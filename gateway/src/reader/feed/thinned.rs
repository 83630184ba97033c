//! A feed that thins: the newest so many a second, the newest of each key. What it leaves out is counted.

use std::sync::Arc;

use tokio::time::Instant;

use super::{CHUNK_BYTES, CHUNK_MESSAGES, Chunk, Feed, GapReason, Room, Step, Wanted};
use crate::reader::pace::{WINDOW, in_order, newest_by_key};
use crate::reader::ring::{Batch, wants};
use crate::upstream::Record;

impl Feed {
    /// Everything the ring has, thinned.
    pub(super) async fn thinned(&mut self, wanted: Wanted) -> Step {
        // What has nothing for this feed is passed, deletions are told.
        loop {
            let (batch, number) = match self.batch() {
                Ok(found) => found,
                Err(step) => return step,
            };
            match self.pass(&batch, number) {
                Some(Some(chunk)) => return Step::Give(chunk),
                Some(None) => {}
                None if batch.records.iter().any(|r| {
                    r.offset >= self.place(batch.queue) && wants(self.options.filter.as_ref(), r)
                }) =>
                {
                    break;
                }
                None => {
                    self.move_to(batch.queue, batch.to);
                    self.number = Some(number + 1);
                }
            }
        }
        if self.options.latest_by_key {
            tokio::time::sleep(WINDOW).await;
        }
        if let Some(pace) = &mut self.pace
            && pace.allowed(Instant::now()) == 0
        {
            tokio::time::sleep_until(pace.next()).await;
        }
        let mut free: Option<(Room, usize)> = None;
        let (run, room) = loop {
            let Some(run) = self.run() else {
                return Step::Behind;
            };
            let largest = run.iter().map(|(_, r)| r.bytes).max().unwrap_or(0);
            match free.take() {
                Some((room, of)) if of >= largest => break (run, room),
                // Nothing is held while it waits for more.
                held => drop((run, held)),
            }
            free = Some((self.room(largest).await, largest));
        };
        let from = self.cursor();
        let records: Vec<Arc<Record>> = run.iter().map(|(_, r)| Arc::clone(r)).collect();
        let (kept, looked) = self.thin(&records, wanted);
        for (queue, record) in run.iter().take(looked) {
            self.move_to(*queue, record.offset + 1);
        }
        // Batches that are taken to their end are stepped over by the next call.
        Step::Give(self.thinned_chunk(&kept, looked, from).within(room))
    }

    /// What the ring has for this feed in the order of storing, each with its queue; `None` where it begins later than
    /// this feed is.
    fn run(&self) -> Option<Vec<(usize, Arc<Record>)>> {
        let ring = self.tail.ring.read();
        let first = self.next_in(&ring)?;
        let batches = (first..ring.end()).filter_map(|n| ring.get(n));
        // Up to a batch that is no plain run; the first may be one whose deletions are told.
        let told = |b: &Batch| b.deleted == 0 || self.place(b.queue) > b.from;
        let plain = batches.take_while(|b| b.to >= b.from && told(b));
        let filter = self.options.filter.as_ref();
        let of = |b: &Arc<Batch>| {
            let (queue, at) = (b.queue, self.place(b.queue));
            b.records
                .iter()
                .filter(|r| r.offset >= at && wants(filter, r))
                .map(|r| (queue, Arc::clone(r)))
                .collect::<Vec<_>>()
        };
        Some(in_order(plain.flat_map(of).collect()))
    }

    /// Which messages of a run are given, and how many of the run that decides about.
    pub(super) fn thin(
        &mut self,
        run: &[Arc<Record>],
        wanted: Wanted,
    ) -> (Vec<Arc<Record>>, usize) {
        let max = usize::try_from(wanted.max)
            .unwrap_or(usize::MAX)
            .min(CHUNK_MESSAGES);
        let (mut kept, mut looked) = if self.options.latest_by_key {
            newest_by_key(run, &self.last, max)
        } else {
            (run.to_vec(), run.len())
        };
        if let Some(pace) = &mut self.pace {
            let allowed = pace.allowed(Instant::now());
            let over = kept.len().saturating_sub(allowed);
            kept.drain(..over);
        }
        let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
            usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
        });
        let mut size = 0;
        let fit = kept.iter().enumerate().take_while(|(i, r)| {
            size += r.content.body.len();
            *i < max && (*i == 0 || size <= bytes)
        });
        let fit = fit.count();
        if fit < kept.len() {
            // The rest waits for its turn.
            let next = &kept[fit];
            let same = |r: &Arc<Record>| Arc::ptr_eq(r, next);
            looked = run.iter().position(same).unwrap_or(looked);
            kept.truncate(fit);
        }
        if let Some(pace) = &mut self.pace {
            pace.took(kept.len());
        }
        self.gives(&kept);
        (kept, looked)
    }

    pub(super) fn thinned_chunk(
        &self,
        kept: &[Arc<Record>],
        looked: usize,
        from: Arc<str>,
    ) -> Chunk {
        let skipped = (looked - kept.len()) as u64;
        let gaps = if skipped > 0 {
            vec![self.gap(GapReason::Rate, skipped, true, from)]
        } else {
            Vec::new()
        };
        self.given(kept, gaps)
    }

    /// Of old messages what is over the pace is skipped at once.
    pub(super) fn thin_all(&mut self, run: &[Arc<Record>]) -> (Vec<Arc<Record>>, usize) {
        let mut kept = if self.options.latest_by_key {
            newest_by_key(run, &self.last, usize::MAX).0
        } else {
            run.to_vec()
        };
        if let Some(pace) = &mut self.pace {
            let over = kept.len().saturating_sub(pace.allowed(Instant::now()));
            kept.drain(..over);
            pace.took(kept.len());
        }
        self.gives(&kept);
        (kept, run.len())
    }

    fn gives(&mut self, kept: &[Arc<Record>]) {
        if self.options.latest_by_key {
            self.last.add(kept);
        }
    }
}
