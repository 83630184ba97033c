//! Groups: list, create, change, read, delete, pause, lag.

use super::answer::{self, conditions, deleted};
use super::receive::INVISIBLE_MS;
use super::topics::finish_list;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::json::{Object, Raw};
use crate::page::limit;
use crate::params::{duration_in, format_duration, format_time, is_system_group, parse_time};
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{Precondition, default_group, etag};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use std::time::Duration;
use tokio::time::Instant;
use wire::body::gantry::{Backoff, GroupDetail, GroupLag, GroupSpec, QueueLag};

const ATTEMPTS: std::ops::RangeInclusive<i64> = 1..=100;
const IN_FLIGHT: std::ops::RangeInclusive<i64> = 1..=200_000;
const DELAYS_MAX: usize = 100;
const DELAY_MS: std::ops::RangeInclusive<u64> = 0..=30 * 86_400_000;
const RETENTION_MS: std::ops::RangeInclusive<u64> = 0..=365 * 86_400_000;

/// Fields of a group document; the last six are read-only.
const FIELDS: [&str; 16] = [
    "ordered",
    "invisibleFor",
    "maxInFlight",
    "initialPosition",
    "retry",
    "deadLetter",
    "onExhausted",
    "paused",
    "description",
    "labels",
    "name",
    "etag",
    "subscriptions",
    "stats",
    "blockedKeys",
    "pending",
];

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/ns/{ns}/groups", get(list))
        .route(
            "/v1/ns/{ns}/groups/{group}",
            get(read).put(put).patch(patch).delete(delete),
        )
        .route("/v1/ns/{ns}/groups/{group}/lag", get(lag))
        .route("/v1/ns/{ns}/groups/{group}/pause", post(pause))
        .route("/v1/ns/{ns}/groups/{group}/resume", post(resume))
}

/// The group of a write.
pub(super) fn writable(call: &Call) -> Result<&str, ApiError> {
    let group = call.group()?;
    if is_system_group(group) {
        return Err(ApiError::new(
            Code::SystemResource,
            format!("'{group}' belongs to the broker itself"),
        ));
    }
    Ok(group)
}

/// `GET …/groups`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups", operation_id = "listGroups", tag = "groups", summary = "List groups", params(("ns" = String, Path, description = "Namespace; `default`"), ("prefix" = Option<String>, Query, description = "Names that begin so"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page", body = openapi::groups::GroupList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    call.namespace()?;
    let query = call.query(&["prefix", "limit", "pageToken"])?;
    let limit = limit(&query)?;
    let prefix = query.get("prefix").unwrap_or_default();
    let key = format!("groups?prefix={prefix}");
    let after = match query.get("pageToken") {
        Some(token) => Some(state.pages.decode(&key, token, state.now_ms())?),
        None => None,
    };
    let groups = state.upstream.groups(call.deadline(Duration::ZERO)).await?;
    let wanted = groups
        .iter()
        .filter(|g| g.starts_with(prefix) && after.as_ref().is_none_or(|a| *g > a));
    let page: Vec<&String> = wanted.take(limit + 1).collect();
    let mut out = Vec::with_capacity(1_024);
    out.extend_from_slice(b"{\"items\":[");
    for (i, name) in page.iter().take(limit).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let mut object = Members::open(&mut out);
        object.text("name", name);
        object.close();
    }
    let more = page.len() > limit;
    let last = page
        .iter()
        .take(limit)
        .next_back()
        .map_or("", |n| n.as_str());
    finish_list(
        &mut out,
        more.then(|| state.pages.encode(&key, last, state.now_ms())),
    );
    Ok(answer::json(StatusCode::OK, out))
}

/// `GET …/groups/{group}`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}", operation_id = "getGroup", tag = "groups", summary = "Read a group", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")), responses((status = 200, description = "The group", body = openapi::groups::Group, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn read(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let group = call.group()?;
    call.no_query()?;
    let deadline = call.deadline(Duration::ZERO);
    let (detail, _) = state.upstream.get_group(group, deadline).await?;
    let lag = state.upstream.lag(group, deadline).await.ok();
    Ok(document(
        StatusCode::OK,
        &detail,
        lag.as_deref(),
        &[],
        state.now_ms(),
    ))
}

