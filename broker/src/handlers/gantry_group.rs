//! Codes 900003 to 900007: groups, their stored subscriptions and their lag, as the gateway sees them.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::gantry::{Backoff, GroupDetail, GroupSpec, SubscriptionSpec};

use super::gantry_topic::{absent, check_expectation, next_version};
use super::{json_answer, json_body};
use crate::broker::Broker;
use crate::config::RETENTION_MAX_MS;
use crate::error::BrokerError;
use crate::filter::{Filter, FilterError};
use crate::group::{ATTRIBUTE_SPEC, ATTRIBUTE_SUBSCRIPTIONS, GroupConfig, SUBSCRIPTIONS_MAX};
use crate::names;
use crate::table::{ATTRIBUTE_VERSION, Entry};

/// Longest lease, in ms.
const INVISIBLE_MAX_MS: u64 = 12 * 3_600_000;
/// Most steps of a list of delays.
const BACKOFF_STEPS_MAX: usize = 100;
/// Most labels, and the longest name in bytes.
const LABELS_MAX: usize = 64;
const LABEL_NAME_MAX: usize = 64;
/// Longest description and value of a label, in bytes.
const TEXT_MAX: usize = 1_024;
/// Longest delay before a redelivery, in ms.
const BACKOFF_MAX_MS: u64 = 365 * 24 * 3_600_000;

/// The settings of a group: stored ones, or those that its native configuration amounts to.
pub(crate) fn spec_of(config: &GroupConfig) -> GroupSpec {
    config
        .attributes
        .get(ATTRIBUTE_SPEC)
        .and_then(|text| wire::json::from_slice(text.as_bytes()).ok())
        .unwrap_or_else(|| GroupSpec {
            ordered: config.consume_message_orderly,
            max_attempts: u32::try_from(config.retry_max_times.saturating_add(1))
                .unwrap_or(1)
                .clamp(1, 100),
            ..GroupSpec::default()
        })
}

/// The stored subscriptions of a group.
pub(crate) fn subscriptions_of(config: &GroupConfig) -> Vec<SubscriptionSpec> {
    config
        .attributes
        .get(ATTRIBUTE_SUBSCRIPTIONS)
        .and_then(|text| wire::json::from_slice(text.as_bytes()).ok())
        .unwrap_or_default()
}

fn detail(config: &GroupConfig) -> GroupDetail {
    GroupDetail {
        group: config.group_name.clone(),
        version: config.version(),
        hash: format!("{:016x}", config.content_hash()),
        spec: spec_of(config),
        subscriptions: subscriptions_of(config),
    }
}

fn to_text(value: &impl serde::Serialize) -> String {
    String::from_utf8(wire::json::to_vec(value)).unwrap_or_default()
}

/// Changes a group under the table lock and writes the table.
fn change(
    broker: &Arc<Broker>,
    group: &str,
    build: impl FnOnce(Option<&GroupConfig>) -> Result<GroupConfig, BrokerError>,
) -> Result<Arc<GroupConfig>, BrokerError> {
    let mut refused = None;
    let change = broker.groups.modify(group, broker.now_ms(), |known| {
        build(known).map_err(|error| refused = Some(error)).ok()
    });
    if let Some(error) = refused {
        return Err(error);
    }
    let change = change.ok_or(BrokerError::Full("group"))?;
    // Also where nothing changed: the write of the change may have failed.
    broker.save_groups()?;
    if change.changed {
        tracing::info!(group = %group, version = change.config.version(), "group set");
    }
    broker.group_changed(group);
    Ok(change.config)
}

/// Code 900003.
pub(crate) fn put(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let spec: GroupSpec = json_body(cmd)?;
    check_name(&group)?;
    check_spec(&spec)?;
    let config = change(broker, &group, |known| {
        let found = known.map(GroupConfig::version);
        check_expectation(cmd, "group", &group, found)?;
        let mut config = known.cloned().unwrap_or_else(|| GroupConfig::new(&group));
        if known.is_some_and(|known| {
            known.attributes.contains_key(ATTRIBUTE_SPEC) && spec_of(known) == spec
        }) && cmd.ext.get("version").is_none()
        {
            return Ok(config);
        }
        config
            .attributes
            .insert(ATTRIBUTE_SPEC.to_owned(), to_text(&spec));
        config.retry_max_times = i32::try_from(spec.max_attempts.saturating_sub(1)).unwrap_or(16);
        config.consume_message_orderly = spec.ordered;
        config.attributes.insert(
            ATTRIBUTE_VERSION.to_owned(),
            next_version(cmd, found)?.to_string(),
        );
        Ok(config)
    })?;
    Ok(json_answer(&detail(&config)))
}

fn check_name(group: &str) -> Result<(), BrokerError> {
    names::check_group(group).map_err(BrokerError::Invalid)?;
    if names::is_system_group(group) {
        return Err(BrokerError::Forbidden(format!(
            "the group [{}] belongs to the system",
            names::shorten(group)
        )));
    }
    Ok(())
}

