//! `BrokerError`: why a request is refused, and the one mapping to response code and `reason`.

use store::StoreError;
use thiserror::Error;
use wire::{Command, ResponseCode, WireError};

/// Every way in which a request can fail. `Display` is the remark.
#[derive(Debug, Error)]
pub(crate) enum BrokerError {
    /// A header field or body does not parse.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A body is not the JSON it should be.
    #[error("body is not valid: {0}")]
    Body(String),
    /// A value is out of range or malformed.
    #[error("{0}")]
    Invalid(String),
    /// The message breaks a limit.
    #[error("{0}")]
    MessageIllegal(String),
    /// The message is not of the topic's type.
    #[error("{0}")]
    MessageType(String),
    /// The message is longer than this broker takes.
    #[error("{remark}")]
    MessageTooLarge {
        /// In words.
        remark: String,
        /// Bytes that are allowed.
        limit: u64,
        /// Bytes that came.
        actual: u64,
    },
    /// No such topic here.
    #[error("topic[{0}] not exist, apply first please!")]
    NoTopic(String),
    /// No such group here.
    #[error("subscription group [{0}] does not exist")]
    NoGroup(String),
    /// Not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// A setting that cannot be changed.
    #[error("{0}")]
    Immutable(String),
    /// Members of the other kind live in the group.
    #[error("group [{group}] has members of the other kind: {members}")]
    GroupMode {
        /// The group.
        group: String,
        /// Who, comma separated.
        members: String,
    },
    /// The optimistic version check failed.
    #[error("version is {found}, not {expected}")]
    VersionMismatch {
        /// What the caller expects.
        expected: String,
        /// What is there.
        found: u64,
    },
    /// The gateway knows a newer version of the group than this broker.
    #[error("group [{group}] has version {found} here, the gateway knows {wanted}")]
    StaleConfig {
        /// The group.
        group: String,
        /// What the gateway knows.
        wanted: u64,
        /// What is there; 0 = no such group.
        found: u64,
    },
    /// To be created, but there already.
    #[error("{kind} [{name}] exists already")]
    Exists {
        /// `topic` or `group`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The group has no subscription to the topic.
    #[error("the consumer's subscription not exist: group [{group}], topic [{topic}]")]
    NoSubscription {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
    },
    /// The group has no stored subscription to the topic.
    #[error("the group [{group}] is not subscribed to the topic [{topic}]")]
    NoLeaseSubscription {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
    },
    /// A pop that arrived after its own poll time.
    #[error("the pop message is timeout too much")]
    PopTooLate,
    /// A settlement of a message that is not in its queue.
    #[error("offset is illegal, key:{key}, commit:{offset}, store:{min}~{max}")]
    OffsetIllegal {
        /// `topic@queue`.
        key: String,
        /// Asked for.
        offset: i64,
        /// First of the queue.
        min: u64,
        /// One past the last.
        max: u64,
    },
    /// A batch of acks without any.
    #[error("no acks")]
    NoAcks,
    /// The broker knows an older subscription than the request.
    #[error("the consumer's subscription not latest")]
    SubscriptionNotLatest,
    /// The filter expression cannot be used.
    #[error("parse the consumer's subscription failed: {0}")]
    Subscription(String),
    /// Nothing under that key, offset or id.
    #[error("{0}")]
    NotFound(String),
    /// Nothing at that place; old tools expect the general code.
    #[error("{0}")]
    Absent(String),
    /// No member of the group is connected.
    #[error("the consumer group[{0}] not online")]
    NotOnline(String),
    /// A client that was asked did not answer in time.
    #[error("consumer <{0}> did not answer in time")]
    NoAnswer(String),
    /// A feature of the protocol that this broker does not have yet.
    #[error("{0} is not supported yet")]
    NotSupported(&'static str),
    /// A request code without a handler.
    #[error(" request type {0} not supported")]
    UnknownCode(i32),
    /// A request code that needs something this broker does not have.
    #[error(" request type {code} not supported: {why}")]
    Unserved {
        /// The code.
        code: i32,
        /// What is missing.
        why: &'static str,
    },
    /// A bound was reached.
    #[error("[OVERLOAD]system busy, start flow control for a while: {0}")]
    Busy(&'static str),
    /// Too many requests of the class run and wait.
    #[error("[OVERLOAD]system busy, start flow control for a while")]
    Overload,
    /// The request waited for its turn this long.
    #[error("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms", .0.as_millis())]
    WaitedTooLong(std::time::Duration),
    /// A table is full.
    #[error("{0} limit reached")]
    Full(&'static str),
    /// Too many leases.
    #[error("group [{group}] holds {max} leases, its limit")]
    TooManyInFlight {
        /// The group.
        group: String,
        /// Its limit.
        max: u32,
    },
    /// Too many parked requests.
    #[error("polling full: {0} requests wait already")]
    PollingFull(usize),
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopping,
    /// The store refused.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A configuration table could not be written.
    #[error("configuration could not be written: {0}")]
    Persist(String),
    /// A configuration table cannot be read, and neither can its backup.
    #[error("damaged, and so is its backup: {0}")]
    Damaged(String),
    /// A broken promise of our own code.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl BrokerError {
    /// The response code.
    pub(crate) fn code(&self) -> ResponseCode {
        match self {
            Self::Wire(_)
            | Self::Body(_)
            | Self::Absent(_)
            | Self::Persist(_)
            | Self::Damaged(_)
            | Self::Internal(_) => ResponseCode::SystemError,
            Self::VersionMismatch { .. }
            | Self::StaleConfig { .. }
            | Self::Exists { .. }
            | Self::Full(_) => ResponseCode::SystemError,
            Self::NotSupported(_) => ResponseCode::SystemError,
            Self::Invalid(_) => ResponseCode::InvalidParameter,
            Self::MessageIllegal(_) | Self::MessageType(_) | Self::MessageTooLarge { .. } => {
                ResponseCode::MessageIllegal
            }
            Self::NoTopic(_) => ResponseCode::TopicNotExist,
            Self::NoGroup(_) => ResponseCode::SubscriptionGroupNotExist,
            Self::Forbidden(_) | Self::GroupMode { .. } | Self::Immutable(_) => {
                ResponseCode::NoPermission
            }
            Self::NoLeaseSubscription { .. } => ResponseCode::NoPermission,
            Self::PopTooLate => ResponseCode::PollingTimeout,
            Self::OffsetIllegal { .. } | Self::NoAcks => ResponseCode::NoMessage,
            Self::NoSubscription { .. } => ResponseCode::SubscriptionNotExist,
            Self::SubscriptionNotLatest => ResponseCode::SubscriptionNotLatest,
            Self::Subscription(_) => ResponseCode::SubscriptionParseFailed,
            Self::NotFound(_) => ResponseCode::QueryNotFound,
            Self::NotOnline(_) => ResponseCode::ConsumerNotOnline,
            Self::NoAnswer(_) => ResponseCode::ConsumeMsgTimeout,
            Self::UnknownCode(_) | Self::Unserved { .. } => ResponseCode::RequestCodeNotSupported,
            Self::Busy(_)
            | Self::Overload
            | Self::WaitedTooLong(_)
            | Self::TooManyInFlight { .. } => ResponseCode::SystemBusy,
            Self::PollingFull(_) => ResponseCode::PollingFull,
            Self::Stopping => ResponseCode::ServiceNotAvailable,
            Self::Store(error) => store_code(error).0,
        }
    }

    /// The stable word in ext field `reason`, a problem code of the HTTP interface where one fits.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Wire(_) | Self::Body(_) | Self::Invalid(_) => "invalid_field",
            Self::MessageIllegal(_) => "message_illegal",
            Self::MessageType(_) => "message_type_mismatch",
            Self::MessageTooLarge { .. } => "message_too_large",
            Self::NoTopic(_) => "topic_not_found",
            Self::NoGroup(_) => "group_not_found",
            Self::Forbidden(_) => "forbidden",
            Self::Immutable(_) => "immutable_field",
            Self::GroupMode { .. } => "group_mode_conflict",
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::StaleConfig { .. } => "stale_config",
            Self::Exists { kind: "group", .. } => "group_exists",
            Self::Exists { .. } => "topic_exists",
            Self::NoSubscription { .. } | Self::NoLeaseSubscription { .. } => {
                "subscription_not_found"
            }
            Self::PopTooLate => "too_late",
            Self::OffsetIllegal { .. } | Self::NoAcks => "receipt_gone",
            Self::SubscriptionNotLatest => "subscription_not_latest",
            Self::Subscription(_) => "invalid_filter",
            Self::NotFound(_) | Self::Absent(_) => "not_found",
            Self::NotOnline(_) => "not_online",
            Self::NoAnswer(_) => "no_answer",
            Self::NotSupported(_) | Self::UnknownCode(_) | Self::Unserved { .. } => {
                "not_implemented"
            }
            Self::Busy(_) | Self::Overload | Self::WaitedTooLong(_) => "broker_busy",
            Self::Full(_) => "limit_reached",
            Self::TooManyInFlight { .. } => "too_many_inflight",
            Self::PollingFull(_) => "polling_full",
            Self::Stopping => "broker_unavailable",
            Self::Store(error) => store_code(error).1,
            Self::Persist(_) | Self::Damaged(_) => "storage_error",
            Self::Internal(_) => "internal",
        }
    }

    /// Whether the disk is at fault, not what was asked for.
    pub(crate) fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Store(_) | Self::Persist(_) | Self::Damaged(_) | Self::Stopping
        )
    }