/// `PUT …/groups/{group}`
#[utoipa::path(put, path = "/v1/ns/{ns}/groups/{group}", operation_id = "putGroup", tag = "groups", summary = "Make or replace a group", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if it does not exist")), request_body = openapi::groups::GroupRequest, responses((status = 200, description = "Replaced", body = openapi::groups::Group, headers(("ETag" = String, description = "Version"))), (status = 201, description = "Made", body = openapi::groups::Group, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn put(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    write(&state, &call, false, &["application/json"]).await
}

/// `PATCH …/groups/{group}`
#[utoipa::path(patch, path = "/v1/ns/{ns}/groups/{group}", operation_id = "patchGroup", tag = "groups", summary = "Change a group (merge patch)", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)")), request_body = openapi::groups::GroupRequest, responses((status = 200, description = "Changed", body = openapi::groups::Group, headers(("ETag" = String, description = "Version")))))]
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
    let group = writable(call)?;
    call.no_query()?;
    let condition = conditions(call)?;
    let raw = call.json(types)?;
    // Read once for its faults, so that a bad body is refused before anything is asked.
    spec_of(raw, group, &default_group(), false)?;
    let change = |current: Option<&GroupDetail>| match current {
        None if merge => Err(ApiError::new(
            Code::GroupNotFound,
            format!("group '{group}' does not exist; create it with PUT"),
        )),
        None => spec_of(raw, group, &default_group(), false),
        Some(detail) if merge => spec_of(raw, group, &detail.spec, true),
        Some(_) => spec_of(raw, group, &default_group(), false),
    };
    put_and_answer(state, call, group, condition, change).await
}

async fn put_and_answer<F>(
    state: &AppState,
    call: &Call,
    group: &str,
    condition: Precondition,
    change: F,
) -> Result<Response, ApiError>
where
    F: Fn(Option<&GroupDetail>) -> Result<GroupSpec, ApiError>,
{
    let (detail, new, pending) = state
        .upstream
        .put_group(group, condition, change, call.deadline(Duration::ZERO))
        .await?;
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(document(status, &detail, None, &pending, state.now_ms()))
}

/// `POST …/groups/{group}/pause`
#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/pause", operation_id = "pauseGroup", tag = "groups", summary = "Stop deliveries", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")), responses((status = 200, description = "The group", body = openapi::groups::Group, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn pause(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    set_paused(&state, &call, true).await
}

/// `POST …/groups/{group}/resume`
#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/resume", operation_id = "resumeGroup", tag = "groups", summary = "Go on with deliveries", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")), responses((status = 200, description = "The group", body = openapi::groups::Group, headers(("ETag" = String, description = "Version")))))]
pub(crate) async fn resume(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    set_paused(&state, &call, false).await
}

async fn set_paused(state: &AppState, call: &Call, paused: bool) -> Result<Response, ApiError> {
    let group = writable(call)?;
    call.no_query()?;
    call.no_body()?;
    let missing = || {
        ApiError::new(
            Code::GroupNotFound,
            format!("group '{group}' does not exist"),
        )
    };
    let change = |current: Option<&GroupDetail>| {
        Ok(GroupSpec {
            paused,
            ..current.ok_or_else(missing)?.spec.clone()
        })
    };
    put_and_answer(state, call, group, Precondition::default(), change).await
}

