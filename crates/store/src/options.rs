//! How a store is to be opened.

use crate::StoreError;
use std::path::PathBuf;

/// Bytes of the blank record that closes a log file.
pub(crate) const BLANK_BYTES: u64 = 8;

/// When appended bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushPolicy {
    /// The flusher syncs whatever was appended as soon as the previous sync has ended.
    /// Bytes become readable when the flusher has written them, just before the sync.
    Sync,
    /// Appended bytes are readable at once and synced by age or amount.
    Async {
        /// Longest time between two looks, in milliseconds.
        interval_ms: u64,
        /// Fewest dirty pages of 4 KiB worth a sync; ten seconds after the last one any will do.
        pages_min: u32,
    },
}

impl FlushPolicy {
    /// Every 500 ms, 4 pages: the defaults of RocketMQ 5.4.0 `MessageStoreConfig`.
    pub const ASYNC_DEFAULT: FlushPolicy = FlushPolicy::Async {
        interval_ms: 500,
        pages_min: 4,
    };
}

/// Who runs the background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// Named threads of the store.
    Threads,
    /// Nobody: the caller runs `Store::step_*`. For tests that must be repeatable.
    Manual,
}

/// How a store is to be opened. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Data directory; made if absent. If it has no `commitlog/` but `store/commitlog/`, that
    /// inner directory is the store.
    pub root: PathBuf,
    /// Size of a commit-log file in a new directory; an existing directory keeps its own.
    pub segment_size: u64,
    /// Units of 20 bytes in a consume-queue file of a new directory.
    pub queue_file_units: u64,
    /// When appended bytes are made durable.
    pub flush: FlushPolicy,
    /// Largest record (headers included) that is accepted.
    pub record_max_bytes: u64,
    /// Most bytes that may wait for the flusher before appends answer [`StoreError::Busy`].
    pub pending_max_bytes: u64,
    /// Delay of each level from 1 on, in milliseconds, for deliver times of `SCHEDULE_TOPIC_XXXX`.
    pub delay_levels_ms: Vec<u64>,
    /// At start, log files that begin within this distance of the end are checked whole.
    pub verify_at_open_bytes: u64,
    /// How often queue files are written and the flushed position recorded.
    pub checkpoint_interval_ms: u64,
    /// Log bytes after which queue files are synced, so that a start replays little.
    pub queue_sync_bytes: u64,
    /// Pages ahead of the writer that the preparer faults in, in bytes (map writes only).
    pub touch_ahead_bytes: u64,
    /// A log file of an earlier run is no older than its last change: a directory that was copied
    /// here, of this program or of Apache RocketMQ (which goes by that time alone), is kept its time.
    pub age_by_file_time: bool,
    /// Who runs the background work.
    pub workers: Workers,
    /// Answers "flushed" without syncing: the planted fault that the crash check must catch.
    #[cfg(any(test, feature = "sim"))]
    pub lie_about_flush: bool,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// `1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h`,
/// RocketMQ 5.4.0 `MessageStoreConfig.messageDelayLevel`.
pub const DELAY_LEVELS_MS: [u64; 18] = [
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    3 * MINUTE,
    4 * MINUTE,
    5 * MINUTE,
    6 * MINUTE,
    7 * MINUTE,
    8 * MINUTE,
    9 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
];

impl StoreOptions {
    /// Defaults for a data directory: 1 GiB segments, sync flush, worker threads.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        StoreOptions {
            root: root.into(),
            segment_size: 1024 * MIB,
            queue_file_units: 300_000,
            flush: FlushPolicy::Sync,
            record_max_bytes: 4 * MIB + 64 * KIB,
            pending_max_bytes: 64 * MIB,
            delay_levels_ms: DELAY_LEVELS_MS.to_vec(),
            verify_at_open_bytes: 512 * MIB,
            checkpoint_interval_ms: SECOND,
            queue_sync_bytes: 256 * MIB,
            touch_ahead_bytes: 16 * MIB,
            age_by_file_time: false,
            workers: Workers::Threads,
            #[cfg(any(test, feature = "sim"))]
            lie_about_flush: false,
        }
    }

    /// Checks ranges that no store can live with.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] naming the first bad field.
    pub fn validate(&self) -> Result<(), StoreError> {
        if self.segment_size < KIB || self.segment_size > 64 * 1024 * MIB {
            return Err(StoreError::invalid("segment_size must be 1 KiB to 64 GiB"));
        }
        if self.queue_file_units == 0 || self.queue_file_units > 100_000_000 {
            return Err(StoreError::invalid("queue_file_units must be 1 to 10^8"));
        }
        if self.checkpoint_interval_ms == 0 {
            return Err(StoreError::invalid("checkpoint_interval_ms must not be 0"));
        }
        Ok(())
    }

    pub(crate) fn lies_about_flush(&self) -> bool {
        #[cfg(any(test, feature = "sim"))]
        return self.lie_about_flush;
        #[cfg(not(any(test, feature = "sim")))]
        false
    }
}
