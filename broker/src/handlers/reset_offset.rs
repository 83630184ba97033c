//! Code 222: an administrator moves a group in a topic, by time or to an offset.

use std::sync::Arc;

use remoting::Connection;
use serde::Serialize;
use store::Boundary;
use wire::Command;
use wire::body::MessageQueue;
use wire::body::queue::QueueMap;

use super::success;
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResetAnswer {
    offset_table: QueueMap<i64>,
}

/// Notes the new offsets on the broker: the next pull of each queue is told to continue there
/// (RocketMQ 5.4.0, `useServerSideResetOffset`). Leases follow at once.
pub(crate) fn reset(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let ext = &cmd.ext;
    let group: String = ext.required("group")?;
    let topic: String = ext.required("topic")?;
    let queue: i32 = ext.optional("queueId")?.unwrap_or(-1);
    let offset: Option<i64> = ext.optional("offset")?.filter(|offset: &i64| *offset >= 0);
    let timestamp: i64 = ext.required("timestamp")?;
    let config = broker
        .topics
        .get(&topic)
        .ok_or_else(|| BrokerError::NoTopic(names::shorten(&topic)))?;
    if !broker.groups.contains(&group) {
        return Err(BrokerError::NoGroup(names::shorten(&group)));
    }
    if queue >= config.read_queue_nums {
        return Err(BrokerError::Invalid(format!(
            "queueId[{queue}] is illegal, the topic has {} queues",
            config.read_queue_nums
        )));
    }
    let queues = if queue >= 0 {
        queue..queue + 1
    } else {
        0..config.read_queue_nums
    };
    let mut targets = Vec::new();
    for queue_id in queues {
        let range = broker.store.queue(&topic, queue_id);
        let (min, max) = (range.min.to_wire(), range.max.to_wire());
        let target = match offset.filter(|_| queue >= 0) {
            Some(offset) if (min..=max).contains(&offset) => offset,
            Some(offset) => {
                return Err(BrokerError::Absent(format!(
                    "Target offset {offset} not in consume queue range [{min}-{max}]"
                )));
            }
            None if timestamp < 0 => max,
            None => broker
                .store
                .offset_by_time(&topic, queue_id, timestamp, Boundary::Lower)
                .to_wire()
                .clamp(min, max),
        };
        targets.push((queue_id, target));
    }
    let mut table = QueueMap::default();
    for (queue_id, target) in targets {
        broker.set_position(&group, &topic, queue_id, target)?;
        broker
            .offsets
            .reset(&group, &topic, queue_id, target, broker.now_ms());
        table.insert(
            MessageQueue::new(topic.clone(), broker.config.name.clone(), queue_id),
            target,
        );
    }
    broker.save_offsets()?;
    tracing::info!(group = %group, topic = %topic, queues = table.len(), timestamp, "offsets reset");
    Ok(success().with_body(wire::json::to_vec_apache(&ResetAnswer {
        offset_table: table,
    })))
}
