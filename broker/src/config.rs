//! The settings of a broker, and the few of them that may change while it runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use node::config::{Fault, Settings};
use node::{AdminListen, ByteSize, Millis};
use serde::{Deserialize, Serialize};

use crate::names;
use crate::settings::SETTINGS;

/// Longest retention time: ten years.
pub(crate) const RETENTION_MAX_MS: u64 = 3_650 * 86_400_000;
/// Largest message body: what fits a frame with the longest properties, every character of them escaped.
pub(crate) const MESSAGE_MAX_BYTES: u64 = (16 << 20) - (256 << 10);

/// How soon stored messages are on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlushMode {
    /// A send is answered after its bytes were synced.
    #[default]
    Sync,
    /// A send is answered at once; bytes are synced every [`FlushConfig::interval`].
    Async,
}

/// Section `flush`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlushConfig {
    /// `sync` or `async`.
    pub mode: FlushMode,
    /// Longest time between two syncs in mode `async`.
    pub interval: Millis,
}

impl Default for FlushConfig {
    fn default() -> Self {
        Self {
            mode: FlushMode::Sync,
            interval: Millis(500),
        }
    }
}

/// Section `segment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SegmentConfig {
    /// Size of a commit-log file in a new data directory; an existing one keeps its own.
    pub size: ByteSize,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            size: ByteSize::mib(1024),
        }
    }
}

/// Section `retention`: when log files are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Age of its newest message at which a log file goes.
    pub time: Millis,
    /// Hour of the day (UTC) at which files are deleted by age; 24 for any.
    pub hour: u32,
    /// How often age and disk are looked at.
    pub check_interval: Millis,
    /// Full to this percentage, the disk has files deleted by age at any hour.
    pub expired_percent: u32,
    /// Full to this percentage, the disk has the oldest files deleted whatever their age.
    pub clean_percent: u32,
    /// Full to this percentage, the disk has sends refused.
    pub refuse_percent: u32,
    /// While so much is free, the disk is not full, whatever the percentage.
    pub spare: ByteSize,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            time: Millis::secs(72 * 3_600),
            hour: 24,
            check_interval: Millis::secs(10),
            expired_percent: 75,
            clean_percent: 85,
            refuse_percent: 90,
            spare: ByteSize::mib(8 * 1_024),
        }
    }
}

/// Section `limits`: bounds of what clients may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Largest message body.
    pub message_size: ByteSize,
    /// Sends that may wait for the disk at a time.
    pub sends: u32,
    /// Settlements (ack, nack, extend) that may wait for the disk at a time.
    pub acks: u32,
    /// Bytes of leased messages whose pop waits for the disk to have the lease; further pops are refused before they
    /// lease. What is at work when the limit is reached goes beyond it by its own answer, 12 MiB at most.
    pub pop_bytes: ByteSize,
    /// Reads of messages that left the memory at a time.
    pub reads: u32,
    /// Requests that make their topic or group at a time.
    pub create: u32,
    /// Pulls and other requests that may wait for messages at a time.
    pub long_polls: u32,
    /// Administrative requests that may run at a time.
    pub admin: u32,
    /// Client connections.
    pub connections: u32,
    /// Messages this close to the end of the log are taken to be in memory; older ones are read on threads of their own.
    pub hot: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            message_size: ByteSize::mib(4),
            sends: 65_536,
            acks: 65_536,
            pop_bytes: ByteSize::mib(256),
            reads: 32,
            create: 32,
            long_polls: 100_000,
            admin: 64,
            connections: 20_000,
            hot: ByteSize::mib(256),
        }
    }
}

/// Shortest `members.lease_silence` in which a gateway surely announces its open subscriptions again.
const LEASE_SILENCE_SAFE: Millis = Millis::secs(20);

/// Section `members`: how long a silent member keeps its group for its kind. A group has members that lease messages
/// (REST, WebSocket, POP) or members that pull them, never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MembersConfig {
    /// After the last call of a lease member. Below 20 s an open subscription that takes nothing may be gone between two
    /// calls of its gateway, which come every 15 s.
    pub lease_silence: Millis,
    /// After the last heartbeat of a member that pulls.
    pub native_silence: Millis,
}

impl Default for MembersConfig {
    fn default() -> Self {
        Self {
            lease_silence: Millis::secs(60),
            native_silence: Millis::secs(120),
        }
    }
}

/// Section `create`: what comes into being by being used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateConfig {
    /// A first send makes its topic from the template TBW102.
    pub topics: bool,
    /// A first heartbeat or pull makes its group.
    pub groups: bool,
}

