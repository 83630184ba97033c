//! Settings that may change while the broker runs, under our names or RocketMQ's.

mod apply;
mod list;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use node::config::Pinned;
use parking_lot::Mutex;

use crate::config::Config;

pub(crate) use list::{Key, LOG, SETTINGS, Setting};

/// The changeable settings; each is read where it is used, so a change holds from the next request.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    values: [AtomicU64; SETTINGS.len()],
    /// What was changed while the broker ran, in this run or an earlier one, by our name.
    kept: Mutex<BTreeMap<String, String>>,
    /// Names that the environment or a flag sets: a kept change does not hold against these.
    pinned: Pinned,
}

/// A change that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Of a number.
    Value(Key, u64),
    /// Of the filter of the log.
    Log(String),
}

/// Why a change is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The key exists or not, but may not change while the broker runs.
    Fixed,
    /// The value does not fit; the text says what would.
    Value(String),
}

impl LiveSettings {
    /// As started with; `pinned` are the names that the environment or a flag sets.
    pub(crate) fn new(config: &Config, pinned: Pinned) -> Self {
        Self {
            values: std::array::from_fn(|index| {
                AtomicU64::new(SETTINGS.get(index).map_or(0, |s| (s.started)(config)))
            }),
            kept: Mutex::default(),
            pinned,
        }
    }

    /// The value of a setting, in its own unit.
    pub(crate) fn get(&self, key: Key) -> u64 {
        self.values
            .get(key as usize)
            .map_or(0, |value| value.load(Ordering::Relaxed))
    }

    /// The value of a setting that counts things in memory.
    pub(crate) fn count(&self, key: Key) -> usize {
        usize::try_from(self.get(key)).unwrap_or(usize::MAX)
    }

    /// Bits that the routes of all topics allow.
    pub(crate) fn permission(&self) -> i32 {
        i32::try_from(self.get(Key::Permission)).unwrap_or(0)
    }

    /// A first send makes its topic.
    pub(crate) fn create_topics(&self) -> bool {
        self.get(Key::CreateTopics) != 0
    }

    /// A first heartbeat or pull makes its group.
    pub(crate) fn create_groups(&self) -> bool {
        self.get(Key::CreateGroups) != 0
    }

    /// Largest message body in bytes.
    pub(crate) fn message_size_bytes(&self) -> usize {
        self.count(Key::MessageSize)
    }

    /// Whether the environment or a flag sets it, so that a change ends with this run.
    pub(crate) fn is_pinned(&self, change: &Change) -> bool {
        self.pinned.contains(change.name())
    }

    /// The filter of the log, where a change set it.
    pub(crate) fn log_filter(&self) -> Option<String> {
        self.kept.lock().get(LOG).cloned()
    }

    /// What was changed, with these changes, as a JSON object of our names.
    pub(crate) fn to_json(&self, changes: &[Change]) -> Vec<u8> {
        let mut kept = self.kept.lock().clone();
        for change in changes {
            kept.insert(change.name().to_owned(), change.text());
        }
        serde_json::to_vec_pretty(&kept).unwrap_or_default()
    }

    /// Lays changes that an earlier run kept over the settings, and returns those that hold. What no longer fits is
    /// left out; what the environment or a flag sets is kept for later and does not hold now.
    pub(crate) fn restore(&self, json: &[u8]) -> Vec<Change> {
        let kept: BTreeMap<String, String> = wire::json::from_slice(json).unwrap_or_default();
        let mut held = Vec::new();
        for (key, value) in kept {
            match Self::check(&key, &value) {
                Ok(change) if self.is_pinned(&change) => {
                    tracing::warn!(
                        key,
                        value,
                        "kept setting does not hold: the environment or a flag sets it"
                    );
                    self.kept.lock().insert(key, value);
                }
                Ok(change) => {
                    self.set(&change);
                    held.push(change);
                }
                Err(error) => tracing::warn!(key, ?error, "kept setting left out"),
            }
        }
        held
    }

    /// Checks a change without making it.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub(crate) fn check(name: &str, value: &str) -> Result<Change, ChangeError> {
        if name == LOG {
            return node::telemetry::check_filter(value)
                .map(|()| Change::Log(value.trim().to_owned()))
                .map_err(|why| ChangeError::Value(format!("a filter of the log: {why}")));
        }
        let setting = Setting::find(name).ok_or(ChangeError::Fixed)?;
        setting
            .read(name, value)
            .map(|value| Change::Value(setting.key, value))
            .ok_or_else(|| ChangeError::Value(setting.wanted.to_owned()))
    }

    /// Makes a change and remembers it; what follows from it is the caller's.
    pub(crate) fn set(&self, change: &Change) {
        if let Change::Value(key, value) = change
            && let Some(place) = self.values.get(*key as usize)
        {
            place.store(*value, Ordering::Relaxed);
        }
        let mut kept = self.kept.lock();
        kept.insert(change.name().to_owned(), change.text());
    }
}

impl Change {
    /// Our name of what changes.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Value(key, _) => Setting::of(*key).ours,
            Self::Log(_) => LOG,
        }
    }

    /// The value as it is written under our name.
    fn text(&self) -> String {
        match self {
            Self::Value(key, value) => Setting::of(*key).show(*value),
            Self::Log(filter) => filter.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(pinned: &[&str]) -> LiveSettings {
        let pinned = pinned.iter().map(|name| (*name).to_owned()).collect();
        LiveSettings::new(&Config::default(), pinned)
    }

    #[test]
    fn only_listed_keys_change_and_only_to_good_values() {
        let live = live(&[]);
        for (key, value) in [
            ("brokerPermission", "4"),
            ("create.topics", "false"),
            ("maxMessageSize", "1048576"),
            ("flush.interval", "1s"),
        ] {
            live.set(&LiveSettings::check(key, value).unwrap());
        }
        assert_eq!(
            (
                live.permission(),
                live.create_topics(),
                live.message_size_bytes(),
                live.get(Key::FlushInterval)
            ),
            (4, false, 1 << 20, 1_000)
        );
        assert_eq!(
            LiveSettings::check("brokerName", "x"),
            Err(ChangeError::Fixed)
        );
        for (key, value) in [
            ("maxMessageSize", "9GiB"),
            ("create.topics", "yes"),
            ("permission", "8"),
            ("limits.admin", "0"),
            ("log", "a=b=c"),
        ] {
            assert!(
                matches!(LiveSettings::check(key, value), Err(ChangeError::Value(_))),
                "{key}={value}"
            );
        }
    }

    #[test]
    fn what_was_changed_is_kept_and_the_environment_wins() {
        let first = live(&[]);
        for (key, value) in [("permission", "6"), ("create.topics", "false")] {
            first.set(&LiveSettings::check(key, value).unwrap());
        }
        let again = live(&["create.topics"]);
        let held = again.restore(&first.to_json(&[]));
        assert_eq!(held, [Change::Value(Key::Permission, 6)]);
        assert!(again.create_topics(), "the environment wins");
        let later = live(&[]);
        later.restore(&again.to_json(&[]));
        assert!(!later.create_topics(), "it was kept all the same");
    }
}
