//! Topic configurations: a snapshot for the hot path, a versioned table behind it, Apache's JSON on disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::names;
use crate::version::DataVersion;
use wire::WireError;

/// Permission bit: the template's permission is inherited by topics created from it.
pub(crate) const PERM_INHERIT: i32 = 1;
/// Permission bit: may be written.
pub(crate) const PERM_WRITE: i32 = 2;
/// Permission bit: may be read.
pub(crate) const PERM_READ: i32 = 4;
/// Readable and writable.
pub(crate) const PERM_READ_WRITE: i32 = PERM_READ | PERM_WRITE;

/// Attribute that holds Gantry's configuration version of a topic or group.
pub(crate) const ATTRIBUTE_VERSION: &str = "gantry.version";
/// Attribute that tells a topic from an earlier one of the same name on this broker: when it was made here, epoch ms.
/// Set by the table alone, never by a caller.
pub(crate) const ATTRIBUTE_EPOCH: &str = "gantry.epoch";
/// Most queues that a topic may have on one broker.
pub(crate) const QUEUES_MAX: i32 = 65_536;
/// Most topics on one broker.
pub(crate) const TOPICS_MAX: usize = 200_000;
/// Changes remembered for incremental registration.
const CHANGES_MAX: usize = 256;

/// One topic, in the JSON shape of RocketMQ 5.4.0 `TopicConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TopicConfig {
    /// Free settings: `message.type`, and Gantry's own under `gantry.`.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Ordered: named in the order configuration of the name servers.
    pub(crate) order: bool,
    /// Bits read 4, write 2, inherit 1.
    pub(crate) perm: i32,
    /// Queues that consumers see.
    pub(crate) read_queue_nums: i32,
    /// `SINGLE_TAG` or `MULTI_TAG`.
    pub(crate) topic_filter_type: String,
    /// Its name.
    pub(crate) topic_name: String,
    /// System bits; passed through.
    pub(crate) topic_sys_flag: i32,
    /// Queues that producers see.
    pub(crate) write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: PERM_READ_WRITE,
            read_queue_nums: 16,
            topic_filter_type: "SINGLE_TAG".to_owned(),
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic with as many read as write queues.
    pub(crate) fn new(topic: &str, queues: i32, perm: i32) -> Self {
        Self {
            topic_name: topic.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            ..Self::default()
        }
    }

    /// May be pulled from.
    pub(crate) fn is_readable(&self) -> bool {
        self.perm & PERM_READ != 0
    }

    /// May be sent to.
    pub(crate) fn is_writable(&self) -> bool {
        self.perm & PERM_WRITE != 0
    }

    /// Queue ids run from 0 to this number less one.
    pub(crate) fn queue_count(&self) -> i32 {
        self.read_queue_nums.max(self.write_queue_nums)
    }

    /// Version for optimistic changes; 1 for a topic that only native tools wrote.
    pub(crate) fn version(&self) -> u64 {
        self.attributes
            .get(ATTRIBUTE_VERSION)
            .and_then(|v| v.parse().ok())
            .unwrap_or(1)
    }

    /// When the topic was made on this broker, epoch ms; 0 for one that is older than this mark.
    pub(crate) fn epoch(&self) -> u64 {
        self.attributes
            .get(ATTRIBUTE_EPOCH)
            .and_then(|v| v.parse().ok())
            .unwrap_or(0)
    }

    /// Keeps the epoch of `known`; a new topic gets its own.
    fn mark_epoch(&mut self, known: Option<&Self>, now_ms: u64) {
        let epoch = match known {
            Some(known) => known.attributes.get(ATTRIBUTE_EPOCH).cloned(),
            None => Some(now_ms.to_string()),
        };
        match epoch {
            Some(epoch) => self.attributes.insert(ATTRIBUTE_EPOCH.to_owned(), epoch),
            None => self.attributes.remove(ATTRIBUTE_EPOCH),
        };
    }
}