/// `DELETE …/groups/{group}`
#[utoipa::path(delete, path = "/v1/ns/{ns}/groups/{group}", operation_id = "deleteGroup", tag = "groups", summary = "Delete a group", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("If-Match" = Option<String>, Header, description = "Only this version (412 `version_mismatch`)"), ("force" = Option<bool>, Query, description = "Also with messages left")), responses((status = 200, description = "Deleted but at the brokers named", body = openapi::topics::Pending), (status = 204, description = "Deleted")))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let group = writable(&call)?;
    let force = call.query(&["force"])?.boolean("force")?;
    let condition = conditions(&call)?;
    let deadline = call.deadline(Duration::ZERO);
    let (detail, _) = state.upstream.get_group(group, deadline).await?;
    condition.check(
        Some(detail.version),
        Code::GroupExists,
        &format!("group '{group}'"),
    )?;
    if !force {
        let totals = Totals::of(&state.upstream.lag(group, deadline).await?);
        if totals.dlq_open > 0 || totals.retrying > 0 {
            let detail = format!(
                "group '{group}' has {} open dead letters and {} messages that wait for a retry; deal with them, or delete with ?force=true",
                totals.dlq_open, totals.retrying
            );
            let counts =
                serde_json::json!({"dlqOpen": totals.dlq_open, "retrying": totals.retrying});
            return Err(ApiError::new(Code::GroupNotDrained, detail).with("counts", counts));
        }
        if totals.in_flight > 0 {
            let detail = format!(
                "group '{group}' holds {} messages; wait, or delete with ?force=true",
                totals.in_flight
            );
            return Err(ApiError::new(Code::GroupActive, detail)
                .with("counts", serde_json::json!({"inFlight": totals.in_flight})));
        }
    }
    Ok(deleted(
        &state.upstream.delete_group(group, deadline).await?,
    ))
}

/// `GET …/groups/{group}/lag`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}/lag", operation_id = "getGroupLag", tag = "groups", summary = "How far a group is", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")), responses((status = 200, description = "Queue by queue", body = openapi::groups::GroupLag)))]
pub(crate) async fn lag(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let group = call.group()?;
    call.no_query()?;
    let deadline: Instant = call.deadline(Duration::ZERO);
    let (detail, _) = state.upstream.get_group(group, deadline).await?;
    let lag = state.upstream.lag(group, deadline).await?;
    let mut out = Vec::with_capacity(1_024);
    let mut object = Members::open(&mut out);
    object.text("group", group);
    let totals = Totals::of(&lag);
    object.number("lag", totals.lag());
    object.number("ready", totals.ready);
    object.number("inFlight", totals.in_flight);
    object.number("retrying", totals.retrying);
    object.number("dlqOpen", totals.dlq_open);
    object.time_or_null("oldestReadyAt", totals.oldest_ready_at_ms);
    let list = object.member("queues");
    list.push(b'[');
    let mut first = true;
    for (broker, lag) in &lag {
        for queue in &lag.queues {
            if !first {
                list.push(b',');
            }
            first = false;
            queue_lag(list, broker, queue, &detail);
        }
    }
    list.push(b']');
    object.close();
    Ok(answer::json(StatusCode::OK, out))
}

fn queue_lag(out: &mut Vec<u8>, broker: &str, queue: &QueueLag, detail: &GroupDetail) {
    // A retry topic is shown under the topic it belongs to.
    let topic = if queue.retry {
        queue
            .topic
            .rsplit_once('+')
            .map_or(queue.topic.as_str(), |(_, t)| t)
    } else {
        &queue.topic
    };
    let filtered = detail
        .subscriptions
        .iter()
        .any(|s| s.topic == topic && s.kind != "all");
    let ready = (queue.max_offset - queue.next_deliver.max(queue.min_offset)).max(0);
    let mut object = Members::open(out);
    object.text("topic", topic);
    object.queue("queue", broker, queue.queue_id);
    object.boolean("retry", queue.retry);
    object.number("minOffset", queue.min_offset);
    object.number("ackFloor", queue.ack_floor);
    object.number("nextDeliver", queue.next_deliver);
    object.number("maxOffset", queue.max_offset);
    object.number("ready", ready);
    object.number(
        "inFlight",
        i64::try_from(queue.in_flight).unwrap_or(i64::MAX),
    );
    object.number(
        "retrying",
        i64::try_from(queue.waiting).unwrap_or(i64::MAX) + if queue.retry { ready } else { 0 },
    );
    object.boolean("exact", !filtered);
    object.close();
}

/// Sums over queues and brokers.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    ready: i64,
    in_flight: i64,
    retrying: i64,
    dlq_open: i64,
    oldest_ready_at_ms: Option<i64>,
}

