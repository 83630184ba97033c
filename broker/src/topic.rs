//! Topic configurations in a versioned table, Apache's JSON on disk.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use wire::WireError;
use wire::body::queue_map::QueueMap;

use crate::names;
use crate::table::{ATTRIBUTE_MADE, ATTRIBUTE_VERSION, Change, Deletions, Entry, Table};
use crate::version::DataVersion;

/// Permission bit: the template's permission is inherited by topics created from it.
pub(crate) const PERM_INHERIT: i32 = 1;
/// Permission bit: may be written.
pub(crate) const PERM_WRITE: i32 = 2;
/// Permission bit: may be read.
pub(crate) const PERM_READ: i32 = 4;
/// Readable and writable.
pub(crate) const PERM_READ_WRITE: i32 = PERM_READ | PERM_WRITE;

/// Attribute that says which messages the topic takes: `NORMAL`, `FIFO` …; absent: any.
pub(crate) const MESSAGE_TYPE: &str = "message.type";
/// Attribute that tells a topic from an earlier one of the same name on this broker: when it was made here, epoch ms.
/// Set by the table alone, never by a caller.
pub(crate) const ATTRIBUTE_EPOCH: &str = "gantry.epoch";
/// Most queues that a topic may have on one broker.
pub(crate) const QUEUES_MAX: i32 = 65_536;
/// Most topics on one broker.
pub(crate) const TOPICS_MAX: usize = 200_000;

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

    /// How many queues each broker has, where that was ever said.
    pub(crate) fn queue_map(&self) -> Option<QueueMap> {
        QueueMap::of(&self.attributes)
    }

    /// When the topic was made on this broker, epoch ms; 0 for one that is older than this mark.
    pub(crate) fn epoch(&self) -> u64 {
        self.attributes
            .get(ATTRIBUTE_EPOCH)
            .and_then(|v| v.parse().ok())
            .unwrap_or(0)
    }
}

impl Entry for TopicConfig {
    const MAX: usize = TOPICS_MAX;

    fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }

    fn attributes_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.attributes
    }

    /// Topics of users. Retry and dead-letter topics come with their group, on each broker by itself.
    fn is_levelled(&self, name: &str) -> bool {
        !names::is_system_topic(name) && !names::is_derived(name) && self.perm & PERM_INHERIT == 0
    }

    fn outgrows(&self, known: &Self) -> bool {
        self.queue_count() > known.queue_count()
    }

    /// All but the version, the time it was made, and what each broker has for itself: number of queues and permission.
    fn content(&self) -> Vec<u8> {
        let mut shared = Self {
            read_queue_nums: 0,
            write_queue_nums: 0,
            perm: 0,
            ..self.clone()
        };
        shared.attributes.remove(ATTRIBUTE_VERSION);
        shared.attributes.remove(ATTRIBUTE_EPOCH);
        shared.attributes.remove(ATTRIBUTE_MADE);
        serde_json::to_vec(&shared).unwrap_or_default()
    }

    /// Keeps the epoch of `known`; a new topic gets its own.
    fn keep_own(&mut self, known: Option<&Self>, now_ms: u64) {
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

/// The file `config/topics.json`. Deletions are Gantry's own; others skip them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TopicFile {
    data_version: DataVersion,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gantry_deleted: Deletions,
    topic_config_table: BTreeMap<String, TopicConfig>,
}

/// All topics of this broker.
#[derive(Debug)]
pub(crate) struct TopicTable(Table<TopicConfig>);

impl Deref for TopicTable {
    type Target = Table<TopicConfig>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl TopicTable {
    /// An empty table.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self(Table::new(now_ms))
    }

    /// Replaces the content by that of `topics.json` text in any dialect.
    ///
    /// # Errors
    /// The text is no such table.
    pub(crate) fn load(&self, json: &[u8]) -> Result<usize, WireError> {
        let file: TopicFile = wire::json::from_slice(json)?;
        let named = file.topic_config_table.into_iter().map(|(name, config)| {
            let topic_name = name.clone();
            (
                name,
                TopicConfig {
                    topic_name,
                    ..config
                },
            )
        });
        Ok(self.fill(file.data_version, named, file.gantry_deleted))
    }

    /// The text of `topics.json`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let (data_version, topic_config_table, gantry_deleted) = self.export();
        let file = TopicFile {
            data_version,
            gantry_deleted,
            topic_config_table,
        };
        serde_json::to_vec_pretty(&file).unwrap_or_default()
    }

    /// Creates the topic unless it exists.
    pub(crate) fn ensure(&self, config: TopicConfig, now_ms: u64) -> Option<Change<TopicConfig>> {
        self.modify(&config.topic_name.clone(), now_ms, |known| {
            Some(known.cloned().unwrap_or(config))
        })
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
    fn the_file_survives_a_round_trip_and_reads_apaches() {
        let table = TopicTable::new(1);
        table.ensure(TopicConfig::new("t", 4, 6), 2).unwrap();
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
    fn the_file_remembers_deletions() {
        let table = TopicTable::new(1);
        table.ensure(TopicConfig::new("t", 4, 6), 2).unwrap();
        assert!(table.remove("t", 3, true));
        let again = TopicTable::new(5);
        again.load(&table.to_json()).unwrap();
        assert_eq!(again.deleted_in("t"), 2);
    }

    #[test]
    fn the_epoch_stays_until_the_topic_is_made_anew() {
        let table = TopicTable::new(1);
        let put = |queues, now_ms| {
            let mut wanted = TopicConfig::new("t", queues, 6);
            wanted
                .attributes
                .insert(ATTRIBUTE_EPOCH.to_owned(), "77".to_owned());
            let change = table.modify("t", now_ms, |_| Some(wanted)).unwrap();
            change.config.epoch()
        };
        assert_eq!((put(4, 5), put(8, 6)), (5, 5));
        let again = TopicTable::new(9);
        again.load(&table.to_json()).unwrap();
        assert_eq!(again.get("t").unwrap().epoch(), 5);
        let taken = again.batch(7, |batch| {
            batch.take("t", |_, _| Some(TopicConfig::new("t", 9, 6)))
        });
        assert_eq!(taken.unwrap().config.epoch(), 5, "each broker has its own");
        table.remove("t", 7, true);
        assert_eq!(put(8, 8), 8);
        let (mut one, two) = (TopicConfig::new("t", 1, 6), TopicConfig::new("t", 1, 6));
        one.keep_own(None, 5);
        assert_eq!(one.content_hash(), two.content_hash());
    }

    #[test]
    fn only_topics_of_users_are_levelled_and_queue_numbers_are_not() {
        let levelled = |name: &str, perm| TopicConfig::new(name, 1, perm).is_levelled(name);
        assert!(levelled("t", 6) && levelled("t", 4));
        for name in ["%RETRY%g", "%DLQ%g", "rmq_sys_x", "TBW102"] {
            assert!(!levelled(name, 6), "{name}");
        }
        assert!(!levelled("DefaultCluster", 7));
        let (few, many) = (TopicConfig::new("t", 1, 4), TopicConfig::new("t", 8, 6));
        assert_eq!(few.content_hash(), many.content_hash());
        assert_ne!(
            few.content_hash(),
            TopicConfig::new("u", 1, 4).content_hash()
        );
    }
}
