//! Code 222: an administrator moves a group in a topic, by time or to an offset; and the push 220 to members that keep
//! their offsets themselves.

use std::sync::Arc;

use remoting::Connection;
use store::Boundary;
use wire::body::MessageQueue;
use wire::body::offsets::{QueueOffset, ResetOffsets, ResetOffsetsForC};
use wire::body::queue::QueueMap;
use wire::{Command, Language, RequestCode};

use super::{pull, success};
use crate::broker::Broker;
use crate::clients::Member;
use crate::error::BrokerError;
use crate::names;

/// Notes the new offsets on the broker: the next pull of each queue, a waiting one at once, is told to continue there
/// (RocketMQ 5.4.0, `useServerSideResetOffset`). Leases follow at once. The members of a broadcasting group keep their
/// offsets themselves: each is told.
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
    let broadcasting = broker.consumers.is_broadcasting(&group) == Some(true);
    let mut table = QueueMap::default();
    for (queue_id, target) in targets {
        broker.set_position(&group, &topic, queue_id, target)?;
        let now_ms = broker.now_ms();
        if broadcasting {
            broker
                .offsets
                .commit(&group, &topic, queue_id, target, now_ms);
        } else {
            broker
                .offsets
                .reset(&group, &topic, queue_id, target, now_ms);
            pull::release_group(broker, &group, &topic, queue_id);
        }
        table.insert(
            MessageQueue::new(topic.clone(), broker.config.name.clone(), queue_id),
            target,
        );
    }
    broker.save_offsets()?;
    if broadcasting {
        tell_members(broker, &group, &topic, timestamp, &table);
    }
    tracing::info!(group = %group, topic = %topic, queues = table.len(), timestamp, "offsets reset");
    Ok(
        success().with_body(wire::json::to_vec_apache(&ResetOffsets {
            offset_table: table,
        })),
    )
}

/// Sends 220 to every member of the group.
fn tell_members(broker: &Broker, group: &str, topic: &str, timestamp: i64, table: &QueueMap<i64>) {
    let members = broker.consumers.view(group).map(|view| view.members);
    for member in members.unwrap_or_default() {
        let mut cmd = Command::oneway(RequestCode::ResetConsumerClientOffset)
            .with_body(offsets_for(&member, table));
        cmd.ext.put("topic", topic);
        cmd.ext.put("group", group);
        cmd.ext.put("queueId", -1);
        cmd.ext.put("timestamp", timestamp);
        cmd.ext.put("isForce", false);
        if let Err(error) = member.conn.send_oneway(cmd) {
            tracing::warn!(group, peer = %member.conn.peer(), %error, "member not told of a reset");
        }
    }
}

/// The offsets in the form that the member reads: a list for the C++ client, a map with queues as keys for all others.
fn offsets_for(member: &Member, table: &QueueMap<i64>) -> Vec<u8> {
    if member.language != Language::Cpp {
        return wire::json::to_vec_apache(&ResetOffsets {
            offset_table: table.clone(),
        });
    }
    let entry = |(queue, offset): (&MessageQueue, &i64)| QueueOffset {
        broker_name: queue.broker_name.clone(),
        offset: *offset,
        queue_id: queue.queue_id,
        topic: queue.topic.clone(),
    };
    wire::json::to_vec(&ResetOffsetsForC {
        offset_table: table.iter().map(entry).collect(),
    })
}
