//! Answers to pops and notifications, in the form of Apache RocketMQ 5.4.0 and in ours.

use bytes::Bytes;
use wire::headers::pop::{NotificationResponse, PopResponse};
use wire::message::properties::names as property;
use wire::message::record::{RecordFields, RecordView, encode_record, patch_record};
use wire::receipt::{self, Lease, Receipt, RetryFlag, StartOffset};
use wire::{Command, ResponseCode};

use crate::broker::Broker;
use crate::durability::{PutStatus, Waiter};
use crate::error::BrokerError;

use super::names::{Kind, revive_queue};
use super::put_back::first_topic;
use super::sweep::{Leased, Swept};
use super::waiting::{Form, Waiting};

impl Kind {
    /// As the wire crate names it.
    pub(super) fn retry_flag(self) -> RetryFlag {
        match self {
            Kind::Normal => RetryFlag::Normal,
            Kind::RetryV1 => RetryFlag::V1,
            Kind::RetryV2 => RetryFlag::V2,
            Kind::Group => RetryFlag::Group,
        }
    }

    /// From a receipt.
    pub(super) fn of_receipt(flag: RetryFlag) -> Self {
        match flag {
            RetryFlag::Normal => Kind::Normal,
            RetryFlag::V1 => Kind::RetryV1,
            RetryFlag::V2 => Kind::RetryV2,
            RetryFlag::Group => Kind::Group,
        }
    }
}

/// The answer to a pop that leased messages.
pub(super) fn found(broker: &Broker, waiting: Waiting, swept: Swept) {
    let (ask, gantry) = (&waiting.ask, waiting.form == Form::Gantry);
    let end = swept.durable_at;
    let bytes = swept.leased.iter().map(|leased| leased.record.len()).sum();
    count(broker, &waiting, &swept);
    let header = PopResponse {
        pop_time_ms: swept.pop_time_ms,
        invisible_ms: i64::try_from(ask.invisible_ms).unwrap_or(i64::MAX),
        revive_queue_id: revive_queue(&ask.group, &ask.topic, 0),
        rest_num: i64::try_from(swept.rest).unwrap_or(i64::MAX),
        group_version: gantry.then_some(ask.rules.version),
        gap: gantry.then(|| gaps(&swept)).flatten(),
        leases: gantry.then(|| leases(&swept, ask.invisible_ms)),
        ..PopResponse::default()
    };
    let mut response = Command::response(ResponseCode::Success).with_remark("FOUND");
    if gantry {
        response = response.with_header(&header).with_body(
            swept
                .leased
                .into_iter()
                .map(|leased| leased.record)
                .collect::<Vec<Bytes>>(),
        );
    } else {
        let (starts, offsets) = infos(&swept.leased);
        let header = PopResponse {
            start_offset_info: Some(starts),
            msg_offset_info: Some(offsets),
            ..header
        };
        let body: Vec<Bytes> = swept
            .leased
            .iter()
            .map(|leased| native_record(broker, &waiting, &header, leased))
            .collect();
        response = response.with_header(&header).with_body(body);
    }
    // A lease that a kill could undo would hand its messages to a second member while the first works on them.
    let to = waiting.to;
    broker.durability.when_durable(
        &broker.store,
        end,
        false,
        broker.clock.monotonic(),
        Waiter::Pop(bytes),
        move |status| {
            to.send(match status {
                PutStatus::Buffered | PutStatus::Flushed => response,
                PutStatus::FlushTimeout | PutStatus::Failed => Command::error(
                    ResponseCode::SystemError,
                    "leased, but not confirmed by the disk",
                )
                .with_ext("reason", "durability_not_confirmed"),
            });
        },
    );
}

fn count(broker: &Broker, waiting: &Waiting, swept: &Swept) {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let messages = number(swept.leased.len());
    broker.pop.numbers.leased.inc_by(messages);
    broker.metrics.get_found.inc();
    broker.metrics.get_messages.inc_by(messages);
    let bytes = swept.leased.iter().map(|leased| leased.record.len()).sum();
    broker.metrics.get_bytes.inc_by(number(bytes));
    let ask = &waiting.ask;
    broker.stats.got(
        &ask.group,
        &ask.topic,
        messages,
        number(bytes),
        broker.clock.monotonic(),
    );
}

/// Losses that retention caused, if there are any.
fn gaps(swept: &Swept) -> Option<String> {
    let mut text = String::new();
    for gap in &swept.gaps {
        receipt::push_gap(&mut text, *gap);
    }
    (!text.is_empty()).then_some(text)
}

/// One entry per message, in body order.
fn leases(swept: &Swept, invisible_ms: u64) -> String {
    let mut text = String::with_capacity(swept.leased.len() * 48);
    for leased in &swept.leased {
        receipt::push_lease(
            &mut text,
            Lease {
                retry: leased.kind.retry_flag(),
                queue_id: leased.queue_id,
                queue_offset: i64::try_from(leased.offset).unwrap_or(i64::MAX),
                lease_id: leased.id.0,
                attempt: leased.attempt,
                visible_at_ms: swept.pop_time_ms.saturating_add_unsigned(invisible_ms),
            },
        );
    }
    text
}

