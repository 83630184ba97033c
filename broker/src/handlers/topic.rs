//! Codes 17, 21, 202, 215, 305 and 351: topics as administrators see them.

use std::collections::BTreeMap;
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
use crate::names;
use crate::table::{Batch, Buried, Entry, after};
use crate::topic::{MESSAGE_TYPE, QUEUES_MAX, TopicConfig};
use crate::version::DataVersion;

/// Values of the attribute `message.type`.
const MESSAGE_TYPES: [&str; 6] = [
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "UNSPECIFIED",
    "PRIORITY",
];

/// Code 17.
pub(crate) fn update(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let ext = &cmd.ext;
    let topic: String = ext.required("topic")?;
    let read: i32 = ext.required("readQueueNums")?;
    let write: i32 = ext.required("writeQueueNums")?;
    let perm: i32 = ext.required("perm")?;
    let filter_type = ext.get("topicFilterType").unwrap_or("SINGLE_TAG");
    if !matches!(filter_type, "SINGLE_TAG" | "MULTI_TAG") {
        return Err(BrokerError::Absent(format!(
            "topicFilterType {} is unknown",
            names::shorten(filter_type)
        )));
    }
    let wanted = Wanted {
        config: TopicConfig {
            order: ext.bool("order"),
            topic_filter_type: filter_type.to_owned(),
            topic_sys_flag: ext
                .get("topicSysFlag")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            write_queue_nums: write,
            ..TopicConfig::new(&topic, read, perm)
        },
        changes: parse_attributes(ext.get("attributes").unwrap_or(""))?,
    };
    wanted.check()?;
    let change = |batch: &mut Batch<'_, _>| apply(broker, batch, wanted);
    broker.topics.batch(broker.now_ms(), change)?;
    broker.save_topics()?;
    broker.wait_registered();
    Ok(success())
}

/// What a topic shall be: its attributes are changes of those it has.
#[derive(Debug)]
pub(crate) struct Wanted {
    config: TopicConfig,
    changes: Vec<(String, Option<String>)>,
}

impl Wanted {
    /// Of an entry of a list, whose attributes are named `+name` or `-name`.
    ///
    /// # Errors
    /// No topic can be so.
    pub(crate) fn of(mut config: TopicConfig) -> Result<Self, BrokerError> {
        let parts: Vec<String> = std::mem::take(&mut config.attributes)
            .into_iter()
            .map(|(name, value)| match name.strip_prefix('-') {
                Some(_) => name,
                None => format!("{name}={value}"),
            })
            .collect();
        let wanted = Self {
            changes: parse_attributes(&parts.join(","))?,
            config,
        };
        wanted.check()?;
        Ok(wanted)
    }

    fn check(&self) -> Result<(), BrokerError> {
        let config = &self.config;
        check_change(&config.topic_name)?;
        check_shape(config.read_queue_nums, config.write_queue_nums, config.perm)
    }
}

/// Puts the topic into the table of the batch. Writing the table is the caller's.
///
/// # Errors
/// The table is full.
pub(crate) fn apply(
    broker: &Broker,
    batch: &mut Batch<'_, TopicConfig>,
    wanted: Wanted,
) -> Result<(), BrokerError> {
    let Wanted { config, changes } = wanted;
    let topic = config.topic_name.clone();
    let change = batch
        .modify(&topic, |known| {
            let mut config = TopicConfig {
                attributes: known
                    .map(|known| known.attributes.clone())
                    .unwrap_or_default(),
                ..config
            };
            for (name, value) in changes {
                match value {
                    Some(value) => config.attributes.insert(name, value),
                    None => config.attributes.remove(&name),
                };
            }
            if let Some(known) = known {
                keep_map(&mut config, known, &broker.config.name);
            }
            Some(config)
        })
        .ok_or(BrokerError::Full("topic"))?;
    if change.changed {
        let config = &change.config;
        tracing::info!(
            topic,
            read = config.read_queue_nums,
            write = config.write_queue_nums,
            perm = config.perm,
            "topic set"
        );
    }
    Ok(())
}

/// A native tool's change of the number of queues goes into the queue map, if there is one.
fn keep_map(config: &mut TopicConfig, known: &TopicConfig, own: &str) {
    let Some(mut map) = known.queue_map() else {
        return;
    };
    if map.counts.get(own) != Some(&config.write_queue_nums) {
        map.version = after(known.version());
        map.counts.insert(own.to_owned(), config.write_queue_nums);
        map.put(&mut config.attributes);
    }
}

/// Names that administrators may create, change and delete.
///
/// # Errors
/// Not a name, or a system topic.
pub(crate) fn check_change(topic: &str) -> Result<(), BrokerError> {
    names::check_topic(topic).map_err(BrokerError::Invalid)?;
    if names::is_system_topic(topic) {
        return Err(BrokerError::Invalid(format!(
            "The topic[{}] is conflict with system topic.",
            names::shorten(topic)
        )));
    }
    Ok(())
}

