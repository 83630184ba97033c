//! PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361.

super::header! {
    /// Asks for messages of one queue.
    PullRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// First offset wanted.
        queue_offset: i64 = "queueOffset",
        /// Most messages wanted.
        max_msg_nums: i32 = "maxMsgNums",
        /// PULL_ bits of [`crate::message::flags`].
        sys_flag: i32 = "sysFlag" 0,
        /// Offset to commit when the bit is set.
        commit_offset: i64 = "commitOffset" 0,
        /// How long to wait, ms.
        suspend_timeout_ms: i64 = "suspendTimeoutMillis" 0,
        /// Expression when the bit is set.
        subscription: Option<String> = "subscription",
        /// Version of the subscription.
        sub_version: i64 = "subVersion" 0,
        /// `TAG` (also when absent) or `SQL92`.
        expression_type: Option<String> = "expressionType",
        /// Most bytes wanted; newer clients send it.
        max_msg_bytes: Option<i32> = "maxMsgBytes",
        /// Who asks: -1 a client, 0 to 2 a proxy.
        request_source: Option<i32> = "requestSource",
        /// Client behind a proxy (the misspelling is the protocol's).
        proxy_forward_client_id: Option<String> = "proxyFrowardClientId",
        /// Broker the client thinks it talks to.
        broker_name: Option<String> = "bname",
    }
}

super::header! {
    /// Answer for 0, 19, 20 and 21; the body of 0 is stored messages, one after the other.
    PullResponse {
        /// Broker id to ask next.
        suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        /// Offset to ask for next.
        next_begin_offset: i64 = "nextBeginOffset",
        /// Oldest offset kept.
        min_offset: i64 = "minOffset",
        /// Next offset to be written.
        max_offset: i64 = "maxOffset",
        /// Static topics.
        offset_delta: Option<i64> = "offsetDelta",
        /// Topic's flags.
        topic_sys_flag: Option<i32> = "topicSysFlag",
        /// Group's flags.
        group_sys_flag: Option<i32> = "groupSysFlag",
        /// Why not, on 16: 1 broker or lite pull, 2 group, 3 topic, 4 broadcast, 5 group and topic.
        forbidden_type: Option<i32> = "forbiddenType",
    }
}
