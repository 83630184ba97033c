//! How far the log has got, stage by stage.

use std::sync::atomic::{AtomicU64, Ordering};

/// Positions in the log, in bytes; each only grows.
///
/// ```text
/// dispatched <= written <= appended        flushed <= written
/// ```
/// `appended`: offsets are given out. `written`: readable, in the page cache. `flushed`: survived
/// a sync. `dispatched`: visible in the consume queues.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    appended: AtomicU64,
    written: AtomicU64,
    flushed: AtomicU64,
    dispatched: AtomicU64,
}

impl Watermarks {
    /// All four at `at`.
    pub(crate) fn at(at: u64) -> Self {
        Watermarks {
            appended: AtomicU64::new(at),
            written: AtomicU64::new(at),
            flushed: AtomicU64::new(at),
            dispatched: AtomicU64::new(at),
        }
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    pub(crate) fn dispatched(&self) -> u64 {
        self.dispatched.load(Ordering::Acquire)
    }

    pub(crate) fn raise_appended(&self, to: u64) {
        self.appended.fetch_max(to, Ordering::Release);
    }

    pub(crate) fn raise_written(&self, to: u64) {
        self.written.fetch_max(to, Ordering::Release);
    }

    pub(crate) fn raise_flushed(&self, to: u64) {
        debug_assert!(to <= self.written());
        self.flushed.fetch_max(to, Ordering::Release);
    }

    pub(crate) fn raise_dispatched(&self, to: u64) {
        debug_assert!(to <= self.written());
        self.dispatched.fetch_max(to, Ordering::Release);
    }
}
