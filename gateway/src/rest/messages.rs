//! Sending: one message, or a batch.

use super::answer;
use crate::error::{ApiError, Code, Outcome};
use crate::http::Call;
use crate::json::{Object, Raw, write_string};
use crate::message::{self, draft, draft_of};
use crate::params::check_topic_writable;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{Draft, Scope, Sent};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route(
            "/v1/ns/{ns}/topics/{topic}/messages",
            post(send).get(super::browse::browse),
        )
        .route(
            "/v1/ns/{ns}/topics/{topic}/messages/batch",
            post(send_batch),
        )
        .route("/v1/ns/{ns}/topics/{topic}/raw", post(super::raw::send_raw))
}

/// How a send is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Sync,
    Oneway,
}

/// `mode=sync|oneway`.
pub(super) fn mode(call: &Call) -> Result<Mode, ApiError> {
    match call.query(&["mode"])?.get("mode") {
        None | Some("sync") => Ok(Mode::Sync),
        Some("oneway") => Ok(Mode::Oneway),
        Some(_) => Err(ApiError::field(
            Code::InvalidField,
            "?mode",
            "mode is sync or oneway",
        )),
    }
}

/// The topic of a send.
pub(super) fn writable(call: &Call) -> Result<&str, ApiError> {
    let topic = call.topic()?;
    check_topic_writable(topic)?;
    Ok(topic)
}

/// `POST …/topics/{topic}/messages`
#[utoipa::path(post, path = "/v1/ns/{ns}/topics/{topic}/messages", operation_id = "sendMessage", tag = "messages", summary = "Send a message", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("mode" = Option<String>, Query, description = "`sync` (default) or `oneway`")), request_body = openapi::messages::SendMessageRequest, responses((status = 201, description = "Stored with the durability named", body = openapi::messages::SendReceipt, headers(("Location" = String, description = "The message"))), (status = 202, description = "One-way: accepted", body = openapi::messages::Accepted)))]
pub(crate) async fn send(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let topic = writable(&call)?;
    let mode = mode(&call)?;
    call.no_idempotency_key()?;
    let mut draft = draft(call.plain_json()?, "", &call.body, state.message_max())?;
    if draft.traceparent.is_none() {
        draft.traceparent = call
            .header("traceparent")
            .filter(|t| message::is_traceparent(t))
            .map(str::to_owned);
    }
    finish(&state, &call, topic, mode, &draft).await
}

/// Sends a checked message and answers.
pub(super) async fn finish(
    state: &AppState,
    call: &Call,
    topic: &str,
    mode: Mode,
    draft: &Draft,
) -> Result<Response, ApiError> {
    let deadline = call.deadline(Duration::ZERO);
    match mode {
        Mode::Oneway => {
            let message_id = accept(state, call, topic, draft, deadline).await?;
            let mut out = Vec::with_capacity(64);
            let mut object = Members::open(&mut out);
            object.text("messageId", &message_id);
            object.boolean("accepted", true);
            object.close();
            Ok(answer::json(StatusCode::ACCEPTED, out))
        }
        Mode::Sync => {
            let sent = state.upstream.send(&Scope, topic, draft, deadline).await?;
            let mut out = Vec::with_capacity(320);
            let mut object = Members::open(&mut out);
            sent_members(&mut object, topic, &sent);
            object.close();
            let mut response = answer::json(StatusCode::CREATED, out);
            let location = format!("/v1/ns/default/topics/{topic}/messages/{}", sent.message_id);
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            Ok(response)
        }
    }
}

/// One-way: validated and routed, then sent in a task of its own; a later failure is only counted.
async fn accept(
    state: &AppState,
    call: &Call,
    topic: &str,
    draft: &Draft,
    deadline: Instant,
) -> Result<String, ApiError> {
    let Ok(place) = Arc::clone(&state.oneway).try_acquire_owned() else {
        let detail = "too many one-way sends are under way; send slower, or without mode=oneway";
        return Err(ApiError::new(Code::Overloaded, detail));
    };
    state.upstream.check_route(topic, deadline).await?;
    let message_id = state.upstream.new_message_id();
    let draft = Draft {
        message_id: message_id.clone(),
        ..draft.clone()
    };
    let (state, topic, held) = (state.clone(), topic.to_owned(), call.held());
    state.tracker.clone().spawn(async move {
        let (_place, _held) = (place, held);
        if let Err(error) = state.upstream.send(&Scope, &topic, &draft, deadline).await {
            tracing::debug!(%error, topic, "one-way send failed");
            state.metrics.oneway_dropped.inc();
        }
    });
    Ok(message_id)
}

/// The members of an answered send.
pub(crate) fn sent_members(object: &mut Members<'_>, topic: &str, sent: &Sent) {
    object.text("messageId", &sent.message_id);
    object.text("topic", topic);
    object.queue("queue", &sent.broker, sent.queue_id);
    object.number("offset", sent.queue_offset);
    object.time("storedAt", sent.stored_at_ms);
    object.text("durability", sent.durability);
    object.boolean("duplicate", false);
}