impl Default for CreateConfig {
    fn default() -> Self {
        Self {
            topics: true,
            groups: true,
        }
    }
}

/// Settings of one broker. Keys are named the same in file, environment and flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Data directory.
    pub data: PathBuf,
    /// Where clients connect; port 0 picks a free one.
    pub listen: SocketAddr,
    /// What clients are told to connect to: an IPv4 address, with or without a port. Default: the
    /// listen address, or loopback where that is all interfaces.
    pub advertise: Option<String>,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the broker group.
    pub name: String,
    /// 0 leads the group.
    pub id: u32,
    /// Addresses of the name servers.
    pub namesrv: Vec<String>,
    /// How often to register with the name servers when nothing changes.
    pub register_interval: Millis,
    /// How often to look for newer topics and groups at the other masters of the cluster.
    pub level_interval: Millis,
    /// Bits read 4 and write 2: what the routes of all topics allow.
    pub permission: i32,
    /// See [`FlushConfig`].
    pub flush: FlushConfig,
    /// See [`SegmentConfig`].
    pub segment: SegmentConfig,
    /// See [`RetentionConfig`].
    pub retention: RetentionConfig,
    /// See [`LimitsConfig`].
    pub limits: LimitsConfig,
    /// See [`CreateConfig`].
    pub create: CreateConfig,
    /// See [`MembersConfig`].
    pub members: MembersConfig,
    /// `async`: followers are not waited for. The only mode so far.
    pub replication: String,
    /// Second port for producers at listen − 2, as old clients expect. Left out where it is taken.
    pub fast_port: bool,
    /// Where health and metrics are served: beside the listen port unless set.
    pub admin_listen: AdminListen,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("./gantry-data/broker"),
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 10911)),
            advertise: None,
            cluster: "DefaultCluster".to_owned(),
            name: "broker-a".to_owned(),
            id: 0,
            namesrv: Vec::new(),
            register_interval: Millis::secs(30),
            level_interval: Millis::secs(30),
            permission: crate::topic::PERM_READ_WRITE,
            flush: FlushConfig::default(),
            segment: SegmentConfig::default(),
            retention: RetentionConfig::default(),
            limits: LimitsConfig::default(),
            create: CreateConfig::default(),
            members: MembersConfig::default(),
            replication: "async".to_owned(),
            fast_port: true,
            admin_listen: AdminListen::Auto,
        }
    }
}

impl Config {
    /// The address that clients are told, once the port is known.
    ///
    /// # Errors
    /// Text that is no address.
    pub fn advertised(&self, bound: SocketAddr) -> Result<SocketAddr, String> {
        let own = if bound.ip().is_unspecified() {
            IpAddr::from(Ipv4Addr::LOCALHOST)
        } else {
            bound.ip()
        };
        let Some(text) = self
            .advertise
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())
        else {
            return Ok(SocketAddr::new(own, bound.port()));
        };
        if let Ok(addr) = text.parse::<SocketAddr>() {
            let port = if addr.port() == 0 {
                bound.port()
            } else {
                addr.port()
            };
            return Ok(SocketAddr::new(addr.ip(), port));
        }
        let ip: IpAddr = text
            .parse()
            .map_err(|_| format!("{text:?} is no IP address"))?;
        Ok(SocketAddr::new(ip, bound.port()))
    }
}

impl Settings for Config {
    fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut check = |good: bool, key: &str, message: &str| {
            if !good {
                faults.push(Fault::new(key, message));
            }
        };
        check(
            !self.data.as_os_str().is_empty(),
            "data",
            "must name a directory",
        );
        check(
            names::check_topic(&self.cluster).is_ok(),
            "cluster",
            "may hold letters, digits, '_', '-', '%' and '|', at most 127",
        );
        check(
            names::check_topic(&self.name).is_ok(),
            "name",
            "may hold letters, digits, '_', '-', '%' and '|', at most 127",
        );
        check(
            self.id == 0,
            "id",
            "followers are not built yet; only 0 is accepted",
        );
        check(self.namesrv.len() <= 64, "namesrv", "at most 64 addresses");
        check(
            self.namesrv.iter().all(|addr| {
                addr.rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            }),
            "namesrv",
            "each address must be host:port",
        );
        check(
            (1_000..=60_000).contains(&self.register_interval.0),
            "register_interval",
            "must be 1s to 60s",
        );
        check(
            (1_000..=3_600_000).contains(&self.level_interval.0),
            "level_interval",
            "must be 1s to 1h",
        );
        check(
            (1 << 10..=64 << 30).contains(&self.segment.size.0),
            "segment.size",
            "must be 1KiB to 64GiB",
        );
        check(
            (100..=60_000).contains(&self.retention.check_interval.0),
            "retention.check_interval",
            "must be 100ms to 60s",
        );
        check(
            self.limits.connections > 0,
            "limits.connections",
            "must not be 0",
        );
        check(
            (1..=64 << 30).contains(&self.limits.pop_bytes.0),
            "limits.pop_bytes",
            "must be 1B to 64GiB",
        );
        for setting in &SETTINGS {
            let wanted = format!("must be {}", setting.wanted);
            check(setting.fits((setting.started)(self)), setting.ours, &wanted);
        }
        for (key, silence) in [
            ("members.lease_silence", self.members.lease_silence),
            ("members.native_silence", self.members.native_silence),
        ] {
            check(
                (1_000..=3_600_000).contains(&silence.0),
                key,
                "must be 1s to 1h",
            );
        }
        check(
            self.replication == "async",
            "replication",
            "only async is built yet",
        );
        if let Err(why) = self.advertised(self.listen) {
            check(false, "advertise", &why);
        }
        faults
    }
}

