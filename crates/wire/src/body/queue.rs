//! MessageQueue, and maps with queues as keys.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};

/// One queue of a topic on a broker.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueue {
    /// Broker name.
    pub broker_name: String,
    /// Queue id; -1 = all queues of the broker (POP).
    pub queue_id: i32,
    /// Topic.
    pub topic: String,
}

impl MessageQueue {
    /// A queue.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        Self {
            broker_name: broker_name.into(),
            queue_id,
            topic: topic.into(),
        }
    }
}

/// A map whose keys are queues: `{{"brokerName":"b","queueId":1,"topic":"T"}:value}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueMap<V>(pub BTreeMap<MessageQueue, V>);

impl<V> Default for QueueMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> core::ops::Deref for QueueMap<V> {
    type Target = BTreeMap<MessageQueue, V>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<V> core::ops::DerefMut for QueueMap<V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<V> FromIterator<(MessageQueue, V)> for QueueMap<V> {
    fn from_iter<I: IntoIterator<Item = (MessageQueue, V)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<V: Serialize> Serialize for QueueMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = Vec::with_capacity(self.0.len());
        for (queue, value) in &self.0 {
            let key = serde_json::to_string(queue).map_err(S::Error::custom)?;
            entries.push((format!("{}{key}", crate::json::write::OBJECT_KEY), value));
        }
        serializer.collect_map(entries)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for QueueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(core::marker::PhantomData))
    }
}

struct Entries<V>(core::marker::PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = QueueMap<V>;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a map with queues as keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let queue = crate::json::from_slice::<MessageQueue>(key.as_bytes())
                .map_err(A::Error::custom)?;
            entries.insert(queue, map.next_value()?);
        }
        Ok(QueueMap(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn queues_are_keys_in_both_forms() {
        let apache = r#"{{"brokerName":"b","queueId":1,"topic":"T"}:5}"#;
        let standard = r#"{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}":5}"#;
        for text in [apache, standard] {
            let map: QueueMap<i64> = json::from_slice(text.as_bytes()).unwrap();
            assert_eq!(map.get(&MessageQueue::new("T", "b", 1)), Some(&5), "{text}");
            assert_eq!(json::to_vec_apache(&map), apache.as_bytes());
            assert_eq!(json::to_vec(&map), standard.as_bytes());
        }
    }

    #[test]
    fn escapes_inside_a_key_survive() {
        let map: QueueMap<i64> = [(MessageQueue::new("a\"\\\n", "b", 0), 1)]
            .into_iter()
            .collect();
        for bytes in [json::to_vec(&map), json::to_vec_apache(&map)] {
            assert_eq!(
                json::from_slice::<QueueMap<i64>>(&bytes).unwrap(),
                map,
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
