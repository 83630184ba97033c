//! Browsing a topic: messages in the order of storing, by a cursor that the caller keeps. Nothing is changed by it.

use super::answer;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::memory::{Held, Whose};
use crate::page::limit;
use crate::params::Query;
use crate::reader::{
    self, Cursor, Floor, Limits, Merge, Opened, Order, Origin, TagFilter, Until, memory_of,
};
use crate::render::{BodyFormat, Members, record};
use crate::state::AppState;
use crate::upstream::Record;
use axum::extract::State;
use axum::response::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Parameters.
const KNOWN: [&str; 12] = [
    "from",
    "to",
    "queue",
    "tag",
    "sql",
    "key",
    "limit",
    "wait",
    "bodyFormat",
    "scanLimit",
    "order",
    "strict",
];
/// Bytes of bodies in one answer; one message is given in any case.
const BYTES_MAX: usize = 4 << 20;
/// Bytes read ahead for one request.
const BUFFER_MAX: usize = 8 << 20;
/// `scanLimit`.
const SCAN_DEFAULT: u64 = 20_000;
const SCAN_MAX: u64 = 100_000;
const WAIT_MAX_MS: u64 = 60_000;
/// A waiting browse looks no sooner than this after the look before; doubled up to the second.
const PACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(640));

/// What a browse asks for.
struct Wanted {
    origin: Origin,
    until: Until,
    queue: Option<(String, i32)>,
    filter: Option<TagFilter>,
    items: usize,
    wait: Duration,
    format: BodyFormat,
    scan: u64,
    order: Order,
    strict: bool,
}

fn wanted(state: &AppState, call: &Call, topic: &str) -> Result<Wanted, ApiError> {
    let query = call.query(&KNOWN)?;
    for name in ["sql", "key"] {
        if query.get(name).is_some() {
            let detail = format!("{name} is part of the API but not built yet; leave it out");
            return Err(ApiError::field(
                Code::NotImplemented,
                format!("?{name}"),
                detail,
            ));
        }
    }
    let choice =
        |name: &str, detail: &str| ApiError::field(Code::InvalidField, format!("?{name}"), detail);
    let order = match query.get("order") {
        None | Some("asc") => Order::Ascending,
        Some("desc") => Order::Descending,
        Some(_) => return Err(choice("order", "order is asc or desc")),
    };
    let format = match query.get("bodyFormat") {
        None => BodyFormat::Auto,
        Some(text) => BodyFormat::parse(text)
            .ok_or_else(|| choice("bodyFormat", "bodyFormat is auto, base64, text or none"))?,
    };
    let wait = query.duration("wait", 0..=WAIT_MAX_MS, Code::InvalidWait)?;
    let keys = &state.cursors;
    Ok(Wanted {
        origin: match query.get("from") {
            None => Origin::Earliest,
            Some(text) => Origin::parse(keys, topic, text, "?from")?,
        },
        until: match query.get("to") {
            None => Until::Now,
            Some(text) => Until::parse(keys, topic, text, "?to")?,
        },
        queue: queue(&query)?,
        filter: match query.get("tag") {
            None => None,
            Some(text) => TagFilter::parse(text, "?tag")?,
        },
        items: limit(&query)?,
        wait: Duration::from_millis(wait.unwrap_or(0)),
        format,
        scan: query.integer("scanLimit", 1..=SCAN_MAX, SCAN_DEFAULT, Code::InvalidField)?,
        order,
        strict: query.boolean("strict")?,
    })
}

/// `queue=broker:id`.
fn queue(query: &Query) -> Result<Option<(String, i32)>, ApiError> {
    let Some(text) = query.get("queue") else {
        return Ok(None);
    };
    let parts = text
        .rsplit_once(':')
        .filter(|(broker, _)| !broker.is_empty());
    let read = parts.and_then(|(broker, id)| {
        let digits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        Some((broker.to_owned(), id.parse().ok().filter(|_| digits)?))
    });
    let wrong = || {
        let detail = "queue is <broker>:<id>, such as broker-a:3";
        ApiError::field(Code::InvalidField, "?queue", detail)
    };
    read.map(Some).ok_or_else(wrong)
}

