//! Looks for messages of a queue that a group wants, from where its delivery stands; bounded work per call.

use bytes::Bytes;
use store::QueueOffset;
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;

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
    /// The queue is one of a retry topic.
    pub(super) retry: bool,
    /// Most messages.
    pub(super) messages: usize,
    /// Most bytes of records; a first one that is larger still counts.
    pub(super) bytes: usize,
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
}

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
                && let Some(attempt) = attempt_if_wanted(&record, retry, filter)
            {
                if !found.matches.is_empty() && found.bytes + record.len() > want.bytes {
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
fn attempt_if_wanted(record: &[u8], retry: bool, filter: &Filter) -> Option<u32> {
    if !retry && matches!(filter, Filter::All) {
        return Some(1);
    }
    let view = RecordView::parse(record).ok()?;
    if retry {
        return Some(
            u32::try_from(view.reconsume_times)
                .unwrap_or(0)
                .saturating_add(1),
        );
    }
    filter.matches(view.tags()).then_some(1)
}
