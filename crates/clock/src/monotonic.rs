//! A point in monotonic time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in monotonic time, nanoseconds since the clock was made (about the process start).
///
/// Points of different clocks must not be compared. All arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The first point of a clock.
    pub const ZERO: Monotonic = Monotonic(0);
    /// A point that never comes: "no deadline".
    pub const MAX: Monotonic = Monotonic(u64::MAX);

    /// The point `nanos` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Monotonic(nanos)
    }

    /// The point `millis` milliseconds after the clock's start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Monotonic(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock's start.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time from `earlier` to this point, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time until `later`, zero when it has passed.
    #[must_use]
    pub const fn until(self, later: Monotonic) -> Duration {
        later.since(self)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;

    fn add(self, rhs: Duration) -> Monotonic {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Monotonic(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Monotonic;

    fn sub(self, rhs: Duration) -> Monotonic {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Monotonic(self.0.saturating_sub(nanos))
    }
}

impl Sub for Monotonic {
    type Output = Duration;

    /// Same as [`Monotonic::since`].
    fn sub(self, rhs: Monotonic) -> Duration {
        self.since(rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let p = Monotonic::from_millis(5);
        assert_eq!(p + Duration::from_millis(7), Monotonic::from_millis(12));
        assert_eq!(p - Duration::from_secs(1), Monotonic::ZERO);
        assert_eq!(Monotonic::ZERO - p, Duration::ZERO);
        assert_eq!(p - Monotonic::ZERO, Duration::from_millis(5));
        assert_eq!(Monotonic::MAX + Duration::MAX, Monotonic::MAX);
        assert_eq!(Monotonic::ZERO.until(p), Duration::from_millis(5));
        assert_eq!(p.as_millis(), 5);
    }
}
