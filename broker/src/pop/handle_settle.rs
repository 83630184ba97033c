//! 200051 ACK, 200151 BATCH_ACK, 200053 CHANGE_INVISIBLE and our SETTLE 900010: answered when they are durable.

use std::sync::Arc;

use remoting::Responder;
use serde::Deserialize;
use wire::body::gantry::{
    SettleItem, SettleOp, SettleRequest, SettleResponse, SettleResult, SettleStatus,
};
use wire::headers::pop::{AckRequest, ChangeInvisibleRequest, ChangeInvisibleResponse};
use wire::receipt::{Receipt as WireReceipt, RetryFlag};
use wire::{Command, ResponseCode};

use crate::broker::Broker;
use crate::durability::{PutStatus, Waiter};
use crate::error::BrokerError;
use crate::names as core_names;
use crate::settings::Key;

use super::handle_pop::label;
use super::lease::{Fault, LeaseId, Receipt};
use super::names::{Kind, revive_queue};
use super::rules::Rules;
use super::settle::{Decision, Op, Status};
use super::settle_all::{Item, settle_all};
use super::sweep;
use super::waiting;

/// Most settlements of one request.
const ITEMS_MAX: usize = 1_024;
/// Longest code and reason of a failed delivery, bytes.
const WORDS_MAX: usize = 1_024;

/// SETTLE of the gateway.
pub(crate) fn settle(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let parsed = parse_settle(broker, cmd);
    finish(broker, to, parsed, |_, decisions| {
        let results = decisions.iter().map(result).collect();
        Command::response(ResponseCode::Success)
            .with_body(wire::json::to_vec(&SettleResponse { results }))
    });
}

/// One ack of a RocketMQ client.
pub(crate) fn ack(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let parsed = parse_ack(broker, cmd);
    finish(broker, to, parsed, |_, decisions| acked(decisions));
}

/// Several acks of a RocketMQ client.
pub(crate) fn batch_ack(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let parsed = parse_batch_ack(broker, cmd);
    finish(broker, to, parsed, |_, decisions| {
        // Apache answers the whole with one code: it is missing only when all of it is.
        if decisions
            .iter()
            .any(|decision| decision.status == Status::Acked)
        {
            let gone = decisions
                .iter()
                .filter(|decision| decision.status != Status::Acked)
                .count();
            return Command::response(ResponseCode::Success)
                .with_ext("status", "acked")
                .with_ext("gone", u64::try_from(gone).unwrap_or(0));
        }
        Command::response(ResponseCode::NoMessage).with_ext("status", "gone")
    });
}

/// Another invisible time for a RocketMQ client. Its lease keeps its pop time, so that the receipt stays good.
pub(crate) fn change_invisible(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let parsed = parse_change(broker, cmd).map(|(group, items, pop_time_ms, revive_queue_id)| {
        ((group, items), (pop_time_ms, revive_queue_id))
    });
    let (parsed, receipt) = match parsed {
        Ok((parsed, receipt)) => (Ok(parsed), receipt),
        Err(error) => (Err(error), (0, 0)),
    };
    finish(broker, to, parsed, move |_, decisions| {
        let decision = decisions.first();
        let status = decision.map_or(Status::Gone, |decision| decision.status);
        let header = match decision.and_then(|decision| decision.visible_at_ms) {
            Some(visible_at_ms) if matches!(status, Status::Extended | Status::Released) => {
                let invisible_ms = visible_at_ms.saturating_sub(receipt.0).max(0);
                ChangeInvisibleResponse {
                    pop_time_ms: receipt.0,
                    invisible_ms,
                    revive_queue_id: receipt.1,
                }
            }
            _ => ChangeInvisibleResponse::default(),
        };
        let code = match status {
            Status::Extended | Status::Released => ResponseCode::Success,
            Status::Limit => ResponseCode::InvalidParameter,
            Status::Acked | Status::Nacked | Status::DeadLettered | Status::Gone => {
                ResponseCode::NoMessage
            }
        };
        Command::response(code)
            .with_header(&header)
            .with_ext("status", status.as_str())
    });
}

