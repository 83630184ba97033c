//! The queues of a topic as they are now, and the places a cursor has in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::cursor::{Cursor, Held};
use crate::error::{ApiError, Code};
use crate::params::is_system_topic;
use crate::state::AppState;
use crate::upstream::{QueueAt, unreached};

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueView {
    pub(crate) broker: Arc<str>,
    /// `host:port` of its master.
    pub(crate) addr: Arc<str>,
    pub(crate) id: i32,
    /// Oldest offset kept.
    pub(crate) min: i64,
    /// One past the newest.
    pub(crate) max: i64,
    /// Store time of the oldest message, epoch ms; -1 without one.
    pub(crate) earliest_at_ms: i64,
    /// When the topic was made on this broker.
    pub(crate) epoch: u64,
}

#[cfg(test)]
impl QueueView {
    /// An empty queue of the broker `a`.
    pub(crate) fn for_test(id: i32) -> Self {
        Self {
            broker: "a".into(),
            addr: "x".into(),
            id,
            min: 0,
            max: 0,
            earliest_at_ms: -1,
            epoch: 1,
        }
    }
}

/// All queues, by broker name, then id.
#[derive(Clone, Debug)]
pub(crate) struct TopicView {
    pub(crate) topic: Arc<str>,
    pub(crate) queues: Vec<QueueView>,
}

/// A topic looked up, and where a cursor is in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) view: TopicView,
    /// Brokers of the cursor that have the topic no longer.
    pub(crate) without: Vec<Arc<str>>,
}

impl TopicView {
    /// The request position in a queue.
    pub(crate) fn at(&self, queue: usize, offset: i64) -> Option<QueueAt> {
        let q = self.queues.get(queue)?;
        Some(QueueAt {
            addr: Arc::clone(&q.addr),
            broker: Arc::clone(&q.broker),
            topic: Arc::clone(&self.topic),
            queue_id: q.id,
            offset,
        })
    }

    /// The offsets of a cursor, queue by queue; a queue it does not know is read from 0.
    ///
    /// # Errors
    /// `cursor_expired` where the topic was made anew.
    pub(crate) fn places(&self, brokers: &BTreeMap<Arc<str>, Held>) -> Result<Vec<i64>, ApiError> {
        let mut places = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            let Some(held) = brokers.get(&queue.broker) else {
                places.push(0);
                continue;
            };
            if held.epoch != queue.epoch {
                let detail = format!(
                    "topic '{}' was deleted and made again since this cursor was given; begin again",
                    self.topic
                );
                return Err(ApiError::new(Code::CursorExpired, detail));
            }
            let at = usize::try_from(queue.id)
                .ok()
                .and_then(|id| held.next.get(id));
            places.push(at.copied().unwrap_or(0));
        }
        Ok(places)
    }

    /// The brokers' part of a cursor at these offsets.
    pub(crate) fn held(&self, places: &[i64]) -> BTreeMap<Arc<str>, Held> {
        let mut brokers: BTreeMap<Arc<str>, Held> = BTreeMap::new();
        for (queue, place) in self.queues.iter().zip(places) {
            let held = brokers.entry(Arc::clone(&queue.broker)).or_default();
            held.epoch = queue.epoch;
            let id = usize::try_from(queue.id).unwrap_or(0);
            if held.next.len() <= id {
                held.next.resize(id + 1, 0);
            }
            held.next[id] = *place;
        }
        brokers
    }

    /// A cursor at these offsets.
    pub(crate) fn cursor(&self, places: &[i64]) -> Cursor {
        Cursor {
            brokers: self.held(places),
            floor: None,
        }
    }
}

/// Looks a topic up on every broker. `cursors` are the places that must be readable. Where not `strict`, brokers that do
/// not answer are left out.
///
/// # Errors
/// `topic_not_found`; `broker_unavailable` where a broker that holds queues of the topic, by the route or by a cursor,
/// does not answer: an answer without it would leave messages out.
pub(crate) async fn open(
    state: &AppState,
    topic: &str,
    cursors: &[&BTreeMap<Arc<str>, Held>],
    strict: bool,
    deadline: Instant,
) -> Result<Opened, ApiError> {
    let missing = || {
        let detail = format!("topic '{topic}' does not exist");
        ApiError::new(Code::TopicNotFound, detail)
    };
    if is_system_topic(topic) {
        return Err(missing());
    }
    let upstream = &state.upstream;
    let (found, silent) = upstream.topic_now(topic, deadline).await?;
    let masters = upstream.master_addresses(deadline).await?;
    let mut without = Vec::new();
    for name in cursors.iter().flat_map(|c| c.keys()) {
        if strict && (silent.iter().any(|s| **s == **name) || !masters.contains_key(&**name)) {
            let detail = format!(
                "broker '{name}' holds queues of this cursor and cannot be reached; ask again, or begin again where it is gone for good"
            );
            return Err(ApiError::new(Code::BrokerUnavailable, detail));
        }
        if !found.iter().any(|f| *f.broker == **name) && !without.contains(name) {
            without.push(Arc::clone(name));
        }
    }
    if found.is_empty() {
        upstream.nowhere(topic, &silent, deadline).await?;
        return Err(missing());
    }
    upstream.remember(topic, &found, deadline).await;
    if strict && let Some(name) = upstream.missing_holder(topic, &silent, deadline).await? {
        return Err(unreached(&name, topic));
    }
    let mut queues = Vec::new();
    for holder in found {
        let Some(addr) = masters.get(&holder.broker) else {
            let detail = format!("broker '{}' cannot be reached", holder.broker);
            return Err(ApiError::new(Code::BrokerUnavailable, detail));
        };
        let (broker, addr): (Arc<str>, Arc<str>) = (holder.broker.into(), addr.as_str().into());
        let epoch = holder.detail.epoch;
        queues.extend(holder.detail.queues.into_iter().map(|q| QueueView {
            broker: Arc::clone(&broker),
            addr: Arc::clone(&addr),
            id: q.id,
            min: q.min_offset,
            max: q.max_offset,
            earliest_at_ms: q.earliest_at_ms,
            epoch,
        }));
    }
    queues.sort_by(|a, b| (&a.broker, a.id).cmp(&(&b.broker, b.id)));
    let view = TopicView {
        topic: topic.into(),
        queues,
    };
    Ok(Opened { view, without })
}
