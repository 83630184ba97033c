//! Topics: list, create, change, read, delete.

use super::answer::{self, conditions, deleted};
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::json::{Kind, Map, Object, Raw};
use crate::page::limit;
use crate::params::is_system_topic;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{BrokerTopic, etag};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use std::collections::BTreeMap;
use std::time::Duration;

const QUEUES: std::ops::RangeInclusive<i64> = 1..=1_024;
const QUEUES_DEFAULT: i32 = 8;
const TYPE: &str = "message.type";
const DESCRIPTION: &str = "gantry.description";
const LABEL: &str = "gantry.label.";
const LABELS_MAX: usize = 32;
const TEXT_MAX: usize = 256;

/// Fields of a topic document; the last three are read-only.
const FIELDS: [&str; 14] = [
    "type",
    "queues",
    "retention",
    "durability",
    "dedupWindow",
    "priorityLevels",
    "onExpire",
    "trace",
    "labels",
    "description",
    "schema",
    "name",
    "etag",
    "queueList",
];

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/topics", get(list)).route(
        "/v1/ns/{ns}/topics/{topic}",
        get(read).put(put).patch(patch).delete(delete),
    )
}

/// `GET …/topics`
#[utoipa::path(get, path = "/v1/ns/{ns}/topics", operation_id = "listTopics", tag = "topics", summary = "List topics", params(("ns" = String, Path, description = "Namespace; `default`"), ("prefix" = Option<String>, Query, description = "Names that begin so"), ("type" = Option<String>, Query, description = "Only this type"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page", body = openapi::topics::TopicList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    call.namespace()?;
    let query = call.query(&["prefix", "type", "label", "sort", "limit", "pageToken"])?;
    if let Some(name) = ["label", "sort"]
        .iter()
        .find(|n| query.get(n).is_some_and(|v| **n != "sort" || v != "name"))
    {
        return Err(ApiError::field(
            Code::NotImplemented,
            format!("?{name}"),
            format!("{name} is part of the API but not built yet; leave it out"),
        ));
    }
    let limit = limit(&query)?;
    let (prefix, kind) = (
        query.get("prefix").unwrap_or_default(),
        query.get("type").unwrap_or_default(),
    );
    let key = format!("topics?prefix={prefix}&type={kind}");
    let after = match query.get("pageToken") {
        Some(token) => Some(state.pages.decode(&key, token, state.now_ms())?),
        None => None,
    };
    let topics = state.upstream.topics(call.deadline(Duration::ZERO)).await?;
    let mut out = Vec::with_capacity(4_096);
    out.extend_from_slice(b"{\"items\":[");
    let (mut count, mut last, mut more) = (0, "", false);
    for (name, (queues, attributes)) in &topics {
        let wanted = name.starts_with(prefix)
            && after.as_ref().is_none_or(|a| name > a)
            && (kind.is_empty() || kind == type_of(attributes));
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
        object.number("queues", *queues);
        object.close();
        (count, last) = (count + 1, name);
    }
    finish_list(
        &mut out,
        more.then(|| state.pages.encode(&key, last, state.now_ms())),
    );
    Ok(answer::json(StatusCode::OK, out))
}

/// The end of a list.
pub(super) fn finish_list(out: &mut Vec<u8>, token: Option<String>) {
    out.extend_from_slice(b"],\"nextPageToken\":");
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
    let (found, _) = state
        .upstream
        .topic_now(topic, call.deadline(Duration::ZERO))
        .await?;
    if found.is_empty() || is_system_topic(topic) {
        return Err(ApiError::new(
            Code::TopicNotFound,
            format!("topic '{topic}' does not exist"),
        ));
    }
    Ok(document(StatusCode::OK, topic, &found, &[]))
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
    if is_system_topic(topic) {
        return Err(ApiError::new(
            Code::SystemResource,
            format!("'{topic}' belongs to the broker itself"),
        ));
    }
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
    Ok(document(status, topic, &written, &pending))
}