/// `GET …/topics/{topic}/messages`
#[utoipa::path(get, path = "/v1/ns/{ns}/topics/{topic}/messages", operation_id = "browseMessages", tag = "messages", summary = "Read a topic without a group", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("from" = Option<String>, Query, description = "`earliest` (default), `latest`, an RFC 3339 time, `last:<n>` (n ≤ 10,000, the last that match), or a cursor"), ("to" = Option<String>, Query, description = "An RFC 3339 time or a cursor, exclusive"), ("queue" = Option<String>, Query, description = "One queue, `broker:id`"), ("tag" = Option<String>, Query, description = "Tags joined by `||`"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("wait" = Option<String>, Query, description = "0s–60s, default 0s: how long to wait for a first message; not with `order=desc`"), ("bodyFormat" = Option<String>, Query, description = "`auto` (default), `base64`, `text`, `none`"), ("scanLimit" = Option<u32>, Query, description = "Messages examined, 1–100,000, default 20,000"), ("order" = Option<String>, Query, description = "`asc` (default) or `desc`"), ("strict" = Option<bool>, Query, description = "410 instead of `gap` where retention deleted unread messages")), responses((status = 200, description = "Messages and where to go on", body = openapi::messages::BrowseAnswer)))]
pub(crate) async fn browse(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    call.no_body()?;
    let wanted = wanted(&state, &call, topic)?;
    let deadline = call.deadline(wanted.wait);
    let until = (call.started() + wanted.wait).min(deadline);
    let (found, held) = read(&state, topic, &wanted, until, deadline).await?;
    let shown = show(&state, topic, &wanted, &found);
    drop(found);
    Ok(answer::counted(shown, held))
}

/// What a browse found.
struct Found {
    items: Vec<Arc<Record>>,
    cursor: Cursor,
    caught_up: bool,
    scanned: u64,
    deleted: u64,
    /// Nothing was read, because the first message takes so many bytes.
    needed: Option<usize>,
}

/// Reads, and where there is nothing waits for an arrival in any queue and reads on.
async fn read(
    state: &AppState,
    topic: &str,
    wanted: &Wanted,
    until: Instant,
    deadline: Instant,
) -> Result<(Found, Held), ApiError> {
    let mut origin = wanted.origin.clone();
    let (mut scanned, mut place, mut pace) = (0, None, PACE.0);
    loop {
        let (mut found, held) = whole(state, topic, wanted, &origin, deadline).await?;
        found.scanned += scanned;
        let enough =
            !found.items.is_empty() || found.deleted > 0 || wanted.order == Order::Descending;
        let over = Instant::now() >= until || state.draining.is_cancelled() || !found.caught_up;
        if enough || over || wanted.until != Until::Now {
            return Ok((found, held));
        }
        if place.is_none() {
            let free = state.waiting.try_acquire();
            place = Some(free.map_err(|_| answer::too_many_waiters(state))?);
        }
        drop(held);
        let nothing = || state.answers.empty();
        let tail = state.tails.join(state, topic, deadline).await?;
        // Messages that the filter leaves out may come at any rate.
        let looked = Instant::now();
        tokio::select! {
            () = tail.beyond(&found.cursor.brokers, wanted.queue.as_ref()) => {}
            () = tokio::time::sleep_until(until) => return Ok((found, nothing())),
            () = state.draining.cancelled() => return Ok((found, nothing())),
        }
        tokio::time::sleep_until((looked + pace).min(until)).await;
        pace = (pace * 2).min(PACE.1);
        scanned = found.scanned;
        origin = Origin::Cursor(found.cursor);
    }
}

/// What there is at a place. A message larger than the memory at hand is read once there is as much for it.
async fn whole(
    state: &AppState,
    topic: &str,
    wanted: &Wanted,
    origin: &Origin,
    deadline: Instant,
) -> Result<(Found, Held), ApiError> {
    let whose = Whose::Topic(topic);
    let mut held = answer::room(state, whose, BYTES_MAX + BUFFER_MAX, deadline).await?;
    let mut memory = held.bytes();
    loop {
        let found = once(
            state,
            topic,
            wanted,
            origin,
            (held.bytes(), memory),
            deadline,
        )
        .await?;
        let Some(needed) = found.needed else {
            return Ok((found, held));
        };
        drop((found, held));
        memory = memory_of(needed);
        held = answer::room_of(state, whose, memory, deadline).await?;
    }
}

