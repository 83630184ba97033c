//! Codes 14, 15, 29–32 and 43: committed offsets, and where queues begin and end.

use std::sync::Arc;

use remoting::Connection;
use store::Boundary;
use wire::{Command, ResponseCode};

use super::success;
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;

/// Bytes of log that count as "still in memory" for the start of a new group.
const MEMORY_BYTES: u64 = 4 << 30;

fn queue_of(cmd: &Command) -> Result<(String, i32), BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let queue_id: i32 = cmd.ext.required("queueId")?;
    if queue_id < 0 {
        return Err(BrokerError::Invalid(format!(
            "queueId[{queue_id}] is illegal: it must not be negative"
        )));
    }
    Ok((topic, queue_id))
}

fn offset_answer(offset: i64) -> Command {
    let mut response = success();
    response.ext.put("offset", offset);
    response
}

/// Code 14.
pub(crate) fn query(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let (topic, queue_id) = queue_of(cmd)?;
    if let Some(offset) = broker.offsets.get(&group, &topic, queue_id) {
        return Ok(offset_answer(offset));
    }
    let zero_wanted: Option<String> = cmd.ext.optional("setZeroIfNotFound")?;
    if zero_wanted.is_some_and(|text| text.eq_ignore_ascii_case("false") || text == "0") {
        return Err(BrokerError::NotFound(
            "Not found, do not set to zero, maybe this group boot first".to_owned(),
        ));
    }
    let range = broker.store.queue(&topic, queue_id);
    if range.min.get() == 0 && range.max.get() > 0 && is_in_memory(broker, &topic, queue_id) {
        return Ok(offset_answer(0));
    }
    Err(BrokerError::NotFound(
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first".to_owned(),
    ))
}

/// A young queue is read from its start by a new group, whatever the group asks for: its first
/// messages must not be missed.
pub(crate) fn is_in_memory(broker: &Broker, topic: &str, queue_id: i32) -> bool {
    !crate::read::is_cold(&broker.store, topic, queue_id, 0, MEMORY_BYTES)
}

/// Code 15.
pub(crate) fn update(
    broker: &Arc<Broker>,
    cmd: &Command,
    conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let (topic, queue_id) = queue_of(cmd)?;
    let Some(offset) = cmd.ext.optional::<i64>("commitOffset")? else {
        return Err(BrokerError::Invalid(format!(
            "Offset is null, topic is {}",
            names::shorten(&topic)
        )));
    };
    if !broker.groups.contains(&group) {
        return Err(BrokerError::NoGroup(names::shorten(&group)));
    }
    let Some(known) = broker.topics.get(&topic) else {
        return Err(BrokerError::NoTopic(names::shorten(&topic)));
    };
    if queue_id >= known.queue_count() {
        return Err(BrokerError::Invalid(format!(
            "queueId[{queue_id}] is illegal, topic [{}] has {} queues",
            names::shorten(&topic),
            known.queue_count()
        )));
    }
    // The progress of leases is the log's: a late commit of a consumer that lost the group must not move it.
    broker.enter_pull(&group, conn)?;
    let mut response = success();
    response.ext.mark_present();
    if broker
        .offsets
        .pending_reset(&group, &topic, queue_id)
        .is_some()
    {
        return Ok(response.with_remark("Offset has been previously reset"));
    }
    if !broker
        .offsets
        .commit(&group, &topic, queue_id, offset, broker.now_ms())
    {
        return Err(BrokerError::Full("offset"));
    }
    Ok(response)
}

/// Code 30.
pub(crate) fn max(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (topic, queue_id) = queue_of(cmd)?;
    Ok(offset_answer(
        broker.store.queue(&topic, queue_id).max.to_wire(),
    ))
}

/// Code 31.
pub(crate) fn min(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (topic, queue_id) = queue_of(cmd)?;
    Ok(offset_answer(
        broker.store.queue(&topic, queue_id).min.to_wire(),
    ))
}

/// Code 29.
pub(crate) fn search(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (topic, queue_id) = queue_of(cmd)?;
    let timestamp: i64 = cmd.ext.required("timestamp")?;
    let upper = cmd
        .ext
        .get("boundaryType")
        .is_some_and(|text| text.eq_ignore_ascii_case("upper"));
    let boundary = if upper {
        Boundary::Upper
    } else {
        Boundary::Lower
    };
    Ok(offset_answer(
        broker
            .store
            .offset_by_time(&topic, queue_id, timestamp, boundary)
            .to_wire(),
    ))
}

/// Code 32.
pub(crate) fn earliest(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (topic, queue_id) = queue_of(cmd)?;
    let at = broker.store.queue(&topic, queue_id).min.to_wire();
    let mut response = success();
    response.ext.put(
        "timestamp",
        store_time(broker, &topic, queue_id, at).unwrap_or(-1),
    );
    Ok(response)
}

/// Store time of one message in ms, if it is there.
pub(crate) fn store_time(broker: &Broker, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
    broker
        .store
        .store_timestamp(topic, queue_id, store::QueueOffset::from_wire(offset)?)
}

/// Code 43.
pub(crate) fn all(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    Ok(Command::response(ResponseCode::Success).with_body(broker.offsets.to_json()))
}