/// The file `config/topics.json`, and the body of code 21 less the static-topic parts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TopicFile {
    data_version: DataVersion,
    topic_config_table: BTreeMap<String, TopicConfig>,
}

type Snapshot = HashMap<Arc<str>, Arc<TopicConfig>>;

/// Answer of a change.
#[derive(Clone, Debug)]
pub(crate) struct TopicChange {
    /// The topic as it is now.
    pub(crate) config: Arc<TopicConfig>,
    /// False when the table already held exactly this.
    pub(crate) changed: bool,
}

/// What a name server has to be told: everything, or the topics that changed.
#[derive(Debug)]
pub(crate) struct RegistrationView {
    /// Sequence number of the last change included.
    pub(crate) sequence: u64,
    /// Version that goes with it.
    pub(crate) version: DataVersion,
    /// The topics to send.
    pub(crate) topics: Vec<Arc<TopicConfig>>,
    /// All topics of the table are included.
    pub(crate) full: bool,
}

#[derive(Debug)]
struct Inner {
    version: DataVersion,
    sequence: u64,
    changes: std::collections::VecDeque<(u64, String)>,
}

/// All topics of this broker. Readers take a snapshot; writers are serialized.
#[derive(Debug)]
pub(crate) struct TopicTable {
    snapshot: ArcSwap<Snapshot>,
    inner: Mutex<Inner>,
}

