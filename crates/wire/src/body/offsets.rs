//! Consumer offsets: the table (43), resets (220, 222), what clients have (221, 223), corrections (308).

use std::collections::BTreeMap;

use super::queue::QueueMap;
use super::{DataVersion, object};

object! {
    /// All offsets of a broker: answer of 43, and the shape of consumerOffset.json.
    ConsumerOffsets {
        /// Of the table.
        data_version: DataVersion,
        /// Topics of each group; derived.
        #[serde(skip_serializing_if = "Option::is_none")]
        group_topic_map: Option<BTreeMap<String, Vec<String>>>,
        /// `topic@group`, queue, offset.
        offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    }
}

object! {
    /// Offsets to take: answer of 222, request of 220.
    ResetOffsets {
        /// By queue.
        offset_table: QueueMap<i64>,
    }
}

object! {
    /// The same for C++ clients.
    ResetOffsetsForC {
        /// One entry per queue.
        offset_table: Vec<QueueOffset>,
    }
}

object! {
    /// An offset of a queue.
    QueueOffset {
        /// Broker name.
        broker_name: String,
        /// Offset.
        offset: i64,
        /// Queue.
        queue_id: i32,
        /// Topic.
        topic: String,
    }
}

object! {
    /// Answer of 221 (messageQueueTable) and 223 (consumerTable).
    ConsumerStatus {
        /// By client.
        consumer_table: BTreeMap<String, QueueMap<i64>>,
        /// Of one client.
        message_queue_table: QueueMap<i64>,
    }
}

object! {
    /// Answer of 308.
    CorrectionOffsets {
        /// By queue.
        correction_offsets: BTreeMap<i32, i64>,
    }
}
