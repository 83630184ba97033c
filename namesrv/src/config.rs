//! Settings of a name server.

use std::net::{Ipv4Addr, SocketAddr};

use node::config::{Fault, Settings};
use node::{AdminListen, Millis};
use serde::{Deserialize, Serialize};

/// Settings of a name server; every key is explained in `config/namesrv.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients and brokers connect.
    pub listen: SocketAddr,
    /// Directory of the key-value file; without one the table is lost at the end.
    pub data: Option<String>,
    /// Health and metrics.
    pub admin_listen: AdminListen,
    /// Connections at a time; further ones wait.
    pub connections_max: usize,
    /// How often silent brokers are looked for.
    pub scan_interval: Millis,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9876)),
            data: None,
            admin_listen: AdminListen::Auto,
            connections_max: 20_000,
            scan_interval: Millis::secs(5),
        }
    }
}

impl Settings for Config {
    fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.connections_max == 0 {
            faults.push(Fault::new("connections_max", "must be at least 1"));
        }
        if !(10..=60_000).contains(&self.scan_interval.millis()) {
            faults.push(Fault::new("scan_interval", "must be between 10ms and 1m"));
        }
        if self.data.as_deref() == Some("") {
            faults.push(Fault::new("data", "must name a directory, or be left out"));
        }
        faults
    }
}