type Parsed = Result<(String, Vec<Item>), BrokerError>;

/// Settles and answers once that is durable.
fn finish(
    broker: &Arc<Broker>,
    to: Responder,
    parsed: Parsed,
    answer: impl FnOnce(&Broker, &[Decision]) -> Command + Send + 'static,
) {
    let (group, items) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return to.send(error.to_response()),
    };
    if broker.durability.waiting(Waiter::Settle) >= broker.live.count(Key::Acks) {
        broker.metrics.busy.inc();
        let error = BrokerError::Busy("too many settlements wait for the disk");
        return to.send(error.to_response());
    }
    let rules = match group_rules(broker, &group) {
        Ok(rules) => rules,
        Err(error) => return to.send(error.to_response()),
    };
    let was_full = sweep::is_full(broker, &group, &rules) || broker.pop.waiters.is_limited(&group);
    broker.settles(&group, to.conn());
    let settled = match settle_all(broker, &group, &rules, &items) {
        Ok(settled) => settled,
        Err(error) => return to.send(error.to_response()),
    };
    if was_full {
        waiting::wake_group(broker, &group);
    }
    let Some(end) = settled.durable_at else {
        return to.send(answer(broker, &settled.decisions));
    };
    let owner = broker.clone();
    broker.durability.when_durable(
        &broker.store,
        end,
        false,
        broker.clock.monotonic(),
        Waiter::Settle,
        move |status| {
            to.send(match status {
                PutStatus::Buffered | PutStatus::Flushed => answer(&owner, &settled.decisions),
                PutStatus::FlushTimeout | PutStatus::Failed => {
                    Command::response(ResponseCode::FlushDiskTimeout)
                        .with_remark("settled, but not confirmed by the disk")
                        .with_ext("reason", "durability_not_confirmed")
                }
            });
        },
    );
}

fn group_rules(broker: &Broker, group: &str) -> Result<Arc<Rules>, BrokerError> {
    let config = broker
        .groups
        .get(group)
        .ok_or_else(|| BrokerError::NoGroup(core_names::shorten(group)))?;
    Ok(broker.pop.rules.of(&config))
}

fn parse_settle(broker: &Broker, cmd: &Command) -> Parsed {
    let group: String = cmd.ext.required("group")?;
    let request: SettleRequest = wire::json::from_slice(&cmd.body.to_bytes())?;
    if request.items.len() > ITEMS_MAX {
        return Err(BrokerError::Invalid(format!(
            "{} items, at most {ITEMS_MAX}",
            request.items.len()
        )));
    }
    let at_ms = broker.pop.now_ms(broker.clock.as_ref());
    Ok((
        group,
        request
            .items
            .into_iter()
            .map(|item| settle_item(item, at_ms))
            .collect(),
    ))
}

fn settle_item(item: SettleItem, at_ms: i64) -> Item {
    let member = item.member.map(|member| label(&member).into());
    let op = match item.op {
        SettleOp::Ack => Op::Ack,
        SettleOp::Nack => Op::Nack {
            delay_ms: item.delay_ms,
            fault: fault(item.code, item.reason, at_ms),
        },
        SettleOp::Dead => Op::Dead(fault(item.code, item.reason, at_ms)),
        SettleOp::Extend => Op::Extend(item.invisible_ms, member),
        SettleOp::Release => Op::Release(item.invisible_ms.unwrap_or(0), member),
        SettleOp::Suspend => Op::Suspend,
    };
    Item {
        topic: item.topic,
        queue_id: item.queue_id,
        // A negative offset is no message: no queue holds the largest one.
        offset: u64::try_from(item.queue_offset).unwrap_or(u64::MAX),
        receipt: Receipt::Lease(LeaseId(item.lease_id)),
        op,
    }
}