/// `DELETE …/topics/{topic}`
#[utoipa::path(delete, path = "/v1/ns/{ns}/topics/{topic}", operation_id = "deleteTopic", tag = "topics", summary = "Delete a topic", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("force" = Option<bool>, Query, description = "Also with messages left")), responses((status = 200, description = "Deleted but at the brokers named", body = openapi::topics::Pending), (status = 204, description = "Deleted")))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    let force = call.query(&["force"])?.boolean("force")?;
    if is_system_topic(topic) {
        return Err(ApiError::new(
            Code::SystemResource,
            format!("'{topic}' belongs to the broker itself"),
        ));
    }
    let condition = conditions(&call)?;
    let deadline = call.deadline(Duration::ZERO);
    let (found, _) = state.upstream.topic_now(topic, deadline).await?;
    if found.is_empty() {
        return Err(ApiError::new(
            Code::TopicNotFound,
            format!("topic '{topic}' does not exist"),
        ));
    }
    condition.check(
        found.iter().map(|t| t.detail.version).max(),
        Code::TopicExists,
        &format!("topic '{topic}'"),
    )?;
    if !force {
        drained(&state, topic, deadline).await?;
    }
    Ok(deleted(
        &state.upstream.delete_topic(topic, deadline).await?,
    ))
}

