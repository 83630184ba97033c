//! SubscriptionGroupConfig and the table of them (200, 201, 352, 353).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DataVersion, object};

/// Settings of a consumer group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// Attributes; 4.x has none.
    pub attributes: BTreeMap<String, String>,
    /// Broker id to read from.
    pub broker_id: i64,
    /// May broadcast.
    pub consume_broadcast_enable: bool,
    /// May read.
    pub consume_enable: bool,
    /// May start at the oldest message.
    pub consume_from_min_enable: bool,
    /// Ordered.
    pub consume_message_orderly: bool,
    /// Minutes a message may take.
    pub consume_timeout_minute: i32,
    /// Name.
    pub group_name: String,
    /// Delays between redeliveries.
    pub group_retry_policy: GroupRetryPolicy,
    /// Flags.
    pub group_sys_flag: i32,
    /// Tell members when others join or leave.
    pub notify_consumer_ids_changed_enable: bool,
    /// Redeliveries before a message is dead.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    /// Subscriptions kept by the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data_set: Option<Vec<SimpleSubscription>>,
    /// Broker id to read from when slow.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
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
            group_retry_policy: GroupRetryPolicy::default(),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

impl SubscriptionGroupConfig {
    /// A group with default settings.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group_name: group.into(),
            ..Self::default()
        }
    }
}

/// Delays between redeliveries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupRetryPolicy {
    /// For the kind `CUSTOMIZED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customized_retry_policy: Option<CustomizedRetryPolicy>,
    /// For the kind `EXPONENTIAL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential_retry_policy: Option<ExponentialRetryPolicy>,
    /// `CUSTOMIZED` or `EXPONENTIAL`.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Default for GroupRetryPolicy {
    fn default() -> Self {
        Self {
            customized_retry_policy: None,
            exponential_retry_policy: None,
            kind: "CUSTOMIZED".to_owned(),
        }
    }
}

object! {
    /// A list of delays.
    CustomizedRetryPolicy {
        /// Delays, ms.
        next: Vec<i64>,
    }
}

object! {
    /// Growing delays.
    ExponentialRetryPolicy {
        /// First delay, ms.
        initial: i64,
        /// Longest delay, ms.
        max: i64,
        /// Factor.
        multiplier: i64,
    }
}

object! {
    /// A subscription kept by the broker.
    SimpleSubscription {
        /// Filter.
        expression: String,
        /// `TAG` or `SQL92`.
        expression_type: String,
        /// Topic.
        topic: String,
        /// Version.
        version: i64,
    }
}

object! {
    /// All groups of a broker: answer of 201, and the shape of subscriptionGroup.json.
    GroupConfigTable {
        /// Of the table.
        data_version: DataVersion,
        /// Group, topic, bits.
        forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
        /// By name.
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
    }
}

object! {
    /// Answer of 353.
    GroupForbidden {
        /// Group.
        group: String,
        /// May read.
        readable: bool,
        /// Topic.
        topic: String,
    }
}