    /// The answer to send.
    pub(crate) fn to_response(&self) -> Command {
        let mut response = Command::error(self.code(), self.to_string());
        response.ext.put("reason", self.reason());
        if let Self::StaleConfig { found, .. } = self {
            response.ext.put("groupVersion", *found);
        }
        if let Self::MessageTooLarge { limit, actual, .. } = self {
            response.ext.put("limit", *limit);
            response.ext.put("actual", *actual);
        }
        if let Self::GroupMode { members, .. } = self {
            response.ext.put("members", members.as_str());
        }
        response
    }
}

/// Code and reason of a failure of the store.
fn store_code(error: &StoreError) -> (ResponseCode, &'static str) {
    match error {
        StoreError::Full => (ResponseCode::ServiceNotAvailable, "storage_full"),
        StoreError::Busy => (ResponseCode::SystemBusy, "broker_busy"),
        StoreError::Closed => (ResponseCode::ServiceNotAvailable, "broker_unavailable"),
        StoreError::Poisoned { .. } => (ResponseCode::ServiceNotAvailable, "broker_unavailable"),
        StoreError::TooLarge { .. } | StoreError::Invalid { .. } => {
            (ResponseCode::MessageIllegal, "message_illegal")
        }
        StoreError::InUse { .. } | StoreError::Layout { .. } | StoreError::Io { .. } => {
            (ResponseCode::SystemError, "storage_error")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_carry_code_remark_and_reason() {
        let check = |error: BrokerError, code: i32, reason: &str| {
            let response = error.to_response();
            assert_eq!(
                (response.code, response.ext.get("reason")),
                (code, Some(reason)),
                "{error}"
            );
            assert!(response.remark.is_some_and(|remark| !remark.is_empty()));
        };
        check(BrokerError::NoTopic("t".to_owned()), 17, "topic_not_found");
        check(BrokerError::UnknownCode(5), 3, "not_implemented");
        check(BrokerError::Store(StoreError::Full), 14, "storage_full");
        check(BrokerError::Store(StoreError::Busy), 2, "broker_busy");
        check(
            WireError::MissingField { field: "topic" }.into(),
            1,
            "invalid_field",
        );
        check(
            BrokerError::Exists {
                kind: "group",
                name: "g".to_owned(),
            },
            1,
            "group_exists",
        );
    }
}
