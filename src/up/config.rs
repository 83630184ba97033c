//! Settings of `gantry up`: those of its parts, with defaults for one machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use node::AdminListen;
use node::config::{Fault, Settings};
use serde::{Deserialize, Serialize};

/// Short names for keys of the parts.
pub(crate) const ALIASES: &[(&str, &str)] = &[];

/// The parts' settings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UpConfig {
    /// Directory of everything that is kept.
    pub(crate) data: PathBuf,
    namesrv: namesrv::Config,
}

impl Default for UpConfig {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            data: PathBuf::from("./gantry-data"),
            namesrv: namesrv::Config {
                listen: loopback(9876),
                admin_listen: AdminListen::Off,
                ..namesrv::Config::default()
            },
        }
    }
}

impl Settings for UpConfig {
    fn validate(&self) -> Vec<Fault> {
        self.namesrv
            .validate()
            .into_iter()
            .map(|fault| fault.within("namesrv"))
            .collect()
    }
}

impl UpConfig {
    /// The name server's settings.
    pub(crate) fn namesrv(&self) -> namesrv::Config {
        let data = self
            .namesrv
            .data
            .clone()
            .unwrap_or_else(|| self.data.join("namesrv").display().to_string());
        namesrv::Config {
            data: Some(data),
            ..self.namesrv.clone()
        }
    }
}
