//! Counters by topic and by group, as `statsAll` and code 315 ask for them (RocketMQ 5.4.0 `BrokerStatsManager`).

mod series;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::Monotonic;
use parking_lot::RwLock;

pub(crate) use series::{Series, Window};

/// Most topics, and most groups on topics, that are counted; more are not.
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
}

type Groups = HashMap<Arc<str>, HashMap<Arc<str>, Arc<GroupFlow>>>;

/// All counters. Counting takes a shared lock and two additions.
#[derive(Debug)]
pub(crate) struct Stats {
    topics: RwLock<HashMap<Arc<str>, Arc<Flow>>>,
    /// group → topic
    groups: RwLock<Groups>,
    put: Series,
    got: Series,
    sampled: AtomicU64,
}

impl Stats {
    /// Nothing counted yet.
    pub(crate) fn new(now: Monotonic) -> Self {
        Self {
            topics: RwLock::default(),
            groups: RwLock::default(),
            put: Series::new(now),
            got: Series::new(now),
            sampled: AtomicU64::new(0),
        }
    }

    /// Messages were stored in a topic.
    pub(crate) fn put(&self, topic: &str, messages: u64, bytes: u64, now: Monotonic) {
        self.put.add(messages);
        if let Some(flow) = self.topics.read().get(topic) {
            return flow.add(messages, bytes);
        }
        let mut topics = self.topics.write();
        if topics.len() < ITEMS_MAX {
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
        let mut groups = self.groups.write();
        if groups.len() >= ITEMS_MAX {
            return;
        }
        let topics = groups.entry(Arc::from(group)).or_default();
        if topics.len() < ITEMS_MAX {
            count(
                topics
                    .entry(Arc::from(topic))
                    .or_insert_with(|| Arc::new(GroupFlow::new(now))),
            );
        }
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

    /// Takes a sample of every counter when it is time, and forgets those that have been silent for a day. Called
    /// about once a second.
    pub(crate) fn sample(&self, now: Monotonic) {
        let second = now.since(Monotonic::ZERO).as_secs();
        let last = self.sampled.load(Ordering::Relaxed);
        if second < last.saturating_add(SAMPLE_EVERY) {
            return;
        }
        self.sampled.store(second, Ordering::Relaxed);
        self.put.sample(now);
        self.got.sample(now);
        self.topics.write().retain(|_, flow| {
            flow.messages.sample(now);
            flow.bytes.sample(now);
            !flow.messages.is_idle(now)
        });
        self.groups.write().retain(|_, topics| {
            topics.retain(|_, flow| {
                for series in [
                    &flow.got.messages,
                    &flow.got.bytes,
                    &flow.sent_back,
                    &flow.dead,
                ] {
                    series.sample(now);
                }
                !(flow.got.messages.is_idle(now)
                    && flow.sent_back.is_idle(now)
                    && flow.dead.is_idle(now))
            });
            !topics.is_empty()
        });
    }

    /// Forgets a deleted topic.
    pub(crate) fn forget_topic(&self, topic: &str) {
        self.topics.write().remove(topic);
        self.groups.write().retain(|_, topics| {
            topics.remove(topic);
            !topics.is_empty()
        });
    }

    /// Forgets a deleted group.
    pub(crate) fn forget_group(&self, group: &str) {
        self.groups.write().remove(group);
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
}
