//! Receiving: sweep without waiting, then wait for a notification, then sweep where it fired.

use super::answer;
use crate::error::{ApiError, Code};
use crate::http::guarded::guard;
use crate::http::{Call, names_type};
use crate::memory::{Held, Whose};
use crate::params::{check_topic, format_duration, percent_encode};
use crate::render::{BodyFormat, message};
use crate::state::AppState;
use crate::upstream::{
    Delivery, Gap, PopRequest, Popped, Scope, SettleOp, SettleStatus, Settlement, Wake,
};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const MAX_DEFAULT: u64 = 32;
const MAX_LIMIT: u64 = 256;
const WAIT_DEFAULT_MS: u64 = 20_000;
const WAIT_MAX_MS: u64 = 60_000;
/// Leases: 1 s to 12 h.
pub(crate) const INVISIBLE_MS: std::ops::RangeInclusive<u64> = 1_000..=43_200_000;
const BYTES_DEFAULT: u64 = 4 << 20;
const BYTES_MAX: u64 = 16 << 20;
/// How often a paused group is looked at.
const PAUSED_LOOK: Duration = Duration::from_millis(250);

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/groups/{group}/receive", post(receive))
}

/// What a receive asks for.
struct Wanted {
    topic: Option<String>,
    max: u32,
    max_bytes: u32,
    wait: Duration,
    invisible_ms: Option<u64>,
    format: Format,
    auto_ack: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json(BodyFormat),
    Raw,
}

fn wanted(call: &Call) -> Result<Wanted, ApiError> {
    let query = call.query(&[
        "topic",
        "max",
        "wait",
        "invisibleFor",
        "maxBytes",
        "bodyFormat",
        "attemptId",
        "autoAck",
    ])?;
    call.no_body()?;
    if query.get("attemptId").is_some() {
        return Err(ApiError::field(
            Code::NotImplemented,
            "?attemptId",
            "attemptId is part of the API but not built yet; leave it out",
        ));
    }
    let topic = query.get("topic").map(str::to_owned);
    if let Some(topic) = &topic {
        check_topic(topic)?;
    }
    let format = match query.get("bodyFormat") {
        None if names_type(call.headers(), "application/octet-stream") => Format::Raw,
        None => Format::Json(BodyFormat::Auto),
        Some("raw") => Format::Raw,
        Some(text) => {
            let known = BodyFormat::parse(text);
            let wrong = || {
                ApiError::field(
                    Code::InvalidField,
                    "?bodyFormat",
                    "bodyFormat is auto, base64, text, none or raw",
                )
            };
            Format::Json(known.ok_or_else(wrong)?)
        }
    };
    let (limit, default) = if format == Format::Raw {
        (1, 1)
    } else {
        (MAX_LIMIT, MAX_DEFAULT)
    };
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let wait = query
        .duration("wait", 0..=WAIT_MAX_MS, Code::InvalidWait)?
        .unwrap_or(WAIT_DEFAULT_MS);
    Ok(Wanted {
        topic,
        max: narrow(query.integer("max", 1..=limit, default, Code::InvalidMax)?),
        max_bytes: narrow(query.integer(
            "maxBytes",
            1..=BYTES_MAX,
            BYTES_DEFAULT,
            Code::InvalidField,
        )?),
        wait: Duration::from_millis(wait),
        invisible_ms: query.duration("invisibleFor", INVISIBLE_MS, Code::InvalidInvisibleFor)?,
        format,
        auto_ack: query.boolean("autoAck")?,
    })
}

/// `POST …/groups/{group}/receive`
#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/receive", operation_id = "receive", tag = "groups", summary = "Receive messages, waiting if there are none", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = Option<String>, Query, description = "One topic; default all subscribed, in turn"), ("max" = Option<u32>, Query, description = "1–256, default 32; raw form 1"), ("wait" = Option<String>, Query, description = "0s–60s, default 20s"), ("invisibleFor" = Option<String>, Query, description = "Lease time, 1s–12h; default the group's"), ("maxBytes" = Option<u64>, Query, description = "Stops early above; default 4 MiB, at least one message"), ("bodyFormat" = Option<String>, Query, description = "`auto` (default), `base64`, `text`, `none`, `raw`"), ("autoAck" = Option<bool>, Query, description = "At most once: acked before the answer"), ("Mq-Client" = Option<String>, Header, description = "Label of the caller")), responses((status = 200, description = "Messages, or none; in the raw form the bytes with headers `Mq-Receipt` …", body = openapi::messages::ReceiveResponse), (status = 204, description = "Raw form: none")))]
pub(crate) async fn receive(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let group = call.group()?;
    let wanted = wanted(&call)?;
    let deadline = call.deadline(wanted.wait);
    let until = (call.started() + wanted.wait).min(deadline);
    let request = PopRequest {
        scope: Scope,
        group: group.to_owned(),
        topic: wanted.topic.clone(),
        max: wanted.max,
        max_bytes: wanted.max_bytes,
        invisible_ms: wanted.invisible_ms,
        member: call.member()?,
        member_limit: 0,
        member_holds: BTreeMap::new(),
        deadline,
    };
    if request.topic.is_none() {
        state.upstream.reads_something(group, deadline).await?;
    }
    let (mut popped, held) = take(&state, &request, until).await?;
    if wanted.auto_ack {
        ack_all(&state, &request, &mut popped).await;
    }
    Ok(match wanted.format {
        Format::Raw => raw(popped, held, wanted.auto_ack),
        Format::Json(format) => json(
            popped,
            held,
            format,
            call.started().elapsed(),
            wanted.auto_ack,
        ),
    })
}

