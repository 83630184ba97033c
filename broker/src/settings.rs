//! Settings that may change while the broker runs, under our names or RocketMQ's.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::config::Config;

/// The changeable settings; each is read where it is used, so a change holds from the next request.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    permission: AtomicI32,
    create_topics: AtomicBool,
    create_groups: AtomicBool,
    message_size_bytes: AtomicU64,
}

/// Why a change is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The key exists or not, but may not change while the broker runs.
    Fixed,
    /// The value does not fit; the text says what would.
    Value(&'static str),
}

/// Names under which a setting may be changed: ours, then RocketMQ's.
pub(crate) const CHANGEABLE: [(&str, &str); 4] = [
    ("permission", "brokerPermission"),
    ("create.topics", "autoCreateTopicEnable"),
    ("create.groups", "autoCreateSubscriptionGroup"),
    ("limits.message_size", "maxMessageSize"),
];

impl LiveSettings {
    /// As started with.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            permission: AtomicI32::new(config.permission),
            create_topics: AtomicBool::new(config.create.topics),
            create_groups: AtomicBool::new(config.create.groups),
            message_size_bytes: AtomicU64::new(config.limits.message_size.0),
        }
    }

    /// Bits that the routes of all topics allow.
    pub(crate) fn permission(&self) -> i32 {
        self.permission.load(Ordering::Relaxed)
    }

    /// A first send makes its topic.
    pub(crate) fn create_topics(&self) -> bool {
        self.create_topics.load(Ordering::Relaxed)
    }

    /// A first heartbeat or pull makes its group.
    pub(crate) fn create_groups(&self) -> bool {
        self.create_groups.load(Ordering::Relaxed)
    }

    /// Largest message body in bytes.
    pub(crate) fn message_size_bytes(&self) -> usize {
        usize::try_from(self.message_size_bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// What differs from the settings started with, as a JSON object of our names.
    pub(crate) fn to_json(&self, config: &Config) -> Vec<u8> {
        let started = Self::new(config).values();
        let changed: serde_json::Map<String, serde_json::Value> = self
            .values()
            .into_iter()
            .zip(started)
            .filter(|(now, then)| now != then)
            .map(|((key, value), _)| (key.to_owned(), value.into()))
            .collect();
        serde_json::to_vec_pretty(&changed).unwrap_or_default()
    }

    fn values(&self) -> [(&'static str, String); 4] {
        [
            ("permission", self.permission().to_string()),
            ("create.topics", self.create_topics().to_string()),
            ("create.groups", self.create_groups().to_string()),
            ("limits.message_size", self.message_size_bytes().to_string()),
        ]
    }

    /// Lays changes that an earlier run kept over the settings; what no longer fits is left out.
    pub(crate) fn restore(&self, json: &[u8]) {
        let kept: std::collections::BTreeMap<String, String> =
            wire::json::from_slice(json).unwrap_or_default();
        for (key, value) in kept {
            match Self::check(&key, &value) {
                Ok(()) => self.set(&key, &value),
                Err(error) => tracing::warn!(key, ?error, "kept setting left out"),
            }
        }
    }

    /// Checks a change without making it.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub(crate) fn check(key: &str, value: &str) -> Result<(), ChangeError> {
        match canonical(key) {
            Some("permission") => value
                .trim()
                .parse::<i32>()
                .ok()
                .filter(|bits| (0..=7).contains(bits))
                .map(|_| ())
                .ok_or(ChangeError::Value("a sum of 4 (read) and 2 (write)")),
            Some("create.topics" | "create.groups") => parse_bool(value)
                .map(|_| ())
                .ok_or(ChangeError::Value("true or false")),
            Some("limits.message_size") => parse_size(value)
                .map(|_| ())
                .ok_or(ChangeError::Value("a size of 1B to 8MiB")),
            _ => Err(ChangeError::Fixed),
        }
    }

    /// Makes a change that [`LiveSettings::check`] accepted.
    pub(crate) fn set(&self, key: &str, value: &str) {
        match canonical(key) {
            Some("permission") => {
                if let Ok(bits) = value.trim().parse() {
                    self.permission.store(bits, Ordering::Relaxed);
                }
            }
            Some("create.topics") => {
                if let Some(on) = parse_bool(value) {
                    self.create_topics.store(on, Ordering::Relaxed);
                }
            }
            Some("create.groups") => {
                if let Some(on) = parse_bool(value) {
                    self.create_groups.store(on, Ordering::Relaxed);
                }
            }
            Some("limits.message_size") => {
                if let Some(bytes) = parse_size(value) {
                    self.message_size_bytes.store(bytes, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}

/// Our name of a setting that may change.
pub(crate) fn canonical(key: &str) -> Option<&'static str> {
    CHANGEABLE
        .iter()
        .find(|(ours, theirs)| *ours == key || *theirs == key)
        .map(|(ours, _)| *ours)
}

fn parse_bool(value: &str) -> Option<bool> {
    match value.trim() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn parse_size(value: &str) -> Option<u64> {
    let size: node::ByteSize = value.trim().parse().ok()?;
    (1..=8 << 20).contains(&size.0).then_some(size.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_keys_change_and_only_to_good_values() {
        let live = LiveSettings::new(&Config::default());
        for (key, value) in [
            ("brokerPermission", "4"),
            ("create.topics", "false"),
            ("maxMessageSize", "1048576"),
        ] {
            assert_eq!(LiveSettings::check(key, value), Ok(()));
            live.set(key, value);
        }
        assert_eq!(
            (
                live.permission(),
                live.create_topics(),
                live.message_size_bytes()
            ),
            (4, false, 1 << 20)
        );
        assert_eq!(
            LiveSettings::check("brokerName", "x"),
            Err(ChangeError::Fixed)
        );
        assert!(matches!(
            LiveSettings::check("maxMessageSize", "9GiB"),
            Err(ChangeError::Value(_))
        ));
    }
}