impl Totals {
    pub(crate) fn of(brokers: &[(String, GroupLag)]) -> Self {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut totals = Self::default();
        for (_, lag) in brokers {
            totals.dlq_open += whole(lag.dlq_open);
            totals.oldest_ready_at_ms = totals
                .oldest_ready_at_ms
                .into_iter()
                .chain(lag.oldest_ready_at_ms)
                .min();
            for queue in &lag.queues {
                let ready = (queue.max_offset - queue.next_deliver.max(queue.min_offset)).max(0);
                totals.in_flight += whole(queue.in_flight);
                totals.retrying += whole(queue.waiting) + if queue.retry { ready } else { 0 };
                totals.ready += if queue.retry { 0 } else { ready };
            }
        }
        totals
    }

    /// Open dead letters.
    pub(crate) fn dlq_open(&self) -> i64 {
        self.dlq_open
    }

    /// Messages not settled yet.
    pub(crate) fn lag(&self) -> i64 {
        self.ready + self.in_flight + self.retrying
    }
}

/// The specification a body makes of `base`. With `merge`, absent fields keep what `base` says and null resets.
fn spec_of(
    raw: Raw<'_>,
    group: &str,
    base: &GroupSpec,
    merge: bool,
) -> Result<GroupSpec, ApiError> {
    let object = Object::open(raw, "", &FIELDS)?;
    let fresh = default_group();
    let mut spec = base.clone();
    let reset =
        |name: &str| merge && object.get_or_null(name).is_some() && object.get(name).is_none();
    if object
        .string("name", Code::InvalidField)?
        .is_some_and(|n| n != group)
    {
        return Err(ApiError::field(
            Code::InvalidField,
            "/name",
            "the name stands in the path and cannot be changed",
        ));
    }
    if object.boolean("ordered")?.unwrap_or(false) {
        let detail = "ordered groups are part of the API but not built yet; leave ordered out";
        return Err(ApiError::field(Code::NotImplemented, "/ordered", detail));
    }
    if let Some(text) = object.string("invisibleFor", Code::InvalidDuration)? {
        spec.invisible_ms = duration_in(
            &text,
            "invisibleFor",
            "/invisibleFor",
            INVISIBLE_MS,
            Code::InvalidInvisibleFor,
        )?;
    } else if reset("invisibleFor") {
        spec.invisible_ms = fresh.invisible_ms;
    }
    if let Some(n) = object.integer("maxInFlight", IN_FLIGHT, Code::InvalidField)? {
        spec.max_in_flight = u32::try_from(n).unwrap_or(u32::MAX);
    } else if reset("maxInFlight") {
        spec.max_in_flight = fresh.max_in_flight;
    }
    if let Some(text) = object.string("initialPosition", Code::InvalidTime)? {
        spec.initial_position = position(&text, "/initialPosition")?;
    } else if reset("initialPosition") {
        spec.initial_position.clone_from(&fresh.initial_position);
    }
    if let Some(raw) = object.get("retry") {
        retry(raw, &mut spec, merge)?;
    } else if reset("retry") {
        (spec.max_attempts, spec.backoff) = (fresh.max_attempts, fresh.backoff.clone());
    }
    if let Some(raw) = object.get("deadLetter") {
        dead_letter(raw, &mut spec)?;
    } else if reset("deadLetter") {
        (spec.dead_letter_enabled, spec.dead_letter_retention_ms) =
            (fresh.dead_letter_enabled, fresh.dead_letter_retention_ms);
    }
    match object.string("onExhausted", Code::InvalidField)?.as_deref() {
        None | Some("dlq") => {}
        Some("block") => {
            return Err(ApiError::field(
                Code::NotImplemented,
                "/onExhausted",
                "block belongs to ordered groups, which are not built yet; use dlq",
            ));
        }
        Some(_) => {
            return Err(ApiError::field(
                Code::InvalidField,
                "/onExhausted",
                "onExhausted is dlq or block",
            ));
        }
    }
    if let Some(paused) = object.boolean("paused")? {
        spec.paused = paused;
    } else if reset("paused") {
        spec.paused = fresh.paused;
    }
    if object
        .string("description", Code::InvalidField)?
        .is_some_and(|d| !d.is_empty())
    {
        return Err(ApiError::field(
            Code::NotImplemented,
            "/description",
            "description of a group is part of the API but not built yet; leave it out",
        ));
    }
    if let Some(raw) = object.get("labels") {
        Object::open(raw, "/labels", &[]).map_err(|_| {
            ApiError::field(
                Code::NotImplemented,
                "/labels",
                "labels of a group are part of the API but not built yet; leave them out",
            )
        })?;
    }
    Ok(spec)
}

