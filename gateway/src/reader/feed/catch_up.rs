//! A feed behind the ring of its topic: old messages from the brokers, merged in the order of storing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CALL, CHUNK_BYTES, CHUNK_MESSAGES, CHUNK_ROOM, Chunk, Feed, GapReason, Room, Wanted};
use crate::error::{ApiError, Code};
use crate::memory::Whose;
use crate::reader::merge::{Limits, Merge, Order, memory_of};
use crate::reader::view::{self, Opened};

/// Bytes read ahead while catching up.
const BUFFER_MAX: usize = 256 * 1024;
/// Messages examined in one step of catching up.
const STEP_SCAN: u64 = 20_000;
/// Pause after a step that went nowhere, such as while a broker does not answer.
const PAUSE: Duration = Duration::from_secs(1);

impl Feed {
    /// A step towards the live tail: old messages from the brokers. `None` = look again, such as with the memory that the
    /// next message was found to need.
    pub(super) async fn catch_up(&mut self, wanted: Wanted) -> Result<Option<Chunk>, ApiError> {
        // What was read ahead is forgotten rather than held while it waits for a turn, or while there is no memory for
        // more: those who have a turn may wait for that very memory.
        let turn = match Arc::clone(&self.options.turns).try_acquire_owned() {
            Ok(turn) => Some(turn),
            Err(_) => {
                self.merge = None;
                self.turn().await
            }
        };
        let memory = BUFFER_MAX + CHUNK_ROOM + memory_of(self.large);
        let kept = self.merge.take().filter(|(m, _)| !m.is_done());
        let kept = kept.and_then(|(merge, mut held)| {
            let missing = memory.saturating_sub(held.bytes());
            held.grow(missing).then_some((merge, held))
        });
        let (mut merge, held, deadline) = match kept {
            Some((merge, held)) => (merge, held, Instant::now() + CALL),
            None => {
                let answers = &self.state.answers;
                let held = answers
                    .take(Whose::Topic(&self.options.topic), memory)
                    .await;
                let deadline = Instant::now() + CALL;
                match self.new_merge(deadline).await? {
                    Some(merge) => (merge, held, deadline),
                    None => {
                        drop((held, turn));
                        tokio::time::sleep(PAUSE).await;
                        return Ok(None);
                    }
                }
            }
        };
        let max = usize::try_from(wanted.max)
            .unwrap_or(CHUNK_MESSAGES)
            .min(CHUNK_MESSAGES);
        let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
            usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
        });
        let limits = Limits {
            items: max,
            bytes,
            scan: STEP_SCAN,
        };
        let before = merge.places();
        // Also where that is more than the whole budget, and the whole is held.
        merge.within(memory);
        let records = merge.take(&self.state.upstream, limits, deadline).await?;
        let needed = merge.needed();
        // The next one may be as large, or is what was read ahead.
        let largest = records.iter().map(|r| r.bytes).filter(|b| *b > CHUNK_ROOM);
        let ahead = Some(merge.ahead()).filter(|b| *b > BUFFER_MAX + CHUNK_ROOM);
        self.large = needed.or(largest.chain(ahead).max()).unwrap_or(0);
        let (places, deleted, stuck) = (
            merge.places(),
            merge.take_deleted(),
            !merge.shut().is_empty(),
        );
        let from = self.cursor();
        let mut gaps = Vec::new();
        self.set_places(merge.view(), &places);
        if deleted > 0 {
            gaps.push(self.gap(
                GapReason::Retention,
                deleted,
                self.options.filter.is_none(),
                Arc::clone(&from),
            ));
        }
        let chunk = if self.pace.is_some() || self.options.latest_by_key {
            let (kept, looked) = self.thin_all(&records);
            let mut chunk = self.thinned_chunk(&kept, looked, from);
            gaps.append(&mut chunk.gaps);
            Chunk { gaps, ..chunk }
        } else {
            self.given(&records, gaps)
        };
        let (count, bytes) = chunk.text.as_ref().map_or((0, 0), |t| (t.count, t.bytes));
        let more = wanted.max > count && wanted.bytes.is_none_or(|left| left > bytes);
        let stays = more && needed.is_none() && !stuck && !merge.is_done();
        if stays && !self.state.answers.is_short() {
            // More is wanted soon: what was read ahead is kept for it while there is enough for others.
            let ahead = self.state.answers.hold(merge.ahead());
            self.merge = Some((merge, ahead));
        }
        let chunk = chunk.within(Room { held, _turn: turn });
        if chunk.text.is_some() || !chunk.gaps.is_empty() {
            return Ok(Some(chunk));
        }
        if before == places && needed.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }

    /// The brokers as they are, from this feed's places on; `None` while none answers.
    pub(super) async fn new_merge(&mut self, deadline: Instant) -> Result<Option<Merge>, ApiError> {
        let view = match view::open(&self.state, &self.options.topic, &[], false, deadline).await {
            Ok(Opened { view, .. }) => view,
            Err(error) if error.code().retryable() || error.code() == Code::TopicNotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.tail.learn_now(&self.state, &view);
        let starts: Vec<i64> = {
            let ring = self.tail.ring.read();
            let at =
                |q: &view::QueueView| ring.number(&q.broker, q.id).map_or(0, |n| self.place(n));
            view.queues.iter().map(at).collect()
        };
        let ends: Vec<i64> = view.queues.iter().map(|q| q.max).collect();
        self.set_places(
            &view,
            &starts
                .iter()
                .zip(&ends)
                .map(|(s, e)| *s.min(e))
                .collect::<Vec<_>>(),
        );
        Ok(Some(
            Merge::new(
                view,
                Order::Ascending,
                self.options.filter.clone(),
                &starts,
                &ends,
                BUFFER_MAX,
            )
            .lenient(),
        ))
    }
}
