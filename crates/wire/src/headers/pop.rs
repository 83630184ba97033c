//! POP: 200050 pop, 200051 ack, 200052 peek, 200053 change invisible time, 200054 notification,
//! 200055 polling info. A batch ack (200151) has its content in the body, see [`crate::body::ack`].

super::header! {
    /// POP_MESSAGE 200050. `gantry` and what follows it are set by Gantry's gateway only.
    PopRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue; -1 = all.
        queue_id: i32 = "queueId" -1,
        /// Most messages wanted.
        max_msg_nums: i32 = "maxMsgNums",
        /// Lease time, ms; 0 from the gateway = the group's.
        invisible_ms: i64 = "invisibleTime",
        /// How long to wait for a message, ms.
        poll_ms: i64 = "pollTime" 0,
        /// When the client asked, epoch ms.
        born_time_ms: i64 = "bornTime" 0,
        /// Start of a new group: 0 oldest, 1 newest.
        init_mode: i32 = "initMode" 0,
        /// `TAG` or `SQL92`.
        exp_type: Option<String> = "expType",
        /// Filter.
        exp: Option<String> = "exp",
        /// Ordered pop.
        order: Option<bool> = "order",
        /// The same for all tries of one ordered pop.
        attempt_id: Option<String> = "attemptId",
        /// The answer shall be Gantry's.
        gantry: Option<bool> = "gantry",
        /// Label of the member that pops.
        member: Option<String> = "member",
        /// Most body bytes wanted.
        max_bytes: Option<i64> = "maxBytes",
        /// The gateway holds messages for the same answer: not even the first may exceed `max_bytes`.
        not_first: Option<bool> = "notFirst",
        /// Leases that this member may hold in all queues of the group on one broker; 0 = any number.
        member_limit: Option<u32> = "memberLimit",
        /// Version of the group's settings that the gateway knows.
        group_version: Option<u64> = "groupVersion",
        /// How the member is connected to the gateway, see [`crate::body::members::Transport`].
        transport: Option<String> = "transport",
        /// Name of the gateway.
        gateway: Option<String> = "gateway",
        /// Address of the member at the gateway.
        member_ip: Option<String> = "memberIp",
    }
}

super::header! {
    /// Answer of 200050 and 200052, on errors too. `leases`, `entries`, `group_version`, `paused` and `gap` are for
    /// Gantry's gateway.
    PopResponse {
        /// When they were popped, epoch ms.
        pop_time_ms: i64 = "popTime" 0,
        /// Lease time, ms.
        invisible_ms: i64 = "invisibleTime" 0,
        /// Queue of the revive log.
        revive_queue_id: i32 = "reviveQid" 0,
        /// Messages left.
        rest_num: i64 = "restNum" 0,
        /// See [`crate::receipt`].
        start_offset_info: Option<String> = "startOffsetInfo",
        /// See [`crate::receipt`].
        msg_offset_info: Option<String> = "msgOffsetInfo",
        /// See [`crate::receipt`].
        order_count_info: Option<String> = "orderCountInfo",
        /// See [`crate::receipt::parse_leases`].
        leases: Option<String> = "leases",
        /// Version of the group's settings.
        group_version: Option<u64> = "groupVersion",
        /// Answer of a peek. See [`crate::receipt::parse_peeked`].
        entries: Option<String> = "entries",
        /// The group is paused.
        paused: Option<bool> = "paused",
        /// It looked at as much as one answer may cost and found nothing so far: ask again at once.
        more: Option<bool> = "more",
        /// The member holds as many leases as it may.
        member_full: Option<bool> = "memberFull",
        /// Unread messages that retention deleted. See [`crate::receipt::parse_gaps`].
        gap: Option<String> = "gap",
    }
}

super::header! {
    /// ACK_MESSAGE 200051.
    AckRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// Receipt, see [`crate::receipt::Receipt`].
        extra_info: String = "extraInfo",
        /// Queue offset of the message.
        queue_offset: i64 = "offset",
    }
}