impl Config {
    /// What is allowed and unlikely to be meant, as texts for the operator.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let silence = self.members.lease_silence;
        let mut warnings = Vec::new();
        if silence < LEASE_SILENCE_SAFE {
            warnings.push(format!(
                "members.lease_silence is {silence}: gateways announce an open subscription every 15s, so below \
                 {LEASE_SILENCE_SAFE} a consumer that pulls may take over the group of one that takes nothing"
            ));
        }
        if self.namesrv.is_empty() {
            let alone = "namesrv is empty: gateways and clients that ask a name server do not find this broker";
            warnings.push(alone.to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_shorter_than_what_gateways_keep_and_no_name_server_are_warned_of() {
        let mut config = Config::default();
        assert!(config.warnings()[0].starts_with("namesrv is empty"));
        config.namesrv.push("127.0.0.1:9876".to_owned());
        assert_eq!(config.warnings(), Vec::<String>::new());
        config.members.lease_silence = Millis::secs(20);
        assert_eq!(config.warnings(), Vec::<String>::new());
        config.members.lease_silence = Millis::secs(15);
        let warnings = config.warnings();
        assert!(
            warnings[0].contains("members.lease_silence is 15s"),
            "{warnings:?}"
        );
        assert!(config.validate().is_empty());
    }

    #[test]
    fn defaults_are_valid_and_every_fault_is_named() {
        assert!(Config::default().validate().is_empty());
        let bad = Config {
            cluster: "a b".to_owned(),
            id: 3,
            namesrv: vec!["nowhere".to_owned()],
            advertise: Some("my.host".to_owned()),
            ..Config::default()
        };
        let keys: Vec<String> = bad.validate().into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["cluster", "id", "namesrv", "advertise"]);
    }

    #[test]
    fn what_may_change_later_has_the_same_bounds_at_the_start() {
        let faults = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let faults = config.validate().into_iter();
            faults.map(|fault| fault.to_string()).collect::<Vec<_>>()
        };
        let check = |change, key: &str, wanted: &str| {
            let faults = faults(change);
            assert_eq!(faults.len(), 1, "{key}: {faults:?}");
            assert!(
                faults[0].contains(key) && faults[0].contains(wanted),
                "{faults:?}"
            );
        };
        check(|c| c.limits.acks = 0, "limits.acks", "1 to 1000000");
        check(|c| c.limits.reads = 0, "limits.reads", "1 to 512");
        check(|c| c.limits.create = 513, "limits.create", "1 to 512");
        check(|c| c.permission = -1, "permission", "must be a sum");
        check(
            |c| c.flush.interval = Millis(9),
            "flush.interval",
            "10ms to 60s",
        );
        check(|c| c.retention.hour = 25, "retention.hour", "24 for any");
    }

    #[test]
    fn clients_are_told_an_address_they_can_use() {
        let bound: SocketAddr = "0.0.0.0:4000".parse().unwrap();
        let told = |advertise: Option<&str>| {
            let config = Config {
                advertise: advertise.map(str::to_owned),
                ..Config::default()
            };
            config.advertised(bound).unwrap().to_string()
        };
        assert_eq!(told(None), "127.0.0.1:4000");
        assert_eq!(told(Some("10.0.0.7")), "10.0.0.7:4000");
        assert_eq!(told(Some("10.0.0.7:80")), "10.0.0.7:80");
    }
}
