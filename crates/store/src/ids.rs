//! Offsets that look alike and must never be mixed.

use std::fmt;

macro_rules! offset {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// The first offset.
            pub const ZERO: $name = $name(0);

            /// Wraps a plain number.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                $name(value)
            }

            /// The number of a signed wire value, `None` when it is negative.
            #[must_use]
            pub fn from_wire(value: i64) -> Option<Self> {
                u64::try_from(value).ok().map($name)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The number as the protocol's signed type; saturates at `i64::MAX`.
            #[must_use]
            pub fn to_wire(self) -> i64 {
                i64::try_from(self.0).unwrap_or(i64::MAX)
            }

            /// This offset moved forward by `by`; saturates.
            #[must_use]
            pub const fn plus(self, by: u64) -> Self {
                $name(self.0.saturating_add(by))
            }

            /// How far this offset lies after `earlier`; 0 when it does not.
            #[must_use]
            pub const fn since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                $name(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

offset! {
    /// A position in the commit log, in bytes since the first byte ever written.
    PhysicalOffset
}

offset! {
    /// A position in one queue of one topic, in entries since the first one ever put there.
    QueueOffset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_values_convert_both_ways_and_negatives_are_refused() {
        assert_eq!(QueueOffset::from_wire(-1), None);
        assert_eq!(QueueOffset::from_wire(7), Some(QueueOffset::new(7)));
        assert_eq!(PhysicalOffset::new(u64::MAX).to_wire(), i64::MAX);
        assert_eq!(
            PhysicalOffset::new(5).plus(3).since(PhysicalOffset::new(6)),
            2
        );
    }
}
