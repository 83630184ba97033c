//! What a start finishes or repairs of topics and groups, after a kill or with an older table.
//!
//! A deletion is on the disk once the table is. What hangs on it goes afterwards, the messages last; were that left,
//! a topic of the same name would begin with the messages and the progress of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::handlers::offset::store_time;
use crate::handlers::{group, topic};
use crate::names;
use crate::pop;
use crate::topic::{PERM_READ_WRITE, TopicConfig};

/// Looks through everything that has messages or leases. Blocks on the disk.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn finish(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    if !broker.topics.has_deletions() && !broker.groups.has_deletions() {
        return Ok(());
    }
    // Until then a queue may look shorter than it is, or not be there.
    let end = broker.store.written();
    while broker.store.dispatched() < end && !broker.store.poisoned() {
        if !broker.store.step_dispatch() {
            std::thread::yield_now();
        }
    }
    for (name, queues) in stored(broker) {
        match broker.topics.deletion(&name) {
            Some(deletion) if newest_ms(broker, &name, queues) > deletion.noted_ms() => {
                tracing::error!(
                    topic = name,
                    queues,
                    "topic has messages of after its deletion: put back"
                );
                broker.ensure_topic(TopicConfig::new(&name, queues, PERM_READ_WRITE))?;
            }
            Some(_) => {
                tracing::info!(topic = name, "deletion of a topic is finished");
                topic::remove_with_retries(broker, &name)?;
            }
            None if is_orphan(broker, &name) => topic::remove(broker, &name)?,
            None => {}
        }
    }
    for config in broker.topics.all().1 {
        if is_orphan(broker, &config.topic_name) {
            topic::remove(broker, &config.topic_name)?;
        }
    }
    finish_groups(broker)
}

fn finish_groups(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    let mut left: BTreeSet<String> = broker.pop.group_names().into_iter().collect();
    left.extend(broker.modes.groups());
    let clean = |name: &String| broker.groups.deletion(name).is_some_and(|d| d.clean);
    left.extend(broker.offsets.groups().into_iter().filter(clean));
    for name in left {
        if let Some(deletion) = broker.groups.deletion(&name) {
            tracing::info!(group = name, "deletion of a group is finished");
            group::clear(broker, &name, deletion.clean)?;
        }
    }
    Ok(())
}

/// Puts topics back that have messages but are not in the table, because the table is older than they are. Writing the
/// table is the caller's.
pub(crate) fn restore_topics(broker: &Broker) {
    for (topic, count) in stored(broker) {
        if broker.topics.contains(&topic)
            || broker.topics.deleted_in(&topic) > 0
            || names::is_system_topic(&topic)
        {
            continue;
        }
        tracing::error!(
            topic,
            queues = count,
            "topic is not in the table but has messages: put back with its queues that have any"
        );
        let config = TopicConfig::new(&topic, count, PERM_READ_WRITE);
        broker.topics.ensure(config, broker.now_ms());
    }
}

/// All topics that have queues, with their number.
fn stored(broker: &Broker) -> BTreeMap<String, i32> {
    let mut queues = BTreeMap::new();
    for (topic, queue_id) in broker.store.topics() {
        let count = queues.entry(topic).or_insert(0);
        *count = queue_id.saturating_add(1).max(*count);
    }
    queues
}

/// Store time of the newest message of a topic, ms; 0 where there is none.
fn newest_ms(broker: &Broker, topic: &str, queues: i32) -> u64 {
    let newest = |queue_id| {
        let range = broker.store.queue(topic, queue_id);
        let (min, max) = (range.min.to_wire(), range.max.to_wire());
        store_time(broker, topic, queue_id, max - 1).filter(|_| max > min)
    };
    let newest = (0..queues).filter_map(newest).max();
    newest.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0)
}

/// Whether the topic holds retries of a group or of a topic that was deleted.
fn is_orphan(broker: &Broker, topic: &str) -> bool {
    names::is_retry(topic)
        && pop::parse_retry_v2(topic).is_some_and(|(group, topic)| {
            broker.topics.deletion(topic).is_some() || broker.groups.deletion(group).is_some()
        })
}
