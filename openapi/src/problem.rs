//! The problem document (RFC 9457) of every refusal.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `application/problem+json`. Some codes add members: `limit`, `actual`, `members`, `counts`, `results`, `etag`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Page about the code, served by the gateway itself.
    #[schema(example = "/errors/topic_not_found")]
    pub r#type: String,
    /// Short title of the code.
    pub title: String,
    /// HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// Stable code; never renamed within /v1.
    #[schema(example = "topic_not_found")]
    pub code: String,
    /// What was wrong in this case and what would be right.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// Id of the request, as in the header `Mq-Request-Id`.
    pub request_id: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// On failed writes: `notApplied`, or `unknown` where it may have happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Seconds to wait, as in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// Which fields were wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One wrong field.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer into the body, `?name` of a parameter, or `header:Name`.
    #[schema(example = "/tagg")]
    pub pointer: String,
    /// Stable code.
    pub code: String,
    /// What is wrong.
    pub detail: String,
}
