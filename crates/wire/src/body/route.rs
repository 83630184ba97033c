//! Routes: TopicRouteData (105), ClusterInfo (106), BrokerMemberGroup (901).

use std::collections::BTreeMap;

use super::object;
use crate::{json, version};

object! {
    /// Where a topic is.
    TopicRouteData {
        /// The brokers.
        broker_datas: Vec<BrokerData>,
        /// Always there, always empty.
        filter_server_table: BTreeMap<String, Vec<String>>,
        /// `broker:queues;…` for ordered topics.
        #[serde(skip_serializing_if = "Option::is_none")]
        order_topic_conf: Option<String>,
        /// The queues, one entry per broker.
        queue_datas: Vec<QueueData>,
    }
}

impl TopicRouteData {
    /// The form for a client: integer keys quoted for frame versions from 4.9.4 on or when it asks for
    /// standard JSON, unquoted for older ones.
    pub fn encode(&self, client_version: i32, accept_standard_json_only: bool) -> Vec<u8> {
        if accept_standard_json_only || client_version >= version::V4_9_4 {
            json::to_vec(self)
        } else {
            json::to_vec_apache(self)
        }
    }
}

object! {
    /// A broker: master and slaves of one name.
    BrokerData {
        /// Id to `ip:port`; 0 = master.
        broker_addrs: BTreeMap<i64, String>,
        /// Name.
        broker_name: String,
        /// Cluster.
        cluster: String,
        /// A slave may act as master.
        enable_acting_master: bool,
        /// Zone.
        #[serde(skip_serializing_if = "Option::is_none")]
        zone_name: Option<String>,
    }
}

object! {
    /// The queues of a topic on one broker.
    QueueData {
        /// Name.
        broker_name: String,
        /// Bits: 4 read, 2 write.
        perm: i32,
        /// Queues to read from.
        read_queue_nums: i32,
        /// Flags; versions around 4.5 spell it differently.
        #[serde(alias = "topicSynFlag")]
        topic_sys_flag: i32,
        /// Queues to write to.
        write_queue_nums: i32,
    }
}

object! {
    /// Answer of 106.
    ClusterInfo {
        /// By broker name.
        broker_addr_table: BTreeMap<String, BrokerData>,
        /// Broker names by cluster.
        cluster_addr_table: BTreeMap<String, Vec<String>>,
    }
}

object! {
    /// Answer of 901.
    BrokerMemberGroupBody {
        /// The members.
        broker_member_group: BrokerMemberGroup,
    }
}

object! {
    /// Master and slaves of one name.
    BrokerMemberGroup {
        /// Id to `ip:port`.
        broker_addrs: BTreeMap<i64, String>,
        /// Name.
        broker_name: String,
        /// Cluster.
        cluster: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_get_unquoted_keys() {
        let route = TopicRouteData {
            broker_datas: vec![BrokerData {
                broker_addrs: [
                    (0, "1.1.1.1:10911".to_owned()),
                    (1, "1.1.1.2:10911".to_owned()),
                ]
                .into(),
                broker_name: "broker-a".into(),
                cluster: "C".into(),
                ..BrokerData::default()
            }],
            queue_datas: vec![QueueData {
                broker_name: "broker-a".into(),
                perm: 6,
                read_queue_nums: 4,
                topic_sys_flag: 0,
                write_queue_nums: 4,
            }],
            ..TopicRouteData::default()
        };
        let old = r#"{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:10911",1:"1.1.1.2:10911"},"brokerName":"broker-a","cluster":"C","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
        let new = old.replace("{0:", "{\"0\":").replace(",1:", ",\"1\":");
        assert_eq!(String::from_utf8(route.encode(400, false)).unwrap(), old);
        assert_eq!(String::from_utf8(route.encode(401, false)).unwrap(), new);
        assert_eq!(String::from_utf8(route.encode(1, true)).unwrap(), new);
        for text in [old, &new] {
            assert_eq!(
                json::from_slice::<TopicRouteData>(text.as_bytes()).unwrap(),
                route
            );
        }
    }
}
