//! Metric names of the gateway.

use axum::http::Method;
use node::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::time::Duration;

/// Bounded: routes of the table, known methods, statuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

/// Counters named `gantry_gateway_…`.
#[derive(Clone, Debug)]
pub struct GatewayMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Histogram,
    waiters: Gauge,
    sockets: Gauge,
    metadata_up: Gauge,
    /// One-way sends that failed after their 202.
    pub oneway_dropped: Counter,
}

impl GatewayMetrics {
    /// Registers all metrics.
    #[must_use]
    pub fn register(metrics: &Metrics) -> Self {
        let buckets = [
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0, 60.0,
        ];
        let own = Self {
            requests: Family::default(),
            duration: Histogram::new(buckets),
            waiters: Gauge::default(),
            sockets: Gauge::default(),
            metadata_up: Gauge::default(),
            oneway_dropped: Counter::default(),
        };
        metrics.register("gateway", |registry| {
            registry.register(
                "http_requests",
                "Requests by route, method and status",
                own.requests.clone(),
            );
            registry.register_with_unit(
                "http_duration",
                "Time to the response head",
                node::metrics::seconds(),
                own.duration.clone(),
            );
            registry.register(
                "longpoll_waiters",
                "Receives that wait",
                own.waiters.clone(),
            );
            registry.register("ws_connections", "Open WebSockets", own.sockets.clone());
            registry.register(
                "metadata_up",
                "1 while the metadata store answers, else 0",
                own.metadata_up.clone(),
            );
            registry.register(
                "oneway_dropped",
                "One-way sends that failed after their 202",
                own.oneway_dropped.clone(),
            );
        });
        own
    }

    /// Whether the metadata store answered when it was last asked.
    pub fn metadata_up(&self, up: bool) {
        self.metadata_up.set(i64::from(up));
    }

    /// Counts an answered request.
    pub fn request(&self, route: &str, method: &Method, status: u16, took: Duration) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            _ => "other",
        };
        self.requests
            .get_or_create(&RequestLabels {
                route: route.to_owned(),
                method,
                status,
            })
            .inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Sets the gauges that are read elsewhere.
    pub fn observe(&self, waiters: usize, sockets: usize) {
        self.waiters.set(i64::try_from(waiters).unwrap_or(i64::MAX));
        self.sockets.set(i64::try_from(sockets).unwrap_or(i64::MAX));
    }
}
