//! Committed offsets of groups, in memory and in the shape of `consumerOffset.json`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use serde::Deserialize;

use crate::version::DataVersion;
use wire::WireError;

/// Between topic and group in a key of the file.
const SEPARATOR: char = '@';
/// Most `topic@group` pairs with offsets.
const PAIRS_MAX: usize = 1_000_000;
/// Most pairs of group and topic whose pulls are noted.
const PULLED_PAIRS_MAX: usize = 200_000;
/// The version is raised once per this many commits, as RocketMQ 5.4.0 `consumerOffsetUpdateVersionStep` says.
const COMMITS_PER_VERSION: u64 = 500;

type Resets = HashMap<String, HashMap<String, BTreeMap<i32, i64>>>;
/// Topic → queue → next offset to read, of one group.
pub(crate) type Offsets = BTreeMap<String, BTreeMap<i32, i64>>;
/// Offsets that leases did not set: `topic@group` → queue → log position after the last record of leases about it.
pub(crate) type Foreign = BTreeMap<String, BTreeMap<i32, u64>>;
type Queues = Mutex<BTreeMap<i32, i64>>;
type Pairs = HashMap<String, HashMap<String, Arc<Queues>>>;

/// Offsets by group, topic and queue. All methods are short and never block on I/O.
#[derive(Debug)]
pub(crate) struct OffsetTable {
    /// group → topic → queue → next offset to read
    pairs: RwLock<Pairs>,
    pair_count: AtomicU64,
    commits: AtomicU64,
    dirty: AtomicBool,
    version: Mutex<DataVersion>,
    /// The next offset each queue was told to read, for views: group → topic → queue → offset.
    pulled: RwLock<Pairs>,
    /// Pairs in `pulled`, changed under its write lock.
    pulled_count: AtomicUsize,
    /// Most of them.
    pulled_max: usize,
    /// Resets that an administrator asked for and no pull has seen yet: group → topic → queue → offset.
    resets: Mutex<Resets>,
    /// What the file said of offsets that leases did not set, until the leases are there.
    foreign: Mutex<Foreign>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OffsetFile {
    data_version: DataVersion,
    offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    /// Ours; RocketMQ passes over it.
    foreign: Foreign,
}

/// The key of a pair in the file.
pub(crate) fn pair_key(topic: &str, group: &str) -> String {
    format!("{topic}{SEPARATOR}{group}")
}

impl OffsetTable {
    /// An empty table.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            pairs: RwLock::new(Pairs::new()),
            pair_count: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            version: Mutex::new(DataVersion::new(now_ms)),
            pulled: RwLock::default(),
            pulled_count: AtomicUsize::new(0),
            pulled_max: PULLED_PAIRS_MAX,
            resets: Mutex::new(HashMap::new()),
            foreign: Mutex::default(),
        }
    }

    /// Replaces the content by that of `consumerOffset.json` text in any dialect.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: OffsetFile = wire::json::from_slice(json)?;
        let mut pairs = Pairs::new();
        let mut count = 0;
        for (key, queues) in file.offset_table {
            // No name has a control character: such an entry is damaged.
            let sound = !key.contains(char::is_control);
            let Some((topic, group)) = key.split_once(SEPARATOR).filter(|_| sound) else {
                continue;
            };
            pairs
                .entry(group.to_owned())
                .or_default()
                .insert(topic.to_owned(), Arc::new(Mutex::new(queues)));
            count += 1;
        }
        *self.pairs.write() = pairs;
        self.pair_count.store(count, Ordering::Relaxed);
        *self.version.lock() = file.data_version;
        *self.foreign.lock() = file.foreign;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Takes what the file said of offsets that leases did not set.
    pub(crate) fn take_foreign(&self) -> Foreign {
        std::mem::take(&mut *self.foreign.lock())
    }

    /// The text of `consumerOffset.json`: that of the answer to code 43, and `foreign` where there is any.
    pub(crate) fn to_file(&self, foreign: &Foreign) -> Vec<u8> {
        let mut text = self.to_json();
        if !foreign.is_empty() && text.pop() == Some(b'}') {
            text.extend_from_slice(b",\"foreign\":");
            text.extend_from_slice(&serde_json::to_vec(foreign).unwrap_or_default());
            text.push(b'}');
        }
        text
    }

    /// The answer to code 43, in the shape of RocketMQ's `consumerOffset.json`: integer keys unquoted, as
    /// RocketMQ 5.4.0 writes them.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let version = *self.version.lock();
        let mut topics_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut table: BTreeMap<String, BTreeMap<i32, i64>> = BTreeMap::new();
        for (group, topics) in self.pairs.read().iter() {
            for (topic, queues) in topics {
                topics_of
                    .entry(group.clone())
                    .or_default()
                    .insert(topic.clone());
                table.insert(pair_key(topic, group), queues.lock().clone());
            }
        }
        let mut out = String::from("{\"dataVersion\":");
        out.push_str(&serde_json::to_string(&version).unwrap_or_default());
        out.push_str(",\"groupTopicMap\":");
        out.push_str(&serde_json::to_string(&topics_of).unwrap_or_default());
        out.push_str(",\"offsetTable\":{");
        for (i, (key, queues)) in table.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&serde_json::to_string(key).unwrap_or_default());
            out.push_str(":{");
            for (j, (id, at)) in queues.iter().enumerate() {
                if j > 0 {
                    out.push(',');
                }
                out.push_str(&format!("{id}:{at}"));
            }
            out.push('}');
        }
        out.push_str("}}");
        out.into_bytes()
    }

    fn queues(&self, group: &str, topic: &str) -> Option<Arc<Queues>> {
        self.pairs.read().get(group)?.get(topic).cloned()
    }

    /// Stores the next offset to read. Going back is allowed. Negative offsets are kept out of
    /// progress. False when the table is full.
    pub(crate) fn commit(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
        now_ms: u64,
    ) -> bool {
        if offset < 0 {
            return true;
        }
        let queues = match self.queues(group, topic) {
            Some(queues) => queues,
            None => {
                let is_full = || self.pair_count.load(Ordering::Relaxed) >= PAIRS_MAX as u64;
                if is_full() {
                    return false;
                }
                let mut pairs = self.pairs.write();
                if is_full() {
                    return false;
                }
                let topics = pairs.entry(group.to_owned()).or_default();
                topics
                    .entry(topic.to_owned())
                    .or_insert_with(|| {
                        self.pair_count.fetch_add(1, Ordering::Relaxed);
                        Arc::default()
                    })
                    .clone()
            }
        };
        queues.lock().insert(queue_id, offset);
        self.dirty.store(true, Ordering::Release);
        if self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_PER_VERSION
            == COMMITS_PER_VERSION - 1
        {
            self.version.lock().bump(now_ms);
        }
        true
    }

    /// Offsets of up to `max` groups, by topic.
    pub(crate) fn snapshot(&self, max: usize) -> Vec<(String, Offsets)> {
        let pairs = self.pairs.read();
        pairs
            .iter()
            .take(max)
            .map(|(group, topics)| {
                let topics = topics
                    .iter()
                    .map(|(topic, queues)| (topic.clone(), queues.lock().clone()));
                (group.clone(), topics.collect())
            })
            .collect()
    }

    /// Whether something was committed since this was last asked.
    pub(crate) fn take_dirty(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    /// What was taken could not be written.
    pub(crate) fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// The stored offset, if there is one.
    pub(crate) fn get(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.queues(group, topic)?.lock().get(&queue_id).copied()
    }

    /// All stored offsets of one group and topic, by queue id.
    pub(crate) fn of_topic(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        self.queues(group, topic)
            .map(|queues| queues.lock().clone())
            .unwrap_or_default()
    }

    /// Topics in which the group has offsets.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        self.pairs
            .read()
            .get(group)
            .map(|topics| topics.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Groups that have offsets.
    pub(crate) fn groups(&self) -> Vec<String> {
        self.pairs.read().keys().cloned().collect()
    }

    /// Groups that have offsets in the topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        self.pairs
            .read()
            .iter()
            .filter(|(_, topics)| topics.contains_key(topic))
            .map(|(group, _)| group.clone())
            .collect()
    }

    /// Notes where a pull was told to go on. Not kept over a restart, and not for new pairs once there are too many.
    pub(crate) fn note_pull(&self, group: &str, topic: &str, queue_id: i32, next: i64) {
        let known = self
            .pulled
            .read()
            .get(group)
            .and_then(|topics| topics.get(topic).cloned());
        let queues = match known {
            Some(queues) => queues,
            None => {
                let is_full = || self.pulled_count.load(Ordering::Relaxed) >= self.pulled_max;
                if is_full() {
                    return;
                }
                let mut pulled = self.pulled.write();
                if is_full() {
                    return;
                }
                let topics = pulled.entry(group.to_owned()).or_default();
                topics
                    .entry(topic.to_owned())
                    .or_insert_with(|| {
                        self.pulled_count.fetch_add(1, Ordering::Relaxed);
                        Arc::default()
                    })
                    .clone()
            }
        };
        queues.lock().insert(queue_id, next);
    }

    /// Where the last pull of a queue was told to go on.
    pub(crate) fn pulled(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let pulled = self.pulled.read();
        let queues = pulled.get(group)?.get(topic)?.lock();
        queues.get(&queue_id).copied()
    }

    /// The smallest offset of each queue over all groups but `left_out`; offsets below `min_of` the queue do not count.
    pub(crate) fn min_of_groups(
        &self,
        topic: &str,
        left_out: &[&str],
        min_of: impl Fn(i32) -> i64,
    ) -> BTreeMap<i32, i64> {
        let mut least: BTreeMap<i32, i64> = BTreeMap::new();
        for (group, topics) in self.pairs.read().iter() {
            if left_out.contains(&group.as_str()) {
                continue;
            }
            let Some(queues) = topics.get(topic) else {
                continue;
            };
            for (queue_id, offset) in queues.lock().iter() {
                if *offset >= min_of(*queue_id) {
                    let entry = least.entry(*queue_id).or_insert(*offset);
                    *entry = (*entry).min(*offset);
                }
            }
        }
        least
    }

    /// Forgets a topic in every group.
    pub(crate) fn remove_topic(&self, topic: &str) {
        let mut removed = 0;
        let mut pairs = self.pairs.write();
        pairs.retain(|_, topics| {
            removed += u64::from(topics.remove(topic).is_some());
            !topics.is_empty()
        });
        self.pair_count.fetch_sub(removed, Ordering::Relaxed);
        drop(pairs);
        let mut removed = 0;
        let mut pulled = self.pulled.write();
        pulled.retain(|_, topics| {
            removed += usize::from(topics.remove(topic).is_some());
            !topics.is_empty()
        });
        self.pulled_count.fetch_sub(removed, Ordering::Relaxed);
        drop(pulled);
        self.resets.lock().values_mut().for_each(|topics| {
            topics.remove(topic);
        });
    }

    /// Forgets a group.
    pub(crate) fn remove_group(&self, group: &str) {
        let mut pairs = self.pairs.write();
        if let Some(topics) = pairs.remove(group) {
            self.pair_count
                .fetch_sub(topics.len() as u64, Ordering::Relaxed);
        }
        drop(pairs);
        let mut pulled = self.pulled.write();
        if let Some(topics) = pulled.remove(group) {
            self.pulled_count.fetch_sub(topics.len(), Ordering::Relaxed);
        }
        drop(pulled);
        self.resets.lock().remove(group);
    }

    /// Notes a reset: the next pull of the queue is told to continue there, commits before that are
    /// ignored, queries see it at once (RocketMQ 5.4.0, server-side reset).
    pub(crate) fn reset(&self, group: &str, topic: &str, queue_id: i32, offset: i64, now_ms: u64) {
        self.resets
            .lock()
            .entry(group.to_owned())
            .or_default()
            .entry(topic.to_owned())
            .or_default()
            .insert(queue_id, offset);
        self.commit(group, topic, queue_id, offset, now_ms);
    }

    /// The pending reset of a queue.
    pub(crate) fn pending_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let resets = self.resets.lock();
        if resets.is_empty() {
            return None;
        }
        resets.get(group)?.get(topic)?.get(&queue_id).copied()
    }

    /// Takes the pending reset of a queue, once.
    pub(crate) fn take_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let mut resets = self.resets.lock();
        if resets.is_empty() {
            return None;
        }
        let topics = resets.get_mut(group)?;
        let queues = topics.get_mut(topic)?;
        let offset = queues.remove(&queue_id);
        if queues.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            resets.remove(group);
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_found_again_and_may_go_back() {
        let table = OffsetTable::new(1);
        assert_eq!(table.get("g", "t", 0), None);
        assert!(table.commit("g", "t", 0, 7, 1));
        assert!(table.commit("g", "t", 0, 5, 1));
        assert_eq!(table.get("g", "t", 0), Some(5));
        assert!(table.commit("g", "t", 1, -1, 1));
        assert_eq!(table.get("g", "t", 1), None);
        assert_eq!(table.topics_of("g"), ["t"]);
        assert_eq!(table.groups_of("t"), ["g"]);
        table.remove_topic("t");
        assert_eq!(table.get("g", "t", 0), None);
    }

    #[test]
    fn the_file_has_apaches_shape() {
        let table = OffsetTable::new(1);
        table.commit("g", "T", 0, 5, 1);
        table.commit("g", "T", 1, 6, 1);
        assert_eq!(
            String::from_utf8(table.to_json()).unwrap(),
            r#"{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"groupTopicMap":{"g":["T"]},"offsetTable":{"T@g":{0:5,1:6}}}"#
        );
        let again = OffsetTable::new(2);
        again
            .load(br#"{"offsetTable":{"T@g":{0:5,"1":6}}}"#)
            .unwrap();
        assert_eq!(again.of_topic("g", "T"), table.of_topic("g", "T"));
    }

    #[test]
    fn pulls_are_noted_for_so_many_pairs_in_all() {
        let table = OffsetTable {
            pulled_max: 2,
            ..OffsetTable::new(1)
        };
        let noted = |group: &str, topic: &str| {
            table.note_pull(group, topic, 0, 3);
            table.pulled(group, topic, 0) == Some(3)
        };
        assert!(noted("g", "t") && noted("h", "t") && noted("g", "t"));
        assert!(!noted("g", "u") && !noted("i", "t"));
        table.remove_group("h");
        assert!(noted("g", "u") && !noted("h", "t"));
        table.remove_topic("t");
        assert!(noted("h", "u") && !noted("i", "u"));
    }

    #[test]
    fn a_reset_is_seen_once() {
        let table = OffsetTable::new(1);
        table.reset("g", "t", 2, 9, 1);
        assert_eq!(table.pending_reset("g", "t", 2), Some(9));
        assert_eq!(table.get("g", "t", 2), Some(9));
        assert_eq!(table.take_reset("g", "t", 2), Some(9));
        assert_eq!(table.take_reset("g", "t", 2), None);
    }
}
