//! Counters by topic and by group, as `statsAll` and code 315 ask for them (RocketMQ 5.4.0 `BrokerStatsManager`).

mod series;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clock::Monotonic;
use parking_lot::RwLock;

pub(crate) use series::{Series, Window};

/// Most topics, and most pairs of group and topic, that are counted; more are not.
const ITEMS_MAX: usize = 200_000;
/// Seconds between two samples.
const SAMPLE_EVERY: u64 = 10;

/// Messages and their bytes.
#[derive(Debug)]
struct Flow {
    messages: Series,
    bytes: Series,
}

impl Flow {
    fn new(now: Monotonic) -> Self {
        Self {
            messages: Series::new(now),
            bytes: Series::new(now),
        }
    }

    fn add(&self, messages: u64, bytes: u64) {
        self.messages.add(messages);
        self.bytes.add(bytes);
    }

    /// Whether it is idle after that.
    fn sample(&self, now: Monotonic) -> bool {
        self.messages.sample(now);
        self.bytes.sample(now);
        self.is_idle(now)
    }

    fn is_idle(&self, now: Monotonic) -> bool {
        self.messages.is_idle(now)
    }
}

/// What a group did on a topic.
#[derive(Debug)]
struct GroupFlow {
    got: Flow,
    sent_back: Series,
    dead: Series,
}

impl GroupFlow {
    fn new(now: Monotonic) -> Self {
        Self {
            got: Flow::new(now),
            sent_back: Series::new(now),
            dead: Series::new(now),
        }
    }

    /// Whether it is idle after that.
    fn sample(&self, now: Monotonic) -> bool {
        self.got.sample(now);
        self.sent_back.sample(now);
        self.dead.sample(now);
        self.is_idle(now)
    }

    fn is_idle(&self, now: Monotonic) -> bool {
        self.got.is_idle(now) && self.sent_back.is_idle(now) && self.dead.is_idle(now)
    }
}

type Groups = HashMap<Arc<str>, HashMap<Arc<str>, Arc<GroupFlow>>>;

/// All counters. Counting takes a shared lock and two additions.
#[derive(Debug)]
pub(crate) struct Stats {
    topics: RwLock<HashMap<Arc<str>, Arc<Flow>>>,
    /// group → topic
    groups: RwLock<Groups>,
    /// Entries of `groups`, changed under its write lock.
    pairs: AtomicUsize,
    /// Most topics, and most pairs.
    max: usize,
    put: Series,
    got: Series,
    sampled: AtomicU64,
}

impl Stats {
    /// Nothing counted yet.
    pub(crate) fn new(now: Monotonic) -> Self {
        Self::with_max(now, ITEMS_MAX)
    }

    fn with_max(now: Monotonic, max: usize) -> Self {
        Self {
            topics: RwLock::default(),
            groups: RwLock::default(),
            pairs: AtomicUsize::new(0),
            max,
            put: Series::new(now),
            got: Series::new(now),
            sampled: AtomicU64::new(0),
        }
    }

    /// Messages were stored in a topic.
    pub(crate) fn put(&self, topic: &str, messages: u64, bytes: u64, now: Monotonic) {
        self.put.add(messages);
        {
            let topics = self.topics.read();
            if let Some(flow) = topics.get(topic) {
                return flow.add(messages, bytes);
            }
            if topics.len() >= self.max {
                return;
            }
        }
        let mut topics = self.topics.write();
        if topics.len() < self.max {
            topics
                .entry(Arc::from(topic))
                .or_insert_with(|| Arc::new(Flow::new(now)))
                .add(messages, bytes);
        }
    }

    /// A group was given messages of a topic.
    pub(crate) fn got(&self, group: &str, topic: &str, messages: u64, bytes: u64, now: Monotonic) {
        self.got.add(messages);
        self.of_group(group, topic, now, |flow| flow.got.add(messages, bytes));
    }

    /// A group sent a message of a topic back.
    pub(crate) fn sent_back(&self, group: &str, topic: &str, now: Monotonic) {
        self.of_group(group, topic, now, |flow| flow.sent_back.add(1));
    }

    /// A message of a topic went to a group's dead letters.
    pub(crate) fn dead(&self, group: &str, topic: &str, now: Monotonic) {
        self.of_group(group, topic, now, |flow| flow.dead.add(1));
    }