/// `earliest`, `latest` or a time, as brokers take it.
pub(super) fn position(text: &str, pointer: &str) -> Result<String, ApiError> {
    if matches!(text, "earliest" | "latest") {
        return Ok(text.to_owned());
    }
    let at = parse_time(text).filter(|ms| *ms >= 0).ok_or_else(|| {
        ApiError::field(
            Code::InvalidTime,
            pointer,
            "a position is earliest, latest or a time such as 2026-11-29T16:30:21Z",
        )
    })?;
    Ok(at.to_string())
}

/// The same as it is shown.
pub(super) fn shown_position(text: &str) -> String {
    text.parse::<i64>()
        .map_or_else(|_| text.to_owned(), format_time)
}

fn retry(raw: Raw<'_>, spec: &mut GroupSpec, merge: bool) -> Result<(), ApiError> {
    let object = Object::open(raw, "/retry", &["maxAttempts", "backoff"])?;
    if let Some(n) = object.integer("maxAttempts", ATTEMPTS, Code::InvalidField)? {
        spec.max_attempts = u32::try_from(n).unwrap_or(100);
    } else if merge && object.get_or_null("maxAttempts").is_some() {
        spec.max_attempts = default_group().max_attempts;
    }
    if let Some(raw) = object.get("backoff") {
        spec.backoff = backoff(raw)?;
    }
    Ok(())
}

fn backoff(raw: Raw<'_>) -> Result<Backoff, ApiError> {
    let object = Object::open(
        raw,
        "/retry/backoff",
        &["kind", "delays", "initial", "max", "multiplier", "jitter"],
    )?;
    let kind = object.string("kind", Code::InvalidField)?;
    let foreign = |names: &[&str]| {
        names.iter().find(|n| object.get(n).is_some()).map(|n| {
            ApiError::field(
                Code::InvalidField,
                object.pointer(n),
                format!("{n} does not belong to this kind of backoff"),
            )
        })
    };
    match kind.as_deref() {
        Some("list") => {
            if let Some(error) = foreign(&["initial", "max", "multiplier", "jitter"]) {
                return Err(error);
            }
            let mut delays_ms = Vec::new();
            for (i, raw) in object
                .array("delays", Code::InvalidField)?
                .into_iter()
                .flatten()
                .enumerate()
            {
                let at = object.pointer(&format!("delays/{i}"));
                if i == DELAYS_MAX {
                    return Err(ApiError::field(
                        Code::InvalidField,
                        at,
                        format!("at most {DELAYS_MAX} delays"),
                    )
                    .with("limit", DELAYS_MAX));
                }
                let text = raw.as_string()?.unwrap_or_default();
                delays_ms.push(duration_in(
                    &text,
                    "a delay",
                    &at,
                    DELAY_MS,
                    Code::InvalidDuration,
                )?);
            }
            if delays_ms.is_empty() {
                return Err(ApiError::field(
                    Code::InvalidField,
                    object.pointer("delays"),
                    "a list has at least one delay, such as [\"1s\",\"10s\"]",
                ));
            }
            Ok(Backoff::List { delays_ms })
        }
        Some("exponential") => {
            if let Some(error) = foreign(&["delays"]) {
                return Err(error);
            }
            let duration = |name: &str| {
                let text = object
                    .string(name, Code::InvalidDuration)?
                    .unwrap_or_default();
                duration_in(
                    &text,
                    name,
                    &object.pointer(name),
                    DELAY_MS,
                    Code::InvalidDuration,
                )
            };
            let number =
                |name: &str, range: std::ops::RangeInclusive<f64>, default: f64| match object
                    .get(name)
                {
                    None => Ok(default),
                    Some(raw) => raw
                        .as_number()
                        .filter(|n| range.contains(n))
                        .ok_or_else(|| {
                            let detail = format!(
                                "{name} is a number between {} and {}",
                                range.start(),
                                range.end()
                            );
                            ApiError::field(Code::InvalidField, object.pointer(name), detail)
                        }),
                };
            let (initial_ms, max_ms) = (duration("initial")?, duration("max")?);
            if max_ms < initial_ms {
                return Err(ApiError::field(
                    Code::InvalidField,
                    object.pointer("max"),
                    "max is not less than initial",
                ));
            }
            Ok(Backoff::Exponential {
                initial_ms,
                max_ms,
                multiplier: number("multiplier", 1.0..=100.0, 2.0)?,
                jitter: number("jitter", 0.0..=0.5, 0.0)?,
            })
        }
        _ => Err(ApiError::field(
            Code::InvalidField,
            object.pointer("kind"),
            "kind is list or exponential",
        )),
    }
}

