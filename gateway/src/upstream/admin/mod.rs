//! Topics, groups, subscriptions, lag: administration calls to all masters.
//!
//! A write gives the next version to every master that should hold it. Masters not reached are named (`pending`); none
//! reached is a failure.

mod groups;
mod topics;

pub use groups::default_group;
pub use topics::BrokerTopic;

use super::{Upstream, mapping};
use crate::error::{ApiError, Code};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tokio::time::Instant;
use wire::json::{self, Value};
use wire::{Command, RequestCode, ResponseCode};

/// Rounds of a write that meets other writers.
const ROUNDS_MAX: usize = 5;

/// Names of the masters a write did not reach.
pub type Pending = Vec<String>;

/// `If-Match` and `If-None-Match: *`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// The version the resource must have.
    pub version: Option<u64>,
    /// It must not exist.
    pub absent: bool,
}

impl Precondition {
    /// Checks the version that is there.
    ///
    /// # Errors
    /// `version_mismatch` with the current `etag`; `exists` (topic_exists, group_exists).
    pub fn check(&self, current: Option<u64>, exists: Code, what: &str) -> Result<(), ApiError> {
        match (current, self.version) {
            (Some(version), _) if self.absent => {
                Err(ApiError::new(exists, format!("{what} exists already"))
                    .with("etag", etag(version)))
            }
            (Some(version), Some(wanted)) if version != wanted => {
                let detail = format!("{what} has version {version}, not {wanted}; read it again");
                Err(ApiError::new(Code::VersionMismatch, detail).with("etag", etag(version)))
            }
            (None, Some(_)) => Err(ApiError::new(
                Code::VersionMismatch,
                format!("{what} does not exist"),
            )),
            _ => Ok(()),
        }
    }
}

/// The strong entity tag of a version, quotes included.
#[must_use]
pub fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The JSON body of an answer.
pub(super) fn body<T: DeserializeOwned>(response: &Command) -> Result<T, ApiError> {
    json::from_slice(&response.body.to_bytes()).map_err(|error| {
        tracing::error!(%error, "answer of a broker cannot be read");
        ApiError::new(Code::Internal, "the broker's answer cannot be read")
    })
}

impl Upstream {
    /// Sends one request to every master at the same time.
    ///
    /// # Errors
    /// `no_route` when no master is known.
    pub(super) async fn all_masters(
        &self,
        command: &Command,
        deadline: Instant,
    ) -> Result<Vec<(String, Result<Command, ApiError>)>, ApiError> {
        let masters = self.masters(deadline).await?;
        if masters.by_name.is_empty() {
            return Err(ApiError::new(Code::NoRoute, "no broker is registered"));
        }
        let calls = masters.by_name.iter().map(|(name, addr)| async move {
            (
                name.clone(),
                self.call(addr, command.clone(), deadline).await,
            )
        });
        Ok(join_all(calls).await)
    }

    pub(super) async fn delete_everywhere(
        &self,
        command: &Command,
        about: mapping::About<'_>,
        deadline: Instant,
    ) -> Result<Pending, ApiError> {
        let (mut reached, mut pending) = (0, Vec::new());
        for (broker, answer) in self.all_masters(command, deadline).await? {
            match answer {
                Ok(response) => match response.response_code() {
                    ResponseCode::Success
                    | ResponseCode::TopicNotExist
                    | ResponseCode::SubscriptionGroupNotExist => reached += 1,
                    _ => return Err(mapping::answer(&response, about)),
                },
                Err(_) => pending.push(broker),
            }
        }
        if reached == 0 {
            Err(ApiError::new(
                Code::BrokerUnavailable,
                "no broker can be reached",
            ))
        } else {
            Ok(pending)
        }
    }

    pub(super) async fn tables(
        &self,
        code: RequestCode,
        table: &str,
        deadline: Instant,
    ) -> Result<Vec<(String, Value)>, ApiError> {
        let (mut entries, mut last, mut reached) = (Vec::new(), None, 0);
        for (_, answer) in self.all_masters(&Command::request(code), deadline).await? {
            match answer {
                Ok(response) if response.response_code() == ResponseCode::Success => {
                    reached += 1;
                    let tree = json::parse(&response.body.to_bytes()).unwrap_or_default();
                    if let Some(Value::Object(list)) = tree.get(table) {
                        entries.extend(list.iter().cloned());
                    }
                }
                Ok(response) => last = Some(mapping::answer(&response, mapping::About::Topic(""))),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if reached == 0 => Err(error),
            _ => Ok(entries),
        }
    }

    /// Brokers by name with the address of their master; for the start page.
    ///
    /// # Errors
    /// `no_route`.
    pub async fn cluster(&self, deadline: Instant) -> Result<BTreeMap<String, String>, ApiError> {
        Ok(self.refresh_masters(deadline).await?.by_name.clone())
    }
}

pub(super) fn too_many_writers() -> ApiError {
    ApiError::new(
        Code::VersionMismatch,
        "others write this resource at the same time; read it and try again",
    )
}

/// Answers of one write to all masters.
pub(super) struct Round {
    pub(super) pending: Pending,
    pub(super) conflict: bool,
    last: Option<ApiError>,
}

impl Round {
    pub(super) fn new(pending: Pending) -> Self {
        Self {
            pending,
            conflict: false,
            last: None,
        }
    }

    /// The body of a success; notes who was not reached and who has another version.
    pub(super) fn take<T: DeserializeOwned>(
        &mut self,
        broker: &str,
        answer: Result<Command, ApiError>,
        about: mapping::About<'_>,
    ) -> Result<Option<T>, ApiError> {
        match answer {
            Ok(response) if response.response_code() == ResponseCode::Success => {
                body(&response).map(Some)
            }
            Ok(response) => {
                let error = mapping::answer(&response, about);
                if matches!(
                    error.code(),
                    Code::VersionMismatch | Code::TopicExists | Code::GroupExists
                ) {
                    self.conflict = true;
                    return Ok(None);
                }
                Err(error)
            }
            Err(error) => {
                if !self.pending.iter().any(|b| b == broker) {
                    self.pending.push(broker.to_owned());
                }
                self.last = Some(error);
                Ok(None)
            }
        }
    }

    pub(super) fn finish(&mut self, reached: usize) -> Result<(), ApiError> {
        if reached > 0 {
            return Ok(());
        }
        Err(self
            .last
            .take()
            .unwrap_or_else(|| ApiError::new(Code::BrokerUnavailable, "no broker can be reached")))
    }
}
