//! Sending and receiving.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A message to be sent: exactly one of `json`, `text`, `base64`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(example = json!({"json": {"orderId": 17}, "tag": "created", "keys": ["ord-17"], "properties": {"region": "eu"}}))]
pub struct SendMessageRequest {
    /// Any JSON value; stored and returned byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub json: Option<serde_json::Value>,
    /// UTF-8 text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes in the standard alphabet, padding optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Default by body: application/json, text/plain; charset=utf-8, application/octet-stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub content_type: Option<String>,
    /// What subscriptions filter by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub tag: Option<String>,
    /// What the message can be looked up by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub keys: Vec<String>,
    /// Messages with the same key go to the same queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub ordering_key: Option<String>,
    /// At most 128, 16 KiB in all, 4 KiB a value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// `buffered` or `flushed`; stronger than the broker's policy, never weaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// A fixed queue, for diagnostics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A queue of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueRef {
    /// Broker name.
    #[schema(example = "broker-a")]
    pub broker: String,
    /// Number of the queue on that broker.
    pub id: i32,
}

/// Where and how a message was stored.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendReceipt {
    /// ULID.
    #[schema(example = "01JDV6Q0W8ZK2M4T7B9C1D3E5F")]
    pub message_id: String,
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue: QueueRef,
    /// Offset in the queue.
    pub offset: i64,
    /// Store time.
    #[schema(format = DateTime)]
    pub stored_at: String,
    /// What was reached: `buffered` (page cache), `flushed` (fsynced), `memory`.
    pub durability: String,
    /// Whether the message had been stored before under its key.
    pub duplicate: bool,
}

/// A one-way send: accepted, nothing more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// ULID.
    pub message_id: String,
    /// Always true.
    pub accepted: bool,
}

/// Several messages.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRequest {
    /// The messages; at most the gateway's `batch_max`, 256 by default.
    #[schema(min_items = 1, max_items = 1000)]
    pub messages: Vec<SendMessageRequest>,
    /// All to one queue, all or none.
    #[serde(default)]
    pub atomic: bool,
}

/// What became of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchResponse {
    /// One a message, in order.
    pub results: Vec<BatchResult>,
    /// Stored.
    pub succeeded: u32,
    /// Not stored, or not known.
    pub failed: u32,
}

/// One item: the members of a receipt, or those of a problem.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    /// Position in the batch.
    pub index: u32,
    /// HTTP status of this item.
    pub status: u16,
    /// ULID, where stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Queue, where stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    /// Offset, where stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Stable code, where failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What was wrong, where failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The wrong field, where failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

/// A message handed to a member of a group. The body is in one of `json`, `text`, `base64`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// ULID, or whatever a native client made.
    pub message_id: String,
    /// Settles this delivery, at any gateway.
    #[schema(example = "mqr_AQE...")]
    pub receipt: String,
    /// Topic of the first store.
    pub topic: String,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Ordering key.
    pub ordering_key: Option<String>,
    /// Properties.
    pub properties: BTreeMap<String, String>,
    /// Content type.
    pub content_type: String,
    /// Body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub json: Option<serde_json::Value>,
    /// Body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Bytes of the body.
    pub size: u64,
    /// Queue of the first store.
    pub queue: QueueRef,
    /// Offset of the first store.
    pub offset: i64,
    /// When the producer made it.
    #[schema(format = DateTime)]
    pub born_at: String,
    /// When it was first stored.
    #[schema(format = DateTime)]
    pub stored_at: String,
    /// This delivery.
    #[schema(format = DateTime)]
    pub delivered_at: String,
    /// The first delivery to this group.
    #[schema(format = DateTime)]
    pub first_delivered_at: String,
    /// When it comes back unless settled or extended.
    #[schema(format = DateTime)]
    pub invisible_until: String,
    /// 1 = first delivery.
    #[schema(minimum = 1)]
    pub attempt: u32,
    /// Deliveries in all.
    pub max_attempts: u32,
    /// Of the last nack.
    pub last_error: Option<LastError>,
    /// How often it was taken out of the dead letters.
    pub redrive_count: u32,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// What the last holder said when it gave the message back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LastError {
    /// For programs.
    pub code: Option<String>,
    /// For people.
    pub reason: Option<String>,
    /// When.
    #[schema(format = DateTime)]
    pub at: String,
}

/// Answer of a receive; empty where nothing came within `wait`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReceiveResponse {
    /// At most `max`.
    pub messages: Vec<Message>,
    /// How long was waited.
    #[schema(example = "0ms")]
    pub waited: String,
    /// Call again at once.
    pub more: bool,
    /// The group is paused.
    pub paused: bool,
    /// Ranges that were deleted unread; null where none.
    #[schema(value_type = Option<Vec<Object>>)]
    pub gap: Option<Vec<serde_json::Value>>,
    /// Brokers this answer could not take from; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A message as a reader gets it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadMessage {
    /// ULID, or the id a native client made.
    pub message_id: String,
    /// Topic.
    pub topic: String,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Ordering key.
    pub ordering_key: Option<String>,
    /// Properties of the user.
    pub properties: std::collections::BTreeMap<String, String>,
    /// Content type of the body.
    pub content_type: String,
    /// Body, where it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<serde_json::Value>,
    /// Body, where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Body, else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Bytes of the body.
    pub size: u64,
    /// Where it lies.
    pub queue: QueueRef,
    /// Offset in that queue.
    pub offset: u64,
    /// When the producer made it.
    pub born_at: String,
    /// When it was stored.
    pub stored_at: String,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Answer of a browse.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrowseAnswer {
    /// At most `limit`, fewer where the bodies pass 4 MiB.
    pub items: Vec<ReadMessage>,
    /// Give it as `from` to go on, at any gateway.
    pub cursor: String,
    /// Nothing more was there; false: ask again at once.
    pub caught_up: bool,
    /// Messages examined.
    pub scanned: u64,
    /// Messages that retention deleted after this place; null where none.
    pub gap: Option<BrowseGap>,
}

/// Answer of a peek.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PeekAnswer {
    /// In the order of their first store.
    pub items: Vec<PeekedMessage>,
    /// There is more than was asked for.
    pub more: bool,
    /// The group is paused: nothing is given at present.
    pub paused: bool,
    /// Brokers that could not be looked at; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A message that would be delivered next.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeekedMessage {
    /// As a reader gets it.
    #[serde(flatten)]
    pub message: ReadMessage,
    /// The delivery it would be; 1 = the first.
    pub attempt: u32,
    /// What the last holder said when it gave the message back; null where nobody did.
    #[schema(value_type = Option<Object>)]
    pub last_error: Option<serde_json::Value>,
}

/// What a reader can no longer get.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BrowseGap {
    /// `retention`.
    pub reason: String,
    /// Messages, whatever the filter.
    pub skipped: u64,
}

/// A broker an answer could not take from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PartialBroker {
    /// Broker name.
    pub broker: String,
    /// `unreachable` or `stale_config`.
    pub reason: String,
}
