//! Looking into a broker or a consumer: 303, 309, 321, 345.

use super::heartbeat::SubscriptionData;
use super::{MessageQueue, object};

object! {
    /// Answer of 303.
    ConsumeTimeSpans {
        /// One entry per queue.
        consume_time_span_set: Vec<QueueTimeSpan>,
    }
}

object! {
    /// Times of a queue, epoch ms.
    QueueTimeSpan {
        /// Of the last consumed message.
        consume_time_stamp: i64,
        /// Age of the next message to consume, ms.
        delay_time: i64,
        /// Of the newest message.
        max_time_stamp: i64,
        /// Queue.
        message_queue: MessageQueue,
        /// Of the oldest message.
        min_time_stamp: i64,
    }
}

object! {
    /// Answer of 309.
    ConsumeDirectlyResult {
        /// Commits by itself.
        auto_commit: bool,
        /// `CR_SUCCESS`, `CR_LATER`, `CR_ROLLBACK`, `CR_COMMIT`, `CR_THROW_EXCEPTION`, `CR_RETURN_NULL`.
        consume_result: String,
        /// Ordered.
        order: bool,
        /// Text.
        #[serde(skip_serializing_if = "Option::is_none")]
        remark: Option<String>,
        /// How long it took, ms.
        spent_time_mills: i64,
    }
}

object! {
    /// Answer of 321.
    QueueEntries {
        /// Text about the filter.
        #[serde(skip_serializing_if = "Option::is_none")]
        filter_data: Option<String>,
        /// Next offset to be written.
        max_queue_index: i64,
        /// Oldest offset kept.
        min_queue_index: i64,
        /// Entries.
        queue_data: Vec<QueueEntryData>,
        /// The group's subscription.
        #[serde(skip_serializing_if = "Option::is_none")]
        subscription_data: Option<SubscriptionData>,
    }
}

object! {
    /// One entry of a consume queue.
    QueueEntryData {
        /// Bits of an extended entry.
        #[serde(skip_serializing_if = "Option::is_none")]
        bit_map: Option<String>,
        /// Passes the filter.
        eval: bool,
        /// An extended entry.
        #[serde(skip_serializing_if = "Option::is_none")]
        extend_data_json: Option<String>,
        /// Text.
        #[serde(skip_serializing_if = "Option::is_none")]
        msg: Option<String>,
        /// Commit-log offset, bytes.
        physic_offset: i64,
        /// Size, bytes.
        physic_size: i32,
        /// Tag hash.
        tags_code: i64,
    }
}

object! {
    /// Answer of 345.
    GroupSubscription {
        /// Group.
        group: String,
        /// Absent when offline.
        #[serde(skip_serializing_if = "Option::is_none")]
        subscription_data: Option<SubscriptionData>,
        /// Topic.
        topic: String,
    }
}