super::header! {
    /// PEEK_MESSAGE 200052.
    PeekRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue; -1 = all.
        queue_id: i32 = "queueId" -1,
        /// Most messages wanted.
        max_msg_nums: i32 = "maxMsgNums",
        /// The answer shall be Gantry's, under the group's stored filter.
        gantry: Option<bool> = "gantry",
        /// Most body bytes wanted.
        max_bytes: Option<i64> = "maxBytes",
    }
}

super::header! {
    /// CHANGE_MESSAGE_INVISIBLETIME 200053.
    ChangeInvisibleRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue.
        queue_id: i32 = "queueId",
        /// Receipt, see [`crate::receipt::Receipt`].
        extra_info: String = "extraInfo",
        /// Queue offset of the message.
        queue_offset: i64 = "offset",
        /// Lease time from now, ms.
        invisible_ms: i64 = "invisibleTime",
    }
}

super::header! {
    /// Answer of 200053: the parts of the new receipt.
    ChangeInvisibleResponse {
        /// New pop time, epoch ms.
        pop_time_ms: i64 = "popTime",
        /// New lease time, ms.
        invisible_ms: i64 = "invisibleTime",
        /// Queue of the revive log.
        revive_queue_id: i32 = "reviveQid",
    }
}

super::header! {
    /// NOTIFICATION 200054: tells when there is something to pop.
    NotificationRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue; -1 = all.
        queue_id: i32 = "queueId" -1,
        /// How long to wait, ms.
        poll_ms: i64 = "pollTime",
        /// When the client asked, epoch ms.
        born_time_ms: i64 = "bornTime" 0,
        /// Ordered.
        order: Option<bool> = "order",
        /// As in [`PopRequest`].
        attempt_id: Option<String> = "attemptId",
        /// Asked by Gantry's gateway.
        gantry: Option<bool> = "gantry",
        /// Label of the member that waits.
        member: Option<String> = "member",
        /// As in [`PopRequest`]: at the limit there is nothing, until a lease of the member ends.
        member_limit: Option<u32> = "memberLimit",
        /// The member is not there any more; nothing is waited for.
        leave: Option<bool> = "leave",
        /// Version of the group's settings that the gateway knows.
        group_version: Option<u64> = "groupVersion",
        /// As in [`PopRequest`].
        transport: Option<String> = "transport",
        /// As in [`PopRequest`].
        gateway: Option<String> = "gateway",
        /// As in [`PopRequest`].
        member_ip: Option<String> = "memberIp",
    }
}

super::header! {
    /// Answer of 200054.
    NotificationResponse {
        /// There is something.
        has_msg: bool = "hasMsg",
        /// Too many wait already.
        polling_full: bool = "pollingFull" false,
    }
}

super::header! {
    /// POLLING_INFO 200055.
    PollingInfoRequest {
        /// Group.
        consumer_group: String = "consumerGroup",
        /// Topic.
        topic: String = "topic",
        /// Queue; -1 = all.
        queue_id: i32 = "queueId" -1,
    }
}

super::header! {
    /// Answer of 200055.
    PollingInfoResponse {
        /// How many pops wait.
        polling_num: i32 = "pollingNum",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtFields, Header};

    #[test]
    fn defaults_fill_what_is_absent() {
        let mut ext = ExtFields::new();
        for (name, value) in [
            ("consumerGroup", "g"),
            ("topic", "T"),
            ("maxMsgNums", "3"),
            ("invisibleTime", "0"),
            ("gantry", "1"),
        ] {
            ext.put(name, value);
        }
        let pop = PopRequest::decode(&ext).unwrap();
        assert_eq!(
            (pop.queue_id, pop.poll_ms, pop.gantry, pop.order),
            (-1, 0, Some(true), None)
        );
        let mut again = ExtFields::new();
        pop.encode(&mut again);
        assert_eq!(PopRequest::decode(&again).unwrap(), pop);
        assert!(!again.contains("order"));
    }
}