fn check_spec(spec: &GroupSpec) -> Result<(), BrokerError> {
    let bad = |text: String| Err(BrokerError::Invalid(text));
    if spec.ordered {
        return Err(BrokerError::NotSupported("ordered delivery to leases"));
    }
    if !(1_000..=INVISIBLE_MAX_MS).contains(&spec.invisible_ms) {
        return bad(format!("invisibleMs must be 1000 to {INVISIBLE_MAX_MS}"));
    }
    if !(1..=1_000_000).contains(&spec.max_in_flight) {
        return bad("maxInFlight must be 1 to 1000000".to_owned());
    }
    if !(1..=100).contains(&spec.max_attempts) {
        return bad("maxAttempts must be 1 to 100".to_owned());
    }
    if spec.dead_letter_retention_ms > RETENTION_MAX_MS {
        return bad(format!(
            "deadLetterRetentionMs must be at most {RETENTION_MAX_MS}"
        ));
    }
    check_position(&spec.initial_position)?;
    let is_long = |(name, value): (&String, &String)| {
        name.is_empty() || name.len() > LABEL_NAME_MAX || value.len() > TEXT_MAX
    };
    if spec.labels.len() > LABELS_MAX || spec.labels.iter().any(is_long) {
        return bad(format!(
            "labels: at most {LABELS_MAX}, names of 1 to {LABEL_NAME_MAX} bytes, values of at most {TEXT_MAX}"
        ));
    }
    if spec.description.len() > TEXT_MAX {
        return bad(format!("description must have at most {TEXT_MAX} bytes"));
    }
    match &spec.backoff {
        Backoff::List { delays_ms } => {
            if delays_ms.is_empty() || delays_ms.len() > BACKOFF_STEPS_MAX {
                return bad(format!(
                    "backoff.delaysMs must have 1 to {BACKOFF_STEPS_MAX} entries"
                ));
            }
            if delays_ms.iter().any(|delay| *delay > BACKOFF_MAX_MS) {
                return bad(format!("backoff.delaysMs must be at most {BACKOFF_MAX_MS}"));
            }
        }
        Backoff::Exponential {
            initial_ms,
            max_ms,
            multiplier,
            jitter,
        } => {
            if initial_ms > max_ms || *max_ms > BACKOFF_MAX_MS {
                return bad(format!(
                    "backoff.initialMs must be at most maxMs, and that at most {BACKOFF_MAX_MS}"
                ));
            }
            if !(1.0..=100.0).contains(multiplier) || !(0.0..=1.0).contains(jitter) {
                return bad("backoff.multiplier must be 1 to 100 and jitter 0 to 1".to_owned());
            }
        }
    }
    Ok(())
}

/// `latest`, `earliest`, or a time in epoch ms.
fn check_position(text: &str) -> Result<(), BrokerError> {
    if matches!(text, "latest" | "earliest") || text.parse::<i64>().is_ok_and(|ms| ms >= 0) {
        return Ok(());
    }
    Err(BrokerError::Invalid(
        "initialPosition must be latest, earliest or a time in ms".to_owned(),
    ))
}

/// Code 900004. Never creates. `peers` names the other masters of the cluster, silent ones included.
pub(crate) fn get(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let mut answer = match broker.groups.get(&group) {
        Some(config) => json_answer(&detail(&config)),
        None => absent(
            &BrokerError::NoGroup(names::shorten(&group)),
            broker.groups.deletion(&group),
            broker.now_ms(),
        ),
    };
    answer.ext.put("peers", broker.peers.names().join(","));
    Ok(answer)
}

fn find(broker: &Broker, group: &str) -> Result<Arc<GroupConfig>, BrokerError> {
    broker
        .groups
        .get(group)
        .ok_or_else(|| BrokerError::NoGroup(names::shorten(group)))
}

/// Code 900005. The start position of every queue is durable before the answer; a topic the group
/// subscribes to already keeps its progress.
pub(crate) fn put_subscription(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let topic: String = cmd.ext.required("topic")?;
    let mut wanted: SubscriptionSpec = json_body(cmd)?;
    wanted.topic.clone_from(&topic);
    check_subscription(&wanted)?;
    let known = find(broker, &group)?;
    let config = broker.topics.get(&topic);
    // The gateway has seen the topic: its queues may all be on other brokers.
    if config.is_none() && !cmd.ext.bool("topicKnown") {
        return Err(BrokerError::NoTopic(names::shorten(&topic)));
    }
    if names::is_system_topic(&topic) {
        return Err(BrokerError::Forbidden(format!(
            "the topic [{}] belongs to the system",
            names::shorten(&topic)
        )));
    }
    let is_new = !subscriptions_of(&known)
        .iter()
        .any(|subscription| subscription.topic == topic);
    check_expectation(cmd, "group", &group, Some(known.version()))?;
    wanted.made_at_ms = i64::try_from(broker.now_ms()).ok();
    if let (true, Some(config)) = (is_new, config) {
        let position = wanted
            .initial_position
            .clone()
            .unwrap_or_else(|| spec_of(&known).initial_position);
        broker.fix_start(&group, &config, &position)?;
    }
    let config = change(broker, &group, |known| {
        let known = known.ok_or_else(|| BrokerError::NoGroup(names::shorten(&group)))?;
        check_expectation(cmd, "group", &group, Some(known.version()))?;
        let version = next_version(cmd, Some(known.version()))?;
        let mut subscriptions = subscriptions_of(known);
        let mut config = known.clone();
        let full = subscriptions.len() >= SUBSCRIPTIONS_MAX;
        match subscriptions
            .iter_mut()
            .find(|subscription| subscription.topic == topic)
        {
            Some(present) => {
                wanted.version = present.version;
                wanted.made_at_ms = present.made_at_ms;
                if *present == wanted {
                    return Ok(config);
                }
                wanted.version = version;
                *present = wanted;
            }
            None if full => return Err(BrokerError::Full("subscription")),
            None => {
                wanted.version = version;
                subscriptions.push(wanted);
            }
        }
        subscriptions.sort_by(|a, b| a.topic.cmp(&b.topic));
        store_subscriptions(&mut config, known, &subscriptions, version);
        Ok(config)
    })?;
    Ok(json_answer(&detail(&config)))
}

