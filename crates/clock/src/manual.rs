//! A clock that moves only when told to, for tests and simulations.

use crate::{Clock, Monotonic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that moves only when told to. Clones share the same time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    time: Arc<Time>,
}

#[derive(Debug, Default)]
struct Time {
    wall_ms: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    /// A clock at monotonic zero whose wall time is `wall_ms` (milliseconds since 1970).
    #[must_use]
    pub fn new(wall_ms: u64) -> Self {
        let clock = ManualClock::default();
        clock.set_wall(wall_ms);
        clock
    }

    /// Moves both clocks forward by `by` (the wall clock by whole milliseconds).
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.time.monotonic_ns.fetch_add(nanos, Ordering::SeqCst);
        self.time.wall_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, to any value: a jump as NTP or an operator makes it.
    pub fn set_wall(&self, wall_ms: u64) {
        self.time.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.time.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_nanos(self.time.monotonic_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_time_and_a_wall_jump_leaves_monotonic_alone() {
        let clock = ManualClock::new(1_000);
        let other = clock.clone();
        other.advance(Duration::from_millis(250));
        assert_eq!(clock.now_ms(), 1_250);
        assert_eq!(clock.monotonic(), Monotonic::from_millis(250));
        clock.set_wall(10);
        assert_eq!(other.now_ms(), 10);
        assert_eq!(other.monotonic(), Monotonic::from_millis(250));
    }
}
