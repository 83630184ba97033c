//! How a group reads a topic, pulling or popping, as administrators set it: `messageRequestMode.json`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use wire::WireError;
use wire::body::assignment::{RequestMode, RequestModes as ModesFile, SetRequestMode};

/// Most settings in all.
const MODES_MAX: usize = 200_000;

/// Settings by topic and group. What is not set is pulled.
#[derive(Debug, Default)]
pub(crate) struct RequestModes {
    topics: Mutex<BTreeMap<String, BTreeMap<String, SetRequestMode>>>,
}

impl RequestModes {
    /// Replaces the content by that of `messageRequestMode.json`.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: ModesFile = wire::json::from_slice(json)?;
        let mut topics = self.topics.lock();
        *topics = file.message_request_mode_map;
        Ok(topics.values().map(BTreeMap::len).sum())
    }

    /// The text of the file and of the answer to code 402.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        wire::json::to_vec(&ModesFile {
            message_request_mode_map: self.topics.lock().clone(),
        })
    }

    /// Sets one. False when the table is full.
    pub(crate) fn set(&self, mode: SetRequestMode) -> bool {
        let mut topics = self.topics.lock();
        let known = topics
            .get(&mode.topic)
            .is_some_and(|groups| groups.contains_key(&mode.consumer_group));
        let count: usize = topics.values().map(BTreeMap::len).sum();
        if !known && count >= MODES_MAX {
            return false;
        }
        topics
            .entry(mode.topic.clone())
            .or_default()
            .insert(mode.consumer_group.clone(), mode);
        true
    }

    /// What is set.
    pub(crate) fn get(&self, topic: &str, group: &str) -> Option<SetRequestMode> {
        self.topics.lock().get(topic)?.get(group).cloned()
    }

    /// Whether the group pops, be it one topic only.
    pub(crate) fn pops(&self, group: &str) -> bool {
        let topics = self.topics.lock();
        topics.values().any(|groups| {
            groups
                .get(group)
                .is_some_and(|set| set.mode == RequestMode::Pop)
        })
    }

    /// Groups of which anything is set, as often as that is.
    pub(crate) fn groups(&self) -> Vec<String> {
        let topics = self.topics.lock();
        topics.values().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Forgets a topic. Whether anything was set.
    pub(crate) fn remove_topic(&self, topic: &str) -> bool {
        self.topics.lock().remove(topic).is_some()
    }

    /// Forgets a group. Whether anything was set.
    pub(crate) fn remove_group(&self, group: &str) -> bool {
        let mut removed = false;
        self.topics.lock().retain(|_, groups| {
            removed |= groups.remove(group).is_some();
            !groups.is_empty()
        });
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_apaches_shape_and_is_read_again() {
        let modes = RequestModes::default();
        assert!(modes.set(SetRequestMode {
            consumer_group: "g".to_owned(),
            mode: RequestMode::Pop,
            pop_share_queue_num: 2,
            topic: "t".to_owned(),
        }));
        let text = modes.to_json();
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            r#"{"messageRequestModeMap":{"t":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":2,"topic":"t"}}}}"#
        );
        let again = RequestModes::default();
        assert_eq!(again.load(&text).unwrap(), 1);
        assert_eq!(again.get("t", "g"), modes.get("t", "g"));
        assert!(again.get("t", "other").is_none());
        assert!(again.remove_group("g") && !again.remove_topic("t"));
    }
}
