//! Consumer group configurations, with Gantry's settings and subscriptions in their attributes.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::WireError;

use crate::error::BrokerError;
use crate::names;
use crate::table::{ATTRIBUTE_MADE, ATTRIBUTE_VERSION, Change, Deletions, Entry, Table};
use crate::version::DataVersion;

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
}

impl Entry for GroupConfig {
    const MAX: usize = GROUPS_MAX;

    fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }

    fn attributes_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.attributes
    }

    /// All but the system's.
    fn is_levelled(&self, name: &str) -> bool {
        !names::is_system_group(name)
    }

    /// All but the version and the time it was made.
    fn content(&self) -> Vec<u8> {
        let mut shared = self.clone();
        shared.attributes.remove(ATTRIBUTE_VERSION);
        shared.attributes.remove(ATTRIBUTE_MADE);
        serde_json::to_vec(&shared).unwrap_or_default()
    }
}

/// The file `config/subscriptionGroup.json` and the body of code 201. Deletions are Gantry's own and only in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupFile {
    data_version: DataVersion,
    forbidden_table: Forbidden,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gantry_deleted: Deletions,
    subscription_group_table: BTreeMap<String, GroupConfig>,
}

/// group → topic → bits of what the group may not do there (RocketMQ 5.4.0 `forbiddenTable`).
type Forbidden = BTreeMap<String, BTreeMap<String, i32>>;
/// The bit of reading.
const FORBIDDEN_READ: i32 = 1 << 2;
/// Most pairs of group and topic with a bit.
const FORBIDDEN_MAX: usize = 100_000;

/// All groups of this broker.
#[derive(Debug)]
pub(crate) struct GroupTable {
    groups: Table<GroupConfig>,
    forbidden: ArcSwap<Forbidden>,
    /// Held by who changes `forbidden`.
    forbidding: Mutex<()>,
}

impl Deref for GroupTable {
    type Target = Table<GroupConfig>;

    fn deref(&self) -> &Self::Target {
        &self.groups
    }
}

impl GroupTable {
    /// A table with the system's groups.
    pub(crate) fn new(now_ms: u64) -> Self {
        let table = Self {
            groups: Table::new(now_ms),
            forbidden: ArcSwap::from_pointee(Forbidden::new()),
            forbidding: Mutex::new(()),
        };
        table.add_system_groups();
        table
    }

    fn add_system_groups(&self) {
        for name in names::SYSTEM_GROUPS {
            self.add_silently(name, GroupConfig::new(name));
        }
    }

    /// Replaces the content by that of `subscriptionGroup.json` text in any dialect.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: GroupFile = wire::json::from_slice(json)?;
        let named = file
            .subscription_group_table
            .into_iter()
            .map(|(name, config)| {
                let group_name = name.clone();
                (
                    name,
                    GroupConfig {
                        group_name,
                        ..config
                    },
                )
            });
        let count = self.fill(file.data_version, named, file.gantry_deleted);
        self.forbidden.store(Arc::new(file.forbidden_table));
        self.add_system_groups();
        Ok(count)
    }

    /// The text of `subscriptionGroup.json`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(&self.file()).unwrap_or_default()
    }

    /// The answer to code 201.
    pub(crate) fn to_answer(&self) -> Vec<u8> {
        let file = GroupFile {
            gantry_deleted: Deletions::new(),
            ..self.file()
        };
        serde_json::to_vec(&file).unwrap_or_default()
    }

    fn file(&self) -> GroupFile {
        let (data_version, subscription_group_table, gantry_deleted) = self.export();
        GroupFile {
            data_version,
            forbidden_table: self.forbidden.load().as_ref().clone(),
            gantry_deleted,
            subscription_group_table,
        }
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
        let _alone = self.forbidding.lock();
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
        self.forbidden.store(Arc::new(table));
        self.touch(now_ms);
        Ok(true)
    }

    /// Creates the group with Apache's defaults unless it exists.
    pub(crate) fn ensure(&self, group: &str, now_ms: u64) -> Option<Change<GroupConfig>> {
        self.modify(group, now_ms, |known| {
            Some(known.cloned().unwrap_or_else(|| GroupConfig::new(group)))
        })
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
        again.load(&table.to_json()).unwrap();
        assert_eq!(again.get("g"), table.get("g"));
        let apache = br#"{"dataVersion":{"counter":14,"stateVersion":0,"timestamp":1795975506600},"forbiddenTable":{},"subscriptionGroupTable":{"J5":{"brokerId":0,"consumeEnable":true,"groupName":"J5","retryMaxTimes":3,"retryQueueNums":1}}}"#;
        again.load(apache).unwrap();
        assert_eq!(again.get("J5").unwrap().retry_max_times, 3);
        assert!(again.contains("TOOLS_CONSUMER"));
        assert!(again.remove("J5", 4, true));
        assert!(!again.remove("J5", 4, true));
        assert!(
            String::from_utf8(again.to_json())
                .unwrap()
                .contains("gantryDeleted")
        );
        assert!(
            !String::from_utf8(again.to_answer())
                .unwrap()
                .contains("gantryDeleted")
        );
    }
}
