//! `ApiError`: every refusal of the API, its stable code, HTTP status and problem document (RFC 9457).

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::borrow::Cow;

/// Whether a failed write took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was changed.
    NotApplied,
    /// It may have happened.
    Unknown,
}

impl Outcome {
    /// The text of the member `outcome`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotApplied => "notApplied",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! codes {
    ($( $name:ident $status:literal $text:literal $title:literal $retryable:literal; )*) => {
        /// The stable error codes. Never renamed within `/v1`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $( #[doc = $title] $name, )* }
        impl Code {
            /// Every code, in the order of the HTTP statuses.
            pub const ALL: &'static [Code] = &[ $( Code::$name, )* ];
            /// The text of the member `code`.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $( Code::$name => $text, )* } }
            /// The HTTP status as a number.
            #[must_use]
            pub const fn status_u16(self) -> u16 { match self { $( Code::$name => $status, )* } }
            /// The member `title`.
            #[must_use]
            pub const fn title(self) -> &'static str { match self { $( Code::$name => $title, )* } }
            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn retryable(self) -> bool { match self { $( Code::$name => $retryable, )* } }
        }
    };
}

codes! {
    InvalidJson 400 "invalid_json" "Body is not valid JSON" false;
    UnknownField 400 "unknown_field" "Unknown field" false;
    InvalidField 400 "invalid_field" "Invalid field" false;
    InvalidName 400 "invalid_name" "Invalid name" false;
    InvalidDuration 400 "invalid_duration" "Invalid duration" false;
    InvalidTime 400 "invalid_time" "Invalid time" false;
    BodyRequired 400 "body_required" "Message body required" false;
    BodyAmbiguous 400 "body_ambiguous" "More than one message body" false;
    ReservedProperty 400 "reserved_property" "Reserved property name" false;
    InvalidTag 400 "invalid_tag" "Invalid tag" false;
    InvalidKey 400 "invalid_key" "Invalid key" false;
    InvalidFilter 400 "invalid_filter" "Invalid filter" false;
    InvalidCursor 400 "invalid_cursor" "Invalid cursor" false;
    PageTokenInvalid 400 "page_token_invalid" "Invalid page token" false;
    PageTokenMismatch 400 "page_token_mismatch" "Page token of another list" false;
    PageTokenExpired 400 "page_token_expired" "Page token expired" false;
    ReceiptInvalid 400 "receipt_invalid" "Invalid receipt" false;
    DeliverAtOutOfRange 400 "deliver_at_out_of_range" "Delivery time out of range" false;
    InvalidInvisibleFor 400 "invalid_invisible_for" "Invalid invisible time" false;
    InvalidWait 400 "invalid_wait" "Invalid wait" false;
    InvalidMax 400 "invalid_max" "Invalid max" false;
    IdempotencyKeyInvalid 400 "idempotency_key_invalid" "Invalid idempotency key" false;
    BatchEmpty 400 "batch_empty" "Empty batch" false;
    HandleInvalid 400 "handle_invalid" "Invalid handle" false;
    PlanInvalid 400 "plan_invalid" "Invalid plan" false;
    Unauthenticated 401 "unauthenticated" "Authentication required" false;
    Forbidden 403 "forbidden" "Forbidden" false;
    OriginNotAllowed 403 "origin_not_allowed" "Origin not allowed" false;
    ReceiptWrongGroup 403 "receipt_wrong_group" "Receipt of another group" false;
    SystemResource 403 "system_resource" "System resource" false;
    TenantSwitchForbidden 403 "tenant_switch_forbidden" "Tenant switch forbidden" false;
    RouteNotFound 404 "route_not_found" "No such route" false;
    NamespaceNotFound 404 "namespace_not_found" "Namespace not found" false;
    TopicNotFound 404 "topic_not_found" "Topic not found" false;
    GroupNotFound 404 "group_not_found" "Group not found" false;
    SubscriptionNotFound 404 "subscription_not_found" "Subscription not found" false;
    MessageNotFound 404 "message_not_found" "Message not found" false;
    DlqMessageNotFound 404 "dlq_message_not_found" "Dead letter not found" false;
    MethodNotAllowed 405 "method_not_allowed" "Method not allowed" false;
    NotAcceptable 406 "not_acceptable" "Not acceptable" false;
    RequestTimeout 408 "request_timeout" "Request timeout" true;
    MessageTypeMismatch 409 "message_type_mismatch" "Message type mismatch" false;
    ImmutableField 409 "immutable_field" "Immutable field" false;
    TopicNotDrained 409 "topic_not_drained" "Topic not drained" false;
    GroupActive 409 "group_active" "Group is active" false;
    GroupNotDrained 409 "group_not_drained" "Group not drained" false;
    GroupModeConflict 409 "group_mode_conflict" "Group is used by members of the other kind" false;
    LeaseLimitReached 409 "lease_limit_reached" "Lease limit reached" false;
    ReceiptGone 410 "receipt_gone" "Receipt decides nothing any more" false;
    CursorExpired 410 "cursor_expired" "Cursor expired" false;
    VersionMismatch 412 "version_mismatch" "Version mismatch" false;
    TopicExists 412 "topic_exists" "Topic exists" false;
    GroupExists 412 "group_exists" "Group exists" false;
    RequestTooLarge 413 "request_too_large" "Request too large" false;
    MessageTooLarge 413 "message_too_large" "Message too large" false;
    BatchTooLarge 413 "batch_too_large" "Batch too large" false;
    PropertiesTooLarge 413 "properties_too_large" "Properties too large" false;
    UriTooLong 414 "uri_too_long" "URI too long" false;
    UnsupportedMediaType 415 "unsupported_media_type" "Unsupported media type" false;
    ExpectationFailed 417 "expectation_failed" "Expectation failed" false;
    UpgradeRequired 426 "upgrade_required" "Upgrade required" false;
    TooManyInflight 429 "too_many_inflight" "Too many messages in flight" true;
    TooManyWaiters 429 "too_many_waiters" "Too many waiting receives" true;
    BrokerBusy 429 "broker_busy" "Broker busy" true;
    QuotaExceeded 429 "quota_exceeded" "Quota exceeded" false;
    HeadersTooLarge 431 "headers_too_large" "Headers too large" false;
    Internal 500 "internal" "Internal error" true;
    NotImplemented 501 "not_implemented" "Not implemented" false;
    BrokerUnavailable 503 "broker_unavailable" "Broker unavailable" true;
    NoRoute 503 "no_route" "No route to a broker" true;
    StorageFull 503 "storage_full" "Storage full" true;
    DurabilityUnavailable 503 "durability_unavailable" "Durability cannot be reached now" true;
    DurabilityNotConfirmed 503 "durability_not_confirmed" "Stored, durability not confirmed" true;
    MetadataUnavailable 503 "metadata_unavailable" "Metadata store unavailable" true;
    Overloaded 503 "overloaded" "Overloaded" true;
    Draining 503 "draining" "Draining" true;
    BrokerTimeout 504 "broker_timeout" "Broker timeout" true;
}

