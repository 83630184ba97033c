//! Which settings may change while the broker runs, under which names, and what their values look like.

use std::str::FromStr;

use node::{ByteSize, Millis};

use crate::config::{Config, MESSAGE_MAX_BYTES, RETENTION_MAX_MS};

/// A setting that may change, as an index into [`SETTINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Bits that the routes of all topics allow.
    Permission,
    /// A first send makes its topic.
    CreateTopics,
    /// A first heartbeat or pull makes its group.
    CreateGroups,
    /// Largest message body, bytes.
    MessageSize,
    /// Longest time between two syncs in mode `async`, ms.
    FlushInterval,
    /// Sends that may wait for the disk.
    Sends,
    /// Requests that may wait for messages.
    LongPolls,
    /// Administrative requests at work.
    Admin,
    /// Settlements that may wait for the disk.
    Acks,
    /// Reads of messages that left the memory at work.
    Reads,
    /// Requests that make their topic or group at work.
    Create,
    /// Age at which a log file goes, ms.
    RetentionTime,
    /// Hour (UTC) at which files are deleted by age; 24 for any.
    RetentionHour,
    /// How full the disk may be before expired files go at any hour, percent.
    ExpiredPercent,
    /// The same before the oldest files go whatever their age.
    CleanPercent,
    /// The same before sends are refused.
    RefusePercent,
}

/// How a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`; kept as 1 and 0.
    Switch,
    /// A plain number.
    Number,
    /// Bytes, with or without a unit.
    Size,
    /// Milliseconds, with or without a unit; under RocketMQ's name a plain number of this many ms.
    Time(u64),
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Which.
    pub(crate) key: Key,
    /// Our name: the key of the TOML file.
    pub(crate) ours: &'static str,
    /// RocketMQ's name; empty where it has none.
    pub(crate) theirs: &'static str,
    /// How it is written.
    pub(crate) kind: Kind,
    /// Smallest and largest value.
    pub(crate) range: (u64, u64),
    /// What fits, for the refusal of what does not.
    pub(crate) wanted: &'static str,
    /// Its value in the settings started with.
    pub(crate) started: fn(&Config) -> u64,
}

/// Our name of the filter of the log, which is no key of the broker: `GANTRY_LOG` in the environment.
pub(crate) const LOG: &str = "log";

/// All of them, in the order of [`Key`].
pub(crate) static SETTINGS: [Setting; 16] = [
    Setting {
        key: Key::Permission,
        ours: "permission",
        theirs: "brokerPermission",
        kind: Kind::Number,
        range: (0, 7),
        wanted: "a sum of 4 (read) and 2 (write)",
        started: |config| u64::try_from(config.permission).unwrap_or(u64::MAX),
    },
    Setting {
        key: Key::CreateTopics,
        ours: "create.topics",
        theirs: "autoCreateTopicEnable",
        kind: Kind::Switch,
        range: (0, 1),
        wanted: "true or false",
        started: |config| u64::from(config.create.topics),
    },
    Setting {
        key: Key::CreateGroups,
        ours: "create.groups",
        theirs: "autoCreateSubscriptionGroup",
        kind: Kind::Switch,
        range: (0, 1),
        wanted: "true or false",
        started: |config| u64::from(config.create.groups),
    },
    Setting {
        key: Key::MessageSize,
        ours: "limits.message_size",
        theirs: "maxMessageSize",
        kind: Kind::Size,
        range: (1, MESSAGE_MAX_BYTES),
        wanted: "a size of 1B to 16128KiB",
        started: |config| config.limits.message_size.0,
    },
    Setting {
        key: Key::FlushInterval,
        ours: "flush.interval",
        theirs: "flushIntervalCommitLog",
        kind: Kind::Time(1),
        range: (10, 60_000),
        wanted: "a time of 10ms to 60s",
        started: |config| config.flush.interval.0,
    },
    Setting {
        key: Key::Sends,
        ours: "limits.sends",
        theirs: "sendThreadPoolQueueCapacity",
        kind: Kind::Number,
        range: (1, 1_000_000),
        wanted: "a number of 1 to 1000000",
        started: |config| u64::from(config.limits.sends),
    },
    Setting {
        key: Key::LongPolls,
        ours: "limits.long_polls",
        theirs: "pullThreadPoolQueueCapacity",
        kind: Kind::Number,
        range: (1, 1_000_000),
        wanted: "a number of 1 to 1000000",
        started: |config| u64::from(config.limits.long_polls),
    },
    Setting {
        key: Key::Admin,
        ours: "limits.admin",
        theirs: "adminBrokerThreadPoolNums",
        kind: Kind::Number,
        range: (1, 512),
        wanted: "a number of 1 to 512",
        started: |config| u64::from(config.limits.admin),
    },
    Setting {
        key: Key::Acks,
        ours: "limits.acks",
        theirs: "ackThreadPoolQueueCapacity",
        kind: Kind::Number,
        range: (1, 1_000_000),
        wanted: "a number of 1 to 1000000",
        started: |config| u64::from(config.limits.acks),
    },
    Setting {
        key: Key::Reads,
        ours: "limits.reads",
        theirs: "pullMessageThreadPoolNums",
        kind: Kind::Number,
        range: (1, 512),
        wanted: "a number of 1 to 512",
        started: |config| u64::from(config.limits.reads),
    },
    Setting {
        key: Key::Create,
        ours: "limits.create",
        theirs: "",
        kind: Kind::Number,
        range: (1, 512),
        wanted: "a number of 1 to 512",
        started: |config| u64::from(config.limits.create),
    },
    Setting {
        key: Key::RetentionTime,
        ours: "retention.time",
        theirs: "fileReservedTime",
        kind: Kind::Time(3_600_000),
        range: (1_000, RETENTION_MAX_MS),
        wanted: "a time of 1s to 3650d; under RocketMQ's name a number of hours",
        started: |config| config.retention.time.0,
    },
    Setting {
        key: Key::RetentionHour,
        ours: "retention.hour",
        theirs: "deleteWhen",
        kind: Kind::Number,
        range: (0, 24),
        wanted: "an hour of 0 to 23 (UTC), or 24 for any",
        started: |config| u64::from(config.retention.hour),
    },
    Setting {
        key: Key::ExpiredPercent,
        ours: "retention.expired_percent",
        theirs: "diskMaxUsedSpaceRatio",
        kind: Kind::Number,
        range: (1, 100),
        wanted: "a percentage of 1 to 100",
        started: |config| u64::from(config.retention.expired_percent),
    },
    Setting {
        key: Key::CleanPercent,
        ours: "retention.clean_percent",
        theirs: "diskSpaceCleanForciblyRatio",
        kind: Kind::Number,
        range: (1, 100),
        wanted: "a percentage of 1 to 100",
        started: |config| u64::from(config.retention.clean_percent),
    },
    Setting {
        key: Key::RefusePercent,
        ours: "retention.refuse_percent",
        theirs: "diskSpaceWarningLevelRatio",
        kind: Kind::Number,
        range: (1, 100),
        wanted: "a percentage of 1 to 100",
        started: |config| u64::from(config.retention.refuse_percent),
    },
];

