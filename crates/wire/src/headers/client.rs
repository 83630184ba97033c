//! Clients: 34 heartbeat answer, 35 unregister, 38 members of a group, 40 members changed, 307 and 309
//! calls to a consumer. The bodies are in [`crate::body`].

super::header! {
    /// Answer of HEART_BEAT 34.
    HeartbeatResponse {
        /// The broker reads the short form of heartbeats.
        supports_v2: bool = "IS_SUPPORT_HEART_BEAT_V2" false,
        /// The client must send its subscriptions in full.
        sub_change: bool = "IS_SUB_CHANGE" false,
    }
}

super::header! {
    /// UNREGISTER_CLIENT 35.
    UnregisterClientRequest {
        /// Client.
        client_id: String = "clientID",
        /// Producer group it leaves.
        producer_group: Option<String> = "producerGroup",
        /// Consumer group it leaves.
        consumer_group: Option<String> = "consumerGroup",
    }
}

super::header! {
    /// GET_CONSUMER_LIST_BY_GROUP 38, NOTIFY_CONSUMER_IDS_CHANGED 40 and GET_CONSUMER_CONNECTION_LIST 203.
    ConsumerGroupRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
    }
}

super::header! {
    /// GET_PRODUCER_CONNECTION_LIST 204.
    ProducerGroupRequest {
        /// Group.
        producer_group: String = "producerGroup",
    }
}

super::header! {
    /// GET_CONSUMER_RUNNING_INFO 307, asked of the broker and passed on to the client.
    ConsumerRunningInfoRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Client.
        client_id: String = "clientId",
        /// With thread stacks.
        jstack_enable: Option<bool> = "jstackEnable",
    }
}

super::header! {
    /// CONSUME_MESSAGE_DIRECTLY 309.
    ConsumeDirectlyRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Client.
        client_id: Option<String> = "clientId",
        /// Offset message id.
        msg_id: Option<String> = "msgId",
        /// Broker.
        broker_name: Option<String> = "brokerName",
        /// Topic.
        topic: Option<String> = "topic",
        /// Topic's flags.
        topic_sys_flag: Option<i32> = "topicSysFlag",
        /// Group's flags.
        group_sys_flag: Option<i32> = "groupSysFlag",
    }
}