impl TopicTable {
    /// An empty table.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::new()),
            inner: Mutex::new(Inner {
                version: DataVersion::new(now_ms),
                sequence: 1,
                changes: std::collections::VecDeque::new(),
            }),
        }
    }

    /// Replaces the content by that of `topics.json` text in any dialect.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: TopicFile = wire::json::from_slice(json)?;
        let mut inner = self.inner.lock();
        inner.version = file.data_version;
        inner.sequence += 1;
        inner.changes.clear();
        let count = file.topic_config_table.len();
        let map = file
            .topic_config_table
            .into_iter()
            .map(|(name, mut config)| {
                config.topic_name.clone_from(&name);
                (Arc::from(name), Arc::new(config))
            })
            .collect();
        self.snapshot.store(Arc::new(map));
        Ok(count)
    }

    /// The text of `topics.json`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let inner = self.inner.lock();
        let file = TopicFile {
            data_version: inner.version,
            topic_config_table: self.sorted(),
        };
        serde_json::to_vec_pretty(&file).unwrap_or_default()
    }

    fn sorted(&self) -> BTreeMap<String, TopicConfig> {
        self.snapshot
            .load()
            .iter()
            .map(|(name, config)| (name.to_string(), config.as_ref().clone()))
            .collect()
    }

    /// The topic, if it exists. Cheap: no lock.
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.snapshot.load().get(topic).cloned()
    }

    /// Whether the topic exists.
    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.snapshot.load().contains_key(topic)
    }

    /// All topics with the version that belongs to them.
    pub(crate) fn all(&self) -> (DataVersion, Vec<Arc<TopicConfig>>) {
        let inner = self.inner.lock();
        (
            inner.version,
            self.snapshot.load().values().cloned().collect(),
        )
    }

    /// Number of topics.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.load().len()
    }

    /// Creates or replaces a topic. Nothing changes when the table already holds exactly this.
    ///
    /// # Errors
    /// `None` when the table is full.
    #[cfg(test)]
    pub(crate) fn upsert(&self, config: TopicConfig, now_ms: u64) -> Option<TopicChange> {
        self.modify(&config.topic_name.clone(), now_ms, |_| Some(config))
    }

    /// Creates the topic unless it exists.
    pub(crate) fn ensure(&self, config: TopicConfig, now_ms: u64) -> Option<TopicChange> {
        self.modify(&config.topic_name.clone(), now_ms, |known| match known {
            Some(known) => Some(known.clone()),
            None => Some(config),
        })
    }

    /// Changes one topic under the table lock: `change` sees what is there and says what shall be.
    /// `None` from `change`, or a full table, leaves everything as it is.
    pub(crate) fn modify(
        &self,
        topic: &str,
        now_ms: u64,
        change: impl FnOnce(Option<&TopicConfig>) -> Option<TopicConfig>,
    ) -> Option<TopicChange> {
        let mut inner = self.inner.lock();
        let snapshot = self.snapshot.load_full();
        let known = snapshot.get(topic);
        let mut wanted = change(known.map(Arc::as_ref))?;
        wanted.mark_epoch(known.map(Arc::as_ref), now_ms);
        if let Some(known) = known {
            if **known == wanted {
                return Some(TopicChange {
                    config: known.clone(),
                    changed: false,
                });
            }
        } else if snapshot.len() >= TOPICS_MAX {
            return None;
        }
        let config = Arc::new(wanted);
        let mut next = snapshot.as_ref().clone();
        next.insert(Arc::from(topic), config.clone());
        self.publish(&mut inner, next, topic, now_ms);
        Some(TopicChange {
            config,
            changed: true,
        })
    }

    /// Removes a topic; whether it was there.
    pub(crate) fn remove(&self, topic: &str, now_ms: u64) -> bool {
        let mut inner = self.inner.lock();
        let snapshot = self.snapshot.load_full();
        if !snapshot.contains_key(topic) {
            return false;
        }
        let mut next = snapshot.as_ref().clone();
        next.remove(topic);
        self.publish(&mut inner, next, topic, now_ms);
        // A removal cannot be said by listing topics: the next registration carries the whole table.
        inner.changes.clear();
        true
    }

    fn publish(&self, inner: &mut Inner, next: Snapshot, topic: &str, now_ms: u64) {
        inner.version.bump(now_ms);
        inner.sequence += 1;
        let sequence = inner.sequence;
        if inner.changes.len() == CHANGES_MAX {
            inner.changes.pop_front();
        }
        inner.changes.push_back((sequence, topic.to_owned()));
        self.snapshot.store(Arc::new(next));
    }

    /// What a name server that knows everything up to `synced` still needs. The version and the
    /// topics belong together. `None` asks for everything.
    pub(crate) fn registration(&self, synced: Option<u64>) -> RegistrationView {
        let inner = self.inner.lock();
        let snapshot = self.snapshot.load_full();
        let first_kept = inner
            .changes
            .front()
            .map_or(inner.sequence + 1, |(sequence, _)| *sequence);
        let incremental = synced.filter(|known| known + 1 >= first_kept && *known < inner.sequence);
        let topics = match incremental {
            Some(known) => {
                let mut names: Vec<&str> = inner
                    .changes
                    .iter()
                    .filter(|(sequence, _)| *sequence > known)
                    .map(|(_, topic)| topic.as_str())
                    .collect();
                names.sort_unstable();
                names.dedup();
                names
                    .iter()
                    .filter_map(|name| snapshot.get(*name).cloned())
                    .collect()
            }
            None => snapshot.values().cloned().collect(),
        };
        RegistrationView {
            sequence: inner.sequence,
            version: inner.version,
            topics,
            full: incremental.is_none(),
        }
    }

    /// Sequence number of the last change.
    pub(crate) fn sequence(&self) -> u64 {
        self.inner.lock().sequence
    }
}