impl Setting {
    /// The setting of that name, ours or RocketMQ's.
    pub(crate) fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS
            .iter()
            .find(|s| s.ours == name || (!s.theirs.is_empty() && s.theirs == name))
    }

    /// The setting of that key.
    pub(crate) fn of(key: Key) -> &'static Setting {
        SETTINGS
            .iter()
            .find(|s| s.key == key)
            .unwrap_or(&SETTINGS[0])
    }

    /// Reads a value under `name`; `None` where it does not fit.
    pub(crate) fn read(&self, name: &str, text: &str) -> Option<u64> {
        let text = text.trim();
        let value = match self.kind {
            Kind::Switch => match text {
                "true" => 1,
                "false" => 0,
                _ => return None,
            },
            Kind::Number => u64::from_str(text).ok()?,
            Kind::Size => text.parse::<ByteSize>().ok()?.0,
            Kind::Time(unit) if name == self.theirs && name != self.ours => {
                u64::from_str(text).ok()?.checked_mul(unit)?
            }
            Kind::Time(_) => text.parse::<Millis>().ok()?.0,
        };
        self.fits(value).then_some(value)
    }

    /// Whether the value is within the range.
    pub(crate) fn fits(&self, value: u64) -> bool {
        (self.range.0..=self.range.1).contains(&value)
    }

    /// The value as it is written under our name.
    pub(crate) fn show(&self, value: u64) -> String {
        match self.kind {
            Kind::Switch => (value != 0).to_string(),
            Kind::Number => value.to_string(),
            Kind::Size => ByteSize(value).to_string(),
            Kind::Time(_) => Millis(value).to_string(),
        }
    }

    /// The value as it is written under RocketMQ's name: without units, those of a time rounded up.
    pub(crate) fn show_theirs(&self, value: u64) -> String {
        match self.kind {
            Kind::Switch => (value != 0).to_string(),
            Kind::Number | Kind::Size => value.to_string(),
            Kind::Time(unit) => value.div_ceil(unit.max(1)).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_its_keys() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert_eq!(setting.key as usize, index, "{}", setting.ours);
            let value = (setting.started)(&Config::default());
            assert_eq!(
                setting.read(setting.ours, &setting.show(value)),
                Some(value),
                "{}",
                setting.ours
            );
            assert_eq!(
                setting.read(setting.theirs, &setting.show_theirs(value)),
                Some(value),
                "{}",
                setting.theirs
            );
        }
    }

    #[test]
    fn times_have_the_unit_of_their_name() {
        let interval = Setting::find("flushIntervalCommitLog").unwrap();
        assert_eq!(interval.read("flushIntervalCommitLog", "250"), Some(250));
        assert_eq!(interval.read("flush.interval", "2s"), Some(2_000));
        assert_eq!(interval.read("flushIntervalCommitLog", "2s"), None);
        assert_eq!(interval.read("flush.interval", "9ms"), None);
    }
}
