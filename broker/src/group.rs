//! Consumer group configurations, with Gantry's settings and subscriptions in their attributes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::BrokerError;
use crate::names;
use crate::topic::ATTRIBUTE_VERSION;
use crate::version::DataVersion;
use wire::WireError;

/// Attribute that holds Gantry's group settings as JSON.
pub(crate) const ATTRIBUTE_SPEC: &str = "gantry.spec";
/// Attribute that holds the stored subscriptions as a JSON list.
pub(crate) const ATTRIBUTE_SUBSCRIPTIONS: &str = "gantry.subscriptions";
/// Most groups on one broker.
pub(crate) const GROUPS_MAX: usize = 200_000;
/// Most stored subscriptions of one group.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 256;

/// One group, in the JSON shape of RocketMQ 5.4.0 `SubscriptionGroupConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GroupConfig {
    /// Free settings, and Gantry's own under `gantry.`.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Broker to read from.
    pub(crate) broker_id: i64,
    /// Broadcasting members may pull.
    pub(crate) consume_broadcast_enable: bool,
    /// Members may pull or pop at all.
    pub(crate) consume_enable: bool,
    /// Kept for peers.
    pub(crate) consume_from_min_enable: bool,
    /// Queues are popped in order.
    pub(crate) consume_message_orderly: bool,
    /// Kept for peers.
    pub(crate) consume_timeout_minute: i32,
    /// Its name.
    pub(crate) group_name: String,
    /// Retry policy of POP, passed through.
    pub(crate) group_retry_policy: Value,
    /// System bits; passed through.
    pub(crate) group_sys_flag: i32,
    /// Members are told when others come and go.
    pub(crate) notify_consumer_ids_changed_enable: bool,
    /// Deliveries after the first before a message is dead.
    pub(crate) retry_max_times: i32,
    /// Queues of `%RETRY%group`; 0 drops what is sent back.
    pub(crate) retry_queue_nums: i32,
    /// Optional fixed subscriptions, passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscription_data_set: Option<Value>,
    /// Broker to read from when far behind.
    pub(crate) which_broker_when_consume_slowly: i64,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: serde_json::json!({"type": "CUSTOMIZED"}),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

impl GroupConfig {
    /// A group with Apache's defaults.
    pub(crate) fn new(group: &str) -> Self {
        Self {
            group_name: group.to_owned(),
            ..Self::default()
        }
    }

    /// Version for optimistic changes; 1 for a group that only native tools wrote.
    pub(crate) fn version(&self) -> u64 {
        self.attributes
            .get(ATTRIBUTE_VERSION)
            .and_then(|v| v.parse().ok())
            .unwrap_or(1)
    }
}

/// The file `config/subscriptionGroup.json` and the body of code 201.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupFile {
    data_version: DataVersion,
    forbidden_table: Forbidden,
    subscription_group_table: BTreeMap<String, GroupConfig>,
}

/// group → topic → bits of what the group may not do there (RocketMQ 5.4.0 `forbiddenTable`).
type Forbidden = BTreeMap<String, BTreeMap<String, i32>>;
/// The bit of reading.
const FORBIDDEN_READ: i32 = 1 << 2;
/// Most pairs of group and topic with a bit.
const FORBIDDEN_MAX: usize = 100_000;

type Snapshot = HashMap<Arc<str>, Arc<GroupConfig>>;

/// Answer of a change.
#[derive(Clone, Debug)]
pub(crate) struct GroupChange {
    /// The group as it is now.
    pub(crate) config: Arc<GroupConfig>,
    /// False when the table already held exactly this.
    pub(crate) changed: bool,
}

#[derive(Debug)]
struct Inner {
    version: DataVersion,
}

/// All groups of this broker. Readers take a snapshot; writers are serialized.
#[derive(Debug)]
pub(crate) struct GroupTable {
    snapshot: ArcSwap<Snapshot>,
    forbidden: ArcSwap<Forbidden>,
    inner: Mutex<Inner>,
}

impl GroupTable {
    /// A table with the system's groups.
    pub(crate) fn new(now_ms: u64) -> Self {
        let table = Self {
            snapshot: ArcSwap::from_pointee(Snapshot::new()),
            forbidden: ArcSwap::from_pointee(Forbidden::new()),
            inner: Mutex::new(Inner {
                version: DataVersion::new(now_ms),
            }),
        };
        table.add_system_groups();
        table
    }

    fn add_system_groups(&self) {
        let mut next = self.snapshot.load().as_ref().clone();
        for name in names::SYSTEM_GROUPS {
            next.entry(Arc::from(name))
                .or_insert_with(|| Arc::new(GroupConfig::new(name)));
        }
        self.snapshot.store(Arc::new(next));
    }

