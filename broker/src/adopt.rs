//! Takes over configurations that peers or gateways bring, with everything that hangs on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::body::config_level::{ConfigEntry, ConfigTaken};
use wire::body::gantry::SubscriptionSpec;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::group::{GroupConfig, SUBSCRIPTIONS_MAX};
use crate::handlers::gantry_group::{spec_of, subscriptions_of};
use crate::handlers::gantry_topic::check_attributes;
use crate::handlers::{group, topic};
use crate::level;
use crate::names;
use crate::table::{Buried, Entry};
use crate::topic::TopicConfig;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Topics.
    Topic,
    /// Groups with their subscriptions.
    Group,
}

impl Kind {
    /// Both, topics first: the start of a subscription is fixed in queues that are there.
    pub(crate) const ALL: [Self; 2] = [Self::Topic, Self::Group];

    /// As in the field `kind`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Group => "group",
        }
    }

    /// From the field `kind`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Takes each entry that is newer than what is here. All of it is on the disk when this returns. Blocks.
/// `from` is the broker whose entries they are; `fresh` = written a moment ago.
///
/// # Errors
/// An entry is not valid, a table is full, or the disk's. What was taken before stays.
pub(crate) fn adopt(
    broker: &Arc<Broker>,
    kind: Kind,
    entries: &[ConfigEntry],
    from: &str,
    fresh: bool,
) -> Result<Vec<ConfigTaken>, BrokerError> {
    match kind {
        Kind::Topic => topics(broker, entries, from),
        Kind::Group => groups(broker, entries, fresh),
    }
}

