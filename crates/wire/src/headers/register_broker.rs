//! Brokers at the name server: 103 register, 104 unregister, 322 query version, 904 heartbeat, 205 and
//! 327 write permission, 901 members.

/// Field of 103 that only Gantry's brokers send: the body holds all topics of the broker, so others of it
/// are gone.
pub const COMPLETE: &str = "gantryComplete";

super::header! {
    /// REGISTER_BROKER 103; the body is a [`crate::body::register::RegisterBody`].
    RegisterBrokerRequest {
        /// Broker name, shared by master and slaves.
        broker_name: String = "brokerName",
        /// Address, `ip:port`.
        broker_addr: String = "brokerAddr",
        /// Cluster.
        cluster_name: String = "clusterName",
        /// Address of the replication port.
        ha_server_addr: String = "haServerAddr" "",
        /// 0 = master.
        broker_id: i64 = "brokerId",
        /// Silent for longer than this, ms, means gone.
        heartbeat_timeout_ms: Option<i64> = "heartbeatTimeoutMillis",
        /// A slave may act as master.
        enable_acting_master: Option<bool> = "enableActingMaster",
        /// The body is deflated; Apache says false even when it is.
        compressed: bool = "compressed" false,
        /// Sum of the body, 31 bits; 0 = none.
        body_crc32: i64 = "bodyCrc32" 0,
    }
}

super::header! {
    /// Answer of 103.
    RegisterBrokerResponse {
        /// Replication address of the master, for slaves.
        ha_server_addr: Option<String> = "haServerAddr",
        /// Address of the master, for slaves.
        master_addr: Option<String> = "masterAddr",
    }
}

super::header! {
    /// UNREGISTER_BROKER 104, and QUERY_DATA_VERSION 322 (whose body is a [`crate::body::DataVersion`]).
    BrokerRequest {
        /// Broker name.
        broker_name: String = "brokerName",
        /// Address.
        broker_addr: String = "brokerAddr",
        /// Cluster.
        cluster_name: String = "clusterName",
        /// 0 = master.
        broker_id: i64 = "brokerId",
    }
}

super::header! {
    /// Answer of 322.
    QueryDataVersionResponse {
        /// The version differs from the stored one.
        changed: bool = "changed",
    }
}

super::header! {
    /// BROKER_HEARTBEAT 904.
    BrokerHeartbeatRequest {
        /// Cluster.
        cluster_name: String = "clusterName",
        /// Address.
        broker_addr: String = "brokerAddr",
        /// Broker name.
        broker_name: String = "brokerName",
        /// Id.
        broker_id: Option<i64> = "brokerId",
        /// Epoch.
        epoch: Option<i32> = "epoch",
        /// End of the log.
        max_offset: Option<i64> = "maxOffset",
        /// Replicated end of the log.
        confirm_offset: Option<i64> = "confirmOffset",
        /// Silent for longer than this, ms, means gone (the misspelling is the protocol's).
        heartbeat_timeout_ms: Option<i64> = "heartbeatTimeoutMills",
        /// Lower is preferred.
        election_priority: Option<i32> = "electionPriority",
    }
}

super::header! {
    /// WIPE_WRITE_PERM_OF_BROKER 205 and ADD_WRITE_PERM_OF_BROKER 327.
    WritePermRequest {
        /// Broker name.
        broker_name: String = "brokerName",
    }
}

super::header! {
    /// Answer of 205.
    WipeWritePermResponse {
        /// Topics changed.
        wipe_topic_count: i32 = "wipeTopicCount",
    }
}

super::header! {
    /// Answer of 327.
    AddWritePermResponse {
        /// Topics changed.
        add_topic_count: i32 = "addTopicCount",
    }
}

super::header! {
    /// GET_BROKER_MEMBER_GROUP 901.
    MemberGroupRequest {
        /// Cluster.
        cluster_name: String = "clusterName",
        /// Broker name.
        broker_name: String = "brokerName",
    }
}
