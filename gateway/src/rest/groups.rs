//! Groups: list, create, change, read, delete, pause, lag.

use super::answer::{self, conditions, deleted};
use super::group_document::{Totals, document, queue_lag};
use super::group_spec::spec_of;
use super::labels::Filter;
use super::topics::finish_list;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::page::limit;
use crate::params::check_group_writable;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{ListedGroup, Precondition, default_group};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use std::time::Duration;
use tokio::time::Instant;
use wire::body::gantry::{GroupDetail, GroupSpec};

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
    check_group_writable(group)?;
    Ok(group)
}

/// `GET …/groups`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups", operation_id = "listGroups", tag = "groups", summary = "List groups", params(("ns" = String, Path, description = "Namespace; `default`"), ("prefix" = Option<String>, Query, description = "Names that begin so"), ("label" = Option<String>, Query, description = "Only those with this label, as in `team`, or this value of it, as in `team=billing`"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page", body = openapi::groups::GroupList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    call.namespace()?;
    let query = call.query(&["prefix", "label", "limit", "pageToken"])?;
    let limit = limit(&query)?;
    let label = Filter::read(&query)?;
    let prefix = query.get("prefix").unwrap_or_default();
    let shown = query.get("label").unwrap_or_default();
    let key = format!("groups?prefix={prefix}&label={shown}");
    let after = match query.get("pageToken") {
        Some(token) => Some(state.pages.decode(&key, token, state.now_ms())?),
        None => None,
    };
    let (groups, partial) = state.upstream.groups(call.deadline(Duration::ZERO)).await?;
    let has =
        |group: &ListedGroup, filter: &Filter<'_>| filter.fits(group.labels().get(filter.name));
    let wanted = groups.iter().filter(|(name, group)| {
        name.starts_with(prefix)
            && after.as_ref().is_none_or(|a| *name > a)
            && label.as_ref().is_none_or(|label| has(group, label))
    });
    let page: Vec<&String> = wanted.map(|(name, _)| name).take(limit + 1).collect();
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
        &partial,
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
    let lag = state.upstream.lag(group, deadline).await?;
    Ok(document(
        StatusCode::OK,
        &detail,
        Some(&lag),
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
        unused(&state, group, deadline).await?;
    }
    Ok(deleted(
        &state
            .upstream
            .delete_group(group, condition, deadline)
            .await?,
    ))
}

/// Members that a refusal names.
const NAMED: usize = 10;

/// 409 while a group has messages left or members; 503 where a broker cannot say.
async fn unused(state: &AppState, group: &str, deadline: Instant) -> Result<(), ApiError> {
    let lag = state.upstream.lag(group, deadline).await?;
    let totals = Totals::of(&lag.brokers);
    if totals.dlq_open > 0 || totals.retrying > 0 {
        let detail = format!(
            "group '{group}' has {} open dead letters and {} messages that wait for a retry; deal with them, or delete with ?force=true",
            totals.dlq_open, totals.retrying
        );
        let counts = serde_json::json!({"dlqOpen": totals.dlq_open, "retrying": totals.retrying});
        return Err(ApiError::new(Code::GroupNotDrained, detail).with("counts", counts));
    }
    let some = state.upstream.members(group, "", NAMED, deadline).await?;
    if totals.in_flight > 0 || !some.members.is_empty() {
        let members: Vec<&str> = some.members.iter().map(|m| m.client.as_str()).collect();
        let more = if some.more { " and others" } else { "" };
        let detail = format!(
            "group '{group}' holds {} messages, and its members of the last minute are {}{more}; wait, or delete with ?force=true",
            totals.in_flight,
            if members.is_empty() {
                "none".to_owned()
            } else {
                members.join(", ")
            },
        );
        return Err(ApiError::new(Code::GroupActive, detail)
            .with("counts", serde_json::json!({"inFlight": totals.in_flight}))
            .with("members", members));
    }
    answer::all_asked(&lag.partial, "whether the group has messages left")
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
    let totals = Totals::of(&lag.brokers);
    totals.show(&mut object);
    object.number("dlqOpen", totals.dlq_open);
    object.time_or_null("oldestReadyAt", totals.oldest_ready_at_ms);
    let list = object.member("queues");
    list.push(b'[');
    let mut first = true;
    for (broker, lag) in &lag.brokers {
        for queue in &lag.queues {
            if !first {
                list.push(b',');
            }
            first = false;
            queue_lag(list, broker, queue, &detail);
        }
    }
    list.push(b']');
    answer::partial(object.member("partial"), &lag.partial);
    object.close();
    Ok(answer::json(StatusCode::OK, out))
}
