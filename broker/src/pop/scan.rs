//! Looks for messages of a queue that a group wants, from where its delivery stands; bounded work per call.

use bytes::Bytes;
use store::QueueOffset;
use wire::message::properties::names as property;
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;
use crate::read;

use super::put_back::first_topic;

/// Queue entries read at a time.
const CHUNK: usize = 128;
/// Queue entries one pop looks at before it makes way; it continues at once.
pub(super) const BUDGET: usize = 4_096;

/// A message the group wants.
#[derive(Debug)]
pub(super) struct Match {
    /// Its place in the queue.
    pub(super) offset: u64,
    /// 1 for the first delivery.
    pub(super) attempt: u32,
    /// The stored record.
    pub(super) record: Bytes,
}

/// What is wanted of a queue, and bounds of one scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want<'a> {
    /// Which messages; not asked for retries, which passed it once.
    pub(super) filter: &'a Filter,
    /// The group that reads.
    pub(super) group: &'a str,
    /// The queue is one of a retry topic.
    pub(super) retry: bool,
    /// What the thread may do.
    pub(super) reach: Reach,
    /// Most messages.
    pub(super) messages: usize,
    /// Most bytes of records.
    pub(super) bytes: usize,
    /// Nothing was found elsewhere: a first record that is larger still counts.
    pub(super) is_first: bool,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In queue order.
    pub(super) matches: Vec<Match>,
    /// Bytes of their records.
    pub(super) bytes: usize,
    /// Everything below was looked at: given out or of no concern.
    pub(super) next: u64,
    /// The budget ended the scan, not the queue or the bounds.
    pub(super) exhausted: bool,
    /// What comes next may have to be read from the disk, which this thread must not wait for.
    pub(super) cold: bool,
}

/// What the thread that scans may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// A tokio worker: only what is in memory.
    Memory,
    /// A blocking thread: anything.
    Disk,
}

/// Entries behind the end of a queue from which on the queue file itself is taken to be out of memory.
const HOT_ENTRIES: u64 = 100_000;

/// Scans from `from` on; takes what it looks at out of `budget`.
///
/// # Errors
/// The store's.
pub(super) fn scan(
    broker: &Broker,
    topic: &str,
    queue_id: i32,
    from: u64,
    want: Want<'_>,
    budget: &mut usize,
) -> Result<Found, BrokerError> {
    let Want { filter, retry, .. } = want;
    if want.reach == Reach::Memory && is_cold(broker, topic, queue_id, from) {
        return Ok(Found {
            next: from,
            cold: true,
            ..Found::default()
        });
    }
    let mut found = Found {
        next: from,
        ..Found::default()
    };
    while found.matches.len() < want.messages {
        if *budget == 0 {
            found.exhausted = true;
            break;
        }
        let all = retry || matches!(filter, Filter::All);
        let chunk = CHUNK.min(*budget).min(if all {
            want.messages - found.matches.len()
        } else {
            CHUNK
        });
        let entries = broker
            .store
            .entries(topic, queue_id, QueueOffset::new(found.next), chunk)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            let offset = entry.queue_offset.get();
            *budget -= 1;
            if (retry || filter.may_match(entry.tags_code))
                && let Some(record) = broker.store.record(entry.physical_offset, entry.size)?
                && let Some(attempt) = attempt_if_wanted(broker, topic, &want, &record)
            {
                let may_exceed = want.is_first && found.matches.is_empty();
                if !may_exceed && found.bytes + record.len() > want.bytes {
                    return Ok(found);
                }
                found.bytes += record.len();
                found.matches.push(Match {
                    offset,
                    attempt,
                    record,
                });
            }
            found.next = offset + 1;
            if found.matches.len() >= want.messages || found.bytes >= want.bytes {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// The attempt this delivery would be, if the message is wanted by its tag's text, not only by its hash.
fn attempt_if_wanted(broker: &Broker, topic: &str, want: &Want<'_>, record: &[u8]) -> Option<u32> {
    let Want { filter, retry, .. } = *want;
    if !retry && matches!(filter, Filter::All) {
        return Some(1);
    }
    let view = RecordView::parse(record).ok()?;
    if retry {
        if is_void(broker, want.group, topic, &view) {
            return None;
        }
        return Some(
            u32::try_from(view.reconsume_times)
                .unwrap_or(0)
                .saturating_add(1),
        );
    }
    filter.matches(view.tags()).then_some(1)
}

/// Whether a retry was voided by a seek of the queue that its message came from.
pub(super) fn is_void(broker: &Broker, group: &str, topic: &str, retry: &RecordView<'_>) -> bool {
    let Some(queue_id) = retry
        .property(property::ORIGIN)
        .and_then(|origin| origin.split(' ').next())
        .and_then(|queue_id| queue_id.parse().ok())
    else {
        return false;
    };
    let first = first_topic(group, topic, retry);
    let Some(slot) = broker.pop.table.get(group, first, queue_id) else {
        return false;
    };
    u64::try_from(retry.physical_offset).is_ok_and(|position| slot.voids(position))
}

fn is_cold(broker: &Broker, topic: &str, queue_id: i32, from: u64) -> bool {
    let end = broker.store.queue(topic, queue_id).max.get();
    if from >= end {
        return false;
    }
    let Ok(offset) = i64::try_from(from) else {
        return false;
    };
    end - from > HOT_ENTRIES
        || read::is_cold(
            &broker.store,
            topic,
            queue_id,
            offset,
            broker.config.limits.hot.0,
        )
}
