//! Settling: ack, nack, extend.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Either `receipts` or `items`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"receipts": ["mqr_AQE..."]}))]
pub struct AckRequest {
    /// Receipts; at most the gateway's `receipts_max`, 256 by default, as of `items`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Option<Vec<String>>,
    /// The same one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Option<Vec<AckItem>>,
}

/// One receipt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AckItem {
    /// The receipt.
    pub receipt: String,
}

/// Either `receipts` with shared fields, or `items` with their own.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(example = json!({"receipts": ["mqr_AQE..."], "delay": "5s", "code": "db_timeout", "reason": "pool empty"}))]
pub struct NackRequest {
    /// Receipts; at most the gateway's `receipts_max`, 256 by default, as of `items`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Option<Vec<String>>,
    /// Receipts with their own fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Option<Vec<NackItem>>,
    /// Until the next delivery; the retry policy's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// For programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub code: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub reason: Option<String>,
    /// To the dead letters now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<bool>,
}

/// One receipt and its fields.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NackItem {
    /// The receipt.
    pub receipt: String,
    /// As in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// As in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// As in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<bool>,
}

/// Either `receipts` with a shared `invisibleFor`, or `items` with their own.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(example = json!({"receipts": ["mqr_AQE..."], "invisibleFor": "2m"}))]
pub struct ExtendRequest {
    /// Receipts; at most the gateway's `receipts_max`, 256 by default, as of `items`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Option<Vec<String>>,
    /// Receipts with their own time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Option<Vec<ExtendItem>>,
    /// Counted from now, 1s to 12h; the group's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invisible_for: Option<String>,
}

/// One receipt and its time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendItem {
    /// The receipt.
    pub receipt: String,
    /// As in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invisible_for: Option<String>,
}

/// One result a receipt, in order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettleResponse {
    /// The results.
    pub results: Vec<SettleResult>,
}

/// What became of a receipt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleResult {
    /// The receipt.
    pub receipt: String,
    /// `acked`, `nacked`, `extended`, `deadLettered`, `gone`, `limit`, `invalid`, `forbidden`, `unavailable`.
    pub status: String,
    /// Stable code of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// After the lease had run out, but before the message was put back.
    pub late: bool,
    /// The same had been said before.
    pub already: bool,
    /// Of an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub invisible_until: Option<String>,
    /// Of a nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub next_delivery_at: Option<String>,
}
