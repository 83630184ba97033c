//! Messages that members of a group hold: the list, and their release.

use super::answer;
use super::groups::writable;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::json::Object;
use crate::page::limit;
use crate::params::{check_topic, duration_in};
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::Holds;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::body::in_flight::{HeldLease, Place};

/// `olderThan`: no lease is older.
const AGE_MS: RangeInclusive<u64> = 0..=12 * 3_600_000;
/// Fields of a filter.
const FILTER: [&str; 4] = ["topic", "key", "client", "olderThan"];

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/ns/{ns}/groups/{group}/inflight", get(list))
        .route("/v1/ns/{ns}/groups/{group}/inflight/release", post(release))
}

/// `GET …/groups/{group}/inflight`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}/inflight", operation_id = "listInFlight", tag = "groups", summary = "List the messages that members hold", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = Option<String>, Query, description = "Of this topic"), ("key" = Option<String>, Query, description = "With this key"), ("client" = Option<String>, Query, description = "Held by this member"), ("olderThan" = Option<String>, Query, description = "Delivered so long ago, or longer; 0s–12h"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page, maybe an empty one where a filter leaves much out: go on while there is a nextPageToken", body = openapi::groups::InFlightList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let group = call.group()?;
    call.no_body()?;
    let query = call.query(&["topic", "key", "client", "olderThan", "limit", "pageToken"])?;
    let text = |name| query.get(name).map(str::to_owned);
    let holds = Holds {
        topic: text("topic"),
        key: text("key"),
        client: text("client"),
        older_than_ms: query.duration("olderThan", AGE_MS, Code::InvalidDuration)?,
    };
    if let Some(topic) = &holds.topic {
        check_topic(topic)?;
    }
    let limit = limit(&query)?;
    let key = format!("inflight/{group}/{holds:?}");
    let from = match query.get("pageToken") {
        Some(token) => Some(position(&state.pages.decode(
            &key,
            token,
            state.now_ms(),
        )?)?),
        None => None,
    };
    let deadline = call.deadline(Duration::ZERO);
    state.upstream.get_group(group, deadline).await?;
    let page = state
        .upstream
        .in_flight(group, &holds, from, limit, deadline)
        .await?;
    let mut out = Vec::with_capacity(128 + page.items.len() * 320);
    let mut object = Members::open(&mut out);
    let items = object.member("items");
    items.push(b'[');
    for (i, (broker, held)) in page.items.iter().enumerate() {
        if i > 0 {
            items.push(b',');
        }
        show(items, broker, held);
    }
    items.push(b']');
    let token = page.next.map(|(broker, at)| {
        let place = format!("{} {} {broker} {}", at.queue_id, at.queue_offset, at.topic);
        state.pages.encode(&key, &place, state.now_ms())
    });
    object.text_or_null("nextPageToken", token.as_deref());
    answer::partial(object.member("partial"), &page.partial);
    object.close();
    Ok(answer::json(StatusCode::OK, out))
}

fn position(text: &str) -> Result<(String, Place), ApiError> {
    let parse = || {
        let mut parts = text.splitn(4, ' ');
        let queue_id = parts.next()?.parse().ok()?;
        let queue_offset = parts.next()?.parse().ok()?;
        let broker = parts.next()?.to_owned();
        let place = Place {
            topic: parts.next()?.to_owned(),
            queue_id,
            queue_offset,
        };
        Some((broker, place))
    };
    parse().ok_or_else(|| {
        let detail = "this pageToken cannot be read";
        ApiError::field(Code::PageTokenInvalid, "?pageToken", detail)
    })
}

fn show(out: &mut Vec<u8>, broker: &str, held: &HeldLease) {
    let mut object = Members::open(out);
    object.text_or_null("messageId", held.message_id.as_deref());
    object.text("topic", &held.first.topic);
    object.queue("queue", broker, held.first.queue_id);
    object.number("offset", held.first.queue_offset);
    object.number("attempt", i64::from(held.attempt));
    object.text_or_null("client", held.client.as_deref());
    // There are no keys while authentication is off.
    object.raw("keyId", b"null");
    object.text_or_null("gateway", held.gateway.as_deref());
    object.time("deliveredAt", held.delivered_at_ms);
    object.time("invisibleUntil", held.visible_at_ms);
    object.close();
}

/// `POST …/groups/{group}/inflight/release`
#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/inflight/release", operation_id = "releaseInFlight", tag = "groups", summary = "Give messages that members hold to others at once", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")), request_body = openapi::groups::ReleaseRequest, responses((status = 200, description = "Released, at most 1,000; the attempt counts", body = openapi::groups::ReleaseAnswer)))]
pub(crate) async fn release(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let group = writable(&call)?;
    call.no_query()?;
    let holds = selection(&Object::open(call.plain_json()?, "", &["selection"])?)?;
    let deadline = call.deadline(Duration::ZERO);
    state.upstream.get_group(group, deadline).await?;
    let done = state.upstream.release(group, &holds, deadline).await?;
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let mut out = Vec::new();
    let mut object = Members::open(&mut out);
    object.number("released", number(done.released));
    object.number("gone", number(done.gone));
    object.number("unknown", number(done.unknown));
    object.boolean("more", done.more);
    answer::partial(object.member("partial"), &done.partial);
    object.close();
    Ok(answer::json(StatusCode::OK, out))
}

/// `{"all":true}` or `{"filter":{…}}`.
fn selection(body: &Object<'_>) -> Result<Holds, ApiError> {
    let wrong = |pointer: String| {
        let detail = "selection is {\"all\":true} or {\"filter\":{…}}";
        ApiError::field(Code::InvalidField, pointer, detail)
    };
    let Some(raw) = body.get("selection") else {
        return Err(wrong(body.pointer("selection")));
    };
    let object = Object::open(raw, &body.pointer("selection"), &["ids", "filter", "all"])?;
    if object.get("ids").is_some() {
        let detail = "single messages cannot be released by id yet; select them by a filter, or let their holder nack";
        let pointer = object.pointer("ids");
        return Err(ApiError::field(Code::NotImplemented, pointer, detail));
    }
    let all = object.boolean("all")?.unwrap_or(false);
    match (object.get("filter"), all) {
        (None, true) => Ok(Holds::default()),
        (Some(raw), false) => {
            let filter = Object::open(raw, &object.pointer("filter"), &FILTER)?;
            let text = |name| {
                let text = filter.string(name, Code::InvalidField)?;
                Ok::<_, ApiError>(text.map(std::borrow::Cow::into_owned))
            };
            let age = filter.string("olderThan", Code::InvalidDuration)?;
            let pointer = filter.pointer("olderThan");
            let age = age
                .map(|age| duration_in(&age, "olderThan", &pointer, AGE_MS, Code::InvalidDuration));
            let holds = Holds {
                topic: text("topic")?,
                key: text("key")?,
                client: text("client")?,
                older_than_ms: age.transpose()?,
            };
            // A filter of nothing would be all, which has a word of its own.
            if filter.is_empty() {
                return Err(wrong(object.pointer("filter")));
            }
            if let Some(topic) = &holds.topic {
                check_topic(topic)?;
            }
            Ok(holds)
        }
        _ => Err(wrong(body.pointer("selection"))),
    }
}