/// 409 while a group has not read everything.
async fn drained(
    state: &AppState,
    topic: &str,
    deadline: tokio::time::Instant,
) -> Result<(), ApiError> {
    let behind = state.upstream.groups_behind(topic, deadline).await?;
    if behind.is_empty() {
        return Ok(());
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

/// What a body asks for: `None` = not mentioned, `Some(None)` = back to the default.
#[derive(Debug, Default)]
struct Wish {
    kind: Option<Option<String>>,
    queues: Option<Option<i32>>,
    description: Option<Option<String>>,
    labels: Option<BTreeMap<String, Option<String>>>,
    labels_null: bool,
}

impl Wish {
    fn read(raw: Raw<'_>, topic: &str) -> Result<Self, ApiError> {
        let object = Object::open(raw, "", &FIELDS)?;
        let mut wish = Self::default();
        let given = |name: &str| object.get_or_null(name).is_some();
        if given("type") {
            wish.kind = Some(
                object
                    .string("type", Code::InvalidField)?
                    .map(|t| check_type(&t))
                    .transpose()?,
            );
        }
        if given("queues") {
            let number = object.integer("queues", QUEUES, Code::InvalidField)?;
            wish.queues = Some(number.and_then(|n| i32::try_from(n).ok()));
        }
        if given("description") {
            wish.description = Some(
                object
                    .string("description", Code::InvalidField)?
                    .map(|t| short(&t, &object.pointer("description")))
                    .transpose()?,
            );
        }
        if let Some(raw) = object.get("labels") {
            wish.labels = Some(labels(raw, &object.pointer("labels"))?);
        } else if given("labels") {
            wish.labels_null = true;
        }
        if object
            .string("name", Code::InvalidField)?
            .is_some_and(|n| n != topic)
        {
            return Err(ApiError::field(
                Code::InvalidField,
                "/name",
                "the name stands in the path and cannot be changed",
            ));
        }
        not_built(&object)?;
        Ok(wish)
    }

    /// Queues and attributes of the topic this makes of what is there.
    fn apply(
        &self,
        current: &[BrokerTopic],
        merge: bool,
    ) -> Result<(i32, BTreeMap<String, String>), ApiError> {
        let first = current.first().map(|t| &t.detail.spec);
        let had: i32 = current.iter().map(|t| t.detail.spec.write_queues).sum();
        let old = first.map(|s| s.attributes.clone()).unwrap_or_default();
        let mut attributes: BTreeMap<String, String> = old
            .iter()
            .filter(|(k, _)| merge || !k.starts_with("gantry."))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let old_type = type_of(&old).to_owned();
        let kind = match &self.kind {
            Some(kind) => kind.clone().unwrap_or_else(|| "mixed".to_owned()),
            None if merge || first.is_some() => old_type.clone(),
            None => "mixed".to_owned(),
        };
        if first.is_some() && kind != old_type {
            let detail = format!(
                "the type of a topic ('{old_type}') cannot be changed; make a new topic and move its groups"
            );
            return Err(ApiError::field(Code::ImmutableField, "/type", detail));
        }
        if first.is_none() && kind != "mixed" {
            attributes.insert(TYPE.to_owned(), kind.to_uppercase());
        }
        let queues = match self.queues {
            Some(Some(n)) => n,
            Some(None) => QUEUES_DEFAULT.max(had),
            None if had > 0 => had,
            None => QUEUES_DEFAULT,
        };
        if queues < had {
            let detail =
                format!("the topic has {had} queues; fewer is part of the API but not built yet");
            return Err(ApiError::field(Code::NotImplemented, "/queues", detail));
        }
        match &self.description {
            Some(Some(text)) if !text.is_empty() => {
                drop(attributes.insert(DESCRIPTION.to_owned(), text.clone()))
            }
            Some(_) => drop(attributes.remove(DESCRIPTION)),
            None => {}
        }
        if self.labels_null {
            attributes.retain(|k, _| !k.starts_with(LABEL));
        }
        for (name, value) in self.labels.iter().flatten() {
            let key = format!("{LABEL}{name}");
            match value {
                Some(value) => drop(attributes.insert(key, value.clone())),
                None => drop(attributes.remove(&key)),
            }
        }
        Ok((queues, attributes))
    }
}

fn check_type(text: &str) -> Result<String, ApiError> {
    match text {
        "mixed" | "normal" => Ok(text.to_owned()),
        "ordered" | "delayed" | "transactional" => Err(ApiError::field(
            Code::NotImplemented,
            "/type",
            format!("type '{text}' is part of the API but not built yet; use mixed or normal"),
        )),
        _ => Err(ApiError::field(
            Code::InvalidField,
            "/type",
            "type is mixed, normal, ordered, delayed or transactional",
        )),
    }
}

fn short(text: &str, pointer: &str) -> Result<String, ApiError> {
    // Attributes travel in a text of name=value pairs.
    if text.len() <= TEXT_MAX
        && !text
            .chars()
            .any(|c| c.is_control() || matches!(c, ',' | '=' | '+'))
    {
        return Ok(text.to_owned());
    }
    let detail = format!("at most {TEXT_MAX} bytes, without control characters, comma, = and +");
    Err(ApiError::field(Code::InvalidField, pointer, detail).with("limit", TEXT_MAX))
}

fn labels(raw: Raw<'_>, pointer: &str) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let many = || {
        ApiError::field(
            Code::InvalidField,
            pointer,
            format!("at most {LABELS_MAX} labels"),
        )
        .with("limit", LABELS_MAX)
    };
    let mut out = BTreeMap::new();
    for (name, value) in Map::open(raw, pointer, LABELS_MAX)?.ok_or_else(many)? {
        let at = format!("{pointer}/{name}");
        let named = !name.is_empty()
            && name.len() <= 64
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if !named {
            return Err(ApiError::field(
                Code::InvalidField,
                at,
                "a label name is 1–64 letters, digits, _ - .",
            ));
        }
        let value = match (value.kind(), value.as_string()?) {
            (Kind::Null, _) => None,
            (_, Some(text)) => Some(short(&text, &at)?),
            (kind, None) => {
                return Err(ApiError::field(
                    Code::InvalidField,
                    at,
                    format!("a label is a string, not {}", kind.name()),
                ));
            }
        };
        out.insert(name.into_owned(), value);
    }
    Ok(out)
}

/// 501 for parts of a topic that are not built, unless they say what is so anyway.
fn not_built(object: &Object<'_>) -> Result<(), ApiError> {
    let same = |name: &str, value: &str| object.get(name).is_none_or(|raw| raw.text() == value);
    let retention = match object.get("retention") {
        Some(raw) => {
            let inner = Object::open(raw, "/retention", &["time", "bytes"])?;
            inner.get("time").is_none() && inner.get("bytes").is_none()
        }
        None => true,
    };
    let checks = [
        ("retention", retention),
        ("durability", object.get("durability").is_none()),
        ("dedupWindow", same("dedupWindow", "\"0s\"")),
        ("priorityLevels", same("priorityLevels", "1")),
        ("onExpire", same("onExpire", "\"drop\"")),
        ("trace", same("trace", "\"off\"")),
        ("schema", object.get("schema").is_none()),
    ];
    match checks.iter().find(|(_, fine)| !fine) {
        Some((name, _)) => {
            let detail = format!("{name} is part of the API but not built yet; leave it out");
            Err(ApiError::field(
                Code::NotImplemented,
                object.pointer(name),
                detail,
            ))
        }
        None => Ok(()),
    }
}

fn type_of(attributes: &BTreeMap<String, String>) -> &'static str {
    match attributes
        .get(TYPE)
        .map(|t| t.to_ascii_uppercase())
        .as_deref()
    {
        Some("NORMAL") => "normal",
        Some("FIFO" | "ORDERED") => "ordered",
        Some("DELAY" | "DELAYED") => "delayed",
        Some("TRANSACTION" | "TRANSACTIONAL") => "transactional",
        _ => "mixed",
    }
}

