//! Groups and their lag.

use crate::messages::{PartialBroker, QueueRef};
use crate::subscriptions::Subscription;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A group to be made or changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(example = json!({"invisibleFor": "30s", "retry": {"maxAttempts": 5, "backoff": {"kind": "list", "delays": ["1s", "10s", "1m"]}}}))]
pub struct GroupRequest {
    /// Lease time, 1s to 12h. Default 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invisible_for: Option<String>,
    /// Leases at a time. Default 20000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 200_000)]
    pub max_in_flight: Option<u32>,
    /// Where new subscriptions begin: `latest` (default), `earliest` or a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_position: Option<String>,
    /// Redelivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetterPolicy>,
    /// `dlq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<String>,
    /// No deliveries while true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// For people and lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub description: Option<String>,
}

/// Redelivery.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// Deliveries in all. Default 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max_attempts: Option<u32>,
    /// Delay before each redelivery after a nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
}

/// Delay before a redelivery.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Backoff {
    /// The n-th delay before the n-th redelivery; the last repeats.
    List {
        /// Durations.
        delays: Vec<String>,
    },
    /// `initial × multiplier^n`, at most `max`.
    Exponential {
        /// First delay.
        initial: String,
        /// Longest delay.
        max: String,
        /// Factor, 1 to 100.
        multiplier: f64,
        /// Random share, 0 to 0.5.
        jitter: f64,
    },
}

/// Dead letters of a group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DeadLetterPolicy {
    /// Off: exhausted messages are dropped and counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How long dead letters outlive their log file, 1h to 3650d. Default 14d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
}

/// A group as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Name.
    pub name: String,
    /// One message a key at a time.
    pub ordered: bool,
    /// Lease time.
    pub invisible_for: String,
    /// Leases at a time.
    pub max_in_flight: u32,
    /// Where new subscriptions begin.
    pub initial_position: String,
    /// Redelivery.
    pub retry: Retry,
    /// Dead letters.
    pub dead_letter: DeadLetterPolicy,
    /// `dlq`.
    pub on_exhausted: String,
    /// No deliveries while true.
    pub paused: bool,
    /// Description.
    pub description: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// What it reads.
    pub subscriptions: Vec<Subscription>,
    /// How far it is; on GET.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<GroupStats>,
    /// Keys that a failed message blocks; on GET, and empty: ordered groups are not built yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_keys: Option<Vec<BlockedKey>>,
    /// Version, as in the header `ETag`, quotes included.
    pub etag: String,
    /// Brokers a write did not reach yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// A key that a failed message blocks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockedKey {
    /// Ordering key.
    pub key: String,
    /// The message.
    pub message_id: String,
    /// Since when.
    #[schema(format = DateTime)]
    pub since: String,
    /// Of its last failure.
    pub code: Option<String>,
}

/// How far a group is, in sums.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStats {
    /// Not settled yet: ready, in flight and retrying.
    pub lag: i64,
    /// Deliverable now.
    pub ready: i64,
    /// Held by members.
    pub in_flight: i64,
    /// Waiting for a redelivery.
    pub retrying: i64,
    /// Open dead letters.
    pub dlq_open: i64,
    /// Age of the oldest deliverable message.
    pub oldest_ready_age: Option<String>,
    /// Messages a second given out in the last minute, redeliveries included.
    pub rate_out: f64,
    /// Brokers these sums are without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A page of groups.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupList {
    /// In order of their names.
    pub items: Vec<GroupItem>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
}

/// A group in a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GroupItem {
    /// Name.
    pub name: String,
}

