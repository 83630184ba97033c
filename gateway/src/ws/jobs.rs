//! What a socket asks of the brokers: pops, waits, settling, sends; each a future that ends in one event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::Monotonic;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::action::{Batch, Effect, Event, Opened, Outcome, Refusal, Target};
use super::frame::{BodyFormat, Publish, SettleItem, SettleKind};
use super::subscription::Item;
use crate::error::{ApiError, Code};
use crate::memory::{Held, Whose};
use crate::params::{check_namespace, check_topic, check_topic_writable, new_ulid};
use crate::reader;
use crate::render::{self, Members};
use crate::rest::{self, settle::Asked};
use crate::state::AppState;
use crate::upstream::{
    Delivery, Member, PopRequest, Popped, Presence, Scope, SettleOp, SettleOutcome, SettleStatus,
};

/// A call to the brokers ends after this.
const CALL: Duration = Duration::from_secs(10);
/// A wait for arrivals is renewed after this.
const WAIT: Duration = Duration::from_secs(60);

/// How a job ended.
pub(super) enum Done {
    Event(Event),
    /// It was replaced by another.
    Nothing,
    /// A reader subscription was looked up.
    ReaderOpened {
        sub: u32,
        result: Result<Box<(reader::Feed, Arc<str>)>, ApiError>,
    },
    /// A subscription was looked up; the brokers hear of it as long as the second part lives.
    Opened {
        sub: u32,
        result: Result<(Opened, Presence), ApiError>,
    },
    /// Messages stay in their guard until the subscription is known to live.
    Popped {
        sub: u32,
        /// When the brokers were asked: leases are reckoned from there.
        asked: Instant,
        /// Memory for what was popped.
        held: Held,
        result: Result<Popped, ApiError>,
    },
}

/// What the jobs of one subscription share.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) group: String,
    pub(super) topic: Option<String>,
    pub(super) member: Member,
    pub(super) format: BodyFormat,
    /// Cancelled when the subscription is over.
    pub(super) over: CancellationToken,
}

/// What a pop asks for.
pub(super) struct Wanted {
    pub(super) sub: u32,
    pub(super) max: u32,
    pub(super) bytes: usize,
    pub(super) invisible_ms: u64,
    pub(super) limit: u32,
    pub(super) holds: BTreeMap<Arc<str>, u32>,
}

pub(super) async fn pop(state: AppState, feed: Arc<Feed>, wanted: Wanted) -> Done {
    let sub = wanted.sub;
    // Messages stay with the broker while clients have yet to take as many others as the gateway may hold.
    let room = state.answers.take(Whose::Group(&feed.group), wanted.bytes);
    let Ok(held) = timeout(CALL, room).await else {
        return Done::Event(Event::NotPopped { sub });
    };
    let asked = Instant::now();
    let request = PopRequest {
        scope: Scope,
        group: feed.group.clone(),
        topic: feed.topic.clone(),
        max: wanted.max,
        max_bytes: u32::try_from(wanted.bytes).unwrap_or(u32::MAX),
        invisible_ms: Some(wanted.invisible_ms),
        member: feed.member.clone(),
        member_limit: wanted.limit,
        member_holds: wanted.holds,
        deadline: asked + CALL,
    };
    let result = state.upstream.pop(&request).await;
    Done::Popped {
        sub,
        asked,
        held,
        result,
    }
}

/// The messages as the session takes them, their memory held until the last of them is in a frame. `asked` is when the
/// brokers were asked: leases are reckoned from there.
pub(super) fn batch(
    deliveries: &[Delivery],
    popped: &Popped,
    format: BodyFormat,
    asked: Monotonic,
    mut held: Held,
) -> Batch {
    let mut items: Vec<Item> = deliveries
        .iter()
        .filter_map(|delivery| item(delivery, format, asked))
        .collect();
    held.set(items.iter().map(|item| item.json.get().len()).sum());
    let held = Arc::new(held);
    for item in &mut items {
        item.held = Some(Arc::clone(&held));
    }
    let partial = popped
        .partial
        .iter()
        .map(|(broker, _)| broker.clone())
        .collect();
    Batch {
        items,
        more: popped.more,
        paused: popped.paused,
        full: popped.member_full,
        gaps: popped.gap.clone(),
        partial,
    }
}

fn item(delivery: &Delivery, format: BodyFormat, asked: Monotonic) -> Option<Item> {
    let written = |format| {
        let mut json = Vec::with_capacity(512 + delivery.body.len());
        render::message(&mut json, delivery, format, true);
        raw(json)
    };
    // A stored `json` value is written as it is; where it is none after all, as bytes.
    let json = written(format).or_else(|| written(BodyFormat::Base64))?;
    let lease_ms = delivery
        .invisible_until_ms
        .saturating_sub(delivery.lease.delivered_at_ms);
    let until = asked + Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0));
    Some(Item {
        receipt: delivery.receipt.as_str().into(),
        json,
        size: delivery.body.len() as u64,
        until,
        broker: delivery.lease.broker.as_str().into(),
        held: None,
    })
}

/// JSON this gateway wrote. `None` would be a bug in the writer.
fn raw(json: Vec<u8>) -> Option<Box<RawValue>> {
    String::from_utf8(json)
        .ok()
        .and_then(|text| RawValue::from_string(text).ok())
}

