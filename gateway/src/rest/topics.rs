//! Topics: list, create, change, read, delete.

use super::answer::{self, conditions, deleted};
use super::labels::Filter;
use super::topic_groups;
use super::topic_spec::{DESCRIPTION, LABEL, Wish, check_type, type_of};
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::page::limit;
use crate::params::{Query, check_topic_writable, is_system_topic};
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{BrokerTopic, Partial, etag, queues_in_all};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/topics", get(list)).route(
        "/v1/ns/{ns}/topics/{topic}",
        get(read).put(put).patch(patch).delete(delete),
    )
}

/// `GET …/topics`
#[utoipa::path(get, path = "/v1/ns/{ns}/topics", operation_id = "listTopics", tag = "topics", summary = "List topics", params(("ns" = String, Path, description = "Namespace; `default`"), ("prefix" = Option<String>, Query, description = "Names that begin so"), ("type" = Option<String>, Query, description = "Only this type"), ("label" = Option<String>, Query, description = "Only those with this label, as in `team`, or this value of it, as in `team=billing`"), ("sort" = Option<String>, Query, description = "`name`"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page", body = openapi::topics::TopicList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    call.namespace()?;
    let query = call.query(&["prefix", "type", "label", "sort", "limit", "pageToken"])?;
    sorted_by_name(&query)?;
    let label = Filter::read(&query)?;
    let limit = limit(&query)?;
    let (prefix, kind) = (
        query.get("prefix").unwrap_or_default(),
        query.get("type").unwrap_or_default(),
    );
    if !kind.is_empty() {
        check_type(kind, "?type")?;
    }
    let shown = query.get("label").unwrap_or_default();
    let key = format!("topics?prefix={prefix}&type={kind}&label={shown}");
    let after = match query.get("pageToken") {
        Some(token) => Some(state.pages.decode(&key, token, state.now_ms())?),
        None => None,
    };
    let (topics, partial) = state.upstream.topics(call.deadline(Duration::ZERO)).await?;
    let mut out = Vec::with_capacity(4_096);
    out.extend_from_slice(b"{\"items\":[");
    let (mut count, mut last, mut more) = (0, "", false);
    let has = |attributes: &BTreeMap<String, String>, filter: &Filter<'_>| {
        filter.fits(attributes.get(&format!("{LABEL}{}", filter.name)))
    };
    for (name, listed) in &topics {
        let attributes = &listed.attributes;
        let wanted = name.starts_with(prefix)
            && after.as_ref().is_none_or(|a| name > a)
            && (kind.is_empty() || kind == type_of(attributes))
            && label.as_ref().is_none_or(|label| has(attributes, label));
        if !wanted {
            continue;
        }
        if count == limit {
            more = true;
            break;
        }
        if count > 0 {
            out.push(b',');
        }
        let mut object = Members::open(&mut out);
        object.text("name", name);
        object.text("type", type_of(attributes));
        object.number("queues", listed.queues);
        object.close();
        (count, last) = (count + 1, name);
    }
    finish_list(
        &mut out,
        &partial,
        more.then(|| state.pages.encode(&key, last, state.now_ms())),
    );
    Ok(answer::json(StatusCode::OK, out))
}

/// Lists come in the order of their names.
///
/// # Errors
/// `not_implemented`, `invalid_field`.
fn sorted_by_name(query: &Query) -> Result<(), ApiError> {
    let code = match query.get("sort") {
        None | Some("name") => return Ok(()),
        Some("-rate" | "-size") => Code::NotImplemented,
        Some(_) => Code::InvalidField,
    };
    let detail = "sort is name; -rate and -size are part of the API but not built yet";
    Err(ApiError::field(code, "?sort", detail))
}

