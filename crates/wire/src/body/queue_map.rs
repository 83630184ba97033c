//! The queue map of a topic: how many queues each broker has, with a version of its own.

use std::collections::BTreeMap;
use std::fmt;

/// Attribute of a topic that holds its queue map.
pub const ATTRIBUTE: &str = "gantry.queueMap";
/// Most brokers of a map.
const BROKERS_MAX: usize = 1_024;
/// Most queues on one broker.
const QUEUES_MAX: i32 = 65_536;

/// `version name:count name:count …`, names in order; stored with the topic on each of its brokers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueMap {
    /// The version of the topic that changed it last.
    pub version: u64,
    /// Broker name to writable queues.
    pub counts: BTreeMap<String, i32>,
}

impl QueueMap {
    /// The map of a topic's attributes; `None` without one, or where it cannot be read.
    #[must_use]
    pub fn of(attributes: &BTreeMap<String, String>) -> Option<Self> {
        Self::parse(attributes.get(ATTRIBUTE)?)
    }

    /// Reads the text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let version = words.next()?.parse().ok()?;
        let mut counts = BTreeMap::new();
        for word in words {
            let (name, count) = word.rsplit_once(':')?;
            let count = count.parse().ok()?;
            if name.is_empty()
                || !(0..=QUEUES_MAX).contains(&count)
                || counts.len() >= BROKERS_MAX
                || counts.insert(name.to_owned(), count).is_some()
            {
                return None;
            }
        }
        Some(Self { version, counts })
    }

    /// Writes it into attributes.
    pub fn put(&self, attributes: &mut BTreeMap<String, String>) {
        attributes.insert(ATTRIBUTE.to_owned(), self.to_string());
    }
}

impl fmt::Display for QueueMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        self.counts
            .iter()
            .try_for_each(|(name, count)| write!(f, " {name}:{count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_round_trip_and_bad_text_is_none() {
        let map = QueueMap {
            version: 3,
            counts: BTreeMap::from([("broker-b".to_owned(), 4), ("broker-a".to_owned(), 0)]),
        };
        assert_eq!(map.to_string(), "3 broker-a:0 broker-b:4");
        let mut attributes = BTreeMap::new();
        assert_eq!(QueueMap::of(&attributes), None);
        map.put(&mut attributes);
        assert_eq!(QueueMap::of(&attributes), Some(map));
        for bad in ["", "x", "1 a", "1 a:-1", "1 a:70000", "1 :1", "1 a:1 a:2"] {
            assert_eq!(QueueMap::parse(bad), None, "{bad}");
        }
    }
}