fn dead_letter(raw: Raw<'_>, spec: &mut GroupSpec) -> Result<(), ApiError> {
    let object = Object::open(raw, "/deadLetter", &["enabled", "retention"])?;
    if let Some(enabled) = object.boolean("enabled")? {
        spec.dead_letter_enabled = enabled;
    }
    if let Some(text) = object.string("retention", Code::InvalidDuration)? {
        spec.dead_letter_retention_ms = duration_in(
            &text,
            "retention",
            "/deadLetter/retention",
            RETENTION_MS,
            Code::InvalidField,
        )?;
    }
    Ok(())
}

/// The whole group.
fn document(
    status: StatusCode,
    detail: &GroupDetail,
    lag: Option<&[(String, GroupLag)]>,
    pending: &[String],
    now_ms: i64,
) -> Response {
    let spec = &detail.spec;
    let mut out = Vec::with_capacity(1_024);
    let mut object = Members::open(&mut out);
    object.text("name", &detail.group);
    object.boolean("ordered", spec.ordered);
    object.text("invisibleFor", &format_duration(spec.invisible_ms));
    object.number("maxInFlight", i64::from(spec.max_in_flight));
    object.text("initialPosition", &shown_position(&spec.initial_position));
    let mut retry = Members::open(object.member("retry"));
    retry.number("maxAttempts", i64::from(spec.max_attempts));
    show_backoff(retry.member("backoff"), &spec.backoff);
    retry.close();
    let mut dead = Members::open(object.member("deadLetter"));
    dead.boolean("enabled", spec.dead_letter_enabled);
    dead.text("retention", &format_duration(spec.dead_letter_retention_ms));
    dead.close();
    object.text("onExhausted", "dlq");
    object.boolean("paused", spec.paused);
    object.text("description", "");
    object.raw("labels", b"{}");
    let list = object.member("subscriptions");
    list.push(b'[');
    for (i, subscription) in detail.subscriptions.iter().enumerate() {
        if i > 0 {
            list.push(b',');
        }
        super::subscriptions::show(list, subscription);
    }
    list.push(b']');
    if let Some(lag) = lag {
        let totals = Totals::of(lag);
        let mut stats = Members::open(object.member("stats"));
        stats.number("lag", totals.lag());
        stats.number("ready", totals.ready);
        stats.number("inFlight", totals.in_flight);
        stats.number("retrying", totals.retrying);
        stats.number("dlqOpen", totals.dlq_open);
        match totals.oldest_ready_at_ms {
            Some(at) => stats.text(
                "oldestReadyAge",
                &format_duration(u64::try_from(now_ms - at).unwrap_or(0)),
            ),
            None => stats.raw("oldestReadyAge", b"null"),
        }
        stats.close();
    }
    object.text("etag", &etag(detail.version));
    if !pending.is_empty() {
        object.texts("pending", pending);
    }
    object.close();
    answer::versioned(status, out, detail.version)
}

