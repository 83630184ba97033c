//! JSON bodies of the name server's requests and answers, with the member names and order of
//! RocketMQ 5.4.0 TopicRouteData, ClusterInfo, RegisterBrokerBody and their parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::route_table::{BrokerView, Queues, Route, Version};

/// Who holds a topic (105).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteBody {
    broker_datas: Vec<BrokerData>,
    filter_server_table: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order_topic_conf: Option<String>,
    queue_datas: Vec<QueueData>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerData {
    broker_addrs: BTreeMap<i64, String>,
    broker_name: String,
    cluster: String,
    enable_acting_master: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone_name: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueData {
    pub(crate) broker_name: String,
    pub(crate) perm: i32,
    pub(crate) read_queue_nums: i32,
    #[serde(default)]
    pub(crate) topic_sys_flag: i32,
    pub(crate) write_queue_nums: i32,
}

/// All brokers (106).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterInfo {
    broker_addr_table: BTreeMap<String, BrokerData>,
    cluster_addr_table: BTreeMap<String, Vec<String>>,
}

/// The addresses of one broker name (901).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberGroupBody {
    broker_member_group: MemberGroup,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberGroup {
    broker_addrs: BTreeMap<i64, String>,
    broker_name: String,
    cluster: String,
}

/// Topic names (206, 224, 304, 311–313).
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopicList {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broker_addr: Option<String>,
    pub(crate) topic_list: Vec<String>,
}

/// Keys and values of one namespace (219, and the answer of 103).
#[derive(Debug, Serialize)]
pub(crate) struct KvTable {
    pub(crate) table: BTreeMap<String, String>,
}

/// DataVersion.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DataVersion {
    counter: i64,
    state_version: i64,
    timestamp: i64,
}

/// RegisterBrokerBody (103); what is not needed here is skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RegisterBody {
    pub(crate) topic_config_serialize_wrapper: Option<TopicConfigs>,
}

/// TopicConfigSerializeWrapper.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TopicConfigs {
    pub(crate) data_version: Option<DataVersion>,
    pub(crate) topic_config_table: Option<BTreeMap<String, TopicConfig>>,
}

/// The parts of TopicConfig that a route needs, with Java's defaults.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TopicConfig {
    pub(crate) perm: i32,
    pub(crate) read_queue_nums: i32,
    pub(crate) topic_sys_flag: i32,
    pub(crate) write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self { perm: 6, read_queue_nums: 16, topic_sys_flag: 0, write_queue_nums: 16 }
    }
}

/// The part of TopicRouteData that REGISTER_TOPIC_IN_NAMESRV (217) uses.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NewTopic {
    pub(crate) queue_datas: Vec<QueueData>,
}

impl From<DataVersion> for Version {
    fn from(body: DataVersion) -> Self {
        Self { counter: body.counter, state_version: body.state_version, timestamp_ms: body.timestamp }
    }
}

impl From<Version> for DataVersion {
    fn from(version: Version) -> Self {
        Self { counter: version.counter, state_version: version.state_version, timestamp: version.timestamp_ms }
    }
}

impl From<&TopicConfig> for Queues {
    fn from(config: &TopicConfig) -> Self {
        Self {
            read: config.read_queue_nums,
            write: config.write_queue_nums,
            perm: config.perm,
            sys_flag: config.topic_sys_flag,
        }
    }
}

impl From<BrokerView> for BrokerData {
    fn from(broker: BrokerView) -> Self {
        Self {
            broker_addrs: broker.addrs,
            broker_name: broker.name,
            cluster: broker.cluster,
            enable_acting_master: broker.acting_master,
            zone_name: broker.zone,
        }
    }
}

impl From<Route> for RouteBody {
    fn from(route: Route) -> Self {
        let queue = |(broker_name, queues): (String, Queues)| QueueData {
            broker_name,
            perm: queues.perm,
            read_queue_nums: queues.read,
            topic_sys_flag: queues.sys_flag,
            write_queue_nums: queues.write,
        };
        Self {
            broker_datas: route.brokers.into_iter().map(BrokerData::from).collect(),
            filter_server_table: BTreeMap::new(),
            order_topic_conf: None,
            queue_datas: route.queues.into_iter().map(queue).collect(),
        }
    }
}

impl From<Vec<BrokerView>> for ClusterInfo {
    fn from(brokers: Vec<BrokerView>) -> Self {
        let mut info = Self { broker_addr_table: BTreeMap::new(), cluster_addr_table: BTreeMap::new() };
        for broker in brokers {
            info.cluster_addr_table.entry(broker.cluster.clone()).or_default().push(broker.name.clone());
            info.broker_addr_table.insert(broker.name.clone(), broker.into());
        }
        info
    }
}

impl MemberGroupBody {
    /// A group that is not known has no addresses.
    pub(crate) fn new(cluster: &str, name: &str, broker: Option<BrokerView>) -> Self {
        let broker_addrs = broker.map(|broker| broker.addrs).unwrap_or_default();
        let group = MemberGroup { broker_addrs, broker_name: name.to_owned(), cluster: cluster.to_owned() };
        Self { broker_member_group: group }
    }
}
