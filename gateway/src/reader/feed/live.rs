//! A feed in the ring of its topic: batch by batch, shared where it takes a whole one.

use std::sync::Arc;

use super::{CHUNK_BYTES, Chunk, Feed, GapReason, Room, Step, Wanted};
use crate::reader::ring::{Batch, Ring, wants};
use crate::upstream::Record;

impl Feed {
    /// One batch of the ring.
    pub(super) async fn plain(&mut self, wanted: Wanted) -> Step {
        let mut free: Option<(Room, usize)> = None;
        loop {
            let (batch, number) = match self.batch() {
                Ok(found) => found,
                Err(step) => return step,
            };
            if let Some(step) = self.pass(&batch, number) {
                match step {
                    Some(chunk) => return Step::Give(chunk),
                    None => continue,
                }
            }
            let largest = batch.records.iter().map(|r| r.bytes).max().unwrap_or(0);
            if free.as_ref().is_none_or(|(_, of)| *of < largest) {
                // Nothing is held while it waits for more.
                drop(free.take());
                free = Some((self.room(largest).await, largest));
                continue;
            }
            let Some((room, _)) = free.take() else {
                continue;
            };
            let at = self.place(batch.queue);
            let filter = self.options.filter.as_ref();
            let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
                usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
            });
            if at == batch.from {
                let (text, grown) = batch.text(&self.options.topic, filter, self.options.format);
                self.tail.grown(number, grown);
                let fits =
                    text.count <= wanted.max && (text.bytes <= bytes as u64 || text.count == 1);
                if text.count == 0 || fits {
                    self.move_to(batch.queue, batch.to);
                    self.number = Some(number + 1);
                    if text.count == 0 {
                        free = Some((room, largest));
                        continue;
                    }
                    let cursor = if self.aligned {
                        self.shared_cursor(&batch, number)
                    } else {
                        self.cursor()
                    };
                    let chunk = Chunk {
                        text: Some(text),
                        cursor: Some(cursor),
                        ..Chunk::default()
                    };
                    return Step::Give(chunk.within(room));
                }
            }
            let max = usize::try_from(wanted.max).unwrap_or(usize::MAX);
            let mut taken: Vec<Arc<Record>> = Vec::new();
            let (mut size, mut end) = (0, batch.to);
            for record in batch
                .records
                .iter()
                .filter(|r| r.offset >= at && wants(filter, r))
            {
                let body = record.content.body.len();
                if taken.len() >= max || (!taken.is_empty() && size + body > bytes) {
                    end = record.offset;
                    break;
                }
                size += body;
                taken.push(Arc::clone(record));
            }
            self.move_to(batch.queue, end);
            if end == batch.to {
                self.number = Some(number + 1);
            }
            if !taken.is_empty() {
                return Step::Give(self.given(&taken, Vec::new()).within(room));
            }
            free = Some((room, largest));
        }
    }

    /// The cursor of all who have taken everything up to and with this batch, made by the first who asks.
    fn shared_cursor(&self, batch: &Batch, number: u64) -> Arc<str> {
        let mut made = 0;
        let cursor = batch.cursor.get_or_init(|| {
            let cursor = self.cursor();
            made = cursor.len();
            cursor
        });
        self.tail.grown(number, made);
        Arc::clone(cursor)
    }

    /// The number of the next batch while everything before it was given: not where it has left the ring, nor where
    /// the ring has begun to follow another queue, whose older messages may be missing.
    pub(super) fn next_in(&self, ring: &Ring) -> Option<u64> {
        self.number
            .filter(|n| *n >= ring.first && self.known == ring.queues.len())
    }

    /// The next batch of the ring.
    pub(super) fn batch(&mut self) -> Result<(Arc<Batch>, u64), Step> {
        let ring = self.tail.ring.read();
        let Some(number) = self.next_in(&ring) else {
            return Err(Step::Behind);
        };
        match ring.get(number) {
            Some(batch) => Ok((Arc::clone(batch), number)),
            None => {
                let mut heads = ring.head.iter().enumerate();
                let aligned = heads.all(|(i, head)| self.place(i) == *head);
                drop(ring);
                self.aligned = aligned;
                Err(Step::Empty)
            }
        }
    }

    /// Steps over a batch that holds nothing for this feed: `Some(None)`; over one whose messages were deleted before
    /// they could be read: the gap.
    pub(super) fn pass(&mut self, batch: &Batch, number: u64) -> Option<Option<Chunk>> {
        let at = self.place(batch.queue);
        if batch.to < batch.from {
            // The broker lost its tail and goes on below.
            self.move_to(batch.queue, at.min(batch.to));
            self.number = Some(number + 1);
            return Some(None);
        }
        if at >= batch.to {
            self.number = Some(number + 1);
            return Some(None);
        }
        if batch.deleted == 0 || at > batch.from {
            return None;
        }
        let from = self.cursor();
        let first = batch.records.first().map_or(batch.to, |r| r.offset);
        self.move_to(batch.queue, first);
        if first == batch.to {
            self.number = Some(number + 1);
        }
        let gap = self.gap(
            GapReason::Retention,
            batch.deleted,
            self.options.filter.is_none(),
            from,
        );
        Some(Some(Chunk {
            gaps: vec![gap],
            ..Chunk::default()
        }))
    }
}