/// Sweeps, and where there is neither a message nor a loss waits and sweeps again until `until`.
async fn take(
    state: &AppState,
    request: &PopRequest,
    until: Instant,
) -> Result<(Popped, Held), ApiError> {
    let mut place = None;
    loop {
        let bytes = usize::try_from(request.max_bytes).unwrap_or(usize::MAX);
        let held =
            answer::room(state, Whose::Group(&request.group), bytes, request.deadline).await?;
        let popped = if state.draining.is_cancelled() {
            Popped::default()
        } else {
            let mut part = request.clone();
            part.max_bytes = u32::try_from(held.bytes()).unwrap_or(request.max_bytes);
            state.upstream.pop(&part).await?
        };
        let now = Instant::now();
        // A loss is told once: nothing that could fail may come before the answer.
        let news = !popped.messages.is_empty() || !popped.gap.is_empty();
        if news || now >= until || state.draining.is_cancelled() {
            return Ok((popped, held));
        }
        if place.is_none() && !popped.more {
            let free = state.waiting.try_acquire();
            place = Some(free.map_err(|_| answer::too_many_waiters(state))?);
        }
        drop(held);
        let wake = if popped.more {
            // A sparse filter: the broker has looked at a part, the rest is looked at at once.
            Wake::Ready
        } else if popped.paused {
            tokio::select! {
                () = tokio::time::sleep_until(until.min(now + PAUSED_LOOK)) => Wake::Ready,
                () = state.draining.cancelled() => Wake::Elapsed,
            }
        } else {
            tokio::select! {
                wake = state.upstream.notification(&request.scope, &request.group, request.topic.as_deref(), until) => wake?,
                () = state.draining.cancelled() => Wake::Elapsed,
            }
        };
        if wake == Wake::Elapsed {
            return Ok((popped, state.answers.empty()));
        }
    }
}

/// Acks before the answer (at most once); what could not be acked is left out and comes again.
async fn ack_all(state: &AppState, request: &PopRequest, popped: &mut Popped) {
    let items: Vec<Settlement> = popped
        .messages
        .iter()
        .map(|m| Settlement {
            lease: m.lease.clone(),
            op: SettleOp::Ack,
        })
        .collect();
    let outcomes = state
        .upstream
        .settle(&request.scope, &request.group, &items, request.deadline)
        .await;
    let mut acked = outcomes.iter().map(|o| o.status == SettleStatus::Acked);
    popped.messages.retain(|_| acked.next().unwrap_or(false));
}

/// The JSON form.
fn json(
    mut popped: Popped,
    held: Held,
    format: BodyFormat,
    waited: Duration,
    settled: bool,
) -> Response {
    let mut out = Vec::with_capacity(128 + popped.messages.len() * 800);
    out.extend_from_slice(b"{\"messages\":[");
    for (i, delivery) in popped.messages.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        message(&mut out, delivery, format, false);
    }
    let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let waited = if millis == 0 {
        "0ms".to_owned()
    } else {
        format_duration(millis)
    };
    let tail = format!(
        "],\"waited\":\"{waited}\",\"more\":{},\"paused\":{},\"gap\":",
        popped.more, popped.paused
    );
    out.extend_from_slice(tail.as_bytes());
    gaps(&mut out, &popped.gap);
    out.extend_from_slice(b",\"partial\":");
    answer::partial(&mut out, &popped.partial);
    out.extend_from_slice(b"}\n");
    if settled {
        drop(popped.take());
    }
    out.shrink_to_fit();
    let mut response = answer::json(StatusCode::OK, Vec::new());
    guarded(&mut response, out.into(), popped, held);
    response
}