fn fault(code: Option<String>, reason: Option<String>, at_ms: i64) -> Fault {
    let short = |mut text: String| {
        text.truncate(text.floor_char_boundary(WORDS_MAX));
        text
    };
    Fault {
        code: code.map(short),
        reason: reason.map(short),
        at_ms,
    }
}

fn result(decision: &Decision) -> SettleResult {
    SettleResult {
        status: match decision.status {
            Status::Acked => SettleStatus::Acked,
            Status::Nacked => SettleStatus::Nacked,
            Status::DeadLettered => SettleStatus::DeadLettered,
            Status::Extended => SettleStatus::Extended,
            Status::Released => SettleStatus::Released,
            Status::Gone => SettleStatus::Gone,
            Status::Limit => SettleStatus::Limit,
        },
        late: decision.late,
        already: decision.already,
        visible_at_ms: decision.visible_at_ms,
    }
}

fn parse_ack(broker: &Broker, cmd: &Command) -> Parsed {
    let request: AckRequest = cmd.header()?;
    let receipt = WireReceipt::parse(&request.extra_info)?;
    let item = native_item(
        broker,
        &request.consumer_group,
        &request.topic,
        request.queue_id,
        request.queue_offset,
        &receipt,
        Op::Ack,
    )?;
    Ok((request.consumer_group, vec![item]))
}

fn parse_change(
    broker: &Broker,
    cmd: &Command,
) -> Result<(String, Vec<Item>, i64, i32), BrokerError> {
    let request: ChangeInvisibleRequest = cmd.header()?;
    let receipt = WireReceipt::parse(&request.extra_info)?;
    let op = match u64::try_from(request.invisible_ms) {
        Ok(ms) if ms > 0 => Op::Extend(Some(ms), None),
        _ => Op::Release(0, None),
    };
    let item = native_item(
        broker,
        &request.consumer_group,
        &request.topic,
        request.queue_id,
        request.queue_offset,
        &receipt,
        op,
    )?;
    let revive_queue_id = revive_queue(&request.consumer_group, &item.topic, item.queue_id);
    Ok((
        request.consumer_group,
        vec![item],
        receipt.pop_time_ms,
        revive_queue_id,
    ))
}

fn native_item(
    broker: &Broker,
    group: &str,
    topic: &str,
    queue_id: i32,
    offset: i64,
    receipt: &WireReceipt,
    op: Op,
) -> Result<Item, BrokerError> {
    let topic = popped_topic(group, topic, receipt.retry);
    let config = broker
        .topics
        .get(&topic)
        .ok_or_else(|| BrokerError::NoTopic(core_names::shorten(&topic)))?;
    if !(0..config.read_queue_nums).contains(&queue_id) {
        return Err(BrokerError::MessageIllegal(format!(
            "queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{}]",
            config.read_queue_nums
        )));
    }
    let range = broker.store.queue(&topic, queue_id);
    let inside = u64::try_from(offset)
        .ok()
        .filter(|offset| *offset < range.max.get());
    let offset = inside.ok_or_else(|| BrokerError::OffsetIllegal {
        key: format!("{topic}@{queue_id}"),
        offset,
        min: range.min.get(),
        max: range.max.get(),
    })?;
    Ok(Item {
        topic,
        queue_id,
        offset,
        receipt: Receipt::PopTime(receipt.pop_time_ms),
        op,
    })
}

/// Clients name the topic itself or the retry topic the message came from.
fn popped_topic(group: &str, topic: &str, retry: RetryFlag) -> String {
    if core_names::is_retry(topic) {
        topic.to_owned()
    } else {
        Kind::of_receipt(retry).topic(group, topic)
    }
}

fn acked(decisions: &[Decision]) -> Command {
    match decisions.first() {
        Some(decision) if decision.status == Status::Acked => {
            let status = if decision.already { "already" } else { "acked" };
            Command::response(ResponseCode::Success).with_ext("status", status)
        }
        _ => Command::response(ResponseCode::NoMessage)
            .with_remark("the lease is gone")
            .with_ext("status", "gone"),
    }
}

