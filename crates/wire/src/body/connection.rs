//! Who is connected: ConsumerConnection (203), ProducerConnection (204), all producers (328).

use std::collections::BTreeMap;

use super::heartbeat::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use super::object;

object! {
    /// One connected client.
    Connection {
        /// `ip:port`.
        client_addr: String,
        /// Client.
        client_id: String,
        /// Language name.
        language: String,
        /// MQVersion ordinal.
        version: i32,
    }
}

object! {
    /// A consumer group that is online.
    ConsumerConnection {
        /// Members.
        connection_set: Vec<Connection>,
        /// Where a new group starts.
        consume_from_where: ConsumeFromWhere,
        /// How it is served.
        consume_type: ConsumeType,
        /// Who gets a message.
        message_model: MessageModel,
        /// What it reads, by topic.
        subscription_table: BTreeMap<String, SubscriptionData>,
    }
}

object! {
    /// A producer group that is online.
    ProducerConnection {
        /// Members.
        connection_set: Vec<Connection>,
    }
}

object! {
    /// One connected producer.
    ProducerInfo {
        /// Client.
        client_id: String,
        /// Language name.
        language: String,
        /// Time of its last heartbeat, epoch ms.
        last_update_timestamp: i64,
        /// `/ip:port`.
        #[serde(rename = "remoteIP")]
        remote_ip: String,
        /// MQVersion ordinal.
        version: i32,
    }
}

object! {
    /// Answer of 328.
    ProducerTable {
        /// By group.
        data: BTreeMap<String, Vec<ProducerInfo>>,
    }
}
