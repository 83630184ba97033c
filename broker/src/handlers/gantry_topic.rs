//! Codes 900001 and 900002: topics with versions, as the gateway sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::gantry::{QueueDetail, TopicDetail, TopicSpec};
use wire::body::queue_map;

use super::offset::store_time;
use super::topic::{check_change, check_shape};
use super::{json_answer, json_body};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::table::{ATTRIBUTE_MADE, ATTRIBUTE_VERSION, Deletion, Entry, VERSION_MAX, after};
use crate::topic::{ATTRIBUTE_EPOCH, MESSAGE_TYPE, TopicConfig};

/// Most attributes of a topic, and the longest name and value in bytes.
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_NAME_MAX: usize = 128;
const ATTRIBUTE_VALUE_MAX: usize = 4_096;
/// Longest queue map in bytes.
const QUEUE_MAP_MAX: usize = 65_536;
/// Attributes that keep the value they were created with.
const IMMUTABLE: [&str; 2] = [MESSAGE_TYPE, "gantry.type"];

/// What the caller expects to find: nothing, some version, or anything.
///
/// # Errors
/// The expectation does not hold.
pub(crate) fn check_expectation(
    cmd: &Command,
    kind: &'static str,
    name: &str,
    found: Option<u64>,
) -> Result<(), BrokerError> {
    let Some(expected) = cmd.ext.optional::<u64>("expect")? else {
        return Ok(());
    };
    match (expected, found) {
        (0, None) => Ok(()),
        (0, Some(_)) => Err(BrokerError::Exists {
            kind,
            name: names::shorten(name),
        }),
        (expected, Some(found)) if expected == found => Ok(()),
        (expected, found) => Err(BrokerError::VersionMismatch {
            expected: expected.to_string(),
            found: found.unwrap_or(0),
        }),
    }
}

/// The version a change gets: the caller's, which must be newer than what is there, else the next.
///
/// # Errors
/// The caller's version is not newer, or higher than versions go.
pub(crate) fn next_version(cmd: &Command, found: Option<u64>) -> Result<u64, BrokerError> {
    let found = found.unwrap_or(0);
    match cmd.ext.optional::<u64>("version")? {
        None => Ok(after(found)),
        Some(wanted) if wanted > VERSION_MAX => Err(BrokerError::Invalid(format!(
            "version is {wanted}, must be at most {VERSION_MAX}"
        ))),
        Some(wanted) if wanted > found => Ok(wanted),
        Some(wanted) => Err(BrokerError::VersionMismatch {
            expected: format!("below {wanted}"),
            found,
        }),
    }
}

/// Code 900001.
pub(crate) fn put(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    let spec: TopicSpec = json_body(cmd)?;
    check_change(&topic)?;
    check_shape(spec.read_queues, spec.write_queues, spec.perm)?;
    check_attributes(&spec.attributes)?;
    let mut refused = None;
    let change = broker.topics.modify(&topic, broker.now_ms(), |known| {
        let built = build(cmd, &topic, &spec, known);
        built.map_err(|error| refused = Some(error)).ok()
    });
    if let Some(error) = refused {
        return Err(error);
    }
    let change = change.ok_or(BrokerError::Full("topic"))?;
    // Also where nothing changed: the write of the change may have failed.
    broker.save_topics()?;
    if change.changed {
        tracing::info!(topic = %topic, version = change.config.version(), "topic set");
    }
    Ok(json_answer(&detail(broker, &change.config)))
}

fn build(
    cmd: &Command,
    topic: &str,
    spec: &TopicSpec,
    known: Option<&TopicConfig>,
) -> Result<TopicConfig, BrokerError> {
    let found = known.map(TopicConfig::version);
    check_expectation(cmd, "topic", topic, found)?;
    if let Some(known) = known {
        for name in IMMUTABLE {
            let (before, after) = (known.attributes.get(name), spec.attributes.get(name));
            if let (Some(before), Some(after)) = (before, after)
                && before != after
            {
                return Err(BrokerError::Immutable(format!(
                    "{name} of topic [{}] is {before} and stays so",
                    names::shorten(topic)
                )));
            }
        }
    }
    let mut config = TopicConfig {
        write_queue_nums: spec.write_queues,
        attributes: spec.attributes.clone(),
        topic_filter_type: known.map_or_else(
            || TopicConfig::default().topic_filter_type,
            |known| known.topic_filter_type.clone(),
        ),
        order: known.is_some_and(|known| known.order),
        topic_sys_flag: known.map_or(0, |known| known.topic_sys_flag),
        ..TopicConfig::new(topic, spec.read_queues, spec.perm)
    };
    if let Some(known) = known {
        for name in IMMUTABLE {
            if let Some(value) = known.attributes.get(name) {
                config.attributes.insert(name.to_owned(), value.clone());
            }
        }
        // The same again is no change, whatever its version.
        config
            .attributes
            .insert(ATTRIBUTE_VERSION.to_owned(), known.version().to_string());
        for name in [ATTRIBUTE_EPOCH, ATTRIBUTE_MADE] {
            if let Some(value) = known.attributes.get(name) {
                config.attributes.insert(name.to_owned(), value.clone());
            }
        }
        let mut same = known.clone();
        same.attributes
            .insert(ATTRIBUTE_VERSION.to_owned(), known.version().to_string());
        if same == config && cmd.ext.get("version").is_none() {
            return Ok(known.clone());
        }
    }
    config.attributes.insert(
        ATTRIBUTE_VERSION.to_owned(),
        next_version(cmd, found)?.to_string(),
    );
    Ok(config)
}

