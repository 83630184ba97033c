//! Settings of a gateway.

use crate::ws::WsConfig;
use serde::{Deserialize, Serialize};

/// Settings of a gateway process. Sizes are bytes, times milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Address of the HTTP socket.
    pub listen: String,
    /// Name server addresses, separated by commas.
    pub namesrv: String,
    /// Origins of browsers that may call besides the gateway's own, separated by commas.
    pub allow_origin: String,
    /// Whether sends create topics and receives create groups.
    pub auto_create: bool,
    /// Sockets.
    pub ws: WsConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "0.0.0.0:8080".into(),
            namesrv: "127.0.0.1:9876".into(),
            allow_origin: String::new(),
            auto_create: false,
            ws: WsConfig::default(),
        }
    }
}