    fn of_group(&self, group: &str, topic: &str, now: Monotonic, count: impl Fn(&GroupFlow)) {
        if let Some(flow) = self.groups.read().get(group).and_then(|of| of.get(topic)) {
            return count(flow);
        }
        if self.pairs.load(Ordering::Relaxed) >= self.max {
            return;
        }
        let mut groups = self.groups.write();
        if self.pairs.load(Ordering::Relaxed) >= self.max {
            return;
        }
        let topics = groups.entry(Arc::from(group)).or_default();
        count(topics.entry(Arc::from(topic)).or_insert_with(|| {
            self.pairs.fetch_add(1, Ordering::Relaxed);
            Arc::new(GroupFlow::new(now))
        }));
    }

    /// The last minute, hour and day of a counter by RocketMQ's name and key: a topic, `topic@group`, or the cluster.
    pub(crate) fn windows(
        &self,
        name: &str,
        key: &str,
        cluster: &str,
        now: Monotonic,
    ) -> Option<[Window; 3]> {
        let topic = || self.topics.read().get(key).cloned();
        let group = || {
            let (topic, group) = key.split_once('@')?;
            self.groups.read().get(group)?.get(topic).cloned()
        };
        Some(match name {
            "TOPIC_PUT_NUMS" => topic()?.messages.windows(now),
            "TOPIC_PUT_SIZE" => topic()?.bytes.windows(now),
            "GROUP_GET_NUMS" => group()?.got.messages.windows(now),
            "GROUP_GET_SIZE" => group()?.got.bytes.windows(now),
            "SNDBCK_PUT_NUMS" => group()?.sent_back.windows(now),
            "DLQ_PUT_NUMS" => group()?.dead.windows(now),
            "BROKER_PUT_NUMS" if key == cluster => self.put.windows(now),
            "BROKER_GET_NUMS" if key == cluster => self.got.windows(now),
            _ => return None,
        })
    }

    /// Messages a second that came into a topic in the last minute.
    pub(crate) fn put_rate(&self, topic: &str, now: Monotonic) -> f64 {
        let flow = self.topics.read().get(topic).cloned();
        flow.map_or(0.0, |flow| minute(&flow.messages, now))
    }

    /// Messages a second that a group was given of a topic in the last minute.
    pub(crate) fn got_rate(&self, group: &str, topic: &str, now: Monotonic) -> f64 {
        let groups = self.groups.read();
        let flow = groups.get(group).and_then(|of| of.get(topic)).cloned();
        drop(groups);
        flow.map_or(0.0, |flow| minute(&flow.got.messages, now))
    }

    /// Whether it is time for the next sample; says so once.
    pub(crate) fn is_sample_due(&self, now: Monotonic) -> bool {
        let second = now.since(Monotonic::ZERO).as_secs();
        let last = self.sampled.load(Ordering::Relaxed);
        let due = second >= last.saturating_add(SAMPLE_EVERY);
        if due {
            self.sampled.store(second, Ordering::Relaxed);
        }
        due
    }

    /// Takes a sample of every counter, and forgets those that have been silent for a day. Takes its time where there
    /// are many, but holds up nobody that counts: the tables are locked to list their counters, and to drop silent ones.
    pub(crate) fn sample(&self, now: Monotonic) {
        self.put.sample(now);
        self.got.sample(now);
        let flows: Vec<Arc<Flow>> = self.topics.read().values().cloned().collect();
        let sampled = flows.iter().map(|flow| flow.sample(now));
        if sampled.fold(false, |any, idle| any | idle) {
            self.topics.write().retain(|_, flow| !flow.is_idle(now));
        }
        let flows: Vec<Arc<GroupFlow>> = {
            let groups = self.groups.read();
            groups.values().flat_map(HashMap::values).cloned().collect()
        };
        let sampled = flows.iter().map(|flow| flow.sample(now));
        if sampled.fold(false, |any, idle| any | idle) {
            self.drop_pairs(|_, flow| flow.is_idle(now));
        }
    }

    /// Forgets a deleted topic.
    pub(crate) fn forget_topic(&self, topic: &str) {
        self.topics.write().remove(topic);
        self.drop_pairs(|of, _| of == topic);
    }

    /// Forgets a deleted group.
    pub(crate) fn forget_group(&self, group: &str) {
        let mut groups = self.groups.write();
        let dropped = groups.remove(group).map_or(0, |topics| topics.len());
        self.pairs.fetch_sub(dropped, Ordering::Relaxed);
    }

