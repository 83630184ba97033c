//! Subscriptions: what a group reads, with its filter and where it begins.

use super::answer::{self, conditions, deleted};
use super::group_document::shown_position;
use super::group_spec::position;
use super::groups::writable;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::json::{Object, Raw};
use crate::message::check_tag;
use crate::params::check_topic;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::etag;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use std::time::Duration;
use wire::body::gantry::{GroupDetail, SubscriptionSpec};

const EXPRESSION_MAX: usize = 4_096;

pub(super) fn router() -> Router<AppState> {
    Router::new().route(
        "/v1/ns/{ns}/groups/{group}/subscriptions/{topic}",
        get(read).put(put).delete(delete),
    )
}

/// `GET …/groups/{group}/subscriptions/{topic}`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}/subscriptions/{topic}", operation_id = "getSubscription", tag = "groups", summary = "Read a subscription", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$")), responses((status = 200, description = "The subscription", body = openapi::subscriptions::Subscription, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn read(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let (group, topic) = (call.group()?, call.topic()?);
    call.no_query()?;
    let (detail, _) = state
        .upstream
        .get_group(group, call.deadline(Duration::ZERO))
        .await?;
    document(StatusCode::OK, &detail, topic, &[])
}

/// `PUT …/groups/{group}/subscriptions/{topic}`
#[utoipa::path(put, path = "/v1/ns/{ns}/groups/{group}/subscriptions/{topic}", operation_id = "putSubscription", tag = "groups", summary = "Subscribe a topic", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if it does not exist")), request_body = Option<openapi::subscriptions::SubscriptionRequest>, responses((status = 200, description = "Changed", body = openapi::subscriptions::Subscription, headers(("ETag" = String, description = "Version"))), (status = 201, description = "Made; what is sent from now on is delivered", body = openapi::subscriptions::Subscription, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn put(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let (group, topic) = (writable(&call)?, call.topic()?);
    call.no_query()?;
    let condition = conditions(&call)?;
    let wanted = if call.body.is_empty() {
        SubscriptionSpec {
            topic: topic.to_owned(),
            ..SubscriptionSpec::default()
        }
    } else {
        spec(call.plain_json()?, topic)?
    };
    let deadline = call.deadline(Duration::ZERO);
    state
        .upstream
        .ensure_for_subscription(group, topic, deadline)
        .await?;
    let (detail, new, pending) = state
        .upstream
        .put_subscription(group, condition, &wanted, false, deadline)
        .await?;
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    document(status, &detail, topic, &pending)
}

/// `DELETE …/groups/{group}/subscriptions/{topic}`
#[utoipa::path(delete, path = "/v1/ns/{ns}/groups/{group}/subscriptions/{topic}", operation_id = "deleteSubscription", tag = "groups", summary = "End a subscription", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)")), responses((status = 200, description = "Deleted but at the brokers named", body = openapi::topics::Pending), (status = 204, description = "Deleted")))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let (group, topic) = (writable(&call)?, call.topic()?);
    call.no_query()?;
    let condition = conditions(&call)?;
    let deadline = call.deadline(Duration::ZERO);
    let pending = state
        .upstream
        .delete_subscription(group, topic, condition, deadline)
        .await?;
    Ok(deleted(&pending))
}

fn find<'a>(detail: &'a GroupDetail, topic: &str) -> Result<&'a SubscriptionSpec, ApiError> {
    let missing = || {
        ApiError::new(
            Code::SubscriptionNotFound,
            format!(
                "group '{}' does not subscribe topic '{topic}'",
                detail.group
            ),
        )
    };
    detail
        .subscriptions
        .iter()
        .find(|s| s.topic == topic)
        .ok_or_else(missing)
}

pub(super) fn spec(raw: Raw<'_>, topic: &str) -> Result<SubscriptionSpec, ApiError> {
    let object = Object::open(raw, "", &["filter", "initialPosition", "topic", "etag"])?;
    let mut spec = SubscriptionSpec {
        topic: topic.to_owned(),
        ..SubscriptionSpec::default()
    };
    if let Some(named) = object.string("topic", Code::InvalidField)? {
        check_topic(&named)?;
        if named != topic {
            return Err(ApiError::field(
                Code::InvalidField,
                "/topic",
                "the topic stands in the path",
            ));
        }
    }
    if let Some(text) = object.string("initialPosition", Code::InvalidTime)? {
        spec.initial_position = Some(position(&text, "/initialPosition")?);
    }
    if let Some(raw) = object.get("filter") {
        (spec.kind, spec.expression) = filter(raw)?;
    }
    Ok(spec)
}

