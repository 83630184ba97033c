//! Settings of sockets.

use node::Millis;
use serde::{Deserialize, Serialize};

/// Settings of the WebSocket door.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WsConfig {
    /// Silence after which a socket is pinged.
    pub idle: Millis,
    /// Silence after a ping that ends the socket.
    pub grace: Millis,
    /// Open sockets of this gateway.
    pub sockets: usize,
    /// Subscriptions on one socket.
    pub subscriptions: usize,
}

impl WsConfig {
    /// What is wrong with these settings, each with its key.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (key, time) in [("ws.idle", self.idle), ("ws.grace", self.grace)] {
            if !(100..=600_000).contains(&time.millis()) {
                faults.push((key, "must be between 100ms and 10m".to_owned()));
            }
        }
        if self.sockets == 0 {
            faults.push(("ws.sockets", "must be at least 1".to_owned()));
        }
        if !(1..=1_000).contains(&self.subscriptions) {
            faults.push(("ws.subscriptions", "must be between 1 and 1000".to_owned()));
        }
        faults
    }
}

impl Default for WsConfig {
    fn default() -> Self {
        Self {
            idle: Millis(25_000),
            grace: Millis(10_000),
            sockets: 20_000,
            subscriptions: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_their_keys() {
        assert!(WsConfig::default().faults().is_empty());
        let bad = WsConfig {
            idle: Millis(0),
            grace: Millis(600_001),
            sockets: 0,
            subscriptions: 1_001,
        };
        let keys: Vec<&str> = bad.faults().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            ["ws.idle", "ws.grace", "ws.sockets", "ws.subscriptions"]
        );
    }
}
