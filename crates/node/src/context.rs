//! The handful of things a server is given besides its settings.

use std::sync::Arc;

use clock::{Clock, SystemClock};

use crate::config::Pinned;
use crate::metrics::Metrics;
use crate::ready::Ready;
use crate::shutdown::Shutdown;

/// Given to each server's `run`. Clones share everything.
#[derive(Debug, Clone)]
pub struct Context {
    /// The only source of time.
    pub clock: Arc<dyn Clock>,
    /// Says when to stop; owns the server's tasks.
    pub shutdown: Shutdown,
    /// Where bound addresses and readiness are told.
    pub ready: Ready,
    /// Where metrics are registered.
    pub metrics: Metrics,
    /// Settings that the environment or a flag sets.
    pub pinned: Pinned,
}

impl Context {
    /// Real time; `ready` prints its lines on stdout.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Arc::new(SystemClock::new()), Ready::printing())
    }

    /// For tests: the given clock, nothing printed.
    #[must_use]
    pub fn quiet(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, Ready::quiet())
    }

    fn with(clock: Arc<dyn Clock>, ready: Ready) -> Self {
        Self {
            clock,
            shutdown: Shutdown::new(),
            ready,
            metrics: Metrics::new(),
            pinned: Pinned::default(),
        }
    }

    /// The same context with a stop that is requested for it alone.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            shutdown: Shutdown::new(),
            ..self.clone()
        }
    }

    /// The same context with a stop of its own: it stops when this one does, or alone before.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            shutdown: self.shutdown.child(),
            ..self.clone()
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}
