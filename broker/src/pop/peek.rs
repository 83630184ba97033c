//! 200052 PEEK_MESSAGE: what a group would be given next, without a lease, an attempt, or any other effect.

use std::sync::Arc;

use bytes::Bytes;
use remoting::Connection;
use wire::headers::pop::{PeekRequest, PopResponse};
use wire::message::properties::names as property;
use wire::message::record::RecordView;
use wire::receipt::{self, Peeked};
use wire::{Command, ResponseCode};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;

use super::answer;
use super::handle_pop::{
    BYTES_DEFAULT, BYTES_MAX, check_allowed, check_group, check_topic, stored_filter,
};
use super::names::Kind;
use super::position;
use super::scan::{self, BUDGET, Match, Reach, Want};
use super::sweep;

/// Most messages of one peek by a RocketMQ client.
const NATIVE_MESSAGES_MAX: i32 = 32;
/// Most messages of one peek by the gateway.
const GANTRY_MESSAGES_MAX: i32 = 500;

/// A message that would be delivered next.
struct Next {
    kind: Kind,
    queue_id: i32,
    found: Match,
}

/// Answers a peek. Blocks on the disk where the messages are old.
pub(crate) fn peek(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    Ok(look(broker, cmd).unwrap_or_else(|error| answer::refusal(&error)))
}

fn look(broker: &Broker, cmd: &Command) -> Result<Command, BrokerError> {
    let request: PeekRequest = cmd.header()?;
    let gantry = request.gantry == Some(true);
    let most = if gantry {
        GANTRY_MESSAGES_MAX
    } else {
        NATIVE_MESSAGES_MAX
    };
    if !(1..=most).contains(&request.max_msg_nums) {
        return Err(BrokerError::Invalid(format!(
            "maxMsgNums is {}, must be 1 to {most}",
            request.max_msg_nums
        )));
    }
    check_topic(broker, &request.topic, request.queue_id)?;
    check_allowed(broker, &request.consumer_group, &request.topic)?;
    let rules = check_group(broker, &request.consumer_group, None)?;
    let filter = if gantry {
        stored_filter(&rules, &request.consumer_group, &request.topic)?
    } else {
        Arc::new(Filter::All)
    };
    let bytes = request
        .max_bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(BYTES_DEFAULT)
        .clamp(1, BYTES_MAX);
    let messages = usize::try_from(request.max_msg_nums).unwrap_or(1);
    let (next, rest, more) = gather(broker, &request, &filter, messages, bytes)?;
    let mut header = PopResponse {
        rest_num: i64::try_from(rest).unwrap_or(i64::MAX),
        group_version: gantry.then_some(rules.version),
        more: (gantry && more).then_some(true),
        ..PopResponse::default()
    };
    if gantry {
        header.entries = Some(entries(&next));
        header.paused = rules.policy.paused.then_some(true);
    }
    let (code, remark) = if next.is_empty() {
        (ResponseCode::PullNotFound, "NO_MESSAGE_IN_QUEUE")
    } else {
        (ResponseCode::Success, "FOUND")
    };
    let body: Vec<Bytes> = next.into_iter().map(|next| next.found.record).collect();
    Ok(Command::response(code)
        .with_remark(remark)
        .with_header(&header)
        .with_body(body))
}

/// The next messages of the topic and its retries, how many are left, and whether the budget ended the look.
fn gather(
    broker: &Broker,
    request: &PeekRequest,
    filter: &Filter,
    messages: usize,
    bytes: usize,
) -> Result<(Vec<Next>, u64, bool), BrokerError> {
    let group = &request.consumer_group;
    let mut sources = position::sources(broker, group, &request.topic);
    let own = Kind::Group.topic(group, &request.topic);
    if let Some(config) = broker.topics.get(&own) {
        sources.push((Kind::Group, own, config.read_queue_nums));
    }
    let (mut next, mut rest, mut more) = (Vec::new(), 0, false);
    let (mut bytes_left, mut budget) = (bytes, BUDGET.max(messages));
    for (kind, topic, queues) in sources {
        for queue_id in 0..queues {
            if kind == Kind::Normal && request.queue_id >= 0 && request.queue_id != queue_id {
                continue;
            }
            let range = broker.store.queue(&topic, queue_id);
            let from = sweep::progress(broker, group, &topic, queue_id).max(range.min.get());
            if from >= range.max.get() {
                continue;
            }
            let want = Want {
                filter,
                group,
                retry: kind != Kind::Normal,
                reach: Reach::Disk,
                messages: messages - next.len(),
                bytes: bytes_left,
                is_first: next.is_empty(),
            };
            if want.messages == 0 || bytes_left == 0 || budget == 0 {
                rest += range.max.get() - from;
                continue;
            }
            let found = scan::scan(broker, &topic, queue_id, from, want, &mut budget)?;
            bytes_left = bytes_left.saturating_sub(found.bytes);
            rest += range.max.get().saturating_sub(found.next);
            more |= found.exhausted;
            let wanted = found
                .matches
                .into_iter()
                .filter(|found| kind != Kind::Group || is_of(&found.record, &request.topic));
            next.extend(wanted.map(|found| Next {
                kind,
                queue_id,
                found,
            }));
        }
    }
    Ok((next, rest, more))
}

/// Whether a retry in the topic of the whole group was sent to `topic` first.
fn is_of(record: &[u8], topic: &str) -> bool {
    RecordView::parse(record).is_ok_and(|view| view.property(property::RETRY_TOPIC) == Some(topic))
}

fn entries(next: &[Next]) -> String {
    let mut text = String::with_capacity(next.len() * 16);
    for Next {
        kind,
        queue_id,
        found,
    } in next
    {
        receipt::push_peeked(
            &mut text,
            Peeked {
                retry: kind.retry_flag(),
                queue_id: *queue_id,
                queue_offset: i64::try_from(found.offset).unwrap_or(i64::MAX),
                attempt: found.attempt,
            },
        );
    }
    text
}
