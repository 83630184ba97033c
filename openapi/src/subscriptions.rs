//! Subscriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A subscription to be made or changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(example = json!({"filter": {"kind": "tag", "expression": "created||paid"}, "initialPosition": "earliest"}))]
pub struct SubscriptionRequest {
    /// Which messages. Default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// `earliest`, `latest` or a time; the group's where absent. Fixed by the PUT that makes the subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_position: Option<String>,
}

/// Which messages of a topic.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Filter {
    /// `all` or `tag`.
    pub kind: String,
    /// Tags joined by `||`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
}

/// A subscription as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Topic.
    pub topic: String,
    /// Which messages.
    pub filter: Filter,
    /// Where it began; null = the group's.
    pub initial_position: Option<String>,
    /// Version, as in the header `ETag`, quotes included.
    pub etag: String,
}
