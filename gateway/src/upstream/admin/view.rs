//! What all masters say about one topic or group, and who of them cannot be asked.

use crate::error::{ApiError, Code, Outcome};
use crate::upstream::{Upstream, mapping};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use wire::body::config_level::{ConfigEntries, ConfigEntry, ConfigNames, ConfigOffered};
use wire::json;
use wire::{Command, RequestCode, ResponseCode};

/// Answers of all masters to one question about a configuration.
#[derive(Debug)]
pub(in crate::upstream) struct View<D> {
    /// What those have that have it, by broker name.
    pub(in crate::upstream) found: BTreeMap<String, D>,
    /// Who answered, with or without it.
    pub(super) answered: BTreeSet<String>,
    /// Who did not answer.
    pub(in crate::upstream) silent: BTreeSet<String>,
    /// The newest version in which it was deleted; 0 = never.
    pub(super) deleted: u64,
    /// How long ago that was, where a master says so.
    pub(super) deleted_ago: Option<Duration>,
    /// Masters that the brokers know, the silent ones included.
    pub(super) peers: BTreeSet<String>,
}

/// A versioned detail.
pub(in crate::upstream) trait Versioned {
    /// Version, and what decides between two of one version.
    fn age(&self) -> (u64, &str);
}

impl<D: Versioned> View<D> {
    /// The newest, and a broker that has it: the first by name.
    pub(in crate::upstream) fn newest(&self) -> Option<(&str, &D)> {
        let newest = self.found.values().map(Versioned::age).max()?;
        let holder = self.found.iter().find(|(_, d)| d.age() == newest)?;
        Some((holder.0, holder.1))
    }

    /// The version that is there now.
    pub(super) fn version(&self) -> Option<u64> {
        self.newest().map(|(_, detail)| detail.age().0)
    }

    /// The version for the next write; `known` is one the gateway has seen before.
    pub(super) fn next_version(&self, known: u64) -> u64 {
        self.version()
            .unwrap_or(0)
            .max(self.deleted)
            .max(known)
            .saturating_add(1)
    }
}

/// Topics or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Topic,
    Group,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Group => "group",
        }
    }
}

/// How masters took an offer.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Have it, or something newer.
    pub(super) reached: BTreeSet<String>,
    /// Something else of the same version stayed there.
    pub(super) lost: bool,
    /// Somebody has it, or may have.
    pub(super) taken: bool,
}

impl Upstream {
    /// Asks all masters. `absent` is the code of "no such thing".
    ///
    /// # Errors
    /// `no_route`, what a master refused with, or what all of them failed with.
    pub(in crate::upstream) async fn view<D: serde::de::DeserializeOwned>(
        &self,
        command: &Command,
        absent: ResponseCode,
        about: mapping::About<'_>,
        deadline: Instant,
    ) -> Result<View<D>, ApiError> {
        let mut view = View {
            found: BTreeMap::new(),
            answered: BTreeSet::new(),
            silent: BTreeSet::new(),
            deleted: 0,
            deleted_ago: None,
            peers: BTreeSet::new(),
        };
        let mut last = None;
        for (broker, answer) in self.all_masters(command, deadline).await? {
            let response = match answer {
                Ok(response) => response,
                Err(error) => {
                    view.silent.insert(broker);
                    last = Some(error);
                    continue;
                }
            };
            if let Some(names) = response.ext.get("peers") {
                let names = names.split(',').filter(|name| !name.is_empty());
                view.peers.extend(names.map(str::to_owned));
            }
            match response.response_code() {
                ResponseCode::Success => {
                    view.found.insert(broker.clone(), super::body(&response)?);
                }
                code if code == absent => {
                    let number = |name| response.ext.optional::<u64>(name).ok().flatten();
                    let deleted = number("version").unwrap_or(0);
                    if deleted > view.deleted {
                        view.deleted = deleted;
                        view.deleted_ago = number("deletedAgo").map(Duration::from_millis);
                    }
                }
                _ => return Err(mapping::answer(&response, about)),
            }
            view.answered.insert(broker);
        }
        match last {
            Some(error) if view.answered.is_empty() => Err(error),
            _ => Ok(view),
        }
    }

    /// The stored form of a configuration on one broker.
    pub(super) async fn stored(
        &self,
        kind: Kind,
        name: &str,
        addr: &str,
        deadline: Instant,
    ) -> Result<ConfigEntry, ApiError> {
        let names = vec![name.to_owned()];
        let command = Command::request(RequestCode::FetchConfig)
            .with_ext("kind", kind.as_str())
            .with_body(json::to_vec(&ConfigNames { names }));
        let response = self.call(addr, command, deadline).await?;
        if response.response_code() != ResponseCode::Success {
            return Err(mapping::answer(&response, mapping::About::Topic(name)));
        }
        let entries: ConfigEntries = super::body(&response)?;
        entries.entries.into_iter().next().ok_or_else(|| {
            ApiError::new(
                Code::BrokerUnavailable,
                "the broker does not have what was just written; read it again",
            )
        })
    }

    /// Gives a configuration, or a deletion, to these masters.
    ///
    /// # Errors
    /// What a master refused with.
    pub(super) async fn offer(
        &self,
        kind: Kind,
        entry: ConfigEntry,
        from: &str,
        to: BTreeMap<String, String>,
        deadline: Instant,
    ) -> Result<Offered, ApiError> {
        let version = entry.version;
        let body = json::to_vec(&ConfigEntries {
            entries: vec![entry],
        });
        let command = Command::request(RequestCode::OfferConfig)
            .with_ext("kind", kind.as_str())
            .with_ext("from", from)
            .with_ext("fresh", true)
            .with_body(body);
        let mut offered = Offered::default();
        let mut refusal = None;
        for (broker, answer) in self.write_all(&to, &command, deadline).await {
            let response = match answer {
                Ok(response) => response,
                Err(error) => {
                    tracing::debug!(broker, %error, "configuration not given to a broker");
                    offered.taken |= error.fault().outcome == Some(Outcome::Unknown);
                    continue;
                }
            };
            if response.response_code() != ResponseCode::Success {
                refusal = Some(mapping::answer(&response, mapping::About::Topic("")));
                continue;
            }
            let results: ConfigOffered =
                super::body(&response).map_err(ApiError::unknown_outcome)?;
            for result in results.results {
                offered.taken |= result.taken;
                if result.taken || result.version > version {
                    offered.reached.insert(broker.clone());
                } else {
                    offered.lost = true;
                }
            }
        }
        match refusal {
            Some(error) if offered.taken => Err(error.unknown_outcome()),
            Some(error) => Err(error),
            None => Ok(offered),
        }
    }
}