/// Body of BATCH_ACK_MESSAGE (RocketMQ 5.4.0 BatchAckMessageRequestBody).
#[derive(Deserialize)]
struct BatchAckBody {
    #[serde(default)]
    acks: Vec<BatchAck>,
}

/// Acks of one check point (RocketMQ 5.4.0 BatchAck).
#[derive(Deserialize)]
struct BatchAck {
    c: String,
    t: String,
    r: String,
    so: i64,
    q: i32,
    pt: i64,
    /// Java BitSet bytes in base64: bit n acks offset `so` + n.
    #[serde(default)]
    b: String,
}

/// A body of acks and the offsets it names, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_batch_ack(bytes: &[u8]) {
    if let Ok(body) = wire::json::from_slice::<BatchAckBody>(bytes) {
        for ack in &body.acks {
            drop(set_bits(&ack.b));
        }
    }
}

fn parse_batch_ack(broker: &Broker, cmd: &Command) -> Parsed {
    let nothing = || BrokerError::NoAcks;
    if cmd.body.is_empty() {
        return Err(nothing());
    }
    let body: BatchAckBody = wire::json::from_slice(&cmd.body.to_bytes())?;
    let mut items = Vec::new();
    let mut group = None;
    for ack in body.acks {
        if *group.get_or_insert_with(|| ack.c.clone()) != ack.c {
            return Err(BrokerError::Invalid(
                "acks of several groups in one request".to_owned(),
            ));
        }
        let retry = RetryFlag::parse(&ack.r)?;
        let topic = popped_topic(&ack.c, &ack.t, retry);
        if broker.topics.get(&topic).is_none() {
            return Err(BrokerError::NoTopic(core_names::shorten(&topic)));
        }
        let start = u64::try_from(ack.so).unwrap_or(u64::MAX);
        for bit in set_bits(&ack.b)
            .ok_or_else(|| BrokerError::Invalid("b is no bit set in base64".to_owned()))?
        {
            if items.len() >= ITEMS_MAX {
                return Err(BrokerError::Invalid(format!("more than {ITEMS_MAX} acks")));
            }
            let offset = start.saturating_add(bit);
            items.push(Item {
                topic: topic.clone(),
                queue_id: ack.q,
                offset,
                receipt: Receipt::PopTime(ack.pt),
                op: Op::Ack,
            });
        }
    }
    match group {
        Some(group) if !items.is_empty() => Ok((group, items)),
        _ => Err(nothing()),
    }
}

/// Numbers of the bits set, at most [`ITEMS_MAX`] + 1 of them; `None` when the text is not base64.
fn set_bits(text: &str) -> Option<Vec<u64>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u64::from(byte - b'A')),
        b'a'..=b'z' => Some(u64::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u64::from(byte - b'0') + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let mut bits = Vec::new();
    let (mut window, mut held, mut byte_index) = (0u64, 0u32, 0u64);
    for byte in text.trim_end_matches('=').bytes() {
        window = (window << 6 | digit(byte)?) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            let byte = (window >> held) & 0xff;
            bits.extend(
                (0..8)
                    .filter(|bit| byte >> bit & 1 == 1)
                    .map(|bit| byte_index * 8 + bit),
            );
            byte_index += 1;
        }
        if bits.len() > ITEMS_MAX {
            break;
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_sets_of_java_read_as_numbers() {
        assert_eq!(set_bits("AQ=="), Some(vec![0]));
        assert_eq!(set_bits("BQE="), Some(vec![0, 2, 8]));
        assert_eq!(set_bits(""), Some(vec![]));
        assert_eq!(set_bits("/////w=="), Some((0..32).collect()));
        assert_eq!(set_bits("A*"), None);
        assert!(set_bits(&"/".repeat(1 << 20)).unwrap().len() <= ITEMS_MAX + 8);
    }

    #[test]
    fn words_are_cut_at_a_character() {
        let cut = fault(Some("é".repeat(600)), None, 1);
        assert_eq!(cut.code.unwrap().len(), 1_024);
    }
}
