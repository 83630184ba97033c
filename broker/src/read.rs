//! Reads a run of messages from one queue, with the statuses that a pull answers.

use bytes::Bytes;
use store::{PhysicalOffset, QueueOffset, Store, StoreError};

use crate::filter::Filter;

/// Most queue entries looked at in one read.
pub(crate) const SCAN_MAX: usize = 800;
/// Entries fetched at a time.
const CHUNK: usize = 64;

/// How a read ended (RocketMQ 5.4.0 `GetMessageStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStatus {
    /// There are records.
    Found,
    /// Entries were looked at, none matched.
    NoMatchedMessage,
    /// Entries exist, their log file does not any more.
    MessageWasRemoving,
    /// The offset is the end of the queue.
    OffsetOverflowOne,
    /// The offset is beyond the end.
    OffsetOverflowBadly,
    /// The offset is below the first message.
    OffsetTooSmall,
    /// The queue never had a message.
    NoMessageInQueue,
    /// An administrator moved the group's offset.
    OffsetReset,
}

impl ReadStatus {
    /// The name that native clients see as remark.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
            Self::OffsetReset => "OFFSET_RESET",
        }
    }
}

/// What a read gave.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    /// How it ended.
    pub(crate) status: ReadStatus,
    /// Where the next read begins.
    pub(crate) next: i64,
    /// First offset of the queue.
    pub(crate) min: i64,
    /// One past the last offset.
    pub(crate) max: i64,
    /// Whole records as stored, in queue order.
    pub(crate) records: Vec<Bytes>,
    /// Their size in bytes.
    pub(crate) bytes: usize,
    /// Matching entries passed over whose messages are gone.
    pub(crate) removed: u64,
}

/// Bounds of one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// Most records.
    pub(crate) records: usize,
    /// Most bytes; a first record that is larger is still given.
    pub(crate) bytes: usize,
    /// Most entries looked at, at least 1; without a filter as many as `records` are looked at in any case.
    pub(crate) scan: usize,
}

/// Reads from `offset` on.
///
/// # Errors
/// The store's.
pub(crate) fn read(
    store: &Store,
    topic: &str,
    queue_id: i32,
    offset: i64,
    limits: ReadLimits,
    filter: &Filter,
) -> Result<ReadOutcome, StoreError> {
    let range = store.queue(topic, queue_id);
    let (min, max) = (range.min.to_wire(), range.max.to_wire());
    let empty = |status, next| ReadOutcome {
        status,
        next,
        min,
        max,
        records: Vec::new(),
        bytes: 0,
        removed: 0,
    };
    if max == 0 {
        return Ok(empty(ReadStatus::NoMessageInQueue, 0));
    }
    if offset < min {
        return Ok(empty(ReadStatus::OffsetTooSmall, min));
    }
    if offset == max {
        return Ok(empty(ReadStatus::OffsetOverflowOne, offset));
    }
    let Some(start) = QueueOffset::from_wire(offset).filter(|_| offset < max) else {
        return Ok(empty(ReadStatus::OffsetOverflowBadly, max));
    };
    let mut out = empty(ReadStatus::NoMatchedMessage, offset);
    let mut at = start;
    let mut scanned = 0;
    let scan_max = limits.scan.max(match filter {
        Filter::All => limits.records,
        Filter::Tags { .. } => 1,
    });
    'scan: while scanned < scan_max {
        let want = CHUNK.min(scan_max - scanned).min(match filter {
            Filter::All => limits.records - out.records.len(),
            Filter::Tags { .. } => CHUNK,
        });
        let entries = store.entries(topic, queue_id, at, want)?;
        if entries.is_empty() {
            // What is left of the queue, if anything, points at messages that are gone.
            at = at.max(range.max);
            break;
        }
        for entry in entries {
            scanned += 1;
            if filter.may_match(entry.tags_code) {
                let size = entry.size as usize;
                if !out.records.is_empty() && out.bytes + size > limits.bytes {
                    break 'scan;
                }
                match store.record(entry.physical_offset, entry.size)? {
                    Some(record) => {
                        out.bytes += record.len();
                        out.records.push(record);
                    }
                    None if out.records.is_empty() => {
                        out.removed += 1;
                        out.status = ReadStatus::MessageWasRemoving;
                    }
                    None => break 'scan,
                }
            }
            at = entry.queue_offset.plus(1);
            if out.records.len() >= limits.records || out.bytes >= limits.bytes {
                break 'scan;
            }
        }
    }
    out.next = at.to_wire();
    // Messages that came while this read ran may be among those it found.
    out.max = out.max.max(out.next);
    if !out.records.is_empty() {
        out.status = ReadStatus::Found;
    }
    Ok(out)
}

/// Whether the message at `offset` is so far behind that reading it may have to wait for the disk.
pub(crate) fn is_cold(
    store: &Store,
    topic: &str,
    queue_id: i32,
    offset: i64,
    hot_bytes: u64,
) -> bool {
    let Some(start) = QueueOffset::from_wire(offset) else {
        return false;
    };
    let behind = |at: PhysicalOffset| store.written().since(at);
    match store.entries(topic, queue_id, start, 1) {
        Ok(entries) => entries
            .first()
            .is_some_and(|entry| behind(entry.physical_offset) > hot_bytes),
        Err(_) => false,
    }
}
