//! The rows of the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Monotonic;

/// Identity of a registered address: the same address may serve two clusters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerAddr {
    /// Cluster name.
    pub cluster: String,
    /// `host:port`.
    pub addr: String,
}

/// How often and when a broker's topic configuration changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    /// Changes so far; compared for equality and, within one registration, for age.
    pub counter: i64,
    /// Epoch of the broker's role (controller mode); 0 elsewhere.
    pub state_version: i64,
    /// When it changed, ms since 1970 by the broker's clock.
    pub timestamp_ms: i64,
}

impl Version {
    /// Whether this one was certainly made before `other`.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.state_version <= other.state_version
            && self.counter < other.counter
            && self.timestamp_ms <= other.timestamp_ms
    }
}

/// Queues of a topic on one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Queues that may be read.
    pub read: i32,
    /// Queues that may be written.
    pub write: i32,
    /// Bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// Bits: 1 unit, 2 has unit subscription.
    pub sys_flag: i32,
}

/// A topic on one broker: what the broker said, and what an operator has laid over its permission
/// (WIPE/ADD_WRITE_PERM) until the broker says something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopicEntry {
    pub(super) said: Queues,
    pub(super) perm_override: Option<i32>,
}

impl TopicEntry {
    pub(super) fn new(said: Queues) -> Self {
        Self {
            said,
            perm_override: None,
        }
    }

    /// What clients are told.
    pub(super) fn effective(&self) -> Queues {
        Queues {
            perm: self.perm_override.unwrap_or(self.said.perm),
            ..self.said
        }
    }
}

/// A broker name: a master and its replicas.
#[derive(Debug, Clone, Default)]
pub(super) struct Broker {
    pub(super) cluster: String,
    /// Id → address; id 0 is the master.
    pub(super) addrs: BTreeMap<i64, String>,
    pub(super) zone: Option<String>,
    pub(super) acting_master: bool,
}

/// One registered address.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) broker_name: String,
    pub(super) seen: Monotonic,
    pub(super) expiry: Duration,
    pub(super) version: Version,
    /// The connection it last registered over; `closed` of another one does not concern it.
    pub(super) connection: u64,
    pub(super) ha_addr: String,
}

/// One REGISTER_BROKER (103).
#[derive(Debug, Clone)]
pub struct Registration {
    /// Cluster and address.
    pub addr: BrokerAddr,
    /// Name shared by a master and its replicas.
    pub broker_name: String,
    /// 0 for a master.
    pub broker_id: i64,
    /// Replication address.
    pub ha_addr: String,
    /// Zone, where brokers have them.
    pub zone: Option<String>,
    /// Silence after which this broker counts as gone.
    pub expiry: Option<Duration>,
    /// Present in the header: whether the lowest replica may stand in for a lost master.
    pub acting_master: Option<bool>,
    /// Version of the topics below.
    pub version: Version,
    /// All topics of the broker, or the one that changed.
    pub topics: Vec<(String, Queues)>,
    /// The broker vouches that `topics` is all it has: others of it are removed. Only Gantry's
    /// brokers say so.
    pub complete: bool,
    /// Id of the connection it came over.
    pub connection: u64,
}
