//! Code 303: how old what a group has read, and what it has not, is in each queue.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::MessageQueue;
use wire::body::inspect::{ConsumeTimeSpans, QueueTimeSpan};

use super::json_answer;
use super::offset::store_time;
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::progress;

/// Times are store times, epoch ms; 0 where there is no such message.
pub(crate) fn query(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let group: String = cmd.ext.required("group")?;
    let config = broker
        .topics
        .get(&topic)
        .ok_or_else(|| BrokerError::NoTopic(names::shorten(&topic)))?;
    let spans = (0..config.write_queue_nums)
        .map(|queue_id| span(broker, &group, &topic, queue_id))
        .collect();
    Ok(json_answer(&ConsumeTimeSpans {
        consume_time_span_set: spans,
    }))
}

fn span(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> QueueTimeSpan {
    let range = broker.store.queue(topic, queue_id);
    let (min, max) = (range.min.to_wire(), range.max.to_wire());
    let time = |offset: i64| store_time(broker, topic, queue_id, offset).unwrap_or(0);
    let oldest = if max > min { time(min) } else { 0 };
    let settled = progress::of(broker, group, topic, queue_id).settled;
    let waiting = settled.max(min);
    let now_ms = i64::try_from(broker.now_ms()).unwrap_or(i64::MAX);
    QueueTimeSpan {
        consume_time_stamp: if settled > min {
            time(settled.min(max) - 1)
        } else {
            oldest
        },
        delay_time: if waiting < max {
            now_ms.saturating_sub(time(waiting)).max(0)
        } else {
            0
        },
        max_time_stamp: if max > min { time(max - 1) } else { 0 },
        message_queue: MessageQueue::new(topic, broker.config.name.clone(), queue_id),
        min_time_stamp: oldest,
    }
}