fn show_backoff(out: &mut Vec<u8>, backoff: &Backoff) {
    let mut object = Members::open(out);
    match backoff {
        Backoff::List { delays_ms } => {
            object.text("kind", "list");
            let delays: Vec<String> = delays_ms.iter().map(|ms| format_duration(*ms)).collect();
            object.texts("delays", &delays);
        }
        Backoff::Exponential {
            initial_ms,
            max_ms,
            multiplier,
            jitter,
        } => {
            object.text("kind", "exponential");
            object.text("initial", &format_duration(*initial_ms));
            object.text("max", &format_duration(*max_ms));
            object.raw("multiplier", multiplier.to_string().as_bytes());
            object.raw("jitter", jitter.to_string().as_bytes());
        }
    }
    object.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document as parse;

    fn spec(text: &str) -> Result<GroupSpec, ApiError> {
        spec_of(parse(text.as_bytes())?, "billing", &default_group(), false)
    }

    #[test]
    fn the_documented_example_is_taken() {
        let example = r#"{"ordered":false,"invisibleFor":"45s","maxInFlight":100,"initialPosition":"2026-11-29T16:30:21.123Z",
            "retry":{"maxAttempts":5,"backoff":{"kind":"exponential","initial":"1s","max":"1m","multiplier":2,"jitter":0.1}},
            "deadLetter":{"enabled":true,"retention":"14d"},"onExhausted":"dlq","paused":false,"description":"","labels":{}}"#;
        let spec = spec(example).unwrap();
        assert_eq!(
            (spec.invisible_ms, spec.max_in_flight, spec.max_attempts),
            (45_000, 100, 5)
        );
        assert_eq!(spec.initial_position, "1795969821123");
        assert_eq!(
            shown_position(&spec.initial_position),
            "2026-11-29T16:30:21.123Z"
        );
    }

    #[test]
    fn faults_name_their_field_and_code() {
        for (text, code, pointer) in [
            (r#"{"ordered":true}"#, Code::NotImplemented, "/ordered"),
            (
                r#"{"onExhausted":"block"}"#,
                Code::NotImplemented,
                "/onExhausted",
            ),
            (r#"{"labels":{"a":"b"}}"#, Code::NotImplemented, "/labels"),
            (
                r#"{"invisibleFor":30}"#,
                Code::InvalidDuration,
                "/invisibleFor",
            ),
            (
                r#"{"invisibleFor":"1ms"}"#,
                Code::InvalidInvisibleFor,
                "/invisibleFor",
            ),
            (
                r#"{"initialPosition":"yesterday"}"#,
                Code::InvalidTime,
                "/initialPosition",
            ),
            (
                r#"{"retry":{"maxAttempts":0}}"#,
                Code::InvalidField,
                "/retry/maxAttempts",
            ),
            (
                r#"{"retry":{"maxAttempt":1}}"#,
                Code::UnknownField,
                "/retry/maxAttempt",
            ),
            (
                r#"{"retry":{"backoff":{"kind":"list","delays":[]}}}"#,
                Code::InvalidField,
                "/retry/backoff/delays",
            ),
            (
                r#"{"retry":{"backoff":{"kind":"list","delays":["x"]}}}"#,
                Code::InvalidDuration,
                "/retry/backoff/delays/0",
            ),
            (
                r#"{"maxInFlight":200001}"#,
                Code::InvalidField,
                "/maxInFlight",
            ),
        ] {
            let error = spec(text).unwrap_err();
            assert_eq!(
                (error.code(), error.fault().errors[0].pointer.as_str()),
                (code, pointer),
                "{text}"
            );
        }
    }

    #[test]
    fn a_merge_patch_keeps_what_it_does_not_name_and_null_resets() {
        let base = GroupSpec {
            invisible_ms: 1_000,
            max_attempts: 3,
            paused: true,
            ..default_group()
        };
        let patch =
            |text: &str| spec_of(parse(text.as_bytes()).unwrap(), "billing", &base, true).unwrap();
        assert_eq!(patch("{}"), base);
        assert_eq!(
            patch(r#"{"invisibleFor":null}"#).invisible_ms,
            default_group().invisible_ms
        );
        assert_eq!(patch(r#"{"retry":null}"#).max_attempts, 16);
        assert!(!patch(r#"{"paused":null}"#).paused);
    }
}