/// `POST …/topics/{topic}/messages/batch`
#[utoipa::path(post, path = "/v1/ns/{ns}/topics/{topic}/messages/batch", operation_id = "sendBatch", tag = "messages", summary = "Send several messages", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$")), request_body = openapi::messages::BatchRequest, responses((status = 200, description = "All stored", body = openapi::messages::BatchResponse), (status = 201, description = "All stored in one queue (atomic)", body = openapi::messages::BatchResponse), (status = 207, description = "Some stored", body = openapi::messages::BatchResponse)))]
pub(crate) async fn send_batch(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let topic = writable(&call)?;
    call.no_query()?;
    call.no_idempotency_key()?;
    let (atomic, drafts) = read_batch(
        call.plain_json()?,
        &call.body,
        state.message_max(),
        state.config.batch_max,
    )?;
    let deadline = call.deadline(Duration::ZERO);
    let results = if atomic {
        let drafts = drafts.into_iter().collect::<Result<Vec<_>, _>>()?;
        one_queue(&drafts)?;
        let sent = state
            .upstream
            .send_atomic(&Scope, topic, &drafts, deadline)
            .await?;
        sent.into_iter().map(Ok).collect()
    } else {
        each(&state, topic, drafts, deadline).await
    };
    Ok(batch_answer(topic, atomic, &results))
}

/// Whether a batch of at most `max` messages is atomic, and each of its messages or what is wrong with it.
pub(super) fn read_batch(
    raw: Raw<'_>,
    source: &Bytes,
    body_max: usize,
    max: usize,
) -> Result<(bool, Vec<Result<Draft, ApiError>>), ApiError> {
    let object = Object::open(raw, "", &["messages", "atomic"])?;
    let atomic = object.boolean("atomic")?.unwrap_or(false);
    let Some(list) = object.array("messages", Code::InvalidField)? else {
        return Err(ApiError::field(
            Code::InvalidField,
            "/messages",
            "messages must be a list of message objects",
        ));
    };
    let count = list.clone().take(max + 1).count();
    if count == 0 {
        return Err(ApiError::field(
            Code::BatchEmpty,
            "/messages",
            "a batch holds at least one message",
        ));
    }
    if count > max {
        let actual = list.count();
        let detail = format!("a batch holds at most {max} messages");
        return Err(ApiError::field(Code::BatchTooLarge, "/messages", detail)
            .with("limit", max)
            .with("actual", actual));
    }
    let item = |(index, raw)| {
        let object = Object::open(raw, &format!("/messages/{index}"), &message::FIELDS)?;
        draft_of(&object, source, body_max)
    };
    Ok((atomic, list.enumerate().map(item).collect()))
}

/// An atomic batch has one ordering key or none, and one queue.
fn one_queue(drafts: &[Draft]) -> Result<(), ApiError> {
    let first = drafts.first();
    let differs =
        |d: &Draft| first.is_some_and(|f| f.ordering_key != d.ordering_key || f.queue != d.queue);
    if drafts.iter().any(differs) {
        let detail =
            "an atomic batch goes to one queue: all messages have the same orderingKey, or none";
        return Err(ApiError::field(Code::InvalidField, "/atomic", detail));
    }
    Ok(())
}

/// Sends every item on its own. Items of one queue keep their order: they are written to one connection in turn.
async fn each(
    state: &AppState,
    topic: &str,
    drafts: Vec<Result<Draft, ApiError>>,
    deadline: Instant,
) -> Vec<Result<Sent, ApiError>> {
    let sends = drafts.into_iter().map(|draft| async move {
        let draft = draft?;
        state.upstream.send(&Scope, topic, &draft, deadline).await
    });
    join_all(sends).await
}

fn batch_answer(topic: &str, atomic: bool, results: &[Result<Sent, ApiError>]) -> Response {
    let mut out = Vec::with_capacity(64 + results.len() * 300);
    out.extend_from_slice(b"{\"results\":[");
    let mut failed = 0_usize;
    for (index, result) in (0_i64..).zip(results) {
        if index > 0 {
            out.push(b',');
        }
        let mut object = Members::open(&mut out);
        object.number("index", index);
        match result {
            Ok(sent) => {
                object.number("status", 201);
                sent_members(&mut object, topic, sent);
            }
            Err(error) => {
                failed += 1;
                failed_members(&mut object, error);
            }
        }
        object.close();
    }
    let tail = format!(
        "],\"succeeded\":{},\"failed\":{failed}}}",
        results.len() - failed
    );
    out.extend_from_slice(tail.as_bytes());
    let first = results.iter().find_map(|r| r.as_ref().err());
    let status = match first {
        None if atomic => StatusCode::CREATED,
        None => StatusCode::OK,
        Some(first) if failed == results.len() => first.code().status(),
        Some(_) => StatusCode::MULTI_STATUS,
    };
    let mut response = answer::json(status, out);
    if status != StatusCode::MULTI_STATUS
        && let Some(seconds) = first.and_then(|error| error.fault().retry_after_s)
    {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// One failed item: the members of its problem document that matter.
pub(super) fn failed_members(object: &mut Members<'_>, error: &ApiError) {
    let fault = error.fault();
    object.number("status", i64::from(fault.code.status_u16()));
    object.text("code", fault.code.as_str());
    object.text("detail", &fault.detail);
    object.boolean("retryable", fault.code.retryable());
    object.text(
        "outcome",
        fault.outcome.unwrap_or(Outcome::NotApplied).as_str(),
    );
    for (name, value) in &fault.extra {
        object.raw(name, value.to_string().as_bytes());
    }
    if let Some(first) = fault.errors.first() {
        write_string(object.member("pointer"), &first.pointer);
    }
}