/// Kind and expression.
fn filter(raw: Raw<'_>) -> Result<(String, String), ApiError> {
    let object = Object::open(raw, "/filter", &["kind", "expression"])?;
    let kind = object.string("kind", Code::InvalidField)?;
    let expression = object.string("expression", Code::InvalidFilter)?;
    match kind.as_deref() {
        Some("all") => match expression.as_deref() {
            None | Some("*") => Ok(("all".to_owned(), "*".to_owned())),
            Some(_) => Err(ApiError::field(
                Code::InvalidField,
                "/filter/expression",
                "kind all has no expression",
            )),
        },
        Some("tag") => {
            let text = expression.unwrap_or_default();
            let wrong = |position: usize, detail: String| {
                ApiError::field(Code::InvalidFilter, "/filter/expression", detail)
                    .with("position", position)
            };
            if text.len() > EXPRESSION_MAX {
                return Err(wrong(
                    EXPRESSION_MAX,
                    format!("an expression has at most {EXPRESSION_MAX} bytes"),
                )
                .with("limit", EXPRESSION_MAX));
            }
            let mut position = 0;
            let mut tags = Vec::new();
            for part in text.split("||") {
                let tag = part.trim();
                check_tag(tag, "")
                    .map_err(|e| wrong(position, format!("tags joined by ||; {}", e.detail())))?;
                tags.push(tag);
                position += part.len() + 2;
            }
            Ok(("tag".to_owned(), tags.join("||")))
        }
        Some("sql92") => Err(ApiError::field(
            Code::NotImplemented,
            "/filter/kind",
            "sql92 filters are part of the API but not built yet; use tag or all",
        )),
        _ => Err(ApiError::field(
            Code::InvalidField,
            "/filter/kind",
            "kind is all, tag or sql92",
        )),
    }
}

fn document(
    status: StatusCode,
    detail: &GroupDetail,
    topic: &str,
    pending: &[String],
) -> Result<Response, ApiError> {
    let subscription = find(detail, topic)?;
    let mut out = Vec::with_capacity(256);
    show(&mut out, subscription);
    if !pending.is_empty() {
        out.pop();
        out.push(b',');
        let mut inner = Vec::new();
        let mut object = Members::open(&mut inner);
        object.texts("pending", pending);
        object.close();
        out.extend_from_slice(&inner[1..]);
    }
    Ok(answer::versioned(status, out, subscription.version))
}

/// Appends the subscription object.
pub(super) fn show(out: &mut Vec<u8>, subscription: &SubscriptionSpec) {
    let mut object = Members::open(out);
    object.text("topic", &subscription.topic);
    let mut filter = Members::open(object.member("filter"));
    filter.text("kind", &subscription.kind);
    if subscription.kind != "all" {
        filter.text("expression", &subscription.expression);
    }
    filter.close();
    let position = subscription.initial_position.as_deref().map(shown_position);
    object.text_or_null("initialPosition", position.as_deref());
    object.text("etag", &etag(subscription.version));
    object.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document as parse;

    #[test]
    fn filters_are_read_at_once() {
        let read = |text: &str| spec(parse(text.as_bytes()).unwrap(), "orders");
        let tags = read(r#"{"filter":{"kind":"tag","expression":"created || paid"},"initialPosition":"earliest"}"#).unwrap();
        assert_eq!(
            (tags.kind.as_str(), tags.expression.as_str()),
            ("tag", "created||paid")
        );
        assert_eq!(read("{}").unwrap().kind, "all");
        for (text, code) in [
            (
                r#"{"filter":{"kind":"tag","expression":"a||"}}"#,
                Code::InvalidFilter,
            ),
            (r#"{"filter":{"kind":"tag"}}"#, Code::InvalidFilter),
            (
                r#"{"filter":{"kind":"tag","expression":5}}"#,
                Code::InvalidFilter,
            ),
            (
                r#"{"filter":{"kind":"sql92","expression":"a = 1"}}"#,
                Code::NotImplemented,
            ),
            (r#"{"filter":{"kind":"x"}}"#, Code::InvalidField),
            (r#"{"filters":{}}"#, Code::UnknownField),
            (r#"{"initialPosition":5}"#, Code::InvalidTime),
        ] {
            assert_eq!(read(text).unwrap_err().code(), code, "{text}");
        }
    }
}
