//! How many sockets are open, and how many may be.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound on open sockets; clones share it.
#[derive(Debug, Clone)]
pub struct Sockets {
    permits: Arc<Semaphore>,
    max: usize,
}

impl Sockets {
    /// At most `max` sockets.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(max)),
            max,
        }
    }

    /// A place for one more, given back when dropped; none where the gateway is full.
    pub(super) fn open(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Sockets open now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.max - self.permits.available_permits()
    }
}
