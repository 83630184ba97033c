//! Codes 308 and 314: offsets of several groups compared, and those of one group given to another.

use std::collections::BTreeMap;
use std::sync::Arc;

use remoting::Connection;
use serde::Serialize;
use wire::Command;

use super::{json_answer, success};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::progress;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Corrections {
    correction_offsets: BTreeMap<i32, i64>,
}

/// Code 308: the least offset of each queue over all groups but `filterGroups`; the largest number there is where that
/// is more than what `compareGroup` has (RocketMQ 5.4.0 `queryCorrectionOffset`). Nothing is deleted.
pub(crate) fn corrections(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let compared: String = cmd.ext.required("compareGroup")?;
    let left_out: Vec<&str> = cmd
        .ext
        .get("filterGroups")
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
        .collect();
    let mut least = broker.offsets.min_of_groups(&topic, &left_out, |queue_id| {
        broker.store.queue(&topic, queue_id).min.to_wire()
    });
    for (queue_id, offset) in broker.offsets.of_topic(&compared, &topic) {
        if let Some(least) = least.get_mut(&queue_id)
            && *least > offset
        {
            *least = i64::MAX;
        }
    }
    Ok(json_answer(&Corrections {
        correction_offsets: least,
    }))
}

/// Code 314: the other group continues where the first one is, in one topic or in all it has read.
pub(crate) fn clone(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let from: String = cmd.ext.required("srcGroup")?;
    let to: String = cmd.ext.required("destGroup")?;
    let topic = cmd.ext.get("topic").filter(|topic| !topic.is_empty());
    if !broker.groups.contains(&from) {
        return Err(BrokerError::NoGroup(names::shorten(&from)));
    }
    broker.ensure_group(&to)?;
    let topics = match topic {
        Some(topic) => vec![topic.to_owned()],
        None => broker.offsets.topics_of(&from),
    };
    let mut moved = 0u32;
    for topic in topics {
        if names::is_derived(&topic) || !broker.topics.contains(&topic) {
            continue;
        }
        for queue_id in broker.offsets.of_topic(&from, &topic).into_keys() {
            let at = progress::of(broker, &from, &topic, queue_id).settled;
            broker.set_position(&to, &topic, queue_id, at)?;
            moved += 1;
        }
    }
    tracing::info!(from, to, queues = moved, "offsets cloned");
    Ok(success())
}