/// `held` is the memory for all; what a single message has to fit is more where that is the whole budget and too little.
async fn once(
    state: &AppState,
    topic: &str,
    wanted: &Wanted,
    origin: &Origin,
    (held, memory): (usize, usize),
    deadline: Instant,
) -> Result<Found, ApiError> {
    let mut named = Vec::new();
    if let Origin::Cursor(cursor) = origin {
        named.push(&cursor.brokers);
        if let Some(Floor::At(brokers)) = &cursor.floor {
            named.push(brokers);
        }
    }
    if let Until::Cursor(cursor) = &wanted.until {
        named.push(&cursor.brokers);
    }
    let Opened { view, without } = reader::open(state, topic, &named, true, deadline).await?;
    if !without.is_empty() && wanted.strict {
        let detail = format!(
            "broker '{}' has the topic no longer; begin again",
            without[0]
        );
        return Err(ApiError::new(Code::CursorExpired, detail));
    }
    let filter = wanted.filter.as_ref();
    let begin = reader::starts(state, &view, origin, filter, deadline).await?;
    let end = reader::ends(state, &view, &wanted.until, deadline).await?;
    let (mut starts, mut ends, floor) = match wanted.order {
        Order::Ascending => (begin, end, None),
        Order::Descending => backwards(state, wanted, &view, origin, begin, end, deadline).await?,
    };
    if let Some((broker, id)) = &wanted.queue {
        let here = |i: &usize| *view.queues[*i].broker == **broker && view.queues[*i].id == *id;
        if !(0..view.queues.len()).any(|i| here(&i)) {
            let detail = format!("topic '{topic}' has no queue {broker}:{id}");
            return Err(ApiError::field(Code::InvalidField, "?queue", detail));
        }
        // The other queues keep their place.
        for i in (0..view.queues.len()).filter(|i| !here(i)) {
            starts[i] = starts[i].max(view.queues[i].min);
            ends[i] = starts[i];
        }
    }
    let items = wanted.items;
    let limits = Limits {
        items,
        // A third is for the answer, the rest for what is read ahead.
        bytes: BYTES_MAX.min(held / 3),
        scan: wanted.scan,
    };
    let mut merge = Merge::new(
        view,
        wanted.order,
        wanted.filter.clone(),
        &starts,
        &ends,
        BUFFER_MAX.min(held / 3 * 2),
    );
    merge.within(memory);
    let items = merge.take(&state.upstream, limits, deadline).await?;
    let deleted = merge.take_deleted();
    if wanted.strict && deleted > 0 {
        let detail =
            format!("{deleted} messages after this place were deleted by retention; begin again");
        return Err(ApiError::new(Code::CursorExpired, detail).with("skipped", deleted));
    }
    let mut cursor = merge.view().cursor(&merge.places());
    cursor.floor = floor;
    Ok(Found {
        items,
        cursor,
        needed: merge.needed(),
        caught_up: merge.is_done(),
        scanned: merge.passed(),
        deleted,
    })
}

type Backwards = (Vec<i64>, Vec<i64>, Option<Floor>);

/// A backward read takes the same range from its end; its cursor goes on downwards, to the same floor.
async fn backwards(
    state: &AppState,
    wanted: &Wanted,
    view: &reader::TopicView,
    origin: &Origin,
    begin: Vec<i64>,
    end: Vec<i64>,
    deadline: Instant,
) -> Result<Backwards, ApiError> {
    let lowest: Vec<i64> = view.queues.iter().map(|q| q.min).collect();
    let (top, bottom, floor) = match origin {
        Origin::Cursor(cursor) => match &cursor.floor {
            // A place given by a forward read: what is above it.
            None => (end.clone(), begin, Floor::At(cursor.brokers.clone())),
            Some(Floor::Earliest) => (begin, lowest, Floor::Earliest),
            Some(Floor::Time(ms)) => {
                let floor = reader::starts(state, view, &Origin::Time(*ms), None, deadline).await?;
                (begin, floor, Floor::Time(*ms))
            }
            Some(Floor::At(brokers)) => (begin, view.places(brokers)?, Floor::At(brokers.clone())),
        },
        Origin::Earliest | Origin::Latest => (end.clone(), lowest, Floor::Earliest),
        Origin::Time(ms) => (end.clone(), begin, Floor::Time(*ms)),
        Origin::Last(_) => {
            let floor = Floor::At(view.held(&begin));
            (end.clone(), begin, floor)
        }
    };
    let top = match wanted.until {
        Until::Now => top,
        Until::Time(_) | Until::Cursor(_) => top.iter().zip(&end).map(|(a, b)| *a.min(b)).collect(),
    };
    let bottom = top
        .iter()
        .zip(bottom)
        .map(|(top, bottom)| bottom.min(*top))
        .collect();
    Ok((top, bottom, Some(floor)))
}

fn show(state: &AppState, topic: &str, wanted: &Wanted, found: &Found) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + found.items.len() * 600);
    let mut object = Members::open(&mut out);
    let items = object.member("items");
    items.push(b'[');
    for (i, item) in found.items.iter().enumerate() {
        if i > 0 {
            items.push(b',');
        }
        record(items, item, topic, wanted.format, false);
    }
    items.push(b']');
    object.text("cursor", &found.cursor.encode(&state.cursors, topic));
    object.boolean("caughtUp", found.caught_up);
    object.number("scanned", i64::try_from(found.scanned).unwrap_or(i64::MAX));
    if found.deleted == 0 {
        object.raw("gap", b"null");
    } else {
        let mut gap = Members::open(object.member("gap"));
        gap.text("reason", "retention");
        gap.number("skipped", i64::try_from(found.deleted).unwrap_or(i64::MAX));
        gap.close();
    }
    object.close();
    out
}
