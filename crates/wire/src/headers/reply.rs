//! PUSH_REPLY_MESSAGE_TO_CLIENT 326 and RECALL_MESSAGE 370.

super::header! {
    /// PUSH_REPLY_MESSAGE_TO_CLIENT 326, from the broker to the requester; the body is the reply's.
    PushReplyRequest {
        /// Group of the replier.
        producer_group: String = "producerGroup",
        /// Reply topic.
        topic: String = "topic",
        /// Template topic.
        default_topic: String = "defaultTopic" "",
        /// Queues of the template.
        default_topic_queue_nums: i32 = "defaultTopicQueueNums" 0,
        /// Queue.
        queue_id: i32 = "queueId",
        /// Bits of [`crate::message::flags`].
        sys_flag: i32 = "sysFlag",
        /// When the replier made it, epoch ms.
        born_ts_ms: i64 = "bornTimestamp",
        /// The user's flag.
        flag: i32 = "flag",
        /// Encoded properties.
        properties: Option<String> = "properties",
        /// Put-backs.
        reconsume_times: Option<i32> = "reconsumeTimes",
        /// Unit mode.
        unit_mode: Option<bool> = "unitMode",
        /// Replier, `ip:port`.
        born_host: String = "bornHost",
        /// Broker, `ip:port`.
        store_host: String = "storeHost",
        /// Store time, epoch ms.
        store_ts_ms: i64 = "storeTimestamp",
    }
}

super::header! {
    /// RECALL_MESSAGE 370.
    RecallRequest {
        /// Group.
        producer_group: Option<String> = "producerGroup",
        /// Topic.
        topic: String = "topic",
        /// Handle from the send answer.
        recall_handle: String = "recallHandle",
    }
}

super::header! {
    /// Answer of 370.
    RecallResponse {
        /// UNIQ_KEY of the recalled message.
        msg_id: String = "msgId",
        /// Region.
        region: Option<String> = "MSG_REGION",
    }
}