/// `gap`: what retention deleted before the group read it.
fn gaps(out: &mut Vec<u8>, gaps: &[Gap]) {
    if gaps.is_empty() {
        out.extend_from_slice(b"null");
        return;
    }
    let lost = gaps.iter().map(|gap| {
        serde_json::json!({
            "topic": gap.topic,
            "queue": {"broker": gap.broker, "id": gap.queue_id},
            "from": gap.from,
            "to": gap.to,
            "skipped": gap.to - gap.from,
            "reason": "retention",
        })
    });
    let text = serde_json::Value::Array(lost.collect()).to_string();
    out.extend_from_slice(text.as_bytes());
}

/// The leases are given back, uncounted, where the client is gone before its answer.
fn guarded(response: &mut Response, bytes: Bytes, mut popped: Popped, mut held: Held) {
    for delivery in &mut popped.messages {
        // Rendered: only the lease is needed now.
        delivery.body = Bytes::new();
    }
    held.set(bytes.len());
    guard(response, bytes, (popped, held), |(mut popped, _)| {
        drop(popped.take());
    });
}

/// The raw form: bytes and headers; 204 where there is nothing.
fn raw(mut popped: Popped, held: Held, settled: bool) -> Response {
    let mut response = Response::new(Body::empty());
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    if popped.paused {
        set("mq-paused", "true");
    }
    if !popped.partial.is_empty() {
        let brokers: Vec<&str> = popped.partial.iter().map(|(b, _)| b.as_str()).collect();
        set("mq-partial", &brokers.join(","));
    }
    if !popped.gap.is_empty() {
        let skipped: i64 = popped.gap.iter().map(|gap| gap.to - gap.from).sum();
        set("mq-gap", &skipped.to_string());
    }
    let Some(delivery) = popped.messages.first() else {
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    };
    raw_headers(&mut response, delivery);
    // A copy, since the answer of the broker that it is a part of may have been read into twice the memory.
    let bytes = Bytes::copy_from_slice(&delivery.body);
    if settled {
        drop(popped.take());
    }
    guarded(&mut response, bytes, popped, held);
    response
}

fn raw_headers(response: &mut Response, delivery: &Delivery) {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.append(name, value);
        }
    };
    let named = HeaderName::from_static;
    set(named("mq-receipt"), &delivery.receipt);
    set(
        named("mq-message-id"),
        &percent_encode(&delivery.message_id),
    );
    set(named("mq-topic"), &delivery.topic);
    set(named("mq-attempt"), &delivery.lease.attempt.to_string());
    if let Some(tag) = &delivery.tag {
        set(named("mq-tag"), &percent_encode(tag));
    }
    if !delivery.keys.is_empty() {
        let keys: Vec<String> = delivery.keys.iter().map(|k| percent_encode(k)).collect();
        set(named("mq-keys"), &keys.join(","));
    }
    if let Some(key) = &delivery.ordering_key {
        set(named("mq-ordering-key"), &percent_encode(key));
    }
    for (name, value) in &delivery.properties {
        if let Ok(name) =
            HeaderName::from_bytes(format!("mq-prop-{name}").to_ascii_lowercase().as_bytes())
        {
            set(name, &percent_encode(value));
        }
    }
    let typed = HeaderValue::from_str(&delivery.content_type);
    headers.insert(
        header::CONTENT_TYPE,
        typed.unwrap_or(HeaderValue::from_static("application/octet-stream")),
    );
    // Stored bytes of anybody: a browser must not run them.
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> Popped {
        let mut popped = Popped::default();
        popped.gap = vec![
            Gap {
                topic: "orders".into(),
                broker: "broker-a".into(),
                queue_id: 3,
                from: 5,
                to: 9,
            },
            Gap {
                topic: "orders".into(),
                broker: "broker-b".into(),
                queue_id: 0,
                from: 0,
                to: 2,
            },
        ];
        popped
    }

    #[test]
    fn losses_stand_in_gap_and_their_number_in_mq_gap() {
        let mut text = Vec::new();
        gaps(&mut text, &lost().gap);
        let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            list[0],
            serde_json::json!({
                "topic": "orders", "queue": {"broker": "broker-a", "id": 3},
                "from": 5, "to": 9, "skipped": 4, "reason": "retention",
            })
        );
        assert_eq!(list.as_array().map(Vec::len), Some(2));
        let response = raw(lost(), crate::memory::Budget::new(1).empty(), false);
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers()["mq-gap"], "6");
        let mut text = Vec::new();
        gaps(&mut text, &[]);
        assert_eq!(text, b"null");
    }
}