impl Code {
    /// The code of this text, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str() == text)
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// One entry of the member `errors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// JSON pointer into the body, or `?name` of a query parameter, or `header:Name`.
    pub pointer: String,
    /// Stable code.
    pub code: &'static str,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// A refusal. Cheap to move (one pointer); becomes a problem document in the outer layer of [`crate::app()`].
#[derive(Clone, Debug)]
pub struct ApiError(Box<Fault>);

/// The parts of an [`ApiError`].
#[derive(Clone, Debug)]
pub struct Fault {
    /// Stable code.
    pub code: Code,
    /// One sentence for a human.
    pub detail: Cow<'static, str>,
    /// Set where a failed write may have happened; `None` = nothing was applied.
    pub outcome: Option<Outcome>,
    /// Which fields were wrong.
    pub errors: Vec<FieldError>,
    /// Extra members of the document (`limit`, `actual`, `members`, `results` …).
    pub extra: Vec<(&'static str, Value)>,
    /// `Retry-After` in seconds.
    pub retry_after_s: Option<u32>,
    /// The header `Allow` of a 405.
    pub allow: Option<String>,
    /// The connection ends after this answer.
    pub close: bool,
}

impl ApiError {
    /// An error with this code and sentence.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after_s = match code.status_u16() {
            503 => Some(1),
            429 if code.retryable() => Some(1),
            _ => None,
        };
        Self(Box::new(Fault {
            code,
            detail: detail.into(),
            outcome: None,
            errors: Vec::new(),
            extra: Vec::new(),
            retry_after_s,
            allow: None,
            close: false,
        }))
    }

    /// A broker refused since its version of the group is older than the one this gateway knows.
    #[must_use]
    pub fn is_stale_config(&self) -> bool {
        let stale = |(name, value): &(&str, Value)| *name == "reason" && value == "stale_config";
        self.0.code == Code::BrokerUnavailable && self.0.extra.iter().any(stale)
    }

    /// A wrong field: `pointer` is a JSON pointer, `?name` or `header:Name`.
    #[must_use]
    pub fn field(code: Code, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        let mut error = Self::new(code, detail.clone());
        error.0.errors.push(FieldError {
            pointer,
            code: code.as_str(),
            detail,
        });
        error
    }

    /// `unknown_field` for all these names.
    #[must_use]
    pub fn unknown_fields(errors: Vec<FieldError>) -> Self {
        let names: Vec<&str> = errors.iter().map(|e| e.pointer.as_str()).collect();
        let hint = errors.first().map(|e| e.detail.clone()).unwrap_or_default();
        let mut error = Self::new(
            Code::UnknownField,
            format!("unknown field {}: {hint}", names.join(", ")),
        );
        error.0.errors = errors;
        error
    }

    /// 501 for a part of the contract that is not built, naming it.
    #[must_use]
    pub fn not_implemented(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotImplemented, what)
    }

    /// Adds an extra member.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.extra.push((name, value.into()));
        self
    }

    /// Says that the write may have happened.
    #[must_use]
    pub fn unknown_outcome(mut self) -> Self {
        self.0.outcome = Some(Outcome::Unknown);
        self
    }

    /// Says that the write has reached a broker, or may have, before something else failed.
    #[must_use]
    pub fn after_the_write(mut self) -> Self {
        let what = &self.0.detail;
        let detail =
            format!("a broker has taken the change, or may have; what followed failed: {what}");
        self.0.detail = detail.into();
        self.unknown_outcome()
    }

    /// Says that nothing was applied of what was asked for: only something that comes before it may have happened.
    #[must_use]
    pub fn before_the_write(mut self) -> Self {
        self.0.outcome = None;
        self
    }

    /// Ends the connection after this answer.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }

    /// Sets the header `Allow`.
    #[must_use]
    pub fn with_allow(mut self, allow: impl Into<String>) -> Self {
        self.0.allow = Some(allow.into());
        self
    }

    /// Puts `prefix` before the JSON pointer of each field error (a batch item, for instance).
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        for error in &mut self.0.errors {
            error.pointer.insert_str(0, prefix);
        }
        self
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The sentence.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// All parts.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.0
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.detail)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    /// Only status and the error itself; the outer layer writes the document, since it knows path and request id.
    fn into_response(self) -> Response {
        let mut response = self.code().status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}
