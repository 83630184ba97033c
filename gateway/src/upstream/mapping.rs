//! The one place where answers of brokers and failures on the way become errors of the API.

use crate::error::{ApiError, Code};
use remoting::{ErrorKind, RemotingError};
use serde_json::Value;
use wire::{Command, ResponseCode};

/// No time left before the call was made.
#[must_use]
pub fn out_of_time() -> ApiError {
    ApiError::new(
        Code::BrokerTimeout,
        "the time for this request (Mq-Timeout) ended before a broker answered",
    )
}

/// Asked, and not answered so far.
#[must_use]
pub fn unanswered() -> ApiError {
    ApiError::new(
        Code::BrokerTimeout,
        "the broker was asked but did not answer; the request may have been carried out",
    )
    .unknown_outcome()
}

/// A call without an answer. Where the request had been written, the outcome is unknown.
#[must_use]
pub fn remoting(error: &RemotingError) -> ApiError {
    let mapped = match (error.kind, error.written) {
        (ErrorKind::TooLarge, _) => ApiError::new(
            Code::RequestTooLarge,
            "the request does not fit one frame of 16 MiB",
        ),
        (ErrorKind::Refused, _) => ApiError::new(
            Code::BrokerBusy,
            "the broker reads too slowly; nothing was sent",
        ),
        (ErrorKind::Connect, _) | (ErrorKind::Closed, false) => {
            ApiError::new(Code::BrokerUnavailable, "the broker cannot be reached")
        }
        (ErrorKind::Timeout, false) => out_of_time(),
        (ErrorKind::Timeout | ErrorKind::Closed, true) => unanswered(),
    };
    tracing::debug!(error = %error, "call failed");
    if error.written {
        mapped.unknown_outcome()
    } else {
        mapped
    }
}