pub(crate) fn check_attributes(attributes: &BTreeMap<String, String>) -> Result<(), BrokerError> {
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(BrokerError::Invalid(format!(
            "attributes: at most {ATTRIBUTES_MAX}"
        )));
    }
    for (name, value) in attributes {
        let value_max = if name == queue_map::ATTRIBUTE {
            QUEUE_MAP_MAX
        } else {
            ATTRIBUTE_VALUE_MAX
        };
        if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX || value.len() > value_max {
            return Err(BrokerError::Invalid(format!(
                "attribute {}: names have 1 to {ATTRIBUTE_NAME_MAX} bytes, values at most {value_max}",
                names::shorten(name)
            )));
        }
    }
    Ok(())
}

/// Code 900002.
pub(crate) fn get(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let topic: String = cmd.ext.required("topic")?;
    match broker.topics.get(&topic) {
        Some(config) => Ok(json_answer(&detail(broker, &config))),
        None => Ok(absent(
            &BrokerError::NoTopic(names::shorten(&topic)),
            broker.topics.deletion(&topic),
            broker.now_ms(),
        )),
    }
}

/// The refusal of something that is not there, with the version in which it was deleted, and how long ago, ms.
pub(crate) fn absent(error: &BrokerError, deletion: Option<Deletion>, now_ms: u64) -> Command {
    let mut response = error.to_response();
    if let Some(deletion) = deletion {
        response.ext.put("version", deletion.version);
        let ago = now_ms.saturating_sub(deletion.at_ms);
        response.ext.put("deletedAgo", ago);
    }
    response
}

fn detail(broker: &Broker, config: &TopicConfig) -> TopicDetail {
    let mut attributes = config.attributes.clone();
    attributes.remove(ATTRIBUTE_VERSION);
    attributes.remove(ATTRIBUTE_EPOCH);
    attributes.remove(ATTRIBUTE_MADE);
    let queues = (0..config.queue_count())
        .map(|id| {
            let range = broker.store.queue(&config.topic_name, id);
            let (min, max) = (range.min.to_wire(), range.max.to_wire());
            let time = |offset| store_time(broker, &config.topic_name, id, offset).unwrap_or(-1);
            let (earliest, latest) = if max > min {
                (time(min), time(max - 1))
            } else {
                (-1, -1)
            };
            QueueDetail {
                id,
                min_offset: min,
                max_offset: max,
                earliest_at_ms: earliest,
                latest_at_ms: latest,
            }
        })
        .collect();
    TopicDetail {
        topic: config.topic_name.clone(),
        version: config.version(),
        epoch: config.epoch(),
        hash: format!("{:016x}", config.content_hash()),
        spec: TopicSpec {
            read_queues: config.read_queue_nums,
            write_queues: config.write_queue_nums,
            perm: config.perm,
            attributes,
        },
        queues,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::RequestCode;

    fn request(expect: Option<&str>) -> Command {
        let mut cmd = Command::request(RequestCode::PutTopic);
        cmd.ext.put_opt("expect", expect);
        cmd
    }

    #[test]
    fn expectations_hold_or_say_what_is_there() {
        let check = |expect: Option<&str>, found: Option<u64>| {
            check_expectation(&request(expect), "topic", "t", found).map_err(|error| error.reason())
        };
        assert_eq!(check(None, Some(3)), Ok(()));
        assert_eq!(check(Some("0"), None), Ok(()));
        assert_eq!(check(Some("0"), Some(1)), Err("topic_exists"));
        assert_eq!(check(Some("3"), Some(3)), Ok(()));
        assert_eq!(check(Some("2"), Some(3)), Err("version_mismatch"));
        assert_eq!(check(Some("2"), None), Err("version_mismatch"));
        assert_eq!(check(Some("x"), None), Err("invalid_field"));
    }

    #[test]
    fn versions_end_at_two_to_the_53() {
        let next = |version: Option<u64>, found| {
            let mut cmd = request(None);
            cmd.ext.put_opt("version", version);
            next_version(&cmd, Some(found)).map_err(|error| error.reason())
        };
        assert_eq!(next(Some(VERSION_MAX), 1), Ok(VERSION_MAX));
        for version in [VERSION_MAX + 1, u64::MAX] {
            assert_eq!(next(Some(version), 1), Err("invalid_field"));
        }
        assert_eq!(next(None, VERSION_MAX), Ok(VERSION_MAX));
    }

    #[test]
    fn a_change_raises_the_version_a_repeat_does_not_and_the_type_stays() {
        let mut spec = TopicSpec::default();
        spec.attributes
            .insert("message.type".to_owned(), "FIFO".to_owned());
        let first = build(&request(None), "t", &spec, None).unwrap();
        assert_eq!(first.version(), 1);
        let again = build(&request(None), "t", &spec, Some(&first)).unwrap();
        assert_eq!(again, first);
        spec.read_queues = 8;
        let second = build(&request(None), "t", &spec, Some(&first)).unwrap();
        assert_eq!(second.version(), 2);
        let mut numbered = request(None);
        numbered.ext.put("version", 9u64);
        assert_eq!(
            build(&numbered, "t", &spec, Some(&second))
                .unwrap()
                .version(),
            9
        );
        spec.attributes
            .insert("message.type".to_owned(), "NORMAL".to_owned());
        assert_eq!(
            build(&request(None), "t", &spec, Some(&first))
                .unwrap_err()
                .reason(),
            "immutable_field"
        );
    }
}