pub(super) async fn wait(state: AppState, feed: Arc<Feed>, sub: u32) -> Done {
    let until = Instant::now() + WAIT;
    let waiting = state
        .upstream
        .notification(&Scope, &feed.group, feed.topic.as_deref(), until);
    tokio::select! {
        () = feed.over.cancelled() => {}
        woken = waiting => {
            // A wait that cannot be held is not turned into a busy loop; the pop that follows reports the fault.
            if woken.is_err() {
                tokio::select! {
                    () = feed.over.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
            }
        }
    }
    Done::Event(Event::Arrived { sub })
}

pub(super) async fn settle(
    state: AppState,
    token: u64,
    target: Arc<Target>,
    kind: SettleKind,
    items: Vec<SettleItem>,
    member: &str,
) -> Done {
    let operation = |item: &SettleItem| (item.receipt.to_string(), operation(kind, item, member));
    let asked: Vec<Asked> = items.iter().map(operation).collect();
    let answers =
        rest::settle::settle_all(&state, &target.group, &asked, Instant::now() + CALL).await;
    let outcomes = items.iter().zip(&asked).zip(&answers);
    let outcomes = outcomes.map(|((item, asked), answer)| outcome(&state, item, asked, answer));
    let outcomes = outcomes.collect();
    Done::Event(Event::Settled { token, outcomes })
}

fn operation(kind: SettleKind, item: &SettleItem, member: &str) -> SettleOp {
    let (code, reason) = (item.code.clone(), item.reason.clone());
    match kind {
        SettleKind::Ack => SettleOp::Ack,
        SettleKind::Nack if item.dead_letter => SettleOp::Dead { code, reason },
        SettleKind::Nack => SettleOp::Nack {
            delay_ms: item.delay_ms,
            code,
            reason,
        },
        SettleKind::Extend => SettleOp::Extend {
            invisible_ms: item.invisible_ms,
            member: None,
        },
        SettleKind::Release => SettleOp::Release {
            after_ms: item.invisible_ms.unwrap_or(0),
            // Another socket may have gone on with it meanwhile.
            member: Some(member.to_owned()),
        },
        SettleKind::Suspend => SettleOp::Suspend,
    }
}

fn outcome(state: &AppState, item: &SettleItem, asked: &Asked, answer: &SettleOutcome) -> Outcome {
    let effect = match answer.status {
        SettleStatus::Acked | SettleStatus::Nacked | SettleStatus::DeadLettered => Effect::Over,
        SettleStatus::Released => Effect::Released,
        SettleStatus::Gone => Effect::Gone,
        SettleStatus::Limit => Effect::Limit,
        SettleStatus::Extended => {
            let now_ms = i64::try_from(state.clock.now_ms()).unwrap_or(i64::MAX);
            let left = answer
                .visible_at_ms
                .map(|at| u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0));
            Effect::Extended {
                visible_ms: item.invisible_ms.or(left).unwrap_or(0),
            }
        }
        SettleStatus::Invalid | SettleStatus::Forbidden | SettleStatus::Unavailable => {
            Effect::Unchanged
        }
    };
    let refusal = answer.status.code().map(|code| Refusal {
        code: code.as_str(),
        detail: format!("{} ({})", code.title(), answer.status.as_str()),
        retryable: code.retryable(),
    });
    let mut json = Vec::with_capacity(240);
    rest::settle::result(&mut json, asked, answer);
    let json = raw(json).unwrap_or_else(|| RawValue::NULL.to_owned());
    Outcome {
        effect,
        json,
        refusal,
    }
}

pub(super) async fn publish(state: AppState, token: u64, publish: Box<Publish>) -> Done {
    let result = send(&state, *publish)
        .await
        .map_err(|error| refusal(&error));
    Done::Event(Event::Published { token, result })
}

async fn send(
    state: &AppState,
    publish: Publish,
) -> Result<BTreeMap<String, serde_json::Value>, ApiError> {
    check_namespace(&publish.ns)?;
    check_topic(&publish.topic)?;
    check_topic_writable(&publish.topic)?;
    if publish.idempotency_key.is_some() {
        return Err(ApiError::not_implemented(
            "idempotencyKey is part of the API but not built yet; leave it out",
        ));
    }
    let source = Bytes::from(String::from(Box::<str>::from(publish.message)));
    let message = crate::json::document(&source)?;
    let mut draft = crate::message::draft(message, "/message", &source, state.message_max())?;
    draft.message_id = new_ulid(state.clock.now_ms());
    let sent = state
        .upstream
        .send(&Scope, &publish.topic, &draft, Instant::now() + CALL)
        .await?;
    let mut json = Vec::with_capacity(320);
    let mut object = Members::open(&mut json);
    rest::messages::sent_members(&mut object, &publish.topic, &sent);
    object.close();
    serde_json::from_slice(&json)
        .map_err(|_| ApiError::new(Code::Internal, "the answer of a send is an object"))
}

/// The error as a frame carries it.
pub(super) fn refusal(error: &ApiError) -> Refusal {
    Refusal {
        code: error.code().as_str(),
        detail: error.detail().to_owned(),
        retryable: error.code().retryable(),
    }
}
