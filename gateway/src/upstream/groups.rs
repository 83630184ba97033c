//! Groups as the brokers have them: cached for 10 s, and until an answer names a newer version.

use super::admin::{Versioned, View};
use super::{Upstream, mapping};
use crate::error::{ApiError, Code};
use clock::Monotonic;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::body::gantry::GroupDetail;
use wire::{Command, RequestCode, ResponseCode};

const FRESH: Duration = Duration::from_secs(10);
const GROUPS_MAX: usize = 20_000;

/// The version of the group that a broker's answer names; 0 = none.
pub(super) fn version_in(response: &Command) -> u64 {
    let version = response.ext.optional("groupVersion").ok().flatten();
    version.unwrap_or(0)
}

impl Versioned for GroupDetail {
    fn age(&self) -> (u64, &str) {
        (self.version, &self.hash)
    }
}

/// A group as it was last read.
#[derive(Debug)]
struct Known {
    /// When; `None` = to be read again.
    at: Option<Monotonic>,
    detail: Arc<GroupDetail>,
}

#[derive(Debug, Default)]
pub(super) struct GroupCache {
    groups: RwLock<HashMap<String, Known>>,
}

impl GroupCache {
    /// A broker has a newer version, or something else does not fit: it is read again.
    pub(super) fn outdated(&self, group: &str) {
        if let Some(known) = self.groups.write().get_mut(group) {
            known.at = None;
        }
    }

    /// No broker has it.
    pub(super) fn forget(&self, group: &str) {
        self.groups.write().remove(group);
    }

    /// The newest version ever seen; 0 for an unknown group.
    pub(super) fn known(&self, group: &str) -> u64 {
        let groups = self.groups.read();
        groups.get(group).map_or(0, |known| known.detail.version)
    }

    fn get(&self, group: &str, now: Monotonic) -> Option<Arc<GroupDetail>> {
        let groups = self.groups.read();
        let known = groups.get(group)?;
        let fresh = known.at.is_some_and(|at| now.since(at) < FRESH);
        fresh.then(|| Arc::clone(&known.detail))
    }

    /// Remembers it. A newer version that is known stays: nothing is taken under an older one, even where the brokers that
    /// had the newer one are gone for a while.
    pub(super) fn put(&self, detail: &Arc<GroupDetail>, now: Monotonic) -> Arc<GroupDetail> {
        let mut groups = self.groups.write();
        if groups.len() >= GROUPS_MAX {
            groups.clear();
        }
        let known = groups.entry(detail.group.clone()).or_insert_with(|| Known {
            at: None,
            detail: Arc::clone(detail),
        });
        if known.detail.version <= detail.version {
            known.detail = Arc::clone(detail);
        }
        known.at = Some(now);
        Arc::clone(&known.detail)
    }
}

impl Upstream {
    /// The group, from the cache or the first broker that has it; `None` = no broker has it.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable` when no broker can be asked.
    pub(super) async fn group(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<Option<Arc<GroupDetail>>, ApiError> {
        if let Some(detail) = self.0.groups.get(group, self.0.options.clock.monotonic()) {
            return Ok(Some(detail));
        }
        let found = self.group_now(group, deadline).await?;
        Ok(found.map(|(detail, _)| {
            let now = self.0.options.clock.monotonic();
            self.0.groups.put(&detail, now)
        }))
    }

    /// What all masters say of the group.
    ///
    /// # Errors
    /// As [`Self::group`].
    pub(super) async fn group_view(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<View<GroupDetail>, ApiError> {
        let command = Command::request(RequestCode::GetGroup).with_ext("group", group);
        let absent = ResponseCode::SubscriptionGroupNotExist;
        self.view(&command, absent, mapping::About::Group(group), deadline)
            .await
    }

    /// The group in its newest version among the brokers that answer, and those that do not.
    ///
    /// # Errors
    /// As [`Self::group`].
    pub(super) async fn group_now(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<Option<(Arc<GroupDetail>, Vec<String>)>, ApiError> {
        let view = self.group_view(group, deadline).await?;
        let Some((_, newest)) = view.newest() else {
            self.0.groups.forget(group);
            return Ok(None);
        };
        let detail = Arc::new(newest.clone());
        self.0.groups.put(&detail, self.0.options.clock.monotonic());
        Ok(Some((detail, view.silent.into_iter().collect())))
    }

    /// An answer of a broker names its version of the group: one newer than the `known` is read.
    pub(super) fn learn_version(&self, response: &Command, group: &str, known: u64) {
        if version_in(response) > known {
            self.0.groups.outdated(group);
        }
    }

    /// The group of a receive. Creates it, its topic and its subscription where `autoCreate` is on and a topic is named.
    pub(crate) async fn group_for_receive(
        &self,
        group: &str,
        topic: Option<&str>,
        deadline: Instant,
    ) -> Result<Arc<GroupDetail>, ApiError> {
        let known = self.group(group, deadline).await?;
        let Some(topic) = topic else {
            return known.ok_or_else(|| self.no_group(group));
        };
        let subscribed =
            |detail: &GroupDetail| detail.subscriptions.iter().any(|s| s.topic == topic);
        if let Some(detail) = &known
            && subscribed(detail)
        {
            return Ok(Arc::clone(detail));
        }
        if self.0.options.auto_create {
            return self.create_subscription(group, topic, deadline).await;
        }
        // What the cache says may be 10 s old.
        self.0.groups.outdated(group);
        match self.group(group, deadline).await? {
            Some(detail) if subscribed(&detail) => Ok(detail),
            Some(_) => {
                let detail = format!(
                    "group '{group}' does not subscribe topic '{topic}'; PUT groups/{group}/subscriptions/{topic} first"
                );
                Err(ApiError::new(Code::SubscriptionNotFound, detail))
            }
            None => Err(self.no_group(group)),
        }
    }

    fn no_group(&self, group: &str) -> ApiError {
        let remedy = if self.0.options.auto_create {
            "a receive that names a topic (?topic=) makes it"
        } else {
            "create it with PUT"
        };
        ApiError::new(
            Code::GroupNotFound,
            format!("group '{group}' does not exist; {remedy}"),
        )
    }

    /// For a receive that names no topic: a group that reads nothing would wait for nothing.
    ///
    /// # Errors
    /// `group_not_found`, `subscription_not_found`, `broker_unavailable`.
    pub(crate) async fn reads_something(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        for _ in 0..2 {
            let detail = self.group_for_receive(group, None, deadline).await?;
            if !detail.subscriptions.is_empty() {
                return Ok(());
            }
            // What the cache says may be 10 s old.
            self.0.groups.outdated(group);
        }
        let or = if self.0.options.auto_create {
            ", or name a topic"
        } else {
            ""
        };
        let detail = format!(
            "group '{group}' subscribes no topic; PUT groups/{group}/subscriptions/TOPIC first{or}"
        );
        Err(ApiError::new(Code::SubscriptionNotFound, detail))
    }

    /// An answer that says the group or subscription is not there makes the cache forget it.
    pub(super) fn forget_if_unknown(&self, error: ApiError, group: &str) -> ApiError {
        if matches!(
            error.code(),
            Code::GroupNotFound | Code::SubscriptionNotFound
        ) {
            self.0.groups.outdated(group);
        }
        error
    }
}
