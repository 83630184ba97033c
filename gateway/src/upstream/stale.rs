//! Counts refusals of brokers whose version of a group is older than the one the gateway knows.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::collections::BTreeSet;

/// Brokers with a counter of their own; the rest counts as `other`.
const BROKERS_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BrokerLabel {
    broker: String,
}

/// `gantry_gateway_stale_config_total{broker}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleConfig {
    pub(crate) refusals: Family<BrokerLabel, Counter>,
    brokers: std::sync::Arc<parking_lot::Mutex<BTreeSet<String>>>,
}

impl StaleConfig {
    /// One refusal.
    pub(super) fn inc(&self, broker: &str) {
        let mut brokers = self.brokers.lock();
        let known = brokers.contains(broker)
            || brokers.len() < BROKERS_MAX && brokers.insert(broker.to_owned());
        drop(brokers);
        let broker = if known { broker } else { "other" }.to_owned();
        self.refusals.get_or_create(&BrokerLabel { broker }).inc();
    }
}

impl super::Upstream {
    /// For the registry of metrics.
    pub(crate) fn stale_config(&self) -> &StaleConfig {
        &self.0.stale
    }
}
