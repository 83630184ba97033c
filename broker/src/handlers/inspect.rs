//! Codes 321 and 345: the entries of a queue, and what a group has subscribed to.

use std::sync::Arc;

use remoting::Connection;
use store::QueueOffset;
use wire::Command;
use wire::body::heartbeat::SubscriptionData;
use wire::body::inspect::{GroupSubscription, QueueEntries, QueueEntryData};

use super::json_answer;
use crate::broker::Broker;
use crate::clients::Subscription;
use crate::error::BrokerError;
use crate::names;

/// Most entries of one answer.
const ENTRIES_MAX: usize = 1_024;

fn data_of(subscription: &Subscription) -> Result<SubscriptionData, BrokerError> {
    serde_json::from_value(subscription.to_json())
        .map_err(|_| BrokerError::Internal("subscription view"))
}

/// Code 321: entries from `index` on, with what the group's subscription says to each.
pub(crate) fn queue(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let queue_id: i32 = cmd.ext.required("queueId")?;
    let index: i64 = cmd.ext.optional("index")?.unwrap_or(0);
    let count: i32 = cmd.ext.optional("count")?.unwrap_or(10);
    let known = broker
        .topics
        .get(&topic)
        .is_some_and(|config| (0..config.queue_count()).contains(&queue_id));
    if !known {
        return Err(BrokerError::Absent(format!(
            "the queue {queue_id} of the topic [{}] does not exist",
            names::shorten(&topic)
        )));
    }
    let group = cmd
        .ext
        .get("consumerGroup")
        .filter(|group| !group.is_empty());
    let subscription = group.and_then(|group| broker.consumers.subscription(group, &topic));
    let filter = subscription.as_ref().and_then(|known| known.filter.clone());
    let range = broker.store.queue(&topic, queue_id);
    let from = QueueOffset::from_wire(index).unwrap_or(range.min);
    let most = usize::try_from(count).unwrap_or(0).min(ENTRIES_MAX);
    let entries = broker.store.entries(&topic, queue_id, from, most)?;
    Ok(json_answer(&QueueEntries {
        filter_data: match (group, &subscription) {
            (Some(group), None) => Some(format!("{group}@{topic} is not online!")),
            _ => None,
        },
        max_queue_index: range.max.to_wire(),
        min_queue_index: range.min.to_wire(),
        queue_data: entries
            .iter()
            .map(|entry| QueueEntryData {
                eval: filter
                    .as_ref()
                    .is_none_or(|filter| filter.may_match(entry.tags_code)),
                physic_offset: entry.physical_offset.to_wire(),
                physic_size: i32::try_from(entry.size).unwrap_or(i32::MAX),
                tags_code: entry.tags_code,
                ..QueueEntryData::default()
            })
            .collect(),
        subscription_data: subscription.as_deref().map(data_of).transpose()?,
    }))
}

/// Code 345. A group that is offline, or has no such subscription, has none in the answer.
pub(crate) fn subscription(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let topic = cmd.ext.get("topic").unwrap_or("").to_owned();
    let known = broker.consumers.subscription(&group, &topic);
    Ok(json_answer(&GroupSubscription {
        subscription_data: known.as_deref().map(data_of).transpose()?,
        group,
        topic,
    }))
}