/// startOffsetInfo and msgOffsetInfo: one entry per queue.
fn infos(leased: &[Leased]) -> (String, String) {
    let (mut starts, mut offsets) = (String::new(), String::new());
    for run in leased.chunk_by(|a, b| (a.kind, a.queue_id, a.id) == (b.kind, b.queue_id, b.id)) {
        let Some(first) = run.first() else { continue };
        let list: Vec<i64> = run
            .iter()
            .map(|leased| i64::try_from(leased.offset).unwrap_or(i64::MAX))
            .collect();
        let start_offset = list.first().copied().unwrap_or_default();
        let retry = first.kind.retry_flag();
        receipt::push_start_offset(
            &mut starts,
            StartOffset {
                retry,
                queue_id: first.queue_id,
                start_offset,
            },
        );
        receipt::push_message_offsets(&mut offsets, retry, first.queue_id, &list);
    }
    (starts, offsets)
}

/// The record as stored, or for a retry under its first topic and with its receipt, as RocketMQ clients expect it.
fn native_record(
    broker: &Broker,
    waiting: &Waiting,
    header: &PopResponse,
    leased: &Leased,
) -> Bytes {
    if leased.kind == Kind::Normal {
        return leased.record.clone();
    }
    encode_retry(broker, waiting, header, leased).unwrap_or_else(|| leased.record.clone())
}

fn encode_retry(
    broker: &Broker,
    waiting: &Waiting,
    header: &PopResponse,
    leased: &Leased,
) -> Option<Bytes> {
    let view = RecordView::parse(&leased.record).ok()?;
    let mut properties = view.properties().to_owned();
    let receipt = Receipt {
        start_offset: view.queue_offset,
        pop_time_ms: header.pop_time_ms,
        invisible_ms: header.invisible_ms,
        revive_queue_id: header.revive_queue_id,
        retry: leased.kind.retry_flag(),
        broker_name: broker.pop.broker_name().to_owned(),
        queue_id: leased.queue_id,
        queue_offset: Some(view.queue_offset),
    };
    properties.set(property::POP_CK, receipt.encode());
    properties.remove(property::LEASE);
    let text = properties.encode_checked().ok()?;
    let fields = RecordFields {
        topic: first_topic(&waiting.ask.group, view.topic, &view),
        properties: text.as_bytes(),
        ..view.fields()
    };
    let mut record = Vec::new();
    encode_record(&fields, &mut record).ok()?;
    patch_record(
        &mut record,
        view.queue_offset,
        view.physical_offset,
        view.store_ts_ms,
    );
    Some(record.into())
}

/// The answer when there is nothing, now or until the deadline.
pub(super) fn empty(broker: &Broker, waiting: Waiting, swept: &Swept) {
    if waiting.form == Form::Notify {
        return notified(waiting, false, false);
    }
    let (ask, gantry) = (&waiting.ask, waiting.form == Form::Gantry);
    let header = PopResponse {
        pop_time_ms: broker.pop.now_ms(broker.clock.as_ref()),
        invisible_ms: i64::try_from(ask.invisible_ms).unwrap_or(i64::MAX),
        revive_queue_id: revive_queue(&ask.group, &ask.topic, 0),
        rest_num: i64::try_from(swept.rest).unwrap_or(i64::MAX),
        start_offset_info: Some(String::new()),
        msg_offset_info: Some(String::new()),
        group_version: gantry.then_some(ask.rules.version),
        paused: (gantry && ask.rules.policy.paused).then_some(true),
        more: (gantry && (swept.again || (ask.not_first && swept.rest > 0))).then_some(true),
        member_full: (gantry && swept.member_full).then_some(true),
        gap: gantry.then(|| gaps(swept)).flatten(),
        ..PopResponse::default()
    };
    waiting.to.send(
        Command::response(ResponseCode::PollingTimeout)
            .with_remark("NO_MESSAGE_IN_QUEUE")
            .with_header(&header),
    );
}

/// The answer of a notification.
pub(super) fn notified(waiting: Waiting, has_msg: bool, polling_full: bool) {
    let mut response =
        Command::response(ResponseCode::Success).with_header(&NotificationResponse {
            has_msg,
            polling_full,
        });
    if polling_full {
        response.ext.put("reason", "too_many_waiters");
    }
    response.ext.put("groupVersion", waiting.ask.rules.version);
    if waiting.ask.rules.policy.paused {
        response.ext.put("paused", true);
    }
    waiting.to.send(response);
}

/// The answer when too many wait already.
pub(super) fn polling_full(broker: &Broker, waiting: Waiting) {
    if waiting.form == Form::Notify {
        return notified(waiting, false, true);
    }
    refused(waiting, &BrokerError::PollingFull(broker.pop.waiters.len()));
}

/// A refused pop: RocketMQ clients want the header fields also then.
pub(super) fn refused(waiting: Waiting, error: &BrokerError) {
    waiting.to.send(refusal(error));
}

/// See [`refused`].
pub(super) fn refusal(error: &BrokerError) -> Command {
    error.to_response().with_header(&PopResponse::default())
}