    /// Drops pairs by their topic and counters.
    fn drop_pairs(&self, gone: impl Fn(&str, &GroupFlow) -> bool) {
        let mut groups = self.groups.write();
        let mut dropped = 0;
        groups.retain(|_, topics| {
            let before = topics.len();
            topics.retain(|topic, flow| !gone(topic, flow));
            dropped += before - topics.len();
            !topics.is_empty()
        });
        self.pairs.fetch_sub(dropped, Ordering::Relaxed);
    }
}

fn minute(series: &Series, now: Monotonic) -> f64 {
    let [minute, _, _] = series.windows(now);
    minute.per_second
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_counter_has_its_own_key() {
        let now = Monotonic::ZERO + Duration::from_secs(5);
        let stats = Stats::new(now);
        stats.put("t", 3, 300, now);
        stats.got("g", "t", 2, 200, now);
        stats.sent_back("g", "t", now);
        stats.dead("g", "t", now);
        let sum = |name: &str, key: &str| {
            stats
                .windows(name, key, "c", now)
                .map(|[minute, _, _]| minute.sum)
        };
        assert_eq!(sum("TOPIC_PUT_NUMS", "t"), Some(3));
        assert_eq!(sum("TOPIC_PUT_SIZE", "t"), Some(300));
        assert_eq!(sum("GROUP_GET_NUMS", "t@g"), Some(2));
        assert_eq!(sum("GROUP_GET_SIZE", "t@g"), Some(200));
        assert_eq!(sum("SNDBCK_PUT_NUMS", "t@g"), Some(1));
        assert_eq!(sum("DLQ_PUT_NUMS", "t@g"), Some(1));
        assert_eq!(sum("BROKER_PUT_NUMS", "c"), Some(3));
        assert_eq!(sum("BROKER_GET_NUMS", "c"), Some(2));
        for (name, key) in [
            ("TOPIC_PUT_NUMS", "u"),
            ("GROUP_GET_NUMS", "t"),
            ("NO_SUCH", "t"),
        ] {
            assert_eq!(sum(name, key), None, "{name} {key}");
        }
        stats.forget_topic("t");
        assert_eq!(sum("TOPIC_PUT_NUMS", "t"), None);
        assert_eq!(sum("GROUP_GET_NUMS", "t@g"), None);
    }

    #[test]
    fn a_full_table_counts_no_new_pair_until_one_is_gone() {
        let now = Monotonic::ZERO;
        let stats = Stats::with_max(now, 3);
        let counts = |group: &str, topic: &str| {
            stats.got(group, topic, 1, 1, now);
            let key = format!("{topic}@{group}");
            stats.windows("GROUP_GET_NUMS", &key, "c", now).is_some()
        };
        // The bound is over all groups, not for each.
        assert!(counts("g", "t") && counts("g", "u") && counts("h", "t"));
        assert!(!counts("h", "u") && !counts("i", "t"));
        assert!(counts("g", "t"));
        stats.forget_group("g");
        assert!(counts("h", "u") && counts("i", "t") && !counts("i", "u"));
        stats.forget_topic("t");
        assert!(counts("i", "u"));
        for topic in ["t", "u", "v", "w"] {
            stats.put(topic, 1, 1, now);
        }
        let known = |topic: &str| stats.windows("TOPIC_PUT_NUMS", topic, "c", now).is_some();
        assert!(known("v") && !known("w"));
    }

    #[test]
    fn what_is_silent_for_a_day_makes_room() {
        let mut now = Monotonic::ZERO;
        let stats = Stats::with_max(now, 1);
        stats.got("g", "t", 1, 1, now);
        stats.put("t", 1, 1, now);
        for _ in 0..26 {
            now = now + Duration::from_secs(3_600);
            assert!(stats.is_sample_due(now) && !stats.is_sample_due(now));
            stats.sample(now);
        }
        stats.got("h", "t", 1, 1, now);
        stats.put("u", 1, 1, now);
        let known = |name: &str, key: &str| stats.windows(name, key, "c", now).is_some();
        assert!(known("GROUP_GET_NUMS", "t@h") && !known("GROUP_GET_NUMS", "t@g"));
        assert!(known("TOPIC_PUT_NUMS", "u") && !known("TOPIC_PUT_NUMS", "t"));
    }
}
