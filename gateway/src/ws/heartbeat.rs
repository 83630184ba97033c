//! When to ping a silent peer and when to give it up, as a pure state.

use std::time::Duration;

use clock::Monotonic;

/// What the time asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    Nothing,
    Ping,
    Dead,
}

/// Pings after `idle` without inbound or without outbound traffic; the peer is dead `grace` after an unanswered ping.
#[derive(Debug)]
pub(super) struct Heartbeat {
    idle: Duration,
    grace: Duration,
    heard_at: Monotonic,
    said_at: Monotonic,
    /// First ping that nothing followed.
    pinged_at: Option<Monotonic>,
}

impl Heartbeat {
    pub(super) fn new(idle: Duration, grace: Duration, now: Monotonic) -> Self {
        Self {
            idle,
            grace,
            heard_at: now,
            said_at: now,
            pinged_at: None,
        }
    }

    /// Any inbound frame came.
    pub(super) fn heard(&mut self, now: Monotonic) {
        self.heard_at = now;
        self.pinged_at = None;
    }

    /// A frame was queued.
    pub(super) fn said(&mut self, now: Monotonic) {
        self.said_at = now;
    }

    pub(super) fn beat(&mut self, now: Monotonic) -> Beat {
        if self.pinged_at.is_some_and(|at| now >= at + self.grace) {
            return Beat::Dead;
        }
        if now < self.next() {
            return Beat::Nothing;
        }
        self.pinged_at.get_or_insert(now);
        self.said_at = now;
        Beat::Ping
    }

    /// When [`Self::beat`] has something to say.
    pub(super) fn next(&self) -> Monotonic {
        let silent = self.said_at + self.idle;
        match self.pinged_at {
            Some(at) => silent.min(at + self.grace),
            None => silent.min(self.heard_at + self.idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_pinged_and_then_dead() {
        let at = Monotonic::from_millis;
        let mut heart = Heartbeat::new(
            Duration::from_millis(25_000),
            Duration::from_millis(10_000),
            at(0),
        );
        assert_eq!(
            (heart.beat(at(24_999)), heart.next()),
            (Beat::Nothing, at(25_000))
        );
        assert_eq!(
            (heart.beat(at(25_000)), heart.next()),
            (Beat::Ping, at(35_000))
        );
        assert_eq!(heart.beat(at(34_999)), Beat::Nothing);
        heart.heard(at(34_999));
        assert_eq!(heart.beat(at(35_000)), Beat::Nothing);
        assert_eq!(
            (heart.beat(at(50_000)), heart.beat(at(60_000))),
            (Beat::Ping, Beat::Dead)
        );
    }

    #[test]
    fn a_server_that_only_listens_still_says_something() {
        let at = Monotonic::from_millis;
        let mut heart =
            Heartbeat::new(Duration::from_millis(100), Duration::from_millis(40), at(0));
        heart.heard(at(90));
        assert_eq!(heart.beat(at(100)), Beat::Ping);
        heart.heard(at(101));
        assert_eq!(
            (heart.beat(at(150)), heart.next()),
            (Beat::Nothing, at(200))
        );
    }
}
