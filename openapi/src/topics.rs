//! Topics.

use crate::messages::PartialBroker;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A topic to be made or changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(example = json!({"type": "mixed", "queues": 8, "labels": {"team": "billing"}}))]
pub struct TopicRequest {
    /// `mixed` (default) or `normal`, which takes no message with an ordering key; for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Over all brokers; may grow. Default 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub queues: Option<u32>,
    /// For people and lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub description: Option<String>,
}

/// A topic as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topic {
    /// Name.
    pub name: String,
    /// `mixed`, `normal` …
    pub r#type: String,
    /// Over all brokers.
    pub queues: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Description.
    pub description: String,
    /// Version, as in the header `ETag`, quotes included.
    #[schema(example = "\"3\"")]
    pub etag: String,
    /// Each queue.
    pub queue_list: Vec<TopicQueue>,
    /// Brokers a write did not reach yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Brokers that have queues of it, or may, and could not be asked; null where none, left out after a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Vec<PartialBroker>>,
}

/// A queue of a topic and what it holds.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicQueue {
    /// Broker name.
    pub broker: String,
    /// Number on that broker.
    pub id: i32,
    /// Oldest offset kept.
    pub min_offset: i64,
    /// Next offset to be written.
    pub max_offset: i64,
    /// Store time of the oldest message.
    #[schema(format = DateTime)]
    pub earliest_at: Option<String>,
    /// Store time of the newest message.
    #[schema(format = DateTime)]
    pub latest_at: Option<String>,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
}

/// A page of topics.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicList {
    /// In order of their names.
    pub items: Vec<TopicItem>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
}

/// A topic in a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TopicItem {
    /// Name.
    pub name: String,
    /// Type.
    pub r#type: String,
    /// Over all brokers.
    pub queues: u32,
}

/// A page of the groups that subscribe a topic.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicGroups {
    /// In order of their names.
    pub items: Vec<TopicGroup>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
}

/// How far a group is in a topic.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicGroup {
    /// Name.
    pub name: String,
    /// Not settled yet: ready, in flight and retrying.
    pub lag: i64,
    /// Deliverable now; an upper bound where the subscription has a filter.
    pub ready: i64,
    /// Held by members.
    pub in_flight: i64,
    /// Waiting for a redelivery.
    pub retrying: i64,
    /// Store time of the oldest deliverable message.
    #[schema(format = DateTime)]
    pub oldest_ready_at: Option<String>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// Brokers a deletion did not reach yet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Pending {
    /// Broker names.
    pub pending: Vec<String>,
}
