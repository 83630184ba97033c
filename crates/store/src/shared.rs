//! What the handles and workers of one open store share.

use crate::commit_log::CommitLog;
use crate::consume_queue::QueueTable;
use crate::disk::{Disk, DiskLock};
use crate::dispatch::Dispatcher;
use crate::flush::{Flusher, Waiters};
use crate::gate::Gate;
use crate::layout::Layout;
use crate::maintain::Maintainer;
use crate::removed::Removed;
use crate::{Arrival, StoreError, StoreOptions};
use clock::Clock;
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Called for each message that becomes visible.
pub(crate) type Listener = Box<dyn Fn(&Arrival<'_>) + Send + Sync>;

/// What the handles and workers of one open store share. Lock order: lib.rs.
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) layout: Layout,
    pub(crate) log: CommitLog,
    pub(crate) queues: QueueTable,
    pub(crate) removed: Removed,
    pub(crate) waiters: Waiters,
    pub(crate) listeners: RwLock<Vec<Arc<Listener>>>,
    pub(crate) flusher: Mutex<Flusher>,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    pub(crate) maintainer: Mutex<Maintainer>,
    pub(crate) dispatch_gate: Gate,
    pub(crate) maintain_gate: Gate,
    /// Longest time between two syncs under [`crate::FlushPolicy::Async`], in ms.
    pub(crate) flush_interval_ms: AtomicU64,
    /// The file of queue ends could not be written for want of space.
    pub(crate) ends_due: AtomicBool,
    /// Queue files could not be written for want of space.
    pub(crate) queues_full: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Log files are about to be deleted.
    pub(crate) retiring: AtomicBool,
    pub(crate) failure: OnceLock<Arc<str>>,
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

impl Shared {
    /// Records the first failure after which nothing is accepted any more.
    pub(crate) fn poison(&self, error: &StoreError) {
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(next) = cause {
            reason.push_str(": ");
            reason.push_str(&next.to_string());
            cause = next.source();
        }
        self.failure.get_or_init(|| Arc::from(reason));
    }

    /// The failure that poisoned the store.
    pub(crate) fn poisoned(&self) -> Option<StoreError> {
        let reason = Arc::clone(self.failure.get()?);
        Some(StoreError::Poisoned { reason })
    }

    /// Passes `result` on; a failure other than for want of space poisons the store.
    pub(crate) fn survive<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result
            && !matches!(error, StoreError::Full)
        {
            self.poison(error);
        }
        result
    }

    /// Asked under the maintainer lock by whoever changes files without being a worker: `close`
    /// takes that lock between stopping and giving up the directory.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], [`StoreError::Closed`].
    pub(crate) fn usable(&self) -> Result<(), StoreError> {
        match self.poisoned() {
            Some(error) => Err(error),
            None if self.is_stopping() => Err(StoreError::Closed),
            None => Ok(()),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        self.waiters.gate().wake();
        self.dispatch_gate.wake();
        self.maintain_gate.wake();
        self.log.next_file().gate().wake();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.layout.root())
            .field("marks", self.log.marks())
            .finish_non_exhaustive()
    }
}
