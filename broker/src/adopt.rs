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
use crate::table::{Batch, Buried, Entry, Table, VERSION_MAX, after};
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

/// What became of one entry: it was looked at, or refused.
pub(crate) type Adopted = Result<ConfigTaken, BrokerError>;

/// What is left to do for an entry that may be.
enum Step<T, D> {
    /// A deletion, which is done; what follows from it.
    Done(ConfigTaken, D),
    /// The configuration has to be compared with what is here.
    Compare(T),
}

/// Takes each entry that is newer than what is here; one that cannot be taken keeps none of the others back. All of it is
/// on the disk when this returns. Blocks. `from` is the broker whose entries they are; `fresh` = written a moment ago.
///
/// # Errors
/// The disk's. What was taken before stays.
pub(crate) fn adopt(
    broker: &Arc<Broker>,
    kind: Kind,
    entries: &[ConfigEntry],
    from: &str,
    fresh: bool,
) -> Result<Vec<Adopted>, BrokerError> {
    let adopted = match kind {
        Kind::Topic => topics(broker, entries, from),
        Kind::Group => groups(broker, entries, fresh),
    }?;
    for (entry, adopted) in entries.iter().zip(&adopted) {
        if let Err(error) = adopted {
            let (kind, name) = (kind.as_str(), names::shorten(&entry.name));
            tracing::warn!(kind, name, from, %error, "entry of another broker not taken");
        }
    }
    Ok(adopted)
}

/// Names with what is to be done about them.
type Steps<'a, S> = Vec<(&'a str, Result<S, BrokerError>)>;

/// The step of each entry up to the first failure of the disk, and that.
fn steps<S>(
    entries: &[ConfigEntry],
    step: impl Fn(&ConfigEntry) -> Result<S, BrokerError>,
) -> (Steps<'_, S>, Result<(), BrokerError>) {
    let mut steps = Vec::with_capacity(entries.len());
    for entry in entries {
        match step(entry) {
            Err(error) if error.is_of_disk() => return (steps, Err(error)),
            step => steps.push((entry.name.as_str(), step)),
        }
    }
    (steps, Ok(()))
}

fn topics(
    broker: &Arc<Broker>,
    entries: &[ConfigEntry],
    from: &str,
) -> Result<Vec<Adopted>, BrokerError> {
    let (steps, whole) = steps(entries, |entry| topic_step(broker, entry));
    let results = broker.topics.batch(broker.now_ms(), |batch| {
        let mut one = |name: &str, step: Result<_, _>| match step? {
            Step::Done(taken, ()) => Ok(taken),
            Step::Compare(theirs) => compare_topic(broker, batch, name, &theirs, from),
        };
        let results = steps.into_iter();
        results.map(|(name, step)| one(name, step)).collect()
    });
    broker.save_topics()?;
    whole.map(|()| results)
}

