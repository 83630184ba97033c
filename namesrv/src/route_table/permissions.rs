//! Operator's changes: permissions of a broker, topics added and removed by hand.

use super::types::TopicEntry;
use super::{PERM_READ_WRITE, PERM_WRITE, Queues, RouteTable, TOPICS_MAX};

impl RouteTable {
    /// WIPE_WRITE_PERM_OF_BROKER (205): until the broker's next changed registration nothing is
    /// written to it. Returns how many topics it has.
    pub fn wipe_write(&mut self, broker_name: &str) -> usize {
        self.override_perm(broker_name, |perm| perm & !PERM_WRITE)
    }

    /// ADD_WRITE_PERM_OF_BROKER (327): the reverse; as with Apache's the permission becomes 6.
    pub fn add_write(&mut self, broker_name: &str) -> usize {
        self.override_perm(broker_name, |_| PERM_READ_WRITE)
    }

    fn override_perm(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> usize {
        let entries = self
            .topics
            .values_mut()
            .filter_map(|brokers| brokers.get_mut(broker_name));
        let changed =
            entries.map(|entry| entry.perm_override = Some(change(entry.effective().perm)));
        changed.count()
    }

    /// DELETE_TOPIC_IN_NAMESRV (216): forgets a topic, everywhere or on one cluster's brokers.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(brokers) = self.topics.get_mut(topic) else {
            return;
        };
        let known = &self.brokers;
        brokers.retain(|name, _| {
            cluster.is_some_and(|c| known.get(name).is_none_or(|b| b.cluster != c))
        });
        if brokers.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// REGISTER_TOPIC_IN_NAMESRV (217): a topic added by hand, on brokers that are known.
    pub fn register_topic(&mut self, topic: &str, queues: &[(String, Queues)]) {
        for (broker_name, said) in queues {
            let room = self.topics.contains_key(topic) || self.topics.len() < TOPICS_MAX;
            if room && self.brokers.contains_key(broker_name) {
                let brokers = self.topics.entry(topic.to_owned()).or_default();
                brokers.insert(broker_name.clone(), TopicEntry::new(*said));
            }
        }
    }
}