/// The topics that every broker has, as RocketMQ 5.4.0 `TopicConfigManager.init` creates them.
pub(crate) fn system_topics(cluster: &str, broker: &str, auto_create: bool) -> Vec<TopicConfig> {
    let mut topics = vec![
        TopicConfig::new("SELF_TEST_TOPIC", 1, PERM_READ_WRITE),
        TopicConfig::new("BenchmarkTest", 1024, PERM_READ_WRITE),
        TopicConfig::new(cluster, 16, PERM_READ_WRITE | PERM_INHERIT),
        TopicConfig::new(broker, 1, PERM_READ_WRITE | PERM_INHERIT),
        TopicConfig::new("OFFSET_MOVED_EVENT", 1, PERM_READ_WRITE),
        TopicConfig::new(names::SCHEDULE_TOPIC, 18, PERM_READ_WRITE),
        TopicConfig::new(&format!("{cluster}_REPLY_TOPIC"), 1, PERM_READ_WRITE),
        TopicConfig::new(
            &format!("{}REVIVE_LOG_{cluster}", names::SYSTEM_PREFIX),
            8,
            PERM_READ_WRITE,
        ),
        TopicConfig::new(names::HALF_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(names::OP_HALF_TOPIC, 1, PERM_READ_WRITE),
    ];
    if auto_create {
        topics.push(TopicConfig::new(
            names::AUTO_CREATE_TOPIC,
            8,
            PERM_READ_WRITE | PERM_INHERIT,
        ));
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_raises_the_version_and_a_repeat_does_not() {
        let table = TopicTable::new(1);
        let first = table.upsert(TopicConfig::new("t", 4, 6), 2).unwrap();
        assert!(first.changed);
        let version = table.all().0;
        assert!(
            !table
                .upsert(TopicConfig::new("t", 4, 6), 3)
                .unwrap()
                .changed
        );
        assert_eq!(table.all().0, version);
        assert!(
            table
                .upsert(TopicConfig::new("t", 8, 6), 3)
                .unwrap()
                .changed
        );
        assert_ne!(table.all().0, version);
    }

    #[test]
    fn the_file_survives_a_round_trip_and_reads_apaches() {
        let table = TopicTable::new(1);
        table.upsert(TopicConfig::new("t", 4, 6), 2);
        let again = TopicTable::new(5);
        again.load(&table.to_json()).unwrap();
        assert_eq!(again.get("t"), table.get("t"));
        assert_eq!(again.all().0, table.all().0);
        let apache = br#"{"dataVersion":{"counter":21,"stateVersion":0,"timestamp":1795975506615},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}"#;
        again.load(apache).unwrap();
        assert_eq!(again.get("T").unwrap().perm, 7);
        assert!(again.get("t").is_none());
    }

    #[test]
    fn registration_is_incremental_only_while_nothing_is_missed() {
        let table = TopicTable::new(1);
        table.upsert(TopicConfig::new("a", 1, 6), 2);
        let all = table.registration(None);
        assert!(all.full);
        table.upsert(TopicConfig::new("b", 1, 6), 2);
        let part = table.registration(Some(all.sequence));
        assert!(!part.full);
        assert_eq!(part.topics.len(), 1);
        assert_ne!(part.version, all.version);
        table.remove("b", 3);
        assert!(table.registration(Some(part.sequence)).full);
        for i in 0..600 {
            table.upsert(TopicConfig::new(&format!("t{i}"), 1, 6), 4);
        }
        assert!(table.registration(Some(part.sequence)).full);
    }

    #[test]
    fn the_epoch_stays_until_the_topic_is_made_anew() {
        let table = TopicTable::new(1);
        let mut wanted = TopicConfig::new("t", 4, 6);
        wanted
            .attributes
            .insert(ATTRIBUTE_EPOCH.to_owned(), "77".to_owned());
        assert_eq!(table.upsert(wanted, 5).unwrap().config.epoch(), 5);
        assert_eq!(
            table
                .upsert(TopicConfig::new("t", 8, 6), 6)
                .unwrap()
                .config
                .epoch(),
            5
        );
        let again = TopicTable::new(9);
        again.load(&table.to_json()).unwrap();
        assert_eq!(again.get("t").unwrap().epoch(), 5);
        table.remove("t", 7);
        assert_eq!(
            table
                .upsert(TopicConfig::new("t", 8, 6), 8)
                .unwrap()
                .config
                .epoch(),
            8
        );
    }

    #[test]
    fn nothing_new_asks_for_a_full_refresh() {
        let table = TopicTable::new(1);
        table.upsert(TopicConfig::new("a", 1, 6), 2);
        assert!(table.registration(Some(table.sequence())).full);
    }
}