fn topics(
    broker: &Arc<Broker>,
    entries: &[ConfigEntry],
    from: &str,
) -> Result<Vec<ConfigTaken>, BrokerError> {
    let (mut results, mut failed) = (Vec::new(), None);
    for entry in entries {
        match one_topic(broker, entry, from) {
            Ok(taken) => results.push(taken),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    broker.save_topics()?;
    failed.map_or(Ok(results), Err)
}

fn one_topic(
    broker: &Arc<Broker>,
    entry: &ConfigEntry,
    from: &str,
) -> Result<ConfigTaken, BrokerError> {
    let name = &entry.name;
    topic::check_change(name)?;
    let version_here = || broker.topics.get(name).map(|config| config.version());
    if entry.config.is_null() {
        let buried = topic::bury(broker, name, entry.version, deleted_at(broker, entry))?;
        note_outlived(buried, "topic", entry);
        let taken = version_here().is_none();
        let version = version_here().unwrap_or_else(|| broker.topics.deleted_in(name));
        return Ok(mark(name, taken, version));
    }
    let theirs: TopicConfig = parse(entry)?;
    if theirs.topic_name != *name || !theirs.is_levelled(name) {
        return Err(BrokerError::Invalid(format!(
            "[{}] is no topic that brokers level",
            names::shorten(name)
        )));
    }
    topic::check_shape(theirs.read_queue_nums, theirs.write_queue_nums, theirs.perm)?;
    check_attributes(&theirs.attributes)?;
    let mut full = false;
    let change = broker.topics.take(name, broker.now_ms(), |mine, deleted| {
        let wanted = level::topic(mine, deleted, &theirs, from, &broker.config.name)?;
        full = mine.is_none();
        Some(wanted)
    });
    if change.is_none() && full {
        return Err(BrokerError::Full("topic"));
    }
    let here = broker.topics.get(name);
    let taken = here.as_ref().map_or_else(
        || broker.topics.deleted_in(name) <= theirs.version(),
        |here| {
            here.version() < theirs.version()
                || here.version() == theirs.version()
                    && here.content_hash() == theirs.content_hash()
        },
    );
    let version = here.map_or_else(|| broker.topics.deleted_in(name), |here| here.version());
    if change.is_some_and(|change| change.changed) {
        tracing::info!(topic = %name, version, from, "topic taken from a peer");
    }
    Ok(mark(name, taken, version))
}

fn groups(
    broker: &Arc<Broker>,
    entries: &[ConfigEntry],
    fresh: bool,
) -> Result<Vec<ConfigTaken>, BrokerError> {
    let (mut results, mut changed, mut failed) = (Vec::new(), Vec::new(), None);
    for entry in entries {
        match one_group(broker, entry, fresh) {
            Ok((taken, change)) => {
                changed.extend(change.map(|gone| (entry.name.as_str(), gone)));
                results.push(taken);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    broker.save_groups()?;
    for (group, gone) in changed {
        for topic in gone {
            broker.subscription_removed(group, &topic);
        }
        broker.group_changed(group);
    }
    failed.map_or(Ok(results), Err)
}

/// The mark, and where the group changed the topics that it does not subscribe any more.
fn one_group(
    broker: &Arc<Broker>,
    entry: &ConfigEntry,
    fresh: bool,
) -> Result<(ConfigTaken, Option<BTreeSet<String>>), BrokerError> {
    let name = &entry.name;
    names::check_group(name).map_err(BrokerError::Invalid)?;
    let version_here = || broker.groups.get(name).map(|config| config.version());
    if names::is_system_group(name) {
        return Err(BrokerError::Invalid(format!(
            "the group [{name}] belongs to the system"
        )));
    }
    if entry.config.is_null() {
        let mut gone = None;
        let at_ms = deleted_at(broker, entry);
        let buried = broker
            .groups
            .bury(name, broker.now_ms(), entry.version, at_ms);
        note_outlived(buried, "group", entry);
        match buried {
            Buried::Known => {}
            // Written with the rest.
            Buried::Remembered | Buried::Outlived => gone = Some(BTreeSet::new()),
            Buried::Removed => {
                broker.save_groups()?;
                group::clear(broker, name, true)?;
            }
        }
        let taken = version_here().is_none();
        let version = version_here().unwrap_or_else(|| broker.groups.deleted_in(name));
        return Ok((mark(name, taken, version), gone));
    }
    let theirs: GroupConfig = parse(entry)?;
    let after = subscriptions_of(&theirs);
    if theirs.group_name != *name || after.len() > SUBSCRIPTIONS_MAX {
        return Err(BrokerError::Invalid(format!(
            "[{}] is no group that brokers level",
            names::shorten(name)
        )));
    }
    let known = broker.groups.get(name);
    let deleted = broker.groups.deleted_in(name);
    let mut gone = None;
    if level::group(known.as_deref(), deleted, &theirs).is_some() {
        let before = known.as_deref().map(subscriptions_of).unwrap_or_default();
        // The start is fixed before the subscription can be seen.
        for subscription in after.iter().filter(|s| !has(&before, &s.topic)) {
            if let Some(topic) = broker.topics.get(&subscription.topic) {
                let start = start_of(subscription, &theirs, fresh);
                broker.fix_start(name, &topic, &start)?;
            }
        }
        let change = broker.groups.take(name, broker.now_ms(), |mine, deleted| {
            level::group(mine, deleted, &theirs)
        });
        if change.is_none() && version_here().is_none() {
            return Err(BrokerError::Full("group"));
        }
        if change.is_some_and(|change| change.changed) {
            let left = before.into_iter().filter(|s| !has(&after, &s.topic));
            gone = Some(left.map(|s| s.topic).collect());
            tracing::info!(group = %name, version = theirs.version(), "group taken from a peer");
        }
    }
    let here = broker.groups.get(name);
    let taken = here.as_ref().is_some_and(|here| {
        here.version() == theirs.version() && here.content_hash() == theirs.content_hash()
    });
    let version = here.map_or_else(|| broker.groups.deleted_in(name), |here| here.version());
    Ok((mark(name, taken, version), gone))
}

/// When the deletion was; this moment, where nobody says.
fn deleted_at(broker: &Broker, entry: &ConfigEntry) -> u64 {
    match entry.deleted_at_ms {
        0 => broker.now_ms(),
        at_ms => at_ms,
    }
}

fn note_outlived(buried: Buried, kind: &str, entry: &ConfigEntry) {
    if buried == Buried::Outlived {
        let (name, version) = (&entry.name, entry.version + 1);
        tracing::info!(
            kind,
            name,
            version,
            "made after its deletion elsewhere: stays"
        );
    }
}

fn has(subscriptions: &[SubscriptionSpec], topic: &str) -> bool {
    subscriptions.iter().any(|s| s.topic == topic)
}

/// Where a subscription begins in queues here. `latest` of one that was made a while ago means the time it was made.
fn start_of(subscription: &SubscriptionSpec, config: &GroupConfig, fresh: bool) -> String {
    let position = subscription
        .initial_position
        .clone()
        .unwrap_or_else(|| spec_of(config).initial_position);
    match subscription.made_at_ms {
        Some(made) if position == "latest" && !fresh => made.to_string(),
        _ => position,
    }
}

fn parse<T: serde::de::DeserializeOwned + Entry>(entry: &ConfigEntry) -> Result<T, BrokerError> {
    let config: T = serde_json::from_value(entry.config.clone())
        .map_err(|error| BrokerError::Body(error.to_string()))?;
    if config.version() == entry.version {
        Ok(config)
    } else {
        Err(BrokerError::Invalid(format!(
            "entry {} has version {}, its configuration another",
            names::shorten(&entry.name),
            entry.version
        )))
    }
}

fn mark(name: &str, taken: bool, version: u64) -> ConfigTaken {
    ConfigTaken {
        name: name.to_owned(),
        taken,
        version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_now_for_a_fresh_subscription_and_its_time_for_an_older_one() {
        let config = GroupConfig::new("g");
        let mut subscription = SubscriptionSpec {
            made_at_ms: Some(1_700),
            ..SubscriptionSpec::default()
        };
        assert_eq!(start_of(&subscription, &config, true), "latest");
        assert_eq!(start_of(&subscription, &config, false), "1700");
        subscription.initial_position = Some("earliest".to_owned());
        assert_eq!(start_of(&subscription, &config, false), "earliest");
    }
}