/// What the call was about: it decides between codes that mean different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// Sending to a topic.
    Send(&'a str),
    /// Taking from a topic for a group.
    Receive(&'a str, &'a str),
    /// A topic's configuration.
    Topic(&'a str),
    /// A group's configuration.
    Group(&'a str),
}

impl About<'_> {
    fn topic(self) -> ApiError {
        match self {
            Self::Send(topic) | Self::Topic(topic) | Self::Receive(_, topic) => ApiError::new(
                Code::TopicNotFound,
                format!("topic '{topic}' does not exist"),
            ),
            Self::Group(_) => ApiError::new(Code::TopicNotFound, "the topic does not exist"),
        }
    }

    fn group(self) -> ApiError {
        match self {
            Self::Group(group) | Self::Receive(group, _) => ApiError::new(
                Code::GroupNotFound,
                format!("group '{group}' does not exist"),
            ),
            Self::Send(_) | Self::Topic(_) => {
                ApiError::new(Code::GroupNotFound, "the group does not exist")
            }
        }
    }
}

/// An answer that is no success. `reason` (an ext field of our brokers) decides first, then the code; remark text never.
#[must_use]
pub fn answer(response: &Command, about: About<'_>) -> ApiError {
    let reason = response.ext.get("reason");
    if let Some(error) = reason.and_then(|reason| by_reason(reason, response, about)) {
        return error;
    }
    by_code(response.response_code(), response, about)
}

fn by_reason(reason: &str, response: &Command, about: About<'_>) -> Option<ApiError> {
    if reason == "stale_config" {
        let detail = "the broker has an older version of the group; it catches up by itself";
        return Some(ApiError::new(Code::BrokerUnavailable, detail).with("reason", reason));
    }
    let code = Code::parse(reason)?;
    let detail = match code {
        Code::TopicNotFound => return Some(about.topic()),
        Code::GroupNotFound => return Some(about.group()),
        Code::SubscriptionNotFound => match about {
            About::Receive(group, topic) => {
                format!("group '{group}' does not subscribe topic '{topic}'")
            }
            About::Send(_) | About::Topic(_) | About::Group(_) => {
                "the group does not subscribe this topic".to_owned()
            }
        },
        _ => response
            .remark
            .clone()
            .unwrap_or_else(|| code.title().to_owned()),
    };
    let mut error = ApiError::new(code, detail);
    if let Some(members) = response.ext.get("members") {
        let list: Vec<Value> = members
            .split([',', ';'])
            .filter(|m| !m.is_empty())
            .map(Value::from)
            .collect();
        error = error.with("members", list);
    }
    for name in ["limit", "actual"] {
        if let Some(n) = response.ext.get(name).and_then(|n| n.parse::<i64>().ok()) {
            error = error.with(name, n);
        }
    }
    Some(error)
}

/// Every response code has its meaning here.
fn by_code(code: ResponseCode, response: &Command, about: About<'_>) -> ApiError {
    let remark = || {
        response
            .remark
            .clone()
            .unwrap_or_else(|| code.name().to_owned())
    };
    match code {
        ResponseCode::FlushDiskTimeout
        | ResponseCode::SlaveNotAvailable
        | ResponseCode::FlushSlaveTimeout => {
            let detail = "the message is stored, but flush or replicas were not confirmed in time; it may be delivered";
            ApiError::new(Code::DurabilityNotConfirmed, detail).unknown_outcome()
        }
        ResponseCode::MessageIllegal => ApiError::new(
            Code::InvalidField,
            format!("the broker refused the message: {}", remark()),
        ),
        ResponseCode::InvalidParameter => ApiError::new(
            Code::InvalidField,
            format!("the broker refused a parameter: {}", remark()),
        ),
        ResponseCode::SubscriptionParseFailed => ApiError::new(
            Code::InvalidFilter,
            format!("the filter cannot be read: {}", remark()),
        ),
        ResponseCode::TopicNotExist => about.topic(),
        ResponseCode::SubscriptionGroupNotExist => about.group(),
        ResponseCode::SubscriptionNotExist => ApiError::new(
            Code::SubscriptionNotFound,
            "the group does not subscribe this topic",
        ),
        ResponseCode::QueryNotFound | ResponseCode::NoMessage => {
            ApiError::new(Code::MessageNotFound, "no such message")
        }
        ResponseCode::NoPermission => ApiError::new(
            Code::Forbidden,
            format!("the broker does not allow this: {}", remark()),
        ),
        ResponseCode::TopicExistAlready => {
            ApiError::new(Code::TopicExists, "the topic exists already")
        }
        ResponseCode::SystemBusy | ResponseCode::FlowControl | ResponseCode::PollingFull => {
            ApiError::new(
                Code::BrokerBusy,
                "the broker has too much to do; nothing was stored",
            )
        }
        ResponseCode::ServiceNotAvailable => {
            ApiError::new(Code::BrokerUnavailable, "the broker cannot serve now")
        }
        ResponseCode::GoAway | ResponseCode::NotLeaderForQueue => ApiError::new(
            Code::BrokerUnavailable,
            "the broker does not lead this queue now",
        ),
        ResponseCode::RequestCodeNotSupported => {
            ApiError::not_implemented("this broker does not know the request")
        }
        ResponseCode::SystemError
        | ResponseCode::Success
        | ResponseCode::TransactionFailed
        | ResponseCode::VersionNotSupported
        | ResponseCode::PullNotFound
        | ResponseCode::PullRetryImmediately
        | ResponseCode::PullOffsetMoved
        | ResponseCode::PollingTimeout => unexpected(code, &remark()),
        // What remains belongs to transactions, client queries, the controller and users: no answer to our requests.
        _ => unexpected(code, &remark()),
    }
}

fn unexpected(code: ResponseCode, remark: &str) -> ApiError {
    tracing::warn!(code = code.code(), remark, "unexpected answer of a broker");
    ApiError::new(
        Code::Internal,
        "the broker answered in an unexpected way; the log of the gateway has details",
    )
    .unknown_outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_code_is_an_error_with_a_sentence() {
        for code in ResponseCode::ALL
            .iter()
            .copied()
            .chain([ResponseCode::Unknown(77)])
        {
            for about in [
                About::Send("t"),
                About::Receive("g", "t"),
                About::Topic("t"),
                About::Group("g"),
            ] {
                let error = answer(&Command::response(code), about);
                assert!(
                    error.code().status_u16() >= 400 && !error.detail().is_empty(),
                    "{code}"
                );
            }
        }
    }

    #[test]
    fn the_reason_decides_before_the_code() {
        let response = |code, reason: &str| {
            Command::error(code, "text")
                .with_ext("reason", reason)
                .with_ext("members", "a,b")
        };
        let error = answer(
            &response(ResponseCode::NoPermission, "group_mode_conflict"),
            About::Receive("g", "t"),
        );
        assert_eq!(error.code(), Code::GroupModeConflict);
        assert_eq!(
            error.fault().extra[0],
            ("members", serde_json::json!(["a", "b"]))
        );
        let error = answer(
            &response(ResponseCode::SystemError, "storage_full"),
            About::Send("t"),
        );
        assert_eq!(error.code(), Code::StorageFull);
        let error = answer(
            &response(ResponseCode::SystemError, "no such reason"),
            About::Send("t"),
        );
        assert_eq!(error.code(), Code::Internal);
    }
}
