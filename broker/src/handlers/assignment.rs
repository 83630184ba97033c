//! Code 400: which queues a client of a group should read, computed by the broker.

use std::sync::Arc;

use remoting::Connection;
use serde::{Deserialize, Serialize};
use wire::Command;

use super::{json_answer, json_body};
use crate::broker::Broker;
use crate::error::BrokerError;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AssignmentBody {
    topic: String,
    consumer_group: String,
    client_id: String,
    strategy_name: String,
    message_model: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageQueue {
    broker_name: String,
    queue_id: i32,
    topic: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Assigned {
    message_queue: MessageQueue,
    mode: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AssignmentAnswer {
    message_queue_assignments: Vec<Assigned>,
}

/// The queues of this broker that are the client's, by equal consecutive shares of the sorted members
/// (strategy `AVG`). Other strategies, unknown topics and clients that are no members get `{}`.
pub(crate) fn query(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let body: AssignmentBody = json_body(cmd)?;
    let Some(topic) = broker.topics.get(&body.topic) else {
        return Ok(nothing());
    };
    let queues = if body.message_model.eq_ignore_ascii_case("BROADCASTING") {
        (0..topic.read_queue_nums).collect()
    } else {
        let ids = broker.consumers.client_ids(&body.consumer_group);
        let at = ids.iter().position(|id| **id == *body.client_id);
        match at {
            Some(at) if body.strategy_name == "AVG" => share(topic.read_queue_nums, ids.len(), at),
            _ => return Ok(nothing()),
        }
    };
    let assigned = queues
        .into_iter()
        .map(|queue_id| Assigned {
            message_queue: MessageQueue {
                broker_name: broker.config.name.clone(),
                queue_id,
                topic: body.topic.clone(),
            },
            mode: "PULL",
        })
        .collect();
    Ok(json_answer(&AssignmentAnswer {
        message_queue_assignments: assigned,
    }))
}

fn nothing() -> Command {
    super::success().with_body("{}")
}

/// The `at`-th of `members` shares of `queues` queues, as RocketMQ's averaging strategy cuts them.
fn share(queues: i32, members: usize, at: usize) -> Vec<i32> {
    let total = usize::try_from(queues).unwrap_or(0);
    if members == 0 || at >= members {
        return Vec::new();
    }
    let (base, rest) = (total / members, total % members);
    let start = at * base + at.min(rest);
    let len = base + usize::from(at < rest);
    (start..start + len)
        .filter_map(|id| i32::try_from(id).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_is_in_exactly_one_share() {
        for (queues, members) in [(8, 3), (2, 5), (4, 1), (0, 2), (7, 7)] {
            let all: Vec<i32> = (0..members)
                .flat_map(|at| share(queues, members, at))
                .collect();
            assert_eq!(all, (0..queues).collect::<Vec<_>>());
        }
    }
}
