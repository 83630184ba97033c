//! The tables of the name server: topics, brokers, clusters, liveness. Pure functions with `now`.
//!
//! Rules follow RocketMQ 5.4.0 RouteInfoManager, with these differences, all to the good of clients:
//! a refused registration leaves no trace; a topic that changed is taken even when two changes carry
//! the same data version; a connection that closes late does not remove a broker that has meanwhile
//! registered over another one (apache/rocketmq#11043).

mod closing;
mod permissions;
mod queries;
mod register;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use clock::Monotonic;

pub use queries::{BrokerView, Route};
pub use register::{Refused, Registered};
pub use types::{BrokerAddr, Queues, Registration, Version};

use types::{Broker, Live, TopicEntry};

/// Silence after which a broker that named no limit of its own is dropped.
pub const EXPIRY_DEFAULT: Duration = Duration::from_secs(120);
/// Broker addresses known at a time; one more is refused.
pub const BROKERS_MAX: usize = 10_000;
/// Topics known at a time; further ones are refused.
pub const TOPICS_MAX: usize = 500_000;

/// `write` in a permission.
const PERM_WRITE: i32 = 2;
/// `read` and `write` in a permission.
const PERM_READ_WRITE: i32 = 6;
/// The id of a master.
const MASTER_ID: i64 = 0;

/// What the name server knows. Not persistent: brokers tell it again within 30 s.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// Topic → broker name → queues.
    topics: BTreeMap<String, BTreeMap<String, TopicEntry>>,
    /// Broker name → addresses by id. Never holds a broker without addresses.
    brokers: BTreeMap<String, Broker>,
    /// One entry per registered address.
    live: HashMap<BrokerAddr, Live>,
}

impl RouteTable {
    /// Topics and broker addresses known, for metrics.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.topics.len(), self.live.len())
    }

    /// A sign of life (BROKER_HEARTBEAT 904); unknown brokers are ignored.
    pub fn heartbeat(&mut self, addr: &BrokerAddr, now: Monotonic) {
        if let Some(live) = self.live.get_mut(addr) {
            live.seen = now;
        }
    }

    /// The data version a broker last registered (QUERY_DATA_VERSION 322), which is a sign of life.
    pub fn touch_version(&mut self, addr: &BrokerAddr, now: Monotonic) -> Option<Version> {
        let live = self.live.get_mut(addr)?;
        live.seen = now;
        Some(live.version)
    }
}
