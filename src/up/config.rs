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

    /// The parts keep their files in the one directory and find each other by themselves.
    fn derive(&mut self) {
        if self.namesrv.data.is_none() {
            self.namesrv.data = Some(self.data.join("namesrv").display().to_string());
        }
        if self.broker.data == broker::Config::default().data {
            self.broker.data = store_dir(&self.data);
        }
        if self.gateway.data == gateway::Config::default().data {
            self.gateway.data.clone_from(&self.data);
        }
        self.gateway.only_gateway = true;
        let namesrv = vec![self.namesrv.listen.to_string()];
        self.broker.namesrv.clone_from(&namesrv);
        self.gateway.namesrv = namesrv;
    }
}

impl UpConfig {
    /// The name server's settings.
    pub(crate) fn namesrv(&self) -> namesrv::Config {
        self.namesrv.clone()
    }

    /// The broker's settings, given where the name server listens.
    pub(crate) fn broker(&self, namesrv: SocketAddr) -> broker::Config {
        broker::Config {
            namesrv: vec![namesrv.to_string()],
            ..self.broker.clone()
        }
    }

    /// The gateway's settings, given where the name server listens.
    pub(crate) fn gateway(&self, namesrv: SocketAddr) -> gateway::Config {
        gateway::Config {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_is_used() {
        let mut config = UpConfig {
            data: PathBuf::from("d"),
            ..UpConfig::default()
        };
        config.namesrv.listen.set_port(1);
        config.derive();
        assert_eq!(config.namesrv().data.as_deref(), Some("d/namesrv"));
        assert_eq!(config.broker.data, Path::new("d/store"));
        assert_eq!(config.gateway.data, Path::new("d"));
        assert_eq!(config.broker.namesrv, ["127.0.0.1:1"]);
        assert_eq!(config.gateway.namesrv, ["127.0.0.1:1"]);
    }
}
