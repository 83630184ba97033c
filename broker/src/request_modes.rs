//! How a group reads a topic, pulling or popping, as administrators set it: `messageRequestMode.json`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use wire::WireError;
use wire::body::assignment::{RequestMode, RequestModes as ModesFile, SetRequestMode};

/// Most settings in all.
const MODES_MAX: usize = 200_000;

/// Topic → group → setting.
type Topics = BTreeMap<String, BTreeMap<String, SetRequestMode>>;

/// Settings by topic and group. What is not set is pulled.
#[derive(Debug, Default)]
pub(crate) struct RequestModes {
    topics: Mutex<Topics>,
    /// Groups that pop, be it one topic only: derived from `topics` under its lock, for the hot paths.
    popping: ArcSwap<HashSet<String>>,
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
        self.derive(&topics);
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
        self.derive(&topics);
        true
    }

    /// What is set.
    pub(crate) fn get(&self, topic: &str, group: &str) -> Option<SetRequestMode> {
        self.topics.lock().get(topic)?.get(group).cloned()
    }

    /// Whether the group pops, be it one topic only. Cheap: no lock.
    pub(crate) fn pops(&self, group: &str) -> bool {
        self.popping.load().contains(group)
    }

    fn derive(&self, topics: &Topics) {
        let popping = topics
            .values()
            .flatten()
            .filter(|(_, set)| set.mode == RequestMode::Pop)
            .map(|(group, _)| group.clone());
        self.popping.store(Arc::new(popping.collect()));
    }

    /// Groups of which anything is set, as often as that is.
    pub(crate) fn groups(&self) -> Vec<String> {
        let topics = self.topics.lock();
        topics.values().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Forgets a topic. Whether anything was set.
    pub(crate) fn remove_topic(&self, topic: &str) -> bool {
        let mut topics = self.topics.lock();
        let removed = topics.remove(topic).is_some();
        self.derive(&topics);
        removed
    }

    /// Forgets a group. Whether anything was set.
    pub(crate) fn remove_group(&self, group: &str) -> bool {
        let mut removed = false;
        let mut topics = self.topics.lock();
        topics.retain(|_, groups| {
            removed |= groups.remove(group).is_some();
            !groups.is_empty()
        });
        self.derive(&topics);
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

    #[test]
    fn a_group_pops_while_one_of_its_topics_is_popped() {
        let modes = RequestModes::default();
        let set = |topic: &str, mode: RequestMode| {
            modes.set(SetRequestMode {
                consumer_group: "g".to_owned(),
                mode,
                pop_share_queue_num: 0,
                topic: topic.to_owned(),
            })
        };
        assert!(set("t", RequestMode::Pop) && set("u", RequestMode::Pop));
        assert!(modes.pops("g") && !modes.pops("h"));
        assert!(set("t", RequestMode::Pull) && modes.pops("g"));
        let again = RequestModes::default();
        again.load(&modes.to_json()).unwrap();
        assert!(again.pops("g"));
        assert!(modes.remove_topic("u") && !modes.pops("g"));
        assert!(again.remove_group("g") && !again.pops("g"));
    }
}