    /// Replaces the content by that of `subscriptionGroup.json` text in any dialect.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: GroupFile = wire::json::from_slice(json)?;
        let mut inner = self.inner.lock();
        inner.version = file.data_version;
        self.forbidden.store(Arc::new(file.forbidden_table));
        let count = file.subscription_group_table.len();
        let map = file
            .subscription_group_table
            .into_iter()
            .map(|(name, mut config)| {
                config.group_name.clone_from(&name);
                (Arc::from(name), Arc::new(config))
            })
            .collect();
        self.snapshot.store(Arc::new(map));
        drop(inner);
        self.add_system_groups();
        Ok(count)
    }

    /// The text of `subscriptionGroup.json`; compact for the answer to code 201.
    pub(crate) fn to_json(&self, pretty: bool) -> Vec<u8> {
        let inner = self.inner.lock();
        let file = GroupFile {
            data_version: inner.version,
            forbidden_table: self.forbidden.load().as_ref().clone(),
            subscription_group_table: self
                .snapshot
                .load()
                .iter()
                .map(|(name, config)| (name.to_string(), config.as_ref().clone()))
                .collect(),
        };
        if pretty {
            serde_json::to_vec_pretty(&file)
        } else {
            serde_json::to_vec(&file)
        }
        .unwrap_or_default()
    }

    /// The group, if it exists. Cheap: no lock.
    pub(crate) fn get(&self, group: &str) -> Option<Arc<GroupConfig>> {
        self.snapshot.load().get(group).cloned()
    }

    /// Whether the group exists.
    pub(crate) fn contains(&self, group: &str) -> bool {
        self.snapshot.load().contains_key(group)
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.snapshot.load().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Whether an administrator took the group's right to read the topic away. Cheap: no lock.
    pub(crate) fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        let table = self.forbidden.load();
        let bits = table.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| bits & FORBIDDEN_READ != 0)
    }

    /// Takes that right away or gives it back; whether that changed anything.
    ///
    /// # Errors
    /// Too many pairs.
    pub(crate) fn set_forbidden(
        &self,
        group: &str,
        topic: &str,
        forbidden: bool,
        now_ms: u64,
    ) -> Result<bool, BrokerError> {
        let mut inner = self.inner.lock();
        if self.is_forbidden(group, topic) == forbidden {
            return Ok(false);
        }
        let mut table = self.forbidden.load().as_ref().clone();
        if forbidden && table.values().map(BTreeMap::len).sum::<usize>() >= FORBIDDEN_MAX {
            return Err(BrokerError::Full("forbidden"));
        }
        let topics = table.entry(group.to_owned()).or_default();
        let bits = topics.entry(topic.to_owned()).or_default();
        *bits = if forbidden {
            *bits | FORBIDDEN_READ
        } else {
            *bits & !FORBIDDEN_READ
        };
        topics.retain(|_, bits| *bits != 0);
        table.retain(|_, topics| !topics.is_empty());
        inner.version.bump(now_ms);
        self.forbidden.store(Arc::new(table));
        Ok(true)
    }

    /// Number of groups, the system's included.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.load().len()
    }

    /// Creates the group with Apache's defaults unless it exists.
    pub(crate) fn ensure(&self, group: &str, now_ms: u64) -> Option<GroupChange> {
        self.modify(group, now_ms, |known| {
            Some(known.cloned().unwrap_or_else(|| GroupConfig::new(group)))
        })
    }

    /// Changes one group under the table lock: `change` sees what is there and says what shall be.
    /// `None` from `change`, or a full table, leaves everything as it is.
    pub(crate) fn modify(
        &self,
        group: &str,
        now_ms: u64,
        change: impl FnOnce(Option<&GroupConfig>) -> Option<GroupConfig>,
    ) -> Option<GroupChange> {
        let mut inner = self.inner.lock();
        let snapshot = self.snapshot.load_full();
        let known = snapshot.get(group);
        let wanted = change(known.map(Arc::as_ref))?;
        if let Some(known) = known {
            if **known == wanted {
                return Some(GroupChange {
                    config: known.clone(),
                    changed: false,
                });
            }
        } else if snapshot.len() >= GROUPS_MAX {
            return None;
        }
        let config = Arc::new(wanted);
        let mut next = snapshot.as_ref().clone();
        next.insert(Arc::from(group), config.clone());
        inner.version.bump(now_ms);
        self.snapshot.store(Arc::new(next));
        Some(GroupChange {
            config,
            changed: true,
        })
    }

    /// Removes a group; whether it was there.
    pub(crate) fn remove(&self, group: &str, now_ms: u64) -> bool {
        let mut inner = self.inner.lock();
        let mut next = self.snapshot.load().as_ref().clone();
        if next.remove(group).is_none() {
            return false;
        }
        inner.version.bump(now_ms);
        self.snapshot.store(Arc::new(next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_table_has_the_system_groups() {
        let table = GroupTable::new(1);
        assert!(table.contains("TOOLS_CONSUMER"));
        assert!(!table.contains("g"));
    }

    #[test]
    fn the_file_survives_a_round_trip_and_reads_apaches() {
        let table = GroupTable::new(1);
        assert!(table.ensure("g", 2).unwrap().changed);
        assert!(!table.ensure("g", 2).unwrap().changed);
        let again = GroupTable::new(3);
        again.load(&table.to_json(true)).unwrap();
        assert_eq!(again.get("g"), table.get("g"));
        let apache = br#"{"dataVersion":{"counter":14,"stateVersion":0,"timestamp":1795975506600},"forbiddenTable":{},"subscriptionGroupTable":{"J5":{"brokerId":0,"consumeEnable":true,"groupName":"J5","retryMaxTimes":3,"retryQueueNums":1}}}"#;
        again.load(apache).unwrap();
        assert_eq!(again.get("J5").unwrap().retry_max_times, 3);
        assert!(again.contains("TOOLS_CONSUMER"));
        assert!(again.remove("J5", 4));
        assert!(!again.remove("J5", 4));
    }
}
