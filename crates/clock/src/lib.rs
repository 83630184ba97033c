//! Time for every other crate: wall and monotonic clocks, real and manual.
//!
//! Nothing outside this crate reads the machine's clocks. Leases, waits and timeouts use
//! [`Monotonic`]; the wall clock only dates things and bridges restarts.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod manual;
mod monotonic;
mod system;

pub use manual::ManualClock;
pub use monotonic::Monotonic;
pub use system::SystemClock;

use std::fmt::Debug;

/// Where time comes from. Cheap to call (tens of nanoseconds), callable from any thread.
pub trait Clock: Send + Sync + Debug {
    /// Wall time, milliseconds since 1970-01-01 UTC. May jump either way.
    fn now_ms(&self) -> u64;

    /// Time since an arbitrary start. Never goes back, does not notice wall clock changes.
    fn monotonic(&self) -> Monotonic;
}
