//! What goes into an append and what comes out of it.

use crate::{PhysicalOffset, QueueOffset};
use wire::message::record::RecordFields;

/// A message to be stored: everything but what the log itself decides (queue offset, physical
/// offset, store time).
///
/// The tag code of the queue entry is derived from the stored record, live and at a rebuild:
/// Java's hash of the property TAGS; in `SCHEDULE_TOPIC_XXXX` the store time plus the delay of the
/// level in the property DELAY.
#[derive(Debug, Clone)]
pub struct MessageDraft<'a> {
    /// The fields of the record.
    pub fields: RecordFields<'a>,
}

impl<'a> From<RecordFields<'a>> for MessageDraft<'a> {
    fn from(fields: RecordFields<'a>) -> Self {
        MessageDraft { fields }
    }
}

/// Where a message was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendOutcome {
    /// First byte of the record in the log.
    pub physical_offset: PhysicalOffset,
    /// Position in its queue; 0 for prepared and rollback types, which take no position.
    pub queue_offset: QueueOffset,
    /// Size of the record in bytes.
    pub wrote_bytes: u32,
    /// Milliseconds since 1970; never goes back within a log.
    pub store_timestamp_ms: i64,
}

impl AppendOutcome {
    /// The log position after the record: durable once `Store::flushed` has reached it.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.physical_offset.plus(u64::from(self.wrote_bytes))
    }
}

/// A message that has just become visible in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Topic of the queue.
    pub topic: &'a str,
    /// Queue within the topic.
    pub queue_id: i32,
    /// Position in the queue.
    pub queue_offset: QueueOffset,
    /// Tag code of the queue entry.
    pub tags_code: i64,
    /// Store timestamp of the record, milliseconds since 1970.
    pub store_timestamp_ms: i64,
}
