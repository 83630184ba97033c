//! Topics, groups, subscriptions, lag: administration calls to all masters.
//!
//! A write goes to one master that has the newest version, the first of them by name, so that writers who meet are told
//! apart there; then the stored result is offered to all others. Masters not reached are named (`pending`) and catch up
//! by themselves; none reached is a failure.

mod groups;
mod lag;
mod list;
pub(super) mod topics;
mod view;

pub use groups::default_group;
pub use lag::{Lag, is_of_topic};
pub use list::{ListedGroup, ListedTopic};
pub(crate) use topics::unreached;
pub use topics::{BrokerTopic, queues_in_all};
pub(super) use view::{Versioned, View};

use super::consumer::{Partial, UNREACHABLE};
use super::silence::PATIENCE;
use super::{Upstream, mapping};
use crate::error::{ApiError, Code};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use wire::json::{self, Value};
use wire::{Command, RequestCode, ResponseCode};

/// Rounds of a write that meets other writers. In each of them at least one writer gets through, so that as many can
/// write the same resource at a time.
const ROUNDS_MAX: usize = 32;
/// Longest wait for one master.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Names of the masters a write did not reach.
pub type Pending = Vec<String>;

/// `If-Match` and `If-None-Match: *`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// The version the resource must have.
    pub version: Option<u64>,
    /// It must not exist.
    pub absent: bool,
    /// It must exist, in whatever version.
    pub present: bool,
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
                let detail =
                    format!("{what} has version {version}, not the one named; read it again");
                Err(ApiError::new(Code::VersionMismatch, detail).with("etag", etag(version)))
            }
            (None, wanted) if self.present || wanted.is_some() => Err(ApiError::new(
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
pub(in crate::upstream) fn body<T: DeserializeOwned>(response: &Command) -> Result<T, ApiError> {
    json::from_slice(&response.body.to_bytes()).map_err(|error| {
        tracing::error!(%error, "answer of a broker cannot be read");
        ApiError::new(Code::Internal, "the broker's answer cannot be read")
    })
}

impl Upstream {
    /// Sends one question to every master at the same time. None is waited for longer than 5 s, nor longer than 2 s once
    /// another has answered.
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
            return Err(if self.masters_of_late(&masters).is_empty() {
                ApiError::new(Code::NoRoute, "no broker is registered")
            } else {
                nobody()
            });
        }
        let until = deadline.min(Instant::now() + ANSWER_WAIT);
        let asked = &masters.by_name;
        let calls = asked.values().map(|addr| (addr.as_str(), command.clone()));
        let answers = self.ask_each(calls, false, PATIENCE, until).await;
        Ok(asked.keys().cloned().zip(answers).collect())
    }

    /// Sends one write to these brokers at the same time. None is waited for longer than 5 s.
    async fn write_all(
        &self,
        brokers: &BTreeMap<String, String>,
        command: &Command,
        deadline: Instant,
    ) -> Vec<(String, Result<Command, ApiError>)> {
        let calls = brokers
            .values()
            .map(|addr| (addr.as_str(), command.clone()));
        let answers = self.ask_each(calls, true, ANSWER_WAIT, deadline).await;
        brokers.keys().cloned().zip(answers).collect()
    }

    /// One write at one master.
    async fn write_one<D: DeserializeOwned>(
        &self,
        addr: &str,
        command: Command,
        about: mapping::About<'_>,
        deadline: Instant,
    ) -> Result<D, ApiError> {
        let until = deadline.min(Instant::now() + ANSWER_WAIT);
        let response = self.call(addr, command, until).await?;
        if response.response_code() == ResponseCode::Success {
            body(&response).map_err(ApiError::unknown_outcome)
        } else {
            Err(mapping::answer(&response, about))
        }
    }

    /// The entries of a table of all masters, and the brokers left out.
    pub(super) async fn tables(
        &self,
        code: RequestCode,
        table: &str,
        deadline: Instant,
    ) -> Result<(Vec<(String, Value)>, Partial), ApiError> {
        let (mut entries, mut last, mut reached) = (Vec::new(), None, 0);
        let mut missing = self.masters_of_late(&*self.masters(deadline).await?);
        for (broker, answer) in self.all_masters(&Command::request(code), deadline).await? {
            match answer {
                Ok(response) if response.response_code() == ResponseCode::Success => {
                    reached += 1;
                    missing.remove(&broker);
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
            _ => {
                let partial = missing.into_iter().map(|name| (name, UNREACHABLE));
                Ok((entries, partial.collect()))
            }
        }
    }

    /// Brokers by name with the address of their master; for the start page.
    ///
    /// # Errors
    /// `no_route`.
    pub async fn cluster(&self, deadline: Instant) -> Result<BTreeMap<String, String>, ApiError> {
        Ok(BTreeMap::clone(
            &self.refresh_masters(deadline).await?.by_name,
        ))
    }
}

/// A failure of a write of several steps; `taken`: one of them has reached a master.
fn failed(error: ApiError, taken: bool) -> ApiError {
    if taken {
        error.after_the_write()
    } else {
        error
    }
}

fn nobody() -> ApiError {
    ApiError::new(Code::BrokerUnavailable, "no broker can be reached")
}

pub(super) fn too_many_writers() -> ApiError {
    ApiError::new(
        Code::VersionMismatch,
        "others write this resource at the same time; read it and try again",
    )
}

/// Whether a refusal means that somebody else wrote in between.
fn is_conflict(error: &ApiError) -> bool {
    matches!(
        error.code(),
        Code::VersionMismatch | Code::TopicExists | Code::GroupExists
    )
}

/// Whether the broker could not be asked at all, so that another one may be.
fn is_out_of_reach(error: &ApiError) -> bool {
    matches!(error.code(), Code::BrokerUnavailable)
}

/// Those of `wanted` that were not reached, in order.
fn pending(wanted: &BTreeSet<String>, reached: &BTreeSet<String>) -> Pending {
    wanted.difference(reached).cloned().collect()
}
