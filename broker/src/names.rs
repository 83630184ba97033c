//! Topic and group names: what is allowed, what belongs to the system, what derives from a group.

pub(crate) use wire::message::SCHEDULE_TOPIC;

/// Longest topic name a client may create, in bytes (RocketMQ 5.4.0 `TopicValidator`).
pub(crate) const TOPIC_NAME_MAX_BYTES: usize = 127;
/// Longest derived name (`%RETRY%…`, `%DLQ%…`), in bytes.
pub(crate) const DERIVED_NAME_MAX_BYTES: usize = 255;
/// Longest consumer group name, in bytes.
pub(crate) const GROUP_NAME_MAX_BYTES: usize = 120;

/// Prefix of the topic that a native group's failed messages go through.
pub(crate) const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic.
pub(crate) const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of topics that only brokers write.
pub(crate) const SYSTEM_PREFIX: &str = "rmq_sys_";
/// Template of topics created by the first send.
pub(crate) const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Where undecided transactional messages wait.
pub(crate) const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Decisions about half messages.
pub(crate) const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Message trace written by clients.
pub(crate) const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";

/// Topics with a fixed name that belong to the system.
const SYSTEM_TOPICS: [&str; 13] = [
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    "BenchmarkTest",
    HALF_TOPIC,
    OP_HALF_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    TRACE_TOPIC,
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
    "rmq_sys_wheel_timer",
];

/// System topics that no client may send to; every `rmq_sys_` name comes on top.
const SEND_FORBIDDEN: [&str; 8] = [
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
];

/// Groups that exist on every broker (RocketMQ 5.4.0 `SubscriptionGroupManager.init`).
pub(crate) const SYSTEM_GROUPS: [&str; 10] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
    "SCHEDULE_CONSUMER",
    "DEFAULT_CONSUMER",
];

/// Whether only characters of `%|a-zA-Z0-9_-` occur.
fn is_charset(name: &str) -> bool {
    name.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'%' | b'|' | b'_' | b'-'))
}

/// Checks a topic name that a client asks for.
///
/// # Errors
/// The remark to answer, in the words of RocketMQ 5.4.0 `TopicValidator`.
pub(crate) fn check_topic(topic: &str) -> Result<(), String> {
    if topic.trim().is_empty() {
        return Err("The specified topic is blank.".to_owned());
    }
    if !is_charset(topic) {
        return Err(format!(
            "The specified topic: {}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
            shorten(topic)
        ));
    }
    let max = if is_derived(topic) {
        DERIVED_NAME_MAX_BYTES
    } else {
        TOPIC_NAME_MAX_BYTES
    };
    if topic.len() > max {
        return Err(format!(
            "The specified topic is longer than topic max length: {max}"
        ));
    }
    Ok(())
}

/// Checks a consumer group name.
///
/// # Errors
/// The remark to answer.
pub(crate) fn check_group(group: &str) -> Result<(), String> {
    if group.trim().is_empty() {
        return Err("The specified group is blank.".to_owned());
    }
    if !is_charset(group) {
        return Err(format!(
            "The specified group: {}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
            shorten(group)
        ));
    }
    if group.len() > GROUP_NAME_MAX_BYTES {
        return Err(format!(
            "The specified group is longer than group max length: {GROUP_NAME_MAX_BYTES}"
        ));
    }
    Ok(())
}

/// At most 64 characters of a name that came from a peer, for remarks and logs.
pub(crate) fn shorten(name: &str) -> String {
    let mut out: String = name.chars().take(64).collect();
    if out.len() < name.len() {
        out.push('…');
    }
    out
}

/// `%RETRY%group`.
pub(crate) fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// `%DLQ%group`.
pub(crate) fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// Whether the topic is a retry topic of some group.
pub(crate) fn is_retry(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}

/// Whether the topic is a dead-letter topic of some group.
pub(crate) fn is_dlq(topic: &str) -> bool {
    topic.starts_with(DLQ_PREFIX)
}

/// Whether the topic is derived from a group, so that the longer limit holds.
pub(crate) fn is_derived(topic: &str) -> bool {
    is_retry(topic) || is_dlq(topic)
}

/// Whether the topic belongs to the system: never created, changed or deleted by an administrator.
pub(crate) fn is_system_topic(topic: &str) -> bool {
    topic.starts_with(SYSTEM_PREFIX) || SYSTEM_TOPICS.contains(&topic)
}

/// Whether a client's send to the topic is refused. RocketMQ 5.4.0 takes sends to `rmq_sys_` topics,
/// and one such message can stop its timer for good; here all of them are refused.
pub(crate) fn is_send_forbidden(topic: &str) -> bool {
    topic.starts_with(SYSTEM_PREFIX) || SEND_FORBIDDEN.contains(&topic)
}

/// Whether the group belongs to the system.
pub(crate) fn is_system_group(group: &str) -> bool {
    SYSTEM_GROUPS.contains(&group) || group.starts_with("CID_RMQ_SYS_")
}

/// The fixed system topic names, for code 305.
pub(crate) fn system_topics() -> &'static [&'static str] {
    &SYSTEM_TOPICS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_are_checked_for_charset_and_length() {
        let check = |name: &str, good: bool| assert_eq!(check_topic(name).is_ok(), good, "{name}");
        check("orders", true);
        check("acme_prod%orders", true);
        check("a|b-c_d", true);
        check("", false);
        check(" ", false);
        check("a.b", false);
        check("ü", false);
        check(&"t".repeat(127), true);
        check(&"t".repeat(128), false);
        check(&format!("%RETRY%{}", "t".repeat(200)), true);
        check(&format!("%RETRY%{}", "t".repeat(249)), false);
    }

    #[test]
    fn clients_cannot_send_to_what_brokers_write() {
        for topic in [
            "rmq_sys_wheel_timer",
            "rmq_sys_REVIVE_LOG_C",
            SCHEDULE_TOPIC,
            HALF_TOPIC,
            OP_HALF_TOPIC,
        ] {
            assert!(is_send_forbidden(topic), "{topic}");
        }
        assert!(!is_send_forbidden(TRACE_TOPIC));
        assert!(!is_send_forbidden("%DLQ%g"));
    }
}
