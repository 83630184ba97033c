//! Which queues a client reads and how: 400, 401, 402.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::heartbeat::MessageModel;
use super::{MessageQueue, object};

/// How a group reads a topic, in ordinal order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestMode {
    /// By pulling.
    #[default]
    #[serde(rename = "PULL")]
    Pull,
    /// By popping.
    #[serde(rename = "POP")]
    Pop,
}

object! {
    /// QUERY_ASSIGNMENT 400.
    QueryAssignmentRequest {
        /// Client.
        client_id: String,
        /// Group.
        consumer_group: String,
        /// Who gets a message.
        message_model: MessageModel,
        /// `AVG`, `AVG_BY_CIRCLE`, `CONFIG` …
        strategy_name: String,
        /// Topic.
        topic: String,
    }
}

object! {
    /// Answer of 400; absent when there is nothing to assign.
    QueryAssignmentResponse {
        /// The client's queues.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_queue_assignments: Option<Vec<QueueAssignment>>,
    }
}

object! {
    /// One queue for the client.
    QueueAssignment {
        /// Queue; id -1 in POP mode.
        message_queue: MessageQueue,
        /// How.
        mode: RequestMode,
    }
}

object! {
    /// SET_MESSAGE_REQUEST_MODE 401.
    SetRequestMode {
        /// Group.
        consumer_group: String,
        /// How.
        mode: RequestMode,
        /// Clients that share a queue; 0 = all.
        pop_share_queue_num: i32,
        /// Topic.
        topic: String,
    }
}

object! {
    /// Answer of 402, and the shape of messageRequestMode.json.
    RequestModes {
        /// Topic, group.
        message_request_mode_map: BTreeMap<String, BTreeMap<String, SetRequestMode>>,
    }
}
