//! Codes 208, 300 and 343: how far groups are, and who reads what.

use std::sync::Arc;

use remoting::Connection;
use serde::Serialize;
use wire::Command;
use wire::body::MessageQueue;
use wire::body::queue::QueueMap;

use super::offset::store_time;
use super::{json_answer, success};
use crate::broker::Broker;
use crate::error::BrokerError;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueProgress {
    broker_offset: i64,
    consumer_offset: i64,
    last_timestamp: i64,
    pull_offset: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsumeStats {
    consume_tps: f64,
    offset_table: QueueMap<QueueProgress>,
}

/// Code 208. An unknown group has an empty table: tools then ask who is connected.
pub(crate) fn stats(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let one = cmd
        .ext
        .get("topic")
        .filter(|topic| !topic.is_empty())
        .map(str::to_owned);
    let list = cmd.ext.get("topicList").filter(|list| !list.is_empty());
    let topics: Vec<String> = match (one, list) {
        (Some(topic), _) => vec![topic],
        (None, Some(list)) => list
            .split(';')
            .filter(|topic| !topic.is_empty())
            .map(str::to_owned)
            .collect(),
        (None, None) => broker.offsets.topics_of(&group),
    };
    let mut table = QueueMap::default();
    for topic in topics {
        let Some(config) = broker.topics.get(&topic) else {
            continue;
        };
        let committed = broker.offsets.of_topic(&group, &topic);
        for queue_id in 0..config.read_queue_nums {
            let consumer_offset = committed.get(&queue_id).copied().unwrap_or(0).max(0);
            let last = if consumer_offset > 0 {
                store_time(broker, &topic, queue_id, consumer_offset - 1)
            } else {
                None
            };
            table.insert(
                MessageQueue::new(topic.clone(), broker.config.name.clone(), queue_id),
                QueueProgress {
                    broker_offset: broker.store.queue(&topic, queue_id).max.to_wire(),
                    consumer_offset,
                    last_timestamp: last.unwrap_or(0),
                    pull_offset: consumer_offset,
                },
            );
        }
    }
    let body = wire::json::to_vec_apache(&ConsumeStats {
        consume_tps: 0.0,
        offset_table: table,
    });
    Ok(success().with_body(body))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupList {
    group_list: Vec<String>,
}

/// Code 300.
pub(crate) fn groups_of_topic(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let mut groups = broker.consumers.groups_of(&topic);
    groups.extend(broker.offsets.groups_of(&topic));
    groups.sort_unstable();
    groups.dedup();
    Ok(json_answer(&GroupList { group_list: groups }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicList {
    broker_addr: String,
    topic_list: Vec<String>,
}

/// Code 343.
pub(crate) fn topics_of_group(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let mut topics = broker.offsets.topics_of(&group);
    if let Some(view) = broker.consumers.view(&group) {
        topics.extend(view.subscriptions.keys().cloned());
    }
    topics.sort_unstable();
    topics.dedup();
    Ok(json_answer(&TopicList {
        broker_addr: broker.store_host.to_string(),
        topic_list: topics,
    }))
}
