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

impl Default for WsConfig {
    fn default() -> Self {
        Self { idle: Millis(25_000), grace: Millis(10_000), sockets: 20_000, subscriptions: 100 }
    }
}
