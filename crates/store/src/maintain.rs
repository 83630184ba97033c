//! Writes queue files, syncs them now and then, and records how far both the log and the queues
//! are durable.

use crate::StoreError;
use crate::checkpoint::{self, Checkpoint};
use crate::layout::sync_dir;
use crate::queue_ends;
use crate::shared::Shared;
use clock::Monotonic;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Queues are synced at least this often while there is something to sync.
const QUEUE_SYNC: Duration = Duration::from_secs(60);
/// Syncing queues takes at most one part in this many of the time.
const QUEUE_SYNC_SHARE: u32 = 10;
/// Units in memory after which they are written. Not earlier: a start after a crash goes by what
/// was synced, and with many queues each of these writes is small.
pub(crate) const BACKLOG_WRITE: u64 = 1 << 20;
/// Units in memory after which appends are refused.
pub(crate) const BACKLOG_MAX: u64 = 4 << 20;

/// The worker that keeps queue files and the checkpoint.
#[derive(Debug)]
pub(crate) struct Maintainer {
    point: Checkpoint,
    written: bool,
    last_queue_sync: Monotonic,
    last_queue_sync_took: Duration,
}

impl Maintainer {
    pub(crate) fn new(point: Checkpoint) -> Self {
        Maintainer {
            point,
            written: false,
            last_queue_sync: Monotonic::ZERO,
            last_queue_sync_took: Duration::ZERO,
        }
    }

    /// The units of all records before this log position are durable, and a start counts them.
    pub(crate) fn queues_durable(&self) -> u64 {
        self.point.queues
    }

    /// One round; syncs the queues too if that is due or `now`.
    pub(crate) fn step(&mut self, shared: &Shared, now: bool) {
        if shared.poisoned().is_some() {
            return;
        }
        match self.run(shared, now) {
            Ok(()) => shared.queues_full.store(false, Ordering::Release),
            // Space may come back: everything stays in memory and is tried again.
            Err(StoreError::Full) => shared.queues_full.store(true, Ordering::Release),
            Err(error) => shared.poison(&error),
        }
    }

    fn run(&mut self, shared: &Shared, now: bool) -> Result<(), StoreError> {
        let marks = shared.log.marks();
        let flushed = marks.flushed();
        // Units of everything dispatched by now are written out before the queues are synced.
        let queues = marks.dispatched().min(flushed);
        shared.removed.save_if_due(&*shared.disk)?;
        queue_ends::write_if_due(shared)?;
        let time = shared.clock.monotonic();
        let behind = queues.saturating_sub(self.point.queues);
        let passed = time - self.last_queue_sync;
        let due = behind >= shared.options.queue_sync_bytes || (behind > 0 && passed >= QUEUE_SYNC);
        let sync = now || (due && passed >= self.last_queue_sync_took * QUEUE_SYNC_SHARE);
        if sync || shared.queues.backlog() >= BACKLOG_WRITE {
            shared.queues.write_out()?;
        }
        let mut point = Checkpoint {
            flushed,
            store_timestamp_ms: shared.log.last_store_timestamp_ms(&*shared.clock),
            ..self.point
        };
        if sync {
            shared.queues.sync()?;
            point.queues = queues;
            self.last_queue_sync = time;
            self.last_queue_sync_took = shared.clock.monotonic() - time;
        }
        if self.written && point == self.point {
            return Ok(());
        }
        point.number = self.point.number.wrapping_add(1);
        checkpoint::write(&*shared.disk, &shared.layout.file("checkpoint"), point)?;
        if !self.written {
            sync_dir(&*shared.disk, shared.layout.root())?;
            self.written = true;
        }
        self.point = point;
        Ok(())
    }
}