/// Queue counts and permission of a topic.
///
/// # Errors
/// Out of range.
pub(crate) fn check_shape(read: i32, write: i32, perm: i32) -> Result<(), BrokerError> {
    for (name, queues) in [("readQueueNums", read), ("writeQueueNums", write)] {
        if !(0..=QUEUES_MAX).contains(&queues) {
            return Err(BrokerError::Invalid(format!(
                "{name}[{queues}] is illegal: it must be 0 to {QUEUES_MAX}"
            )));
        }
    }
    if read == 0 && write == 0 {
        return Err(BrokerError::Invalid(
            "readQueueNums and writeQueueNums are both 0".to_owned(),
        ));
    }
    if !(0..=15).contains(&perm) {
        return Err(BrokerError::Invalid(format!(
            "perm[{perm}] is illegal: it must be 0 to 15"
        )));
    }
    Ok(())
}

/// `+name=value` and `-name`, comma separated.
pub(super) fn parse_attributes(text: &str) -> Result<Vec<(String, Option<String>)>, BrokerError> {
    let bad = |part: &str| {
        BrokerError::Absent(format!(
            "add/alter attribute format is wrong: {}",
            names::shorten(part)
        ))
    };
    let mut changes = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let change = if let Some(pair) = part.strip_prefix('+') {
            let (name, value) = pair.split_once('=').ok_or_else(|| bad(part))?;
            (name.trim().to_owned(), Some(value.trim().to_owned()))
        } else if let Some(name) = part.strip_prefix('-') {
            (name.trim().to_owned(), None)
        } else {
            return Err(bad(part));
        };
        check_attribute(&change.0, change.1.as_deref())?;
        changes.push(change);
    }
    Ok(changes)
}

fn check_attribute(name: &str, value: Option<&str>) -> Result<(), BrokerError> {
    match (name, value) {
        (MESSAGE_TYPE, Some("MIXED")) => Err(BrokerError::Invalid(
            "MIXED message type is not supported.".to_owned(),
        )),
        (MESSAGE_TYPE, Some(value)) if !MESSAGE_TYPES.contains(&value) => Err(BrokerError::Absent(
            format!("value is not in set: {MESSAGE_TYPES:?}"),
        )),
        (MESSAGE_TYPE | "queue.type" | "cleanup.policy" | "reserve.time", _) => Ok(()),
        _ => Err(BrokerError::Absent(format!(
            "unsupported key: {}",
            names::shorten(name)
        ))),
    }
}

/// Code 215. Also removes what hangs on the topic: offsets, leases, and its queues.
pub(crate) fn delete(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    check_change(&topic)?;
    remove_with_retries(broker, &topic)?;
    Ok(success())
}

/// Removes a topic and the topics through which its failed messages go.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn remove_with_retries(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    let mut retries = Ok(());
    broker
        .store
        .remove_topic_after(topic, || -> Result<bool, BrokerError> {
            take_out(broker, topic)?;
            retries = remove_retries(broker, topic);
            Ok(true)
        })?;
    retries
}

/// The retries of a topic that is being removed: while that goes on nobody reads them.
pub(crate) fn remove_retries(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    let suffix = format!("+{topic}");
    let (_, all) = broker.topics.all();
    for config in all {
        let name = &config.topic_name;
        if names::is_retry(name) && name.ends_with(&suffix) {
            remove(broker, name)?;
        }
    }
    Ok(())
}

/// Removes one topic with everything about it.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn remove(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    broker.store.remove_topic_after(topic, || {
        take_out(broker, topic)?;
        Ok(true)
    })
}

fn take_out(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    let removed = broker.topics.remove(topic, broker.now_ms(), true);
    broker.save_topics()?;
    if removed {
        tracing::info!(topic = %names::shorten(topic), "topic deleted");
    }
    forget(broker, topic)
}

/// Removes what is left of a topic that is not in the table, unless it came there meanwhile.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn remove_unused(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    broker.store.remove_topic_after(topic, || {
        if broker.topics.contains(topic) {
            return Ok(false);
        }
        tracing::info!(topic = %names::shorten(topic), "queues without a topic removed");
        forget(broker, topic)?;
        Ok(true)
    })
}

/// Takes over the deletion of a topic on another broker: `version`, at `at_ms`. What became of it is on the disk if it
/// removed the topic; else writing the table is the caller's.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn bury(
    broker: &Arc<Broker>,
    topic: &str,
    version: u64,
    at_ms: u64,
) -> Result<Buried, BrokerError> {
    let (mut buried, mut retries) = (Buried::Known, Ok(()));
    broker
        .store
        .remove_topic_after(topic, || -> Result<bool, BrokerError> {
            buried = broker.topics.bury(topic, broker.now_ms(), version, at_ms);
            if buried != Buried::Removed {
                return Ok(false);
            }
            broker.save_topics()?;
            tracing::info!(topic = %names::shorten(topic), version, "topic deleted on another broker");
            forget(broker, topic)?;
            retries = remove_retries(broker, topic);
            Ok(true)
        })?;
    retries?;
    Ok(buried)
}

