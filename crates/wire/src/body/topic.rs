//! TopicConfig and the table of them (17, 21, 103, 351).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DataVersion, object};

/// How tags are written in a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FilterType {
    /// One tag per message.
    #[default]
    #[serde(rename = "SINGLE_TAG")]
    SingleTag,
    /// Several.
    #[serde(rename = "MULTI_TAG")]
    MultiTag,
}

/// Permission bit: readable.
pub const PERM_READ: i32 = 4;
/// Permission bit: writable.
pub const PERM_WRITE: i32 = 2;
/// Permission bit: template of automatic creation.
pub const PERM_INHERIT: i32 = 1;

/// Settings of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// `message.type` and others; 4.x has none.
    pub attributes: BTreeMap<String, String>,
    /// Ordered.
    pub order: bool,
    /// PERM_ bits.
    pub perm: i32,
    /// Queues to read from.
    pub read_queue_nums: i32,
    /// Kind of tags.
    pub topic_filter_type: FilterType,
    /// Name.
    pub topic_name: String,
    /// Flags.
    pub topic_sys_flag: i32,
    /// Queues to write to.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: PERM_READ | PERM_WRITE,
            read_queue_nums: 16,
            topic_filter_type: FilterType::SingleTag,
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic with as many queues to read as to write.
    pub fn new(topic: impl Into<String>, queues: i32, perm: i32) -> Self {
        Self {
            topic_name: topic.into(),
            perm,
            read_queue_nums: queues,
            write_queue_nums: queues,
            ..Self::default()
        }
    }
}

/// Content that is not looked at; written as an empty object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl Serialize for Ignored {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(core::iter::empty::<((), ())>())
    }
}

object! {
    /// All topics of a broker: answer of 21, part of 103, and the shape of topics.json.
    TopicConfigTable {
        /// Of the table.
        data_version: DataVersion,
        /// Of the static-topic mappings.
        #[serde(skip_serializing_if = "Option::is_none")]
        mapping_data_version: Option<DataVersion>,
        /// By name.
        topic_config_table: BTreeMap<String, TopicConfig>,
        /// Static topics; always empty here.
        #[serde(skip_serializing_if = "Option::is_none")]
        topic_queue_mapping_detail_map: Option<BTreeMap<String, Ignored>>,
        /// Static topics; always empty here.
        #[serde(skip_serializing_if = "Option::is_none")]
        topic_queue_mapping_info_map: Option<BTreeMap<String, Ignored>>,
    }
}

impl TopicConfigTable {
    /// The table as 5.x brokers send it, with the empty mapping parts.
    pub fn with_mappings(
        data_version: DataVersion,
        topics: impl IntoIterator<Item = TopicConfig>,
    ) -> Self {
        Self {
            data_version,
            mapping_data_version: Some(DataVersion {
                timestamp: data_version.timestamp,
                ..DataVersion::default()
            }),
            topic_config_table: topics
                .into_iter()
                .map(|t| (t.topic_name.clone(), t))
                .collect(),
            topic_queue_mapping_detail_map: Some(BTreeMap::new()),
            topic_queue_mapping_info_map: Some(BTreeMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_old_and_the_new_table_are_read() {
        let old = r#"{"dataVersion":{"counter":"3","timestamp":1},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":0,"topicName":"T","topicSysFlag":0,"writeQueueNums":"4"}}}"#;
        let table: TopicConfigTable = json::from_slice(old.as_bytes()).unwrap();
        assert_eq!(table.data_version.counter, 3);
        assert_eq!(
            table.topic_config_table.get("T"),
            Some(&TopicConfig::new("T", 4, 6))
        );
        let none: TopicConfigTable =
            json::from_slice(br#"{"dataVersion":null,"topicConfigTable":null}"#).unwrap();
        assert_eq!(none, TopicConfigTable::default());
    }

    #[test]
    fn the_new_table_is_written_as_apache_writes_it() {
        let version = DataVersion {
            counter: 1,
            state_version: 0,
            timestamp: 9,
        };
        let table = TopicConfigTable::with_mappings(version, [TopicConfig::new("T", 4, 6)]);
        assert_eq!(
            String::from_utf8(json::to_vec_apache(&table)).unwrap(),
            r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":9},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":9},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}"#
        );
    }
}
