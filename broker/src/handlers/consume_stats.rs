//! Codes 208, 300, 317 and 343: how far groups are, and who reads what.

use std::collections::BTreeMap;
use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::MessageQueue;
use wire::body::list::{GroupList, TopicList};
use wire::body::queue::QueueMap;
use wire::body::stats::{ConsumeStats, ConsumeStatsList, OffsetProgress};

use super::offset::store_time;
use super::{json_answer, success};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::progress;

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
        (None, None) => topics_read(broker, &group),
    };
    let mut stats = ConsumeStats::default();
    for topic in topics {
        if let Some(queues) = of_topic(broker, &group, &topic) {
            stats.consume_tps += queues.consume_tps;
            stats.offset_table.0.extend(queues.offset_table.0);
        }
    }
    Ok(success().with_body(wire::json::to_vec_apache(&stats)))
}

/// A group in the queues of one topic; `None` where there is no such topic.
fn of_topic(broker: &Broker, group: &str, topic: &str) -> Option<ConsumeStats> {
    let config = broker.topics.get(topic)?;
    let mut table = QueueMap::default();
    for queue_id in 0..config.read_queue_nums {
        let progress = progress::of(broker, group, topic, queue_id);
        let last = if progress.settled > 0 {
            store_time(broker, topic, queue_id, progress.settled - 1)
        } else {
            None
        };
        table.insert(
            MessageQueue::new(topic, broker.config.name.clone(), queue_id),
            OffsetProgress {
                broker_offset: progress.end,
                consumer_offset: progress.settled,
                last_timestamp: last.unwrap_or(0),
                pull_offset: progress.given,
            },
        );
    }
    Some(ConsumeStats {
        consume_tps: broker
            .stats
            .got_rate(group, topic, broker.clock.monotonic()),
        offset_table: table,
    })
}

/// Code 317: every group of the broker in every topic it has read; with `isOrder` only in ordered topics.
pub(crate) fn all(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let only_ordered = cmd.ext.bool("isOrder");
    let mut answer = ConsumeStatsList {
        broker_addr: Some(broker.store_host.to_string()),
        ..ConsumeStatsList::default()
    };
    for group in broker.groups.names() {
        let mut list = Vec::new();
        for topic in broker.offsets.topics_of(&group) {
            let ordered = broker.topics.get(&topic).is_some_and(|config| config.order);
            if only_ordered && !ordered {
                continue;
            }
            let Some(stats) = of_topic(broker, &group, &topic) else {
                continue;
            };
            for queue in stats.offset_table.0.values() {
                answer.total_diff += queue.broker_offset.saturating_sub(queue.consumer_offset);
                answer.total_inflight_diff +=
                    queue.pull_offset.saturating_sub(queue.consumer_offset);
            }
            list.push(stats);
        }
        answer
            .consume_stats_list
            .push(BTreeMap::from([(group.to_string(), list)]));
    }
    Ok(success().with_body(wire::json::to_vec_apache(&answer)))
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

/// Code 343.
pub(crate) fn topics_of_group(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    Ok(json_answer(&TopicList {
        broker_addr: Some(broker.store_host.to_string()),
        topic_list: topics_read(broker, &group),
    }))
}

/// Topics in which a group has committed, and those that its live members subscribe, in order.
fn topics_read(broker: &Broker, group: &str) -> Vec<String> {
    let mut topics = broker.offsets.topics_of(group);
    if let Some(view) = broker.consumers.view(group) {
        topics.extend(view.subscriptions.keys().cloned());
    }
    topics.sort_unstable();
    topics.dedup();
    topics
}
