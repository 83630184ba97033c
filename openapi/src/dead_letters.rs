//! Dead letters.

use crate::messages::{PartialBroker, QueueRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Dead letters of a group in sums.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSummary {
    /// Not dealt with yet.
    pub open: i64,
    /// When the oldest died.
    #[schema(format = DateTime)]
    pub oldest_at: Option<String>,
    /// Bytes of all; null: not known yet.
    pub bytes: Option<u64>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
}

/// A page of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterList {
    /// Oldest first within a queue.
    pub items: Vec<DeadLetter>,
    /// Brokers this is without; null where none.
    pub partial: Option<Vec<PartialBroker>>,
    /// Goes on here; null at the end.
    pub next_page_token: Option<String>,
}

/// One dead letter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Id of the dead letter.
    #[schema(example = "mqd_01JDV6Q0W8ZK2M4T7B9C1D3E5F.0")]
    pub dlq_id: String,
    /// Id of the message.
    pub message_id: String,
    /// Topic of the first store.
    pub topic: String,
    /// Queue of the first store.
    pub orig_queue: QueueRef,
    /// Offset of the first store.
    pub orig_offset: i64,
    /// Deliveries made.
    pub attempts: u32,
    /// The first delivery.
    #[schema(format = DateTime)]
    pub first_delivered_at: Option<String>,
    /// When it died.
    #[schema(format = DateTime)]
    pub dead_at: String,
    /// `maxAttempts`, `rejected`, `expired` or `manual`.
    pub cause: String,
    /// Of the last nack.
    pub code: Option<String>,
    /// Of the last nack.
    pub reason: Option<String>,
    /// The member that held it last; null: not known yet.
    pub client: Option<String>,
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
    /// Bytes of the body.
    pub size: u64,
    /// The first 256 characters of a body that is text.
    pub preview: Option<String>,
    /// `open`.
    pub status: String,
    /// Who dealt with it; null while open.
    #[schema(value_type = Option<Object>)]
    pub resolution: Option<serde_json::Value>,
    /// How often it was taken out.
    pub redrive_count: u32,
}