/// The end of a list, with the brokers left out.
pub(super) fn finish_list(out: &mut Vec<u8>, partial: &Partial, token: Option<String>) {
    out.extend_from_slice(b"],\"partial\":");
    answer::partial(out, partial);
    out.extend_from_slice(b",\"nextPageToken\":");
    match token {
        Some(token) => crate::json::write_string(out, &token),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// `GET …/topics/{topic}`
#[utoipa::path(get, path = "/v1/ns/{ns}/topics/{topic}", operation_id = "getTopic", tag = "topics", summary = "Read a topic", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$")), responses((status = 200, description = "The topic", body = openapi::topics::Topic, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn read(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    call.no_query()?;
    let deadline = call.deadline(Duration::ZERO);
    let (found, partial) = existing(&state, topic, deadline).await?;
    Ok(document(StatusCode::OK, topic, &found, &[], Some(&partial)))
}

/// A topic of users, and the brokers left out. One that no broker has is not there, unless one that cannot be asked has.
///
/// # Errors
/// `topic_not_found`, `broker_unavailable`, `no_route`.
pub(super) async fn existing(
    state: &AppState,
    topic: &str,
    deadline: Instant,
) -> Result<(Vec<BrokerTopic>, Partial), ApiError> {
    let (found, partial) = state.upstream.topic_in_part(topic, deadline).await?;
    if found.is_empty() {
        let away: Vec<String> = partial.into_iter().map(|(name, _)| name).collect();
        state.upstream.nowhere(topic, &away, deadline).await?;
        return Err(absent(topic));
    }
    if is_system_topic(topic) {
        return Err(absent(topic));
    }
    state.upstream.remember(topic, &found, deadline).await;
    Ok((found, partial))
}

fn absent(topic: &str) -> ApiError {
    let detail = format!("topic '{topic}' does not exist");
    ApiError::new(Code::TopicNotFound, detail)
}

/// `PUT …/topics/{topic}`
#[utoipa::path(put, path = "/v1/ns/{ns}/topics/{topic}", operation_id = "putTopic", tag = "topics", summary = "Make or replace a topic", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if it does not exist")), request_body = openapi::topics::TopicRequest, responses((status = 200, description = "Replaced", body = openapi::topics::Topic, headers(("ETag" = String, description = "Version"))), (status = 201, description = "Made", body = openapi::topics::Topic, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn put(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    write(&state, &call, false, &["application/json"]).await
}

/// `PATCH …/topics/{topic}`
#[utoipa::path(patch, path = "/v1/ns/{ns}/topics/{topic}", operation_id = "patchTopic", tag = "topics", summary = "Change a topic (merge patch)", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)")), request_body = openapi::topics::TopicRequest, responses((status = 200, description = "Changed", body = openapi::topics::Topic, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn patch(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    write(
        &state,
        &call,
        true,
        &["application/merge-patch+json", "application/json"],
    )
    .await
}

async fn write(
    state: &AppState,
    call: &Call,
    merge: bool,
    types: &[&str],
) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    check_topic_writable(topic)?;
    call.no_query()?;
    let condition = conditions(call)?;
    let wish = Wish::read(call.json(types)?, topic)?;
    let change = |current: &[BrokerTopic]| {
        if merge && current.is_empty() {
            return Err(ApiError::new(
                Code::TopicNotFound,
                format!("topic '{topic}' does not exist; create it with PUT"),
            ));
        }
        wish.apply(current, merge)
    };
    let (written, new, pending) = state
        .upstream
        .put_topic(topic, condition, change, call.deadline(Duration::ZERO))
        .await?;
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(document(status, topic, &written, &pending, None))
}

/// `DELETE …/topics/{topic}`
#[utoipa::path(delete, path = "/v1/ns/{ns}/topics/{topic}", operation_id = "deleteTopic", tag = "topics", summary = "Delete a topic", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("force" = Option<bool>, Query, description = "Also with messages left")), responses((status = 200, description = "Deleted but at the brokers named", body = openapi::topics::Pending), (status = 204, description = "Deleted")))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    let force = call.query(&["force"])?.boolean("force")?;
    check_topic_writable(topic)?;
    let condition = conditions(&call)?;
    let deadline = call.deadline(Duration::ZERO);
    let (found, _) = existing(&state, topic, deadline).await?;
    condition.check(
        found.iter().map(|t| t.detail.version).max(),
        Code::TopicExists,
        &format!("topic '{topic}'"),
    )?;
    if !force {
        drained(&state, topic, deadline).await?;
    }
    Ok(deleted(
        &state
            .upstream
            .delete_topic(topic, condition, deadline)
            .await?,
    ))
}

