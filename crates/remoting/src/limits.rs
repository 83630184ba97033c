//! The bounds of one connection, with the values used unless a caller sets others.

use std::time::Duration;

/// Bounds of one connection.
#[derive(Debug, Clone)]
pub struct Limits {
    /// No byte read or written for this long closes the connection. 120 s on servers, as Apache
    /// RocketMQ's; 100 s on clients, so that the side that can tell "not sent" closes first.
    pub idle: Duration,
    /// A frame whose first byte has come must be complete within this time.
    pub frame: Duration,
    /// Bytes are waiting and the peer has taken none for this long: it is closed.
    pub write_stall: Duration,
    /// Bytes that may wait for the peer to read them; one more frame closes the connection.
    pub outbound_max_bytes: usize,
    /// Over this many waiting bytes no further requests are read.
    pub outbound_pause_bytes: usize,
    /// Unanswered requests of the peer (long polls are such); at this number reading pauses.
    pub unanswered_max: usize,
    /// Incomplete frames over 256 KiB, of all connections of a server or client together; the frame
    /// that goes over it closes its connection.
    pub partial_max_bytes: usize,
    /// Own requests waiting for an answer of the peer; one more is refused.
    pub in_flight_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(120),
            frame: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            outbound_max_bytes: 64 << 20,
            outbound_pause_bytes: 1 << 20,
            unanswered_max: 65_536,
            partial_max_bytes: 512 << 20,
            in_flight_max: 65_536,
        }
    }
}

impl Limits {
    /// How often a connection looks at its clocks: a quarter of the shortest limit, at most 5 s.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.idle.min(self.frame).min(self.write_stall);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
}