/// A page of the members of a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberList {
    /// In order of their names.
    pub items: Vec<Member>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
    /// Brokers this answer is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A member of a group that is alive. What the brokers do not know is null.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// `Mq-Client` of a REST caller (`rest` without one), the name of a subscription on a socket, or the id of a
    /// RocketMQ client.
    pub client: String,
    /// API key; null without authentication.
    pub key_id: Option<String>,
    /// `lease` (REST, WebSocket, POP) or `native` (it pulls).
    pub kind: String,
    /// `rest`, `websocket` or `native`.
    pub transport: Option<String>,
    /// Gateway of its last call.
    pub gateway: Option<String>,
    /// When it last asked for messages.
    #[schema(format = DateTime)]
    pub last_receive_at: Option<String>,
    /// Messages it holds; lease members only.
    pub in_flight: Option<u64>,
    /// Of the messages it held, acked a second over the last minute; lease members only.
    pub ack_rate: Option<f64>,
    /// The same, nacked.
    pub err_rate: Option<f64>,
    /// Address of its last call.
    pub ip: Option<String>,
    /// Of a RocketMQ client.
    pub language: Option<String>,
}

/// A page of the messages that members of a group hold.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightList {
    /// By broker, topic, queue and offset.
    pub items: Vec<InFlightItem>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
    /// Brokers this answer is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A message that a member holds.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightItem {
    /// Id of the message.
    pub message_id: Option<String>,
    /// Topic, queue and offset are those of the first store.
    pub topic: String,
    /// Queue.
    pub queue: QueueRef,
    /// Offset there.
    pub offset: i64,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// Who holds it, as in members; null for one without a name.
    pub client: Option<String>,
    /// API key; null without authentication.
    pub key_id: Option<String>,
    /// Null: a lease does not say through which gateway it was given.
    pub gateway: Option<String>,
    /// When it was given.
    #[schema(format = DateTime)]
    pub delivered_at: String,
    /// Nobody else is given it until then.
    #[schema(format = DateTime)]
    pub invisible_until: String,
}

/// Which messages are released.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"selection": {"filter": {"client": "w-1", "olderThan": "5m"}}}))]
pub struct ReleaseRequest {
    /// `all` or `filter`.
    pub selection: ReleaseSelection,
}

/// One of the two.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReleaseSelection {
    /// All that members hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// At least one field; all that are given must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<ReleaseFilter>,
}

/// Which messages in flight.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReleaseFilter {
    /// Of this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// With this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Held by this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Delivered so long ago, or longer; 0s–12h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
}

/// What a release did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReleaseAnswer {
    /// Visible now, the attempt counted.
    pub released: i64,
    /// Settled or put back meanwhile.
    pub gone: i64,
    /// Their broker did not answer: they may be released.
    pub unknown: i64,
    /// There are more: call again.
    pub more: bool,
    /// Brokers that could not be asked; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// How far a group is, queue by queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupLag {
    /// Name.
    pub group: String,
    /// Not settled yet.
    pub lag: i64,
    /// Deliverable now.
    pub ready: i64,
    /// Held by members.
    pub in_flight: i64,
    /// Waiting for a redelivery.
    pub retrying: i64,
    /// Open dead letters.
    pub dlq_open: i64,
    /// Store time of the oldest deliverable message.
    #[schema(format = DateTime)]
    pub oldest_ready_at: Option<String>,
    /// Each queue, retry queues too.
    pub queues: Vec<QueueLag>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueLag {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue: QueueRef,
    /// A queue of the group's retries of that topic.
    pub retry: bool,
    /// Oldest offset kept.
    pub min_offset: i64,
    /// Everything below is settled.
    pub ack_floor: i64,
    /// Next offset to deliver.
    pub next_deliver: i64,
    /// Next offset to be written.
    pub max_offset: i64,
    /// Deliverable; an upper bound where `exact` is false.
    pub ready: i64,
    /// Held by members.
    pub in_flight: i64,
    /// Waiting for a redelivery.
    pub retrying: i64,
    /// Store time of the message at `nextDeliver`; null where all was given out.
    #[schema(format = DateTime)]
    pub oldest_ready_at: Option<String>,
    /// False where a filter leaves some out.
    pub exact: bool,
}
