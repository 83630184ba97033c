//! Codes 41 and 42: queue locks of orderly native consumers.

use std::sync::Arc;

use remoting::Connection;
use serde::{Deserialize, Serialize};
use wire::Command;

use super::{json_answer, json_body, success};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::locks::QueueName;

/// Most queues in one request.
const QUEUES_MAX: usize = 65_536;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LockBody {
    client_id: String,
    consumer_group: String,
    mq_set: Vec<QueueBody>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct QueueBody {
    broker_name: String,
    queue_id: i32,
    topic: String,
}

impl From<&QueueBody> for QueueName {
    fn from(body: &QueueBody) -> Self {
        Self {
            topic: body.topic.clone(),
            broker: body.broker_name.clone(),
            queue_id: body.queue_id,
        }
    }
}

#[derive(Debug, Serialize)]
struct LockAnswer {
    #[serde(rename = "lockOKMQSet")]
    granted: Vec<QueueBody>,
}

fn parse(cmd: &Command) -> Result<(LockBody, Vec<QueueName>), BrokerError> {
    let body: LockBody = json_body(cmd)?;
    if body.mq_set.len() > QUEUES_MAX {
        return Err(BrokerError::Body(format!(
            "{} queues in one request, the limit is {QUEUES_MAX}",
            body.mq_set.len()
        )));
    }
    if body.client_id.is_empty() || body.consumer_group.is_empty() {
        return Err(BrokerError::Body(
            "clientId and consumerGroup are required".to_owned(),
        ));
    }
    let queues = body.mq_set.iter().map(QueueName::from).collect();
    Ok((body, queues))
}

/// Code 41.
pub(crate) fn lock(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (body, queues) = parse(cmd)?;
    let granted = broker.locks.lock(
        &body.consumer_group,
        &body.client_id,
        &queues,
        broker.clock.monotonic(),
    );
    let granted = granted
        .into_iter()
        .map(|queue| QueueBody {
            broker_name: queue.broker,
            queue_id: queue.queue_id,
            topic: queue.topic,
        })
        .collect();
    Ok(json_answer(&LockAnswer { granted }))
}

/// Code 42.
pub(crate) fn unlock(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let (body, queues) = parse(cmd)?;
    broker
        .locks
        .unlock(&body.consumer_group, &body.client_id, &queues);
    Ok(success())
}
