//! Groups and subscriptions: written to all masters.

use super::{Pending, Precondition, ROUNDS_MAX, Round, body, too_many_writers};
use crate::error::{ApiError, Code};
use crate::params::is_system_group;
use crate::upstream::{Upstream, mapping};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;
use wire::body::gantry::{GroupDetail, GroupLag, GroupSpec, SubscriptionSpec};
use wire::json;
use wire::{Command, RequestCode, ResponseCode};

impl Upstream {
    /// Names of the groups of users.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`.
    pub async fn groups(&self, deadline: Instant) -> Result<BTreeSet<String>, ApiError> {
        let table = self
            .tables(
                RequestCode::GetAllSubscriptiongroupConfig,
                "subscriptionGroupTable",
                deadline,
            )
            .await?;
        Ok(table
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| !is_system_group(name))
            .collect())
    }

    /// The group in its newest version, and the masters that do not answer.
    ///
    /// # Errors
    /// `group_not_found`, `no_route`, `broker_unavailable`.
    pub async fn get_group(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, Pending), ApiError> {
        let found = self.group_now(group, deadline).await?;
        found.ok_or_else(|| {
            ApiError::new(
                Code::GroupNotFound,
                format!("group '{group}' does not exist"),
            )
        })
    }

    /// Writes a group. `change` is given what is there.
    ///
    /// # Errors
    /// The precondition's, `change`'s, `broker_unavailable` when no master was reached.
    pub async fn put_group<F>(
        &self,
        group: &str,
        condition: Precondition,
        change: F,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, bool, Pending), ApiError>
    where
        F: Fn(Option<&GroupDetail>) -> Result<GroupSpec, ApiError>,
    {
        for _ in 0..ROUNDS_MAX {
            let (current, silent) = match self.group_now(group, deadline).await? {
                Some((detail, silent)) => (Some(detail), silent),
                None => (None, Vec::new()),
            };
            let version = current.as_ref().map(|g| g.version);
            condition.check(version, Code::GroupExists, &format!("group '{group}'"))?;
            let spec = change(current.as_deref())?;
            let mut command = Command::request(RequestCode::PutGroup)
                .with_ext("group", group)
                .with_ext("version", version.unwrap_or(0) + 1)
                .with_body(json::to_vec(&spec));
            if condition != Precondition::default() {
                command.ext.put("expect", version.unwrap_or(0));
            }
            let mut round = Round::new(silent);
            let mut newest: Option<GroupDetail> = None;
            let mut reached = 0;
            for (broker, answer) in self.all_masters(&command, deadline).await? {
                let detail: Option<GroupDetail> =
                    round.take(&broker, answer, mapping::About::Group(group))?;
                if let Some(detail) = detail {
                    reached += 1;
                    newest = newest
                        .filter(|n| n.version >= detail.version)
                        .or(Some(detail));
                }
            }
            if round.conflict {
                continue;
            }
            round.finish(reached)?;
            return Ok((self.remember(newest)?, version.is_none(), round.pending));
        }
        Err(too_many_writers())
    }

    fn remember(&self, newest: Option<GroupDetail>) -> Result<Arc<GroupDetail>, ApiError> {
        let Some(detail) = newest else {
            return Err(ApiError::new(
                Code::BrokerUnavailable,
                "no broker can be reached",
            ));
        };
        let detail = Arc::new(detail);
        self.0.groups.put(&detail, self.0.options.clock.monotonic());
        Ok(detail)
    }

    /// Writes a subscription on every master. `only_new` leaves an existing one as it is.
    ///
    /// # Errors
    /// `group_not_found`, `topic_not_found`, `invalid_filter`, the precondition's, `broker_unavailable`.
    pub async fn put_subscription(
        &self,
        group: &str,
        condition: Precondition,
        wanted: &SubscriptionSpec,
        only_new: bool,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, Pending), ApiError> {
        if only_new
            && let Some((detail, pending)) = self.group_now(group, deadline).await?
            && detail.subscriptions.iter().any(|s| s.topic == wanted.topic)
        {
            return Ok((detail, pending));
        }
        let mut command = Command::request(RequestCode::PutSubscription)
            .with_ext("group", group)
            .with_ext("topic", &wanted.topic)
            .with_body(json::to_vec(wanted));
        if let Some(version) = condition.version {
            command.ext.put("expect", version);
        } else if condition.absent {
            command.ext.put("expect", "0");
        }
        self.write_group(&command, group, deadline).await
    }

    /// Deletes a subscription on every master.
    ///
    /// # Errors
    /// `group_not_found`, `subscription_not_found`, `broker_unavailable`.
    pub async fn delete_subscription(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, Pending), ApiError> {
        let command = Command::request(RequestCode::DeleteSubscription)
            .with_ext("group", group)
            .with_ext("topic", topic);
        self.write_group(&command, group, deadline).await
    }

    async fn write_group(
        &self,
        command: &Command,
        group: &str,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, Pending), ApiError> {
        let mut round = Round::new(Vec::new());
        let (mut newest, mut reached): (Option<GroupDetail>, usize) = (None, 0);
        for (broker, answer) in self.all_masters(command, deadline).await? {
            let detail: Option<GroupDetail> =
                round.take(&broker, answer, mapping::About::Group(group))?;
            if let Some(detail) = detail {
                reached += 1;
                newest = newest
                    .filter(|n| n.version >= detail.version)
                    .or(Some(detail));
            }
        }
        if round.conflict {
            return Err(ApiError::new(
                Code::VersionMismatch,
                "the subscription has another version; read it again",
            ));
        }
        round.finish(reached)?;
        Ok((self.remember(newest)?, round.pending))
    }

    /// Deletes a group on every master.
    ///
    /// # Errors
    /// `broker_unavailable` when no master was reached, or what a master refused with.
    pub async fn delete_group(&self, group: &str, deadline: Instant) -> Result<Pending, ApiError> {
        let command = Command::request(RequestCode::DeleteSubscriptiongroup)
            .with_ext("groupName", group)
            .with_ext("group", group)
            .with_ext("cleanOffset", true);
        let pending = self
            .delete_everywhere(&command, mapping::About::Group(group), deadline)
            .await?;
        self.0.groups.outdated(group);
        Ok(pending)
    }

    /// How far a group is, per broker.
    ///
    /// # Errors
    /// `group_not_found`, `no_route`, `broker_unavailable`.
    pub async fn lag(
        &self,
        group: &str,
        deadline: Instant,
    ) -> Result<Vec<(String, GroupLag)>, ApiError> {
        let command = Command::request(RequestCode::GroupLag).with_ext("group", group);
        let (mut found, mut last) = (Vec::new(), None);
        for (broker, answer) in self.all_masters(&command, deadline).await? {
            match answer {
                Ok(response) if response.response_code() == ResponseCode::Success => {
                    found.push((broker, body(&response)?))
                }
                Ok(response) => {
                    last = Some(mapping::answer(&response, mapping::About::Group(group)))
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Groups that have not read all of a topic, with how much is missing.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`.
    pub async fn groups_behind(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<Vec<(String, i64)>, ApiError> {
        let mut behind = Vec::new();
        for group in self.groups(deadline).await? {
            let Some(detail) = self.group(&group, deadline).await? else {
                continue;
            };
            if !detail.subscriptions.iter().any(|s| s.topic == topic) {
                continue;
            }
            let retry = format!("+{topic}");
            let queues = self
                .lag(&group, deadline)
                .await?
                .into_iter()
                .flat_map(|(_, lag)| lag.queues);
            let lag: i64 = queues
                .filter(|q| q.topic == topic || q.retry && q.topic.ends_with(&retry))
                .map(|q| {
                    (q.max_offset - q.next_deliver.max(q.min_offset)).max(0)
                        + i64::try_from(q.in_flight + q.waiting).unwrap_or(i64::MAX)
                })
                .sum();
            if lag > 0 {
                behind.push((group, lag));
            }
        }
        Ok(behind)
    }

    /// Makes topic, group and subscription (from earliest) where they are missing.
    pub(in crate::upstream) async fn create_subscription(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<Arc<GroupDetail>, ApiError> {
        if self.route(topic, deadline).await?.is_none() {
            self.create_topic(topic, deadline).await?;
        }
        let earliest = || GroupSpec {
            initial_position: "earliest".to_owned(),
            ..default_group()
        };
        if self.group(group, deadline).await?.is_none() {
            let absent = Precondition {
                version: None,
                absent: true,
            };
            match self
                .put_group(group, absent, |_| Ok(earliest()), deadline)
                .await
            {
                Ok(_) => {}
                Err(error) if error.code() == Code::GroupExists => {}
                Err(error) => return Err(error),
            }
        }
        let wanted = SubscriptionSpec {
            topic: topic.to_owned(),
            initial_position: Some("earliest".to_owned()),
            ..SubscriptionSpec::default()
        };
        let (detail, _) = self
            .put_subscription(group, Precondition::default(), &wanted, true, deadline)
            .await?;
        Ok(detail)
    }

    /// Topic and group of a subscription about to be written, made where `autoCreate` is on.
    ///
    /// # Errors
    /// `topic_not_found`, `group_not_found`, `no_route`, `broker_unavailable`.
    pub async fn ensure_for_subscription(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<Arc<GroupDetail>, ApiError> {
        if self.topic_now(topic, deadline).await?.0.is_empty() {
            if !self.0.options.auto_create {
                return Err(ApiError::new(
                    Code::TopicNotFound,
                    format!("topic '{topic}' does not exist; create it with PUT"),
                ));
            }
            self.create_topic(topic, deadline).await?;
        }
        match self.group_now(group, deadline).await? {
            Some((detail, _)) => Ok(detail),
            None if self.0.options.auto_create => {
                let spec = GroupSpec {
                    initial_position: "earliest".to_owned(),
                    ..default_group()
                };
                let made = self
                    .put_group(
                        group,
                        Precondition::default(),
                        |now| Ok(now.map_or_else(|| spec.clone(), |g| g.spec.clone())),
                        deadline,
                    )
                    .await?;
                Ok(made.0)
            }
            None => Err(ApiError::new(
                Code::GroupNotFound,
                format!("group '{group}' does not exist; create it with PUT"),
            )),
        }
    }
}

/// What the gateway gives a group where nothing is said.
#[must_use]
pub fn default_group() -> GroupSpec {
    let seconds = [1, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600];
    GroupSpec {
        backoff: wire::body::gantry::Backoff::List {
            delays_ms: seconds.iter().map(|s| s * 1_000).collect(),
        },
        dead_letter_retention_ms: 14 * 86_400_000,
        ..GroupSpec::default()
    }
}
