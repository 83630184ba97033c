//! Offsets: 14 query, 15 update, 29 by time, 30 max, 31 min, 32 earliest time.

super::header! {
    /// QUERY_CONSUMER_OFFSET 14.
    QueryConsumerOffsetRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// `false`: answer 22 rather than 0 when nothing is stored.
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
    }
}

super::header! {
    /// UPDATE_CONSUMER_OFFSET 15, usually one-way.
    UpdateConsumerOffsetRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// New offset; absent is an error of its own (29).
        commit_offset: Option<i64> = "commitOffset",
    }
}

super::header! {
    /// SEARCH_OFFSET_BY_TIMESTAMP 29.
    SearchOffsetRequest {
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// Epoch ms.
        timestamp_ms: i64 = "timestamp",
        /// `LOWER` (also for anything else) or `UPPER`.
        boundary_type: Option<String> = "boundaryType",
    }
}

impl SearchOffsetRequest {
    /// True when the last offset not after the time is wanted.
    pub fn upper(&self) -> bool {
        self.boundary_type
            .as_deref()
            .is_some_and(|b| b.eq_ignore_ascii_case("UPPER"))
    }
}

super::header! {
    /// GET_MAX_OFFSET 30 and GET_MIN_OFFSET 31, and GET_EARLIEST_MSG_STORETIME 32.
    QueueRequest {
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// Only what is replicated (30).
        committed: Option<bool> = "committed",
    }
}

super::header! {
    /// Answer of 14, 29, 30 and 31.
    OffsetResponse {
        /// Queue offset.
        offset: i64 = "offset",
    }
}

super::header! {
    /// Answer of 32.
    TimestampResponse {
        /// Epoch ms; -1 without a message.
        timestamp_ms: i64 = "timestamp",
    }
}
