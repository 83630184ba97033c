//! Queue locks of ordered consumers (41, 42).

use super::{MessageQueue, object};

object! {
    /// LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42.
    LockBatchRequest {
        /// Client.
        client_id: String,
        /// Group.
        consumer_group: String,
        /// Queues.
        mq_set: Vec<MessageQueue>,
        /// Do not ask replicas.
        only_this_broker: bool,
    }
}

object! {
    /// Answer of 41.
    LockBatchResponse {
        /// The queues that are the client's now.
        #[serde(rename = "lockOKMQSet")]
        lock_ok_mq_set: Vec<MessageQueue>,
    }
}
