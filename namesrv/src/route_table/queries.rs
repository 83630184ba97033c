//! What is asked of the tables.

use std::collections::{BTreeMap, BTreeSet};

use super::types::Broker;
use super::{Queues, RouteTable};

/// A broker as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerView {
    /// Broker name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Id → address, 0 the master; never empty.
    pub addrs: BTreeMap<i64, String>,
    /// Zone, if any.
    pub zone: Option<String>,
    /// Whether a replica may stand in for a lost master.
    pub acting_master: bool,
}

/// A topic's queues and the brokers that hold them; every queue's broker is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Broker name → queues, by name.
    pub queues: Vec<(String, Queues)>,
    /// The brokers, by name.
    pub brokers: Vec<BrokerView>,
}

fn view(name: &str, broker: &Broker) -> BrokerView {
    BrokerView {
        name: name.to_owned(),
        cluster: broker.cluster.clone(),
        addrs: broker.addrs.clone(),
        zone: broker.zone.clone(),
        acting_master: broker.acting_master,
    }
}

impl RouteTable {
    /// GET_ROUTEINFO_BY_TOPIC (105); `zone` keeps only that zone's brokers. None when no broker has
    /// the topic.
    #[must_use]
    pub fn route(&self, topic: &str, zone: Option<&str>) -> Option<Route> {
        let mut route = Route {
            queues: Vec::new(),
            brokers: Vec::new(),
        };
        for (name, entry) in self.topics.get(topic)? {
            let Some(broker) = self.brokers.get(name) else {
                continue;
            };
            if zone.is_some() && zone != broker.zone.as_deref() {
                continue;
            }
            route.queues.push((name.clone(), entry.effective()));
            route.brokers.push(view(name, broker));
        }
        (!route.brokers.is_empty() || zone.is_some()).then_some(route)
    }

    /// GET_BROKER_CLUSTER_INFO (106): every broker, by name.
    #[must_use]
    pub fn brokers(&self) -> Vec<BrokerView> {
        self.brokers
            .iter()
            .map(|(name, broker)| view(name, broker))
            .collect()
    }

    /// GET_BROKER_MEMBER_GROUP (901).
    #[must_use]
    pub fn broker(&self, cluster: &str, name: &str) -> Option<BrokerView> {
        let broker = self
            .brokers
            .get(name)
            .filter(|broker| broker.cluster == cluster)?;
        Some(view(name, broker))
    }

    /// GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), sorted.
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        self.topics.keys().cloned().collect()
    }

    /// GET_TOPICS_BY_CLUSTER (224), sorted.
    #[must_use]
    pub fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        let is_member = |name: &String| {
            self.brokers
                .get(name)
                .is_some_and(|broker| broker.cluster == cluster)
        };
        let topics = self
            .topics
            .iter()
            .filter(|(_, brokers)| brokers.keys().any(is_member));
        topics.map(|(topic, _)| topic.clone()).collect()
    }

    /// GET_SYSTEM_TOPIC_LIST_FROM_NS (304): cluster and broker names, which are topics too, and the
    /// address of some broker.
    #[must_use]
    pub fn system_topics(&self) -> (Vec<String>, Option<String>) {
        let clusters: BTreeSet<&String> = self
            .brokers
            .values()
            .map(|broker| &broker.cluster)
            .collect();
        let names = clusters
            .into_iter()
            .chain(self.brokers.keys())
            .cloned()
            .collect();
        let addr = self
            .brokers
            .values()
            .find_map(|broker| broker.addrs.values().next().cloned());
        (names, addr)
    }

    /// Topics with all of the given unit bits and none of the others (311–313).
    #[must_use]
    pub fn unit_topics(&self, all_of: i32, none_of: i32) -> Vec<String> {
        let fits = |flag: i32| flag & all_of == all_of && flag & none_of == 0;
        let first = self
            .topics
            .iter()
            .filter_map(|(topic, brokers)| Some((topic, brokers.values().next()?)));
        first
            .filter(|(_, entry)| fits(entry.said.sys_flag))
            .map(|(topic, _)| topic.clone())
            .collect()
    }
}
