//! Groups as the brokers have them: cached for 10 s, and until an answer names a newer version.

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

#[derive(Debug, Default)]
pub(super) struct GroupCache {
    groups: RwLock<HashMap<String, (Monotonic, Arc<GroupDetail>)>>,
}

impl GroupCache {
    /// A broker has a newer version, or the group is gone.
    pub(super) fn outdated(&self, group: &str) {
        self.groups.write().remove(group);
    }

    fn get(&self, group: &str, now: Monotonic) -> Option<Arc<GroupDetail>> {
        self.groups
            .read()
            .get(group)
            .filter(|(at, _)| now.since(*at) < FRESH)
            .map(|(_, detail)| Arc::clone(detail))
    }

    pub(super) fn put(&self, detail: &Arc<GroupDetail>, now: Monotonic) {
        let mut groups = self.groups.write();
        if groups.len() >= GROUPS_MAX {
            groups.clear();
        }
        groups.insert(detail.group.clone(), (now, Arc::clone(detail)));
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
        Ok(self
            .group_now(group, deadline)
            .await?
            .map(|(detail, _)| detail))
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
        let command = Command::request(RequestCode::GetGroup).with_ext("group", group);
        let mut newest: Option<GroupDetail> = None;
        let mut silent = Vec::new();
        let mut last = None;
        let answers = self.all_masters(&command, deadline).await?;
        let asked = answers.len();
        for (broker, answer) in answers {
            match answer {
                Ok(response) if response.response_code() == ResponseCode::Success => {
                    let detail: GroupDetail = super::admin::body(&response)?;
                    if newest.as_ref().is_none_or(|n| n.version < detail.version) {
                        newest = Some(detail);
                    }
                }
                Ok(response)
                    if response.response_code() == ResponseCode::SubscriptionGroupNotExist => {}
                Ok(response) => {
                    return Err(mapping::answer(&response, mapping::About::Group(group)));
                }
                Err(error) => {
                    silent.push(broker);
                    last = Some(error);
                }
            }
        }
        match (newest, last) {
            (Some(detail), _) => {
                let detail = Arc::new(detail);
                self.0.groups.put(&detail, self.0.options.clock.monotonic());
                Ok(Some((detail, silent)))
            }
            (None, Some(error)) if silent.len() == asked => Err(error),
            (None, _) => Ok(None),
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
        let detail = format!(
            "group '{group}' subscribes no topic; PUT groups/{group}/subscriptions/TOPIC first, or name a topic (?topic=)"
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
