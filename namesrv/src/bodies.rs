//! Between the rows of the tables and the JSON bodies of the protocol.

use std::collections::BTreeMap;

use wire::body::{
    BrokerData, BrokerMemberGroup, ClusterInfo, DataVersion, QueueData, TopicConfig,
    TopicRouteData, route,
};

use crate::route_table::{BrokerView, Queues, Route, Version};

impl From<DataVersion> for Version {
    fn from(body: DataVersion) -> Self {
        Self {
            counter: body.counter,
            state_version: body.state_version,
            timestamp_ms: body.timestamp,
        }
    }
}

impl From<Version> for DataVersion {
    fn from(version: Version) -> Self {
        Self {
            counter: version.counter,
            state_version: version.state_version,
            timestamp: version.timestamp_ms,
        }
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

impl From<&QueueData> for Queues {
    fn from(data: &QueueData) -> Self {
        Self {
            read: data.read_queue_nums,
            write: data.write_queue_nums,
            perm: data.perm,
            sys_flag: data.topic_sys_flag,
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

impl From<Route> for TopicRouteData {
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

/// Answer of 106.
pub(crate) fn cluster_info(brokers: Vec<BrokerView>) -> ClusterInfo {
    let mut info = ClusterInfo::default();
    for broker in brokers {
        info.cluster_addr_table
            .entry(broker.cluster.clone())
            .or_default()
            .push(broker.name.clone());
        info.broker_addr_table
            .insert(broker.name.clone(), broker.into());
    }
    info
}

/// Answer of 901; a group that is not known has no addresses.
pub(crate) fn member_group(
    cluster: String,
    broker_name: String,
    known: Option<BrokerView>,
) -> route::BrokerMemberGroupBody {
    let broker_addrs = known.map(|broker| broker.addrs).unwrap_or_default();
    route::BrokerMemberGroupBody {
        broker_member_group: BrokerMemberGroup {
            broker_addrs,
            broker_name,
            cluster,
        },
    }
}
