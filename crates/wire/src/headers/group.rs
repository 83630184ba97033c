//! Groups: 201 all, 207 delete, 208 progress, 222 reset, 352 one, 303 time span, 314 clone, 353 forbid.

use crate::{ExtFields, Header, WireError};

/// DELETE_SUBSCRIPTIONGROUP 207. Versions differ in the name of the switch; both are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteGroupRequest {
    /// Group.
    pub group_name: String,
    /// Forget its offsets too.
    pub clean_offset: bool,
}

impl Header for DeleteGroupRequest {
    fn decode(ext: &ExtFields) -> Result<Self, WireError> {
        Ok(Self {
            group_name: ext.required("groupName")?,
            clean_offset: ext.bool("cleanOffset") || ext.bool("removeOffset"),
        })
    }

    fn encode(&self, ext: &mut ExtFields) {
        ext.put("groupName", &self.group_name);
        ext.put("cleanOffset", self.clean_offset);
    }
}

super::header! {
    /// GET_SUBSCRIPTIONGROUP_CONFIG 352, QUERY_TOPICS_BY_CONSUMER 343.
    GroupRequest {
        /// Group.
        group: String = "group",
    }
}

super::header! {
    /// GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201. Older peers send nothing.
    AllGroupConfigRequest {
        /// First group of the page.
        group_seq: Option<i32> = "groupSeq",
        /// Version of the first page, JSON.
        data_version: Option<String> = "dataVersion",
        /// Most groups wanted.
        max_group_num: Option<i32> = "maxGroupNum",
    }
}

super::header! {
    /// Answer of 201.
    AllGroupConfigResponse {
        /// Groups on all pages.
        total_group_num: Option<i32> = "totalGroupNum",
    }
}

super::header! {
    /// GET_CONSUME_STATS 208.
    ConsumeStatsRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// One topic.
        topic: Option<String> = "topic",
        /// Several topics, joined by `;`.
        topic_list: Option<String> = "topicList",
    }
}

super::header! {
    /// INVOKE_BROKER_TO_RESET_OFFSET 222 and RESET_CONSUMER_CLIENT_OFFSET 220.
    ResetOffsetRequest {
        /// Topic.
        topic: String = "topic",
        /// Group.
        group: String = "group",
        /// Queue; -1 = all.
        queue_id: i32 = "queueId" -1,
        /// To this offset.
        offset: Option<i64> = "offset",
        /// To this time, epoch ms; -1 = to the end.
        timestamp_ms: i64 = "timestamp" -1,
        /// Also forwards.
        is_force: bool = "isForce" false,
    }
}

super::header! {
    /// INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223 and GET_CONSUMER_STATUS_FROM_CLIENT 221.
    ConsumerStatusRequest {
        /// Topic.
        topic: String = "topic",
        /// Group.
        group: String = "group",
        /// One client; empty = all.
        client_addr: Option<String> = "clientAddr",
    }
}

super::header! {
    /// QUERY_CONSUME_TIME_SPAN 303, QUERY_SUBSCRIPTION_BY_CONSUMER 345.
    GroupTopicRequest {
        /// Group.
        group: String = "group",
        /// Topic.
        topic: Option<String> = "topic",
    }
}

super::header! {
    /// CLONE_GROUP_OFFSET 314.
    CloneGroupOffsetRequest {
        /// From.
        src_group: String = "srcGroup",
        /// To.
        dest_group: String = "destGroup",
        /// One topic.
        topic: Option<String> = "topic",
        /// Also while the target is online.
        offline: Option<bool> = "offline",
    }
}

super::header! {
    /// UPDATE_AND_GET_GROUP_FORBIDDEN 353.
    GroupForbiddenRequest {
        /// Group.
        group: String = "group",
        /// Topic.
        topic: String = "topic",
        /// May read; absent = only ask.
        readable: Option<bool> = "readable",
    }
}

super::header! {
    /// VIEW_BROKER_STATS_DATA 315.
    BrokerStatsRequest {
        /// Statistic.
        stats_name: String = "statsName",
        /// Key.
        stats_key: String = "statsKey",
    }
}

super::header! {
    /// QUERY_CONSUME_QUEUE 321.
    QueryConsumeQueueRequest {
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId" 0,
        /// First offset.
        index: i64 = "index" 0,
        /// Most entries.
        count: i32 = "count" 10,
        /// Show this group's filter.
        consumer_group: Option<String> = "consumerGroup",
    }
}
