//! Settings of `gantry up`: those of its parts, with defaults for one machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use node::config::{Fault, Settings};
use node::{AdminListen, ByteSize};
use serde::{Deserialize, Serialize};

/// Short names for keys of the parts.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("flush.mode", "broker.flush.mode"),
    ("segment.size", "broker.segment.size"),
    ("http", "gateway.listen"),
    ("database_url", "gateway.database_url"),
    ("allow_origin", "gateway.allow_origin"),
];

/// The parts' settings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UpConfig {
    /// Directory of everything that is kept.
    pub(crate) data: PathBuf,
    namesrv: namesrv::Config,
    broker: broker::Config,
    gateway: gateway::Config,
}

impl Default for UpConfig {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut broker = broker::Config {
            listen: loopback(10911),
            admin_listen: AdminListen::Off,
            ..broker::Config::default()
        };
        broker.segment.size = ByteSize::mib(64);
        Self {
            data: PathBuf::from("./gantry-data"),
            namesrv: namesrv::Config {
                listen: loopback(9876),
                admin_listen: AdminListen::Off,
                ..namesrv::Config::default()
            },
            broker,
            gateway: gateway::Config {
                listen: loopback(8080),
                auth: gateway::Auth::Off,
                auto_create: true,
                admin_listen: AdminListen::Off,
                public_metrics: true,
                ..gateway::Config::default()
            },
        }
    }
}

impl Settings for UpConfig {
    fn validate(&self) -> Vec<Fault> {
        let within = |section: &'static str, faults: Vec<Fault>| {
            faults.into_iter().map(move |fault| fault.within(section))
        };
        let mut faults: Vec<Fault> = within("namesrv", self.namesrv.validate()).collect();
        faults.extend(within("broker", self.broker.validate()));
        faults.extend(within("gateway", self.gateway.validate()));
        if self.data.as_os_str().is_empty() {
            faults.push(Fault::new("data", "must name a directory"));
        }
        faults
    }
}

impl UpConfig {
    /// The name server's settings.
    pub(crate) fn namesrv(&self) -> namesrv::Config {
        let kept = || self.data.join("namesrv").display().to_string();
        let data = self.namesrv.data.clone().unwrap_or_else(kept);
        namesrv::Config {
            data: Some(data),
            ..self.namesrv.clone()
        }
    }

    /// The broker's settings, given where the name server listens.
    pub(crate) fn broker(&self, namesrv: SocketAddr) -> broker::Config {
        let own = self.broker.data != broker::Config::default().data;
        let data = if own {
            self.broker.data.clone()
        } else {
            store_dir(&self.data)
        };
        broker::Config {
            data,
            namesrv: vec![namesrv.to_string()],
            ..self.broker.clone()
        }
    }

    /// The gateway's settings, given where the name server listens.
    pub(crate) fn gateway(&self, namesrv: SocketAddr) -> gateway::Config {
        let own = self.gateway.data != gateway::Config::default().data;
        let data = if own { &self.gateway.data } else { &self.data };
        gateway::Config {
            data: data.clone(),
            namesrv: vec![namesrv.to_string()],
            ..self.gateway.clone()
        }
    }

    /// What a send that was answered survives.
    pub(crate) fn flush_mode(&self) -> broker::FlushMode {
        self.broker.flush.mode
    }
}

/// The messages' place below the data directory: `store`, or the directory itself where it is the
/// store of a stopped Apache RocketMQ broker.
fn store_dir(data: &Path) -> PathBuf {
    if std::fs::metadata(data.join("commitlog")).is_ok_and(|found| found.is_dir()) {
        data.to_owned()
    } else {
        data.join("store")
    }
}
