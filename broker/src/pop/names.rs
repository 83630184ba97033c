//! The topics that go with a group: retries of one topic, dead letters, the log of lease facts.

/// Prefix of every retry topic.
const RETRY: &str = "%RETRY%";
/// Prefix of every dead letter topic.
const DEAD: &str = "%DLQ%";

/// Queues of the log of lease facts (RocketMQ 5.4.0 `reviveQueueNum`).
pub const REVIVE_QUEUES: i32 = 8;

/// Where retries of `topic` for `group` are written (RocketMQ's v2 name; `+` is in no topic or group name).
pub fn retry_v2(group: &str, topic: &str) -> String {
    format!("{RETRY}{group}+{topic}")
}

/// Where older brokers wrote them; still read.
pub fn retry_v1(group: &str, topic: &str) -> String {
    format!("{RETRY}{group}_{topic}")
}

/// Dead letters of `group`.
pub fn dead(group: &str) -> String {
    format!("{DEAD}{group}")
}

/// The log of lease facts of `cluster`.
pub fn revive_log(cluster: &str) -> String {
    format!("rmq_sys_REVIVE_LOG_{cluster}")
}

/// Number in RocketMQ's receipts for the kind of topic a message was popped from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The topic itself: 0.
    Normal,
    /// `%RETRY%group_topic`: 1.
    RetryV1,
    /// `%RETRY%group+topic`: 2.
    RetryV2,
    /// `%RETRY%group`, the retries of consumers that pull: 3, in our own answers only.
    Group,
}

impl Kind {
    /// The number in receipts.
    pub fn flag(self) -> i32 {
        match self {
            Kind::Normal => 0,
            Kind::RetryV1 => 1,
            Kind::RetryV2 => 2,
            Kind::Group => 3,
        }
    }

    /// From the number in a receipt.
    pub fn from_flag(flag: &str) -> Option<Self> {
        match flag {
            "0" => Some(Kind::Normal),
            "1" => Some(Kind::RetryV1),
            "2" => Some(Kind::RetryV2),
            "3" => Some(Kind::Group),
            _ => None,
        }
    }

    /// The topic that is popped for a consumer of `topic`.
    pub fn topic(self, group: &str, topic: &str) -> String {
        match self {
            Kind::Normal => topic.to_owned(),
            Kind::RetryV1 => retry_v1(group, topic),
            Kind::RetryV2 => retry_v2(group, topic),
            Kind::Group => format!("{RETRY}{group}"),
        }
    }
}

/// The topic whose retries `retry_topic` holds for `group`, if it is such a topic.
pub fn origin_of<'a>(group: &str, retry_topic: &'a str) -> Option<&'a str> {
    let rest = retry_topic.strip_prefix(RETRY)?.strip_prefix(group)?;
    rest.strip_prefix('+').or_else(|| rest.strip_prefix('_'))
}

/// Group and topic of a v2 retry topic.
pub fn parse_retry_v2(retry_topic: &str) -> Option<(&str, &str)> {
    retry_topic.strip_prefix(RETRY)?.split_once('+')
}

/// Whether the topic holds retries of leases of `group`.
pub fn is_retry_of(group: &str, topic: &str) -> bool {
    parse_retry_v2(topic).is_some_and(|(owner, _)| owner == group)
}

/// Whether messages of this topic may carry the end of a lease.
pub fn may_end_a_lease(topic: &str) -> bool {
    topic.starts_with(RETRY) || topic.starts_with(DEAD)
}

/// Queue of the log that facts about one queue go to: the same for all of them, so that they stay in order.
pub fn revive_queue(group: &str, topic: &str, queue_id: i32) -> i32 {
    let bytes = group
        .bytes()
        .chain([b'@'])
        .chain(topic.bytes())
        .chain(queue_id.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    i32::try_from(hash % REVIVE_QUEUES.unsigned_abs()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_names_read_back() {
        assert_eq!(origin_of("g", &retry_v2("g", "T_1")), Some("T_1"));
        assert_eq!(origin_of("g", &retry_v1("g", "T")), Some("T"));
        assert_eq!(origin_of("g", "%RETRY%g"), None);
        assert_eq!(origin_of("g", "T"), None);
        assert_eq!(
            parse_retry_v2(&retry_v2("a%b", "a%T")),
            Some(("a%b", "a%T"))
        );
    }
}
