//! What one connection, and then all of them, have seen.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Answers of the measured time.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Latency of successes, microseconds.
    pub(crate) latency_us: Histogram<u64>,
    /// Failures by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// How long was measured.
    pub(crate) elapsed: Duration,
    /// CPU time of the server's process in that time, if asked for.
    pub(crate) server_cpu: Option<Duration>,
    /// And of the generator itself.
    pub(crate) own_cpu: Option<Duration>,
}

impl Outcome {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // One microsecond to one hour, three digits.
        let latency_us = Histogram::new_with_bounds(1, 3_600_000_000, 3)?;
        Ok(Self {
            latency_us,
            errors: BTreeMap::new(),
            elapsed: Duration::ZERO,
            server_cpu: None,
            own_cpu: None,
        })
    }

    pub(crate) fn success(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_us.saturating_record(us.max(1));
    }

    pub(crate) fn error(&mut self, kind: String) {
        *self.errors.entry(kind).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.latency_us.add(&other.latency_us)?;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        Ok(())
    }
}
