//! Groups and subscriptions: written to all masters.

use super::view::Kind;
use super::{
    Pending, Precondition, ROUNDS_MAX, failed, is_conflict, is_out_of_reach, nobody, pending,
    too_many_writers,
};
use crate::error::{ApiError, Code};
use crate::params::{check_group_writable, check_topic_writable};
use crate::upstream::{Upstream, mapping};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;
use wire::body::config_level::ConfigEntry;
use wire::body::gantry::{GroupDetail, GroupSpec, SubscriptionSpec};
use wire::json;
use wire::{Command, RequestCode};

impl Upstream {
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
        found.ok_or_else(|| unknown(group))
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
        let write = |current: Option<&GroupDetail>| {
            let what = format!("group '{group}'");
            condition.check(current.map(|g| g.version), Code::GroupExists, &what)?;
            let command = Command::request(RequestCode::PutGroup);
            Ok(Some(command.with_body(json::to_vec(&change(current)?))))
        };
        self.write_group(group, write, deadline).await
    }

    /// Writes a subscription. `only_new` leaves an existing one as it is. True where it is new.
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
    ) -> Result<(Arc<GroupDetail>, bool, Pending), ApiError> {
        let mut made = false;
        let write = |current: Option<&GroupDetail>| {
            let current = current.ok_or_else(|| unknown(group))?;
            let present = current
                .subscriptions
                .iter()
                .find(|s| s.topic == wanted.topic);
            let what = format!("the subscription of '{}'", wanted.topic);
            condition.check(present.map(|s| s.version), Code::VersionMismatch, &what)?;
            made = present.is_none();
            if only_new && present.is_some() {
                return Ok(None);
            }
            let command = Command::request(RequestCode::PutSubscription)
                .with_ext("topic", &wanted.topic)
                .with_ext("topicKnown", true)
                .with_body(json::to_vec(wanted));
            Ok(Some(command))
        };
        let (detail, _, pending) = self.write_group(group, write, deadline).await?;
        Ok((detail, made, pending))
    }

    /// Deletes a subscription.
    ///
    /// # Errors
    /// `group_not_found`, `subscription_not_found`, the precondition's, `broker_unavailable`.
    pub async fn delete_subscription(
        &self,
        group: &str,
        topic: &str,
        condition: Precondition,
        deadline: Instant,
    ) -> Result<Pending, ApiError> {
        let write = |current: Option<&GroupDetail>| {
            let current = current.ok_or_else(|| unknown(group))?;
            let present = current.subscriptions.iter().find(|s| s.topic == topic);
            let present = present.ok_or_else(|| {
                ApiError::new(
                    Code::SubscriptionNotFound,
                    format!("group '{group}' does not subscribe topic '{topic}'"),
                )
            })?;
            let what = format!("the subscription of '{topic}'");
            condition.check(Some(present.version), Code::VersionMismatch, &what)?;
            let command = Command::request(RequestCode::DeleteSubscription);
            Ok(Some(command.with_ext("topic", topic)))
        };
        Ok(self.write_group(group, write, deadline).await?.2)
    }

    /// One change of a group: `write` sees the newest one and gives the request, or `None` where nothing is to be done.
    /// Answers the group, whether it is new, and the masters not reached.
    async fn write_group<F>(
        &self,
        group: &str,
        write: F,
        deadline: Instant,
    ) -> Result<(Arc<GroupDetail>, bool, Pending), ApiError>
    where
        F: FnMut(Option<&GroupDetail>) -> Result<Option<Command>, ApiError>,
    {
        let mut taken = false;
        let written = self.write_group_everywhere(group, write, deadline, &mut taken);
        written.await.map_err(|error| failed(error, taken))
    }

    /// `taken`: a master took the write.
    async fn write_group_everywhere<F>(
        &self,
        group: &str,
        mut write: F,
        deadline: Instant,
        taken: &mut bool,
    ) -> Result<(Arc<GroupDetail>, bool, Pending), ApiError>
    where
        F: FnMut(Option<&GroupDetail>) -> Result<Option<Command>, ApiError>,
    {
        let mut unreachable = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let view = self.group_view(group, deadline).await?;
            let masters = self.masters(deadline).await?;
            let mut wanted = self.masters_of_late(&masters);
            wanted.extend(view.peers.iter().cloned());
            let newest = view.newest();
            let Some(command) = write(newest.map(|(_, detail)| detail))? else {
                let found = newest.map(|(_, detail)| Arc::new(detail.clone()));
                let detail = found.ok_or_else(|| unknown(group))?;
                return Ok((detail, false, pending(&wanted, &view.answered)));
            };
            let writer = match newest {
                Some((holder, _)) if !unreachable.contains(holder) => Some(holder.to_owned()),
                _ => view.answered.difference(&unreachable).next().cloned(),
            };
            let Some((writer, addr)) =
                writer.and_then(|w| Some((w.clone(), masters.by_name.get(&w)?)))
            else {
                return Err(nobody());
            };
            let known = view.found.get(&writer).map_or(0, |detail| detail.version);
            let command = command
                .with_ext("group", group)
                .with_ext("expect", known)
                .with_ext("version", view.next_version(self.0.groups.known(group)));
            let about = mapping::About::Group(group);
            let detail: GroupDetail = match self.write_one(addr, command, about, deadline).await {
                Ok(detail) => detail,
                Err(error) if is_conflict(&error) => continue,
                Err(error) if is_out_of_reach(&error) => {
                    unreachable.insert(writer);
                    continue;
                }
                Err(error) => return Err(error),
            };
            *taken = true;
            let entry = self.stored(Kind::Group, group, addr, deadline).await?;
            let mut others = BTreeMap::clone(&masters.by_name);
            others.remove(&writer);
            let mut offered = self
                .offer(Kind::Group, entry, &writer, others, deadline)
                .await?;
            if offered.lost {
                continue;
            }
            offered.reached.insert(writer);
            let detail = Arc::new(detail);
            self.0.groups.put(&detail, self.0.options.clock.monotonic());
            let pending = pending(&wanted, &offered.reached);
            return Ok((detail, newest.is_none(), pending));
        }
        Err(too_many_writers())
    }

    /// Deletes a group on every master.
    ///
    /// # Errors
    /// `group_not_found`, the precondition's, `broker_unavailable` when no master was reached.
    pub async fn delete_group(
        &self,
        group: &str,
        condition: Precondition,
        deadline: Instant,
    ) -> Result<Pending, ApiError> {
        let mut taken = false;
        let deleted = self.delete_group_everywhere(group, condition, deadline, &mut taken);
        deleted.await.map_err(|error| failed(error, taken))
    }

    /// `taken`: a master has deleted it, or may have.
    async fn delete_group_everywhere(
        &self,
        group: &str,
        condition: Precondition,
        deadline: Instant,
        taken: &mut bool,
    ) -> Result<Pending, ApiError> {
        for _ in 0..ROUNDS_MAX {
            let view = self.group_view(group, deadline).await?;
            let masters = self.masters(deadline).await?;
            let version = view.version().ok_or_else(|| unknown(group))?;
            let what = format!("group '{group}'");
            condition.check(Some(version), Code::GroupExists, &what)?;
            let mut wanted = self.masters_of_late(&masters);
            wanted.extend(view.peers.iter().cloned());
            let entry = ConfigEntry {
                name: group.to_owned(),
                version: view.next_version(self.0.groups.known(group)),
                ..ConfigEntry::default()
            };
            let offered = self
                .offer(
                    Kind::Group,
                    entry,
                    "",
                    BTreeMap::clone(&masters.by_name),
                    deadline,
                )
                .await?;
            *taken |= offered.taken;
            if offered.lost {
                continue;
            }
            if offered.reached.is_empty() {
                return Err(nobody());
            }
            self.0.groups.forget(group);
            return Ok(pending(&wanted, &offered.reached));
        }
        Err(too_many_writers())
    }

    /// Makes topic, group and subscription (from earliest) where they are missing.
    pub(in crate::upstream) async fn create_subscription(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<Arc<GroupDetail>, ApiError> {
        check_group_writable(group)?;
        check_topic_writable(topic)?;
        let _turn = self.0.creating.turn(deadline).await?;
        if self.route(topic, deadline).await?.is_none() {
            self.make_topic(topic, deadline).await?;
        }
        if self.group(group, deadline).await?.is_none() {
            self.make_group(group, deadline).await?;
        }
        let wanted = SubscriptionSpec {
            topic: topic.to_owned(),
            initial_position: Some("earliest".to_owned()),
            ..SubscriptionSpec::default()
        };
        let (detail, ..) = self
            .put_subscription(group, Precondition::default(), &wanted, true, deadline)
            .await?;
        Ok(detail)
    }

    /// Makes a group that reads from earliest; one that exists is fine.
    async fn make_group(&self, group: &str, deadline: Instant) -> Result<(), ApiError> {
        let absent = Precondition {
            absent: true,
            ..Precondition::default()
        };
        let earliest = |_: Option<&GroupDetail>| {
            Ok(GroupSpec {
                initial_position: "earliest".to_owned(),
                ..default_group()
            })
        };
        match self.put_group(group, absent, earliest, deadline).await {
            Err(error) if error.code() != Code::GroupExists => Err(error.before_the_write()),
            _ => Ok(()),
        }
    }

    /// Topic and group of a subscription about to be written, made where `autoCreate` is on.
    ///
    /// # Errors
    /// `system_resource`, `topic_not_found`, `group_not_found`, `no_route`, `broker_unavailable`.
    pub async fn ensure_for_subscription(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        check_group_writable(group)?;
        check_topic_writable(topic)?;
        let (found, silent) = self.topic_now(topic, deadline).await?;
        if found.is_empty() {
            self.nowhere(topic, &silent, deadline).await?;
            if !self.0.options.auto_create {
                return Err(ApiError::new(
                    Code::TopicNotFound,
                    format!("topic '{topic}' does not exist; create it with PUT"),
                ));
            }
            self.create_topic(topic, deadline).await?;
        }
        match self.group_now(group, deadline).await? {
            Some(_) => Ok(()),
            None if self.0.options.auto_create => {
                let _turn = self.0.creating.turn(deadline).await?;
                self.make_group(group, deadline).await
            }
            None => Err(ApiError::new(
                Code::GroupNotFound,
                format!("group '{group}' does not exist; create it with PUT"),
            )),
        }
    }
}

fn unknown(group: &str) -> ApiError {
    ApiError::new(
        Code::GroupNotFound,
        format!("group '{group}' does not exist"),
    )
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
