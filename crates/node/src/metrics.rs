//! The metric registry of the process, and its text form (OpenMetrics).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};

/// Where each crate registers its metrics under its own prefix. Clones share the registry.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers metrics named `gantry_<process>_…`.
    pub fn register(&self, process: &str, add: impl FnOnce(&mut Registry)) {
        add(self
            .registry
            .lock()
            .sub_registry_with_prefix(format!("gantry_{process}")));
    }

    /// All metrics as OpenMetrics text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        encode(&mut text, &self.registry.lock()).ok();
        text
    }
}

/// Seconds, for `register_with_unit`.
#[must_use]
pub fn seconds() -> Unit {
    Unit::Seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn names_carry_the_process() {
        let metrics = Metrics::new();
        let counter: Counter = Counter::default();
        metrics.register("namesrv", |registry| {
            registry.register("requests", "Requests.", counter.clone())
        });
        counter.inc();
        assert!(
            metrics.text().contains("gantry_namesrv_requests_total 1"),
            "{}",
            metrics.text()
        );
    }
}
