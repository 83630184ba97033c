//! Topics: 17 create, 21 all, 105 route, 202 stats, 215 and 216 delete, 224 of a cluster, 300 readers,
//! 351 one, and 26 (whose answer carries the settings' version).

super::header! {
    /// UPDATE_AND_CREATE_TOPIC 17.
    CreateTopicRequest {
        /// Topic.
        topic: String = "topic",
        /// Template topic.
        default_topic: Option<String> = "defaultTopic",
        /// Queues to read from.
        read_queue_nums: i32 = "readQueueNums",
        /// Queues to write to.
        write_queue_nums: i32 = "writeQueueNums",
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: Option<String> = "topicFilterType",
        /// Flags.
        topic_sys_flag: Option<i32> = "topicSysFlag",
        /// Ordered.
        order: bool = "order" false,
        /// Changes: `+k=v,-k`.
        attributes: Option<String> = "attributes",
        /// Also when nothing changes.
        force: Option<bool> = "force",
    }
}

super::header! {
    /// DELETE_TOPIC_IN_BROKER 215, GET_TOPIC_STATS_INFO 202, QUERY_TOPIC_CONSUME_BY_WHO 300,
    /// REGISTER_TOPIC_IN_NAMESRV 217 and Gantry's GET_TOPIC.
    TopicRequest {
        /// Topic.
        topic: String = "topic",
    }
}

super::header! {
    /// DELETE_TOPIC_IN_NAMESRV 216.
    DeleteTopicInNamesrvRequest {
        /// Topic.
        topic: String = "topic",
        /// Only on the brokers of this cluster.
        cluster_name: Option<String> = "clusterName",
    }
}

super::header! {
    /// GET_TOPIC_CONFIG 351.
    GetTopicConfigRequest {
        /// Topic.
        topic: String = "topic",
        /// Static topics.
        logical: Option<bool> = "lo",
    }
}

super::header! {
    /// GET_ALL_TOPIC_CONFIG 21. Older peers send nothing.
    AllTopicConfigRequest {
        /// First topic of the page.
        topic_seq: Option<i32> = "topicSeq",
        /// Version of the first page, JSON.
        data_version: Option<String> = "dataVersion",
        /// Most topics wanted.
        max_topic_num: Option<i32> = "maxTopicNum",
    }
}

super::header! {
    /// Answer of 21.
    AllTopicConfigResponse {
        /// Topics on all pages.
        total_topic_num: Option<i32> = "totalTopicNum",
    }
}

super::header! {
    /// GET_ROUTEINFO_BY_TOPIC 105.
    RouteRequest {
        /// Topic.
        topic: String = "topic",
        /// Quoted integer keys, whatever the version.
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
    }
}

super::header! {
    /// GET_TOPICS_BY_CLUSTER 224.
    TopicsByClusterRequest {
        /// Cluster.
        cluster: String = "cluster",
    }
}

super::header! {
    /// Answer of GET_BROKER_CONFIG 26; the body is Java properties text.
    BrokerConfigResponse {
        /// Version of the settings, JSON.
        version: String = "version",
    }
}