/// 409 while a group has not read everything; 503 where a broker cannot say.
async fn drained(state: &AppState, topic: &str, deadline: Instant) -> Result<(), ApiError> {
    let (behind, partial) = topic_groups::behind(state, topic, deadline).await?;
    if behind.is_empty() {
        return answer::all_asked(&partial, "whether its messages were read");
    }
    let list: Vec<serde_json::Value> = behind
        .iter()
        .map(|(g, lag)| serde_json::json!({"name": g, "lag": lag}))
        .collect();
    let detail = format!(
        "{} group(s) have not read everything of '{topic}'; wait, or delete with ?force=true",
        behind.len()
    );
    Err(ApiError::new(Code::TopicNotDrained, detail).with("groups", list))
}

/// The whole topic.
fn document(
    status: StatusCode,
    topic: &str,
    brokers: &[BrokerTopic],
    pending: &[String],
    partial: Option<&Partial>,
) -> Response {
    let version = brokers.iter().map(|t| t.detail.version).max().unwrap_or(0);
    let newest = brokers
        .iter()
        .max_by_key(|t| t.detail.version)
        .map(|t| &t.detail.spec.attributes);
    let none = BTreeMap::new();
    let attributes = newest.unwrap_or(&none);
    let mut out = Vec::with_capacity(1_024);
    let mut object = Members::open(&mut out);
    object.text("name", topic);
    object.text("type", type_of(attributes));
    object.number("queues", i64::from(queues_in_all(brokers)));
    object.raw("retention", b"{\"time\":null,\"bytes\":null}");
    object.raw("durability", b"null");
    object.text("dedupWindow", "0s");
    object.number("priorityLevels", 1);
    object.text("onExpire", "drop");
    object.text("trace", "off");
    let labels: Vec<(String, String)> = attributes
        .iter()
        .filter_map(|(k, v)| Some((k.strip_prefix(LABEL)?.to_owned(), v.clone())))
        .collect();
    object.map("labels", &labels);
    object.text("description", attributes.get(DESCRIPTION).map_or("", |d| d));
    object.raw("schema", b"null");
    object.text("etag", &etag(version));
    queue_list(object.member("queueList"), brokers);
    if !pending.is_empty() {
        object.texts("pending", pending);
    }
    if let Some(partial) = partial {
        answer::partial(object.member("partial"), partial);
    }
    object.close();
    answer::versioned(status, out, version)
}

fn queue_list(out: &mut Vec<u8>, brokers: &[BrokerTopic]) {
    out.push(b'[');
    let mut first = true;
    for topic in brokers {
        let spec = &topic.detail.spec;
        for queue in &topic.detail.queues {
            if !first {
                out.push(b',');
            }
            first = false;
            let mut object = Members::open(out);
            object.text("broker", &topic.broker);
            object.number("id", i64::from(queue.id));
            object.number("minOffset", queue.min_offset);
            object.number("maxOffset", queue.max_offset);
            object.time_or_null("earliestAt", Some(queue.earliest_at_ms).filter(|t| *t >= 0));
            object.time_or_null("latestAt", Some(queue.latest_at_ms).filter(|t| *t >= 0));
            object.boolean(
                "readable",
                spec.perm & 4 != 0 && queue.id < spec.read_queues,
            );
            object.boolean(
                "writable",
                spec.perm & 2 != 0 && queue.id < spec.write_queues,
            );
            object.close();
        }
    }
    out.push(b']');
}