/// The whole topic.
fn document(
    status: StatusCode,
    topic: &str,
    brokers: &[BrokerTopic],
    pending: &[String],
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
    object.number(
        "queues",
        brokers
            .iter()
            .map(|t| i64::from(t.detail.spec.write_queues))
            .sum(),
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document as parse;

    fn wish(text: &str) -> Result<Wish, ApiError> {
        Wish::read(parse(text.as_bytes())?, "orders")
    }

    #[test]
    fn what_is_not_built_is_501_with_its_field() {
        for (text, pointer) in [
            (r#"{"type":"ordered"}"#, "/type"),
            (r#"{"retention":{"time":"3d"}}"#, "/retention"),
            (r#"{"durability":"flushed"}"#, "/durability"),
            (r#"{"priorityLevels":3}"#, "/priorityLevels"),
            (r#"{"schema":{}}"#, "/schema"),
        ] {
            let error = wish(text).unwrap_err();
            assert_eq!(
                (error.code(), error.fault().errors[0].pointer.as_str()),
                (Code::NotImplemented, pointer),
                "{text}"
            );
        }
        assert!(wish(r#"{"type":"mixed","queues":4,"retention":{"time":null},"priorityLevels":1,"etag":"\"1\"","name":"orders"}"#).is_ok());
        assert_eq!(
            wish(r#"{"queues":0}"#).unwrap_err().code(),
            Code::InvalidField
        );
        assert_eq!(
            wish(r#"{"queues":"8"}"#).unwrap_err().code(),
            Code::InvalidField
        );
        assert_eq!(
            wish(r#"{"name":"other"}"#).unwrap_err().code(),
            Code::InvalidField
        );
    }

    #[test]
    fn a_type_is_for_ever() {
        let made = wish(r#"{"type":"normal","queues":2}"#)
            .unwrap()
            .apply(&[], false)
            .unwrap();
        assert_eq!(
            made,
            (2, BTreeMap::from([(TYPE.to_owned(), "NORMAL".to_owned())]))
        );
        let detail = wire::body::gantry::TopicDetail {
            spec: wire::body::gantry::TopicSpec {
                read_queues: 2,
                write_queues: 2,
                attributes: made.1,
                ..Default::default()
            },
            ..Default::default()
        };
        let current = [BrokerTopic {
            broker: "a".into(),
            detail,
        }];
        assert_eq!(
            wish(r#"{"type":"mixed"}"#)
                .unwrap()
                .apply(&current, false)
                .unwrap_err()
                .code(),
            Code::ImmutableField
        );
        assert_eq!(
            wish(r#"{"queues":4}"#)
                .unwrap()
                .apply(&current, true)
                .unwrap()
                .0,
            4
        );
        assert_eq!(
            wish(r#"{"queues":1}"#)
                .unwrap()
                .apply(&current, true)
                .unwrap_err()
                .code(),
            Code::NotImplemented
        );
        let labelled = wish(r#"{"labels":{"team":"a"},"description":"d"}"#)
            .unwrap()
            .apply(&current, true)
            .unwrap()
            .1;
        assert_eq!(
            labelled.get("gantry.label.team").map(String::as_str),
            Some("a")
        );
    }
}