fn store_subscriptions(
    config: &mut GroupConfig,
    known: &GroupConfig,
    subscriptions: &[SubscriptionSpec],
    version: u64,
) {
    // From here on the settings stand by themselves, whatever native tools change.
    config
        .attributes
        .entry(ATTRIBUTE_SPEC.to_owned())
        .or_insert_with(|| to_text(&spec_of(known)));
    config
        .attributes
        .insert(ATTRIBUTE_SUBSCRIPTIONS.to_owned(), to_text(&subscriptions));
    config.set_version(version);
}

fn check_subscription(wanted: &SubscriptionSpec) -> Result<(), BrokerError> {
    if let Some(position) = &wanted.initial_position {
        check_position(position)?;
    }
    match wanted.kind.as_str() {
        "all" => Ok(()),
        "tag" => match Filter::parse(Some("TAG"), Some(&wanted.expression)) {
            Ok(_) => Ok(()),
            Err(FilterError::Kind(_) | FilterError::TooLarge) => Err(BrokerError::Subscription(
                "the expression is too long".to_owned(),
            )),
        },
        "sql92" => Err(BrokerError::NotSupported("an SQL92 filter")),
        other => Err(BrokerError::Invalid(format!(
            "kind {} is unknown: all or tag",
            names::shorten(other)
        ))),
    }
}

/// Code 900006. What the group has not read of the topic is given up.
pub(crate) fn delete_subscription(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let topic: String = cmd.ext.required("topic")?;
    let mut removed = false;
    let config = change(broker, &group, |known| {
        let known = known.ok_or_else(|| BrokerError::NoGroup(names::shorten(&group)))?;
        check_expectation(cmd, "group", &group, Some(known.version()))?;
        let mut subscriptions = subscriptions_of(known);
        let before = subscriptions.len();
        subscriptions.retain(|subscription| subscription.topic != topic);
        if subscriptions.len() == before {
            return Err(BrokerError::NoSubscription {
                group: names::shorten(&group),
                topic: names::shorten(&topic),
            });
        }
        removed = true;
        let mut config = known.clone();
        let version = next_version(cmd, Some(known.version()))?;
        store_subscriptions(&mut config, known, &subscriptions, version);
        Ok(config)
    })?;
    if removed {
        broker.subscription_removed(&group, &topic);
    }
    Ok(json_answer(&detail(&config)))
}

/// Code 900007. `peers` as in the answer of 900004.
pub(crate) fn lag(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let config = find(broker, &group)?;
    let mut answer = json_answer(&broker.group_lag(&group, &subscriptions_of(&config)));
    answer.ext.put("peers", broker.peers.names().join(","));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let check = |change: fn(&mut GroupSpec), word: &str| {
            let mut spec = GroupSpec::default();
            change(&mut spec);
            let text = check_spec(&spec).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        };
        assert!(check_spec(&GroupSpec::default()).is_ok());
        check(|spec| spec.invisible_ms = 0, "invisibleMs");
        check(|spec| spec.max_attempts = 101, "maxAttempts");
        check(|spec| spec.max_in_flight = 0, "maxInFlight");
        check(
            |spec| spec.initial_position = "soon".to_owned(),
            "initialPosition",
        );
        check(
            |spec| {
                spec.backoff = Backoff::List {
                    delays_ms: Vec::new(),
                }
            },
            "delaysMs",
        );
        check(|spec| spec.ordered = true, "not supported");
        check(
            |spec| spec.dead_letter_retention_ms = RETENTION_MAX_MS + 1,
            "deadLetterRetentionMs",
        );
        check(|spec| spec.description = "d".repeat(1_025), "description");
        check(
            |spec| drop(spec.labels.insert("n".repeat(65), String::new())),
            "labels",
        );
    }

    #[test]
    fn a_native_group_has_the_settings_its_configuration_amounts_to() {
        let config = GroupConfig {
            retry_max_times: 2,
            ..GroupConfig::new("g")
        };
        assert_eq!(spec_of(&config).max_attempts, 3);
        assert!(subscriptions_of(&config).is_empty());
    }
}
