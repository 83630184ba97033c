//! What a feed has not given: counted with its filter, and skipped where the client is slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CALL, Feed, Gap, GapReason};
use crate::error::ApiError;
use crate::reader::filter::TagFilter;
use crate::reader::ring::{Batch, wants};
use crate::upstream::{Amount, QueueAt, Record};

/// Messages looked at to count what a filter would have let through.
const COUNT_SCAN: u64 = 20_000;

impl Feed {
    /// Whether there is a message that was not given.
    pub(super) async fn unread(&mut self) -> Result<bool, ApiError> {
        Ok(self.count().await?.0 > 0)
    }

    /// Skips to the newest; the gap, where that skips anything.
    pub(super) async fn skip(&mut self) -> Result<Option<Gap>, ApiError> {
        let head = self.tail.ring.read().head.clone();
        let (skipped, exact) = self.count_to(&head).await?;
        let from = self.cursor();
        for (queue, head) in head.iter().enumerate() {
            self.move_to(queue, self.place(queue).max(*head));
        }
        (self.number, self.merge) = (None, None);
        self.try_join();
        Ok((skipped > 0).then(|| self.gap(GapReason::Slow, skipped, exact, from)))
    }

    pub(super) async fn count(&self) -> Result<(u64, bool), ApiError> {
        let head = self.tail.ring.read().head.clone();
        self.count_to(&head).await
    }

    /// Matching messages up to these offsets, and whether all of them were looked at.
    pub(super) async fn count_to(&self, head: &[i64]) -> Result<(u64, bool), ApiError> {
        let Some(filter) = &self.options.filter else {
            let ahead = head
                .iter()
                .enumerate()
                .map(|(i, h)| u64::try_from(h - self.place(i)).unwrap_or(0));
            return Ok((ahead.sum(), true));
        };
        match self.count_in_ring(filter, head) {
            Some(count) => Ok((count, true)),
            None => self.count_at_brokers(filter, head).await,
        }
    }

    /// Matching messages up to these offsets, where the ring has them all.
    fn count_in_ring(&self, filter: &TagFilter, head: &[i64]) -> Option<u64> {
        let ring = self.tail.ring.read();
        let batches = (self.next_in(&ring)?..ring.end()).filter_map(|n| ring.get(n));
        let within = |b: &Batch, r: &Record| {
            r.offset >= self.place(b.queue) && head.get(b.queue).is_some_and(|h| r.offset < *h)
        };
        let matching = batches.flat_map(|b| {
            b.records
                .iter()
                .filter(|r| within(b, r) && wants(Some(filter), r))
        });
        Some(matching.count() as u64)
    }

    pub(super) async fn count_at_brokers(
        &self,
        filter: &TagFilter,
        head: &[i64],
    ) -> Result<(u64, bool), ApiError> {
        let deadline = Instant::now() + CALL;
        let masters = self.state.upstream.master_addresses(deadline).await?;
        let queues = self.tail.ring.read().queues.clone();
        let (mut count, mut left) = (0, COUNT_SCAN);
        for (i, queue) in queues.iter().enumerate() {
            let (mut at, end) = (self.place(i), head.get(i).copied().unwrap_or(0));
            let Some(addr) = masters.get(&*queue.broker) else {
                return Ok((count, false));
            };
            while at < end {
                if left == 0 {
                    return Ok((count, false));
                }
                let span = usize::try_from(end - at)
                    .unwrap_or(800)
                    .min(800)
                    .min(usize::try_from(left).unwrap_or(800));
                let place = QueueAt {
                    addr: addr.as_str().into(),
                    broker: Arc::clone(&queue.broker),
                    topic: Arc::clone(&self.options.topic),
                    queue_id: queue.id,
                    offset: at,
                };
                let amount = Amount {
                    messages: span,
                    bytes: 1,
                    room: usize::MAX,
                    scan: span,
                    tags: Some(filter.expression()),
                    wait: Duration::ZERO,
                };
                let Ok(times) = self
                    .state
                    .upstream
                    .read_times(&place, amount, deadline)
                    .await
                else {
                    return Ok((count, false));
                };
                count += times
                    .entries
                    .iter()
                    .filter(|(offset, _)| *offset < end)
                    .count() as u64;
                if times.next <= at {
                    break;
                }
                left = left.saturating_sub(u64::try_from(times.next - at).unwrap_or(left));
                at = times.next;
            }
        }
        Ok((count, true))
    }
}
