//! The machine's clocks.

use crate::{Clock, Monotonic};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The machine's wall and monotonic clocks. The monotonic start is the moment of creation.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this crate is where time enters")]
    pub fn new() -> Self {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this crate is where time enters")]
    fn now_ms(&self) -> u64 {
        // A wall clock before 1970 reads as 0.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Monotonic {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Monotonic::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_does_not_go_back_and_wall_is_after_2020() {
        let clock = SystemClock::new();
        let a = clock.monotonic();
        let b = clock.monotonic();
        assert!(b >= a);
        assert!(clock.now_ms() > 1_577_836_800_000);
    }
}
