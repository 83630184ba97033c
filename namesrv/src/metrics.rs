//! Metric names of the name server.

use std::sync::atomic::AtomicI64;

use node::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use wire::RequestCode;

/// Label `request`: the code's name; codes without one share `UNKNOWN`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

/// Counters and gauges named `gantry_namesrv_…`.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamesrvMetrics {
    requests: Family<RequestLabel, Counter>,
    topics: Gauge<i64, AtomicI64>,
    brokers: Gauge<i64, AtomicI64>,
}

impl NamesrvMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.register("namesrv", |registry| {
            registry.register("requests", "Requests by kind", own.requests.clone());
            registry.register(
                "topics",
                "Topics with at least one broker",
                own.topics.clone(),
            );
            registry.register(
                "brokers",
                "Registered broker addresses",
                own.brokers.clone(),
            );
        });
        own
    }

    pub(crate) fn count(&self, code: RequestCode) {
        let request = if matches!(code, RequestCode::Unknown(_)) {
            "UNKNOWN"
        } else {
            code.name()
        };
        self.requests.get_or_create(&RequestLabel { request }).inc();
    }

    pub(crate) fn sizes(&self, topics: usize, brokers: usize) {
        self.topics.set(i64::try_from(topics).unwrap_or(i64::MAX));
        self.brokers.set(i64::try_from(brokers).unwrap_or(i64::MAX));
    }
}
