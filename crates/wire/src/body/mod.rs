//! JSON bodies of requests and answers, with the names and key order of RocketMQ 5.4.0.
//!
//! Read them with [`crate::json::from_slice`], which takes every form clients and brokers use. Write
//! them with [`crate::json::to_vec_apache`]: integer keys unquoted, queues as object keys, as Apache's
//! own tools expect; only a route answer has a second form, see [`route::TopicRouteData::encode`].

pub mod ack;
pub mod assignment;
pub mod config_level;
pub mod connection;
pub mod data_version;
pub mod gantry;
pub mod group;
pub mod heartbeat;
pub mod in_flight;
pub mod inspect;
pub mod list;
pub mod lock;
pub mod members;
pub mod offsets;
pub mod queue;
pub mod queue_map;
pub mod register;
pub mod route;
pub mod stats;
pub mod topic;

pub use ack::{BatchAck, BatchAckBody};
pub use assignment::{
    QueryAssignmentRequest, QueryAssignmentResponse, RequestModes, SetRequestMode,
};
pub use connection::{Connection, ConsumerConnection, ProducerConnection};
pub use data_version::DataVersion;
pub use group::{GroupConfigTable, GroupForbidden, SubscriptionGroupConfig};
pub use heartbeat::{
    CheckClientRequest, ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel,
    ProducerData, SubscriptionData,
};
pub use list::{ConsumerIdList, GroupList, KvTable, TopicList};
pub use lock::{LockBatchRequest, LockBatchResponse};
pub use offsets::{ConsumerOffsets, ConsumerStatus, ResetOffsets, ResetOffsetsForC};
pub use queue::MessageQueue;
pub use register::RegisterBody;
pub use route::{BrokerData, BrokerMemberGroup, ClusterInfo, QueueData, TopicRouteData};
pub use stats::{ConsumeStats, OffsetProgress, TopicOffset, TopicStatsTable};
pub use topic::{FilterType, TopicConfig, TopicConfigTable};

/// Declares a JSON object: fields in alphabetical order of their JSON names, absent ones defaulted.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$fmeta])* pub $field: $kind,)* }
    };
}
pub(crate) use object;