fn topic_step(
    broker: &Arc<Broker>,
    entry: &ConfigEntry,
) -> Result<Step<TopicConfig, ()>, BrokerError> {
    let name = &entry.name;
    topic::check_change(name)?;
    check_version(entry)?;
    if entry.config.is_null() {
        let buried = topic::bury(broker, name, entry.version, deleted_at(broker, entry))?;
        note_outlived(buried, "topic", entry);
        return Ok(Step::Done(after_deletion(&broker.topics, name), ()));
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
    Ok(Step::Compare(theirs))
}

fn compare_topic(
    broker: &Broker,
    batch: &mut Batch<'_, TopicConfig>,
    name: &str,
    theirs: &TopicConfig,
    from: &str,
) -> Result<ConfigTaken, BrokerError> {
    let mut full = false;
    let change = batch.take(name, |mine, deleted| {
        let wanted = level::topic(mine, deleted, theirs, from, &broker.config.name)?;
        full = mine.is_none();
        Some(wanted)
    });
    if change.is_none() && full {
        return Err(BrokerError::Full("topic"));
    }
    let here = batch.get(name);
    let taken = here.as_ref().map_or_else(
        || batch.deleted_in(name) <= theirs.version(),
        |here| {
            here.version() < theirs.version()
                || here.version() == theirs.version()
                    && here.content_hash() == theirs.content_hash()
        },
    );
    let version = here.map_or_else(|| batch.deleted_in(name), |here| here.version());
    if change.is_some_and(|change| change.changed) {
        tracing::info!(topic = %name, version, from, "topic taken from a peer");
    }
    Ok(mark(name, taken, version))
}

fn groups(
    broker: &Arc<Broker>,
    entries: &[ConfigEntry],
    fresh: bool,
) -> Result<Vec<Adopted>, BrokerError> {
    let (steps, whole) = steps(entries, |entry| group_step(broker, entry, fresh));
    let mut changed = Vec::new();
    let results = broker.groups.batch(broker.now_ms(), |batch| {
        let mut one = |name: &str, step: Result<_, _>| {
            let (taken, gone) = match step? {
                Step::Done(taken, gone) => (taken, gone),
                Step::Compare(theirs) => compare_group(batch, name, &theirs)?,
            };
            changed.extend(gone.map(|gone| (name.to_owned(), gone)));
            Ok(taken)
        };
        let results = steps.into_iter();
        results.map(|(name, step)| one(name, step)).collect()
    });
    broker.save_groups()?;
    for (group, gone) in changed {
        for topic in gone {
            broker.subscription_removed(&group, &topic);
        }
        broker.group_changed(&group);
    }
    whole.map(|()| results)
}

/// Where a group changed, the topics that it does not subscribe any more.
type Gone = Option<BTreeSet<String>>;

fn group_step(
    broker: &Arc<Broker>,
    entry: &ConfigEntry,
    fresh: bool,
) -> Result<Step<GroupConfig, Gone>, BrokerError> {
    let name = &entry.name;
    names::check_group(name).map_err(BrokerError::Invalid)?;
    check_version(entry)?;
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
        return Ok(Step::Done(after_deletion(&broker.groups, name), gone));
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
    if level::group(known.as_deref(), deleted, &theirs).is_some() {
        let before = known.as_deref().map(subscriptions_of).unwrap_or_default();
        // The start is fixed before the subscription can be seen.
        for subscription in after.iter().filter(|s| !has(&before, &s.topic)) {
            if let Some(topic) = broker.topics.get(&subscription.topic) {
                let start = start_of(subscription, &theirs, fresh);
                broker.fix_start(name, &topic, &start)?;
            }
        }
    }
    Ok(Step::Compare(theirs))
}

fn compare_group(
    batch: &mut Batch<'_, GroupConfig>,
    name: &str,
    theirs: &GroupConfig,
) -> Result<(ConfigTaken, Gone), BrokerError> {
    let known = batch.get(name);
    let mut full = false;
    let change = batch.take(name, |mine, deleted| {
        let wanted = level::group(mine, deleted, theirs)?;
        full = mine.is_none();
        Some(wanted)
    });
    if change.is_none() && full {
        return Err(BrokerError::Full("group"));
    }
    let gone = change.filter(|change| change.changed).map(|_| {
        tracing::info!(group = %name, version = theirs.version(), "group taken from a peer");
        let before = known.as_deref().map(subscriptions_of).unwrap_or_default();
        let after = subscriptions_of(theirs);
        let left = before.into_iter().filter(|s| !has(&after, &s.topic));
        left.map(|s| s.topic).collect()
    });
    let here = batch.get(name);
    let taken = here.as_ref().is_some_and(|here| {
        here.version() == theirs.version() && here.content_hash() == theirs.content_hash()
    });
    let version = here.map_or_else(|| batch.deleted_in(name), |here| here.version());
    Ok((mark(name, taken, version), gone))
}

/// The mark once a deletion was looked at.
fn after_deletion<T: Entry>(table: &Table<T>, name: &str) -> ConfigTaken {
    match table.get(name) {
        Some(here) => mark(name, false, here.version()),
        None => mark(name, true, table.deleted_in(name)),
    }
}

fn check_version(entry: &ConfigEntry) -> Result<(), BrokerError> {
    if entry.version > VERSION_MAX {
        return Err(BrokerError::Invalid(format!(
            "entry {} has version {}, must be at most {VERSION_MAX}",
            names::shorten(&entry.name),
            entry.version
        )));
    }
    Ok(())
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
        let (name, version) = (&entry.name, after(entry.version));
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

/// The configuration of an entry, which has the version that the entry says.
pub(crate) fn parse<T: serde::de::DeserializeOwned + Entry>(
    entry: &ConfigEntry,
) -> Result<T, BrokerError> {
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
