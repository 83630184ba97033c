//! Plain lists and tables: topics, groups, members, key-value.

use std::collections::BTreeMap;

use super::object;

object! {
    /// Answer of 206, 224, 304, 305, 343.
    TopicList {
        /// One broker's address (304, 343).
        #[serde(skip_serializing_if = "Option::is_none")]
        broker_addr: Option<String>,
        /// Topics.
        topic_list: Vec<String>,
    }
}

object! {
    /// Answer of 300.
    GroupList {
        /// Groups.
        group_list: Vec<String>,
    }
}

object! {
    /// Answer of 38.
    ConsumerIdList {
        /// Clients.
        consumer_id_list: Vec<String>,
    }
}

object! {
    /// Answer of 28, 103 and 219.
    KvTable {
        /// By key.
        table: BTreeMap<String, String>,
    }
}
