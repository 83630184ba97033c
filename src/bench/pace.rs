//! When to send and what to count: warm-up, measured time, fixed rate.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Monotonic, SystemClock};

use super::args::SendArgs;
use super::cpu;
use super::outcome::Outcome;

/// The timetable, shared by all connections.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    clock: Arc<SystemClock>,
    /// Sending starts.
    start: Monotonic,
    /// Counting starts.
    from: Monotonic,
    /// Counting and sending end.
    until: Monotonic,
    /// Time between two sends of one connection, when the rate is fixed.
    gap: Option<Duration>,
}

impl Pace {
    pub(crate) fn new(args: &SendArgs, connections: usize) -> Self {
        let clock = Arc::new(SystemClock::new());
        let start = clock.monotonic();
        let from = start + args.warmup();
        let gap = args
            .rate
            .map(|rate| Duration::from_secs_f64(connections as f64 / rate));
        Self {
            clock,
            start,
            from,
            until: from + args.duration(),
            gap,
        }
    }

    pub(crate) fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    pub(crate) fn is_over(&self, now: Monotonic) -> bool {
        now >= self.until
    }

    /// Whether an answer that comes now counts.
    pub(crate) fn counts(&self, now: Monotonic) -> bool {
        now >= self.from && now < self.until
    }

    /// When the `n`th message of a connection is due: at once, unless the rate is fixed.
    pub(crate) fn due(&self, n: u64, now: Monotonic) -> Monotonic {
        match self.gap {
            None => now,
            Some(gap) => {
                self.start
                    + Duration::from_nanos(
                        u64::try_from(gap.as_nanos())
                            .unwrap_or(u64::MAX)
                            .saturating_mul(n),
                    )
            }
        }
    }

    /// Sleeps through the measured time and takes both processes' CPU time in it.
    pub(crate) async fn watch(&self, pid: Option<u32>, outcome: &mut Outcome) {
        let server = pid.map(|pid| pid.to_string());
        let read = || {
            (
                server.as_deref().and_then(cpu::of_process),
                cpu::of_process("self"),
            )
        };
        tokio::time::sleep(self.now().until(self.from)).await;
        let (from, before) = (self.now(), read());
        tokio::time::sleep(self.now().until(self.until)).await;
        let after = read();
        let spent = |before: Option<Duration>, after: Option<Duration>| {
            Some(after?.saturating_sub(before?))
        };
        outcome.elapsed = self.now().since(from);
        outcome.server_cpu = spent(before.0, after.0);
        outcome.own_cpu = spent(before.1, after.1);
    }
}
