//! Names: what a topic, group and namespace may be called, and which names belong to the system.

use crate::error::{ApiError, Code};

const TOPIC_MAX: usize = 90;
const GROUP_MAX: usize = 80;

fn well_formed(name: &str, max: usize) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.len() <= max
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn shown(name: &str) -> String {
    let short: String = name.chars().take(100).collect();
    short.escape_debug().to_string()
}

/// Topic names: `^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$`.
///
/// # Errors
/// `invalid_name`.
pub fn check_topic(name: &str) -> Result<(), ApiError> {
    if well_formed(name, TOPIC_MAX) {
        return Ok(());
    }
    let detail = format!(
        "'{}' is no topic name: 1–90 of A–Z a–z 0–9 _ -, starting with a letter or digit",
        shown(name)
    );
    Err(ApiError::new(Code::InvalidName, detail).with("limit", TOPIC_MAX))
}

/// Group names: `^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$`.
///
/// # Errors
/// `invalid_name`.
pub fn check_group(name: &str) -> Result<(), ApiError> {
    if well_formed(name, GROUP_MAX) {
        return Ok(());
    }
    let detail = format!(
        "'{}' is no group name: 1–80 of A–Z a–z 0–9 _ -, starting with a letter or digit",
        shown(name)
    );
    Err(ApiError::new(Code::InvalidName, detail).with("limit", GROUP_MAX))
}

/// Namespaces: `^[a-z][a-z0-9-]{0,15}$`; only `default` exists.
///
/// # Errors
/// `invalid_name`, `namespace_not_found`.
pub fn check_namespace(name: &str) -> Result<(), ApiError> {
    if name == "default" {
        return Ok(());
    }
    let bytes = name.as_bytes();
    let formed = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.len() <= 16
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    if formed {
        return Err(ApiError::new(
            Code::NamespaceNotFound,
            format!("namespace '{name}' does not exist; there is 'default'"),
        ));
    }
    let detail = format!(
        "'{}' is no namespace: 1–16 of a–z 0–9 -, starting with a letter",
        shown(name)
    );
    Err(ApiError::new(Code::InvalidName, detail))
}

/// Topics of the system: not to be written, not listed.
#[must_use]
pub fn is_system_topic(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "TBW102",
        wire::message::SCHEDULE_TOPIC,
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
        "DefaultCluster",
    ];
    NAMES.contains(&name)
        || ["RMQ_SYS_", "rmq_sys_", "SYS_"]
            .iter()
            .any(|p| name.starts_with(p))
        || name.contains('%')
        || name.ends_with("_REPLY_TOPIC")
}

/// Topics that may be written: sent to, made, changed, subscribed.
///
/// # Errors
/// `system_resource`.
pub fn check_topic_writable(name: &str) -> Result<(), ApiError> {
    refuse_system(is_system_topic(name), name)
}

/// Groups that may be written: made, changed, given a subscription.
///
/// # Errors
/// `system_resource`.
pub fn check_group_writable(name: &str) -> Result<(), ApiError> {
    refuse_system(is_system_group(name), name)
}

fn refuse_system(system: bool, name: &str) -> Result<(), ApiError> {
    if system {
        let detail = format!("'{name}' belongs to the broker itself; choose another name");
        return Err(ApiError::new(Code::SystemResource, detail));
    }
    Ok(())
}

/// Groups of the system (RocketMQ 5.4.0 MixAll).
#[must_use]
pub fn is_system_group(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "CLIENT_INNER_PRODUCER",
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "SCHEDULE_CONSUMER",
    ];
    NAMES.contains(&name)
        || ["CID_RMQ_SYS_", "RMQ_SYS_", "rmq_sys_", "SYS_"]
            .iter()
            .any(|p| name.starts_with(p))
        || name.contains('%')
}

/// Property names of RocketMQ 5.4.0 MessageConst, which users may not set, and all that start with `__`.
#[must_use]
pub fn is_reserved_property(name: &str) -> bool {
    const NAMES: [&str; 57] = [
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "ORIGIN_GROUP",
        "TRANS_OFFSET",
        "TIMER_ROLL_LABEL",
        "_SYS_MSG_PRIORITY_",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "EXTEND_UNIQ_INFO",
        "CONSUME_START_TIME",
        "INNER_NUM",
        "INNER_BASE",
        "DUP_INFO",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TRANSACTION_CHECK_TIMES",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "TRACE_CONTEXT",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "TIMER_DELAY_LEVEL",
        "TIMER_DEL_UNIQKEY",
    ];
    NAMES.contains(&name)
        || [
            "__",
            "TIMER_ENQUEUE_MS",
            "TIMER_DEQUEUE_MS",
            "TIMER_ROLL_TIMES",
            "TIMER_OUT_MS",
        ]
        .iter()
        .any(|p| name.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_refused() {
        let long = "a".repeat(91);
        for name in [
            "", "a\0b", "a\n", "a/b", "..", "中文", "%RETRY%x", "-a", "_a", "a b", "a%2Fb", &long,
        ] {
            assert_eq!(
                check_topic(name).unwrap_err().code(),
                Code::InvalidName,
                "{name:?}"
            );
            assert_eq!(
                check_group(name).unwrap_err().code(),
                Code::InvalidName,
                "{name:?}"
            );
        }
        assert!(check_topic(&"a".repeat(90)).is_ok());
        assert!(check_group(&"a".repeat(80)).is_ok());
        assert!(check_group(&"a".repeat(81)).is_err());
        assert_eq!(
            check_namespace("other").unwrap_err().code(),
            Code::NamespaceNotFound
        );
        assert_eq!(
            check_namespace("Other").unwrap_err().code(),
            Code::InvalidName
        );
    }
}