/// Everything about a topic but its messages, on the disk when this returns: they go last, so that a kill in between
/// leaves them as the sign that the rest is to be done again at the next start.
pub(crate) fn forget(broker: &Arc<Broker>, topic: &str) -> Result<(), BrokerError> {
    if broker.modes.remove_topic(topic) {
        broker.save_modes()?;
    }
    broker.stats.forget_topic(topic);
    // After the leases: a receive under way writes the offset of its queue.
    broker.topic_removed(topic)?;
    broker.offsets.remove_topic(topic);
    broker.carry.forget(&broker.store, topic)?;
    broker.save_offsets()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicTableAnswer {
    data_version: DataVersion,
    mapping_data_version: DataVersion,
    topic_config_table: BTreeMap<String, TopicConfig>,
    topic_queue_mapping_detail_map: BTreeMap<String, String>,
    topic_queue_mapping_info_map: BTreeMap<String, String>,
}

/// Code 21: all topics, or a page of them.
pub(crate) fn all(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let skip: Option<u32> = cmd.ext.optional("topicSeq")?;
    let limit: Option<u32> = cmd.ext.optional("maxTopicNum")?;
    let (data_version, topics) = broker.topics.all();
    let total = topics.len();
    let sorted: BTreeMap<String, TopicConfig> = topics
        .into_iter()
        .map(|config| (config.topic_name.clone(), config.as_ref().clone()))
        .collect();
    let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let limit = limit.filter(|n| *n > 0).map_or(usize::MAX, size);
    let page = sorted
        .into_iter()
        .skip(skip.map_or(0, size))
        .take(limit)
        .collect();
    let mut response = json_answer(&TopicTableAnswer {
        data_version,
        mapping_data_version: DataVersion::default(),
        topic_config_table: page,
        topic_queue_mapping_detail_map: BTreeMap::new(),
        topic_queue_mapping_info_map: BTreeMap::new(),
    });
    response
        .ext
        .put("totalTopicNum", u64::try_from(total).unwrap_or(u64::MAX));
    Ok(response)
}

/// Code 351.
pub(crate) fn get(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let config = broker
        .topics
        .get(&topic)
        .ok_or_else(|| BrokerError::NoTopic(names::shorten(&topic)))?;
    Ok(json_answer(config.as_ref()))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueStats {
    last_update_timestamp: i64,
    max_offset: i64,
    min_offset: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicStats {
    offset_table: QueueMap<QueueStats>,
    topic_put_tps: f64,
}

/// Code 202.
pub(crate) fn stats(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let config = broker
        .topics
        .get(&topic)
        .ok_or_else(|| BrokerError::NoTopic(names::shorten(&topic)))?;
    let mut table = QueueMap::default();
    for queue_id in 0..config.queue_count() {
        let range = broker.store.queue(&topic, queue_id);
        let (min, max) = (range.min.to_wire(), range.max.to_wire());
        let last = if max > min {
            store_time(broker, &topic, queue_id, max - 1).unwrap_or(0)
        } else {
            0
        };
        table.insert(
            MessageQueue::new(topic.clone(), broker.config.name.clone(), queue_id),
            QueueStats {
                last_update_timestamp: last,
                max_offset: max,
                min_offset: min,
            },
        );
    }
    let body = wire::json::to_vec_apache(&TopicStats {
        offset_table: table,
        topic_put_tps: broker.stats.put_rate(&topic, broker.clock.monotonic()),
    });
    Ok(success().with_body(body))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicList {
    topic_list: Vec<String>,
}

/// Code 305.
pub(crate) fn system_list(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let mut list: Vec<String> = names::system_topics()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    list.push(broker.config.cluster.clone());
    list.push(broker.config.name.clone());
    let (_, topics) = broker.topics.all();
    list.extend(
        topics
            .iter()
            .map(|config| config.topic_name.clone())
            .filter(|name| names::is_system_topic(name)),
    );
    list.sort_unstable();
    list.dedup();
    Ok(json_answer(&TopicList { topic_list: list }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_added_and_removed_by_sign() {
        let changes = parse_attributes("+message.type=FIFO,-queue.type").unwrap();
        assert_eq!(
            changes[0],
            ("message.type".to_owned(), Some("FIFO".to_owned()))
        );
        assert_eq!(changes[1], ("queue.type".to_owned(), None));
        for bad in [
            "message.type=FIFO",
            "+message.type",
            "+foo=1",
            "+message.type=LOUD",
            "+message.type=MIXED",
        ] {
            assert!(parse_attributes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shapes_that_no_topic_can_have_are_refused() {
        assert!(check_shape(4, 4, 6).is_ok());
        assert!(check_shape(0, 4, 2).is_ok());
        for (read, write, perm) in [
            (-1, 4, 6),
            (4, 70_000, 6),
            (0, 0, 6),
            (4, 4, 16),
            (4, 4, -1),
        ] {
            assert!(check_shape(read, write, perm).is_err());
        }
    }
}
