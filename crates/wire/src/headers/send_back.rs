//! CONSUMER_SEND_MSG_BACK 36: a consumer gives a message back for a later retry. The answer is a code.

super::header! {
    /// Names the message by its place in the log.
    SendBackRequest {
        /// Commit-log offset of the message, bytes.
        physical_offset: i64 = "offset",
        /// Group.
        group: String = "group",
        /// Delay level: 0 = by the retry count, below 0 = dead letter at once.
        delay_level: i32 = "delayLevel" 0,
        /// Client's id of the message.
        origin_msg_id: Option<String> = "originMsgId",
        /// Topic of the message.
        origin_topic: Option<String> = "originTopic",
        /// Unit mode.
        unit_mode: Option<bool> = "unitMode",
        /// Limit of retries; absent means the group's, -1 means dead letter at once.
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
    }
}
