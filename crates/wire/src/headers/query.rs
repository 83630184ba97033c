//! VIEW_MESSAGE_BY_ID 33 and QUERY_MESSAGE 12; bodies of the answers are stored messages.

super::header! {
    /// VIEW_MESSAGE_BY_ID 33.
    ViewMessageRequest {
        /// Topic; older clients leave it out.
        topic: Option<String> = "topic",
        /// Commit-log offset, bytes.
        physical_offset: i64 = "offset",
    }
}

super::header! {
    /// QUERY_MESSAGE 12.
    QueryMessageRequest {
        /// Topic.
        topic: String = "topic",
        /// Key, unique key or tag.
        key: String = "key",
        /// Most messages wanted.
        max_num: i32 = "maxNum",
        /// From, epoch ms.
        begin_ts_ms: i64 = "beginTimestamp",
        /// To, epoch ms.
        end_ts_ms: i64 = "endTimestamp",
        /// `K` keys, `U` unique key, `T` tag; older clients leave it out.
        index_type: Option<String> = "indexType",
        /// Where the last page ended.
        last_key: Option<String> = "lastKey",
        /// The key is a unique key.
        unique_key: Option<bool> = "_UNIQUE_KEY_QUERY",
    }
}

super::header! {
    /// Answer of 12, also when nothing was found.
    QueryMessageResponse {
        /// Time of the newest index entry, epoch ms.
        index_last_update_ts_ms: i64 = "indexLastUpdateTimestamp",
        /// Commit-log offset of the newest index entry.
        index_last_update_physical_offset: i64 = "indexLastUpdatePhyoffset",
    }
}
