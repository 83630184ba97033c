//! Topics, groups, subscriptions, lag: administration calls to all masters.
//!
//! A write gives the next version to every master that should hold it. Masters not reached are named (`pending`); none
//! reached is a failure.

use super::routes::{Broker, PERM_READ, PERM_WRITE, Route};
use super::{Upstream, mapping};
use crate::error::{ApiError, Code};
use crate::params::{is_system_group, is_system_topic};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;
use wire::body::gantry::{
    GroupDetail, GroupLag, GroupSpec, SubscriptionSpec, TopicDetail, TopicSpec,
};
use wire::json::{self, Value};
use wire::{Command, RequestCode, ResponseCode};

/// Queues of a topic nobody gave a number for.
pub const QUEUES_DEFAULT: i32 = 8;
/// Rounds of a write that meets other writers.
const ROUNDS_MAX: usize = 5;

/// A topic on one broker.
#[derive(Clone, Debug)]
pub struct BrokerTopic {
    /// Broker name.
    pub broker: String,
    /// What it has.
    pub detail: TopicDetail,
}

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

    /// A topic on every master that has it, and the masters that do not answer.
    ///
    /// # Errors
    /// `no_route`, or what all masters failed with.
    pub async fn topic_now(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(Vec<BrokerTopic>, Pending), ApiError> {
        let command = Command::request(RequestCode::GetTopic).with_ext("topic", topic);
        let (mut found, mut silent, mut last) = (Vec::new(), Vec::new(), None);
        let answers = self.all_masters(&command, deadline).await?;
        let asked = answers.len();
        for (broker, answer) in answers {
            match answer {
                Ok(response) => match response.response_code() {
                    ResponseCode::Success => found.push(BrokerTopic {
                        broker,
                        detail: body(&response)?,
                    }),
                    ResponseCode::TopicNotExist => {}
                    _ => return Err(mapping::answer(&response, mapping::About::Topic(topic))),
                },
                Err(error) => {
                    silent.push(broker);
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if silent.len() == asked => Err(error),
            _ => Ok((found, silent)),
        }
    }

    /// Writes a topic. `change` is given what is there (empty = new) and says the total number of queues and the
    /// attributes. Answers the topic, whether it is new, and the masters not reached.
    ///
    /// # Errors
    /// The precondition's, `change`'s, `broker_unavailable` when no master was reached.
    pub async fn put_topic<F>(
        &self,
        topic: &str,
        condition: Precondition,
        change: F,
        deadline: Instant,
    ) -> Result<(Vec<BrokerTopic>, bool, Pending), ApiError>
    where
        F: Fn(&[BrokerTopic]) -> Result<(i32, BTreeMap<String, String>), ApiError>,
    {
        for _ in 0..ROUNDS_MAX {
            let (current, silent) = self.topic_now(topic, deadline).await?;
            let version = current.iter().map(|t| t.detail.version).max();
            condition.check(version, Code::TopicExists, &format!("topic '{topic}'"))?;
            let (queues, attributes) = change(&current)?;
            let specs = self
                .spread(&current, queues, &attributes, &silent, deadline)
                .await?;
            let next = version.unwrap_or(0) + 1;
            let calls = specs.iter().map(|(broker, addr, spec)| {
                let known = current
                    .iter()
                    .find(|t| t.broker == *broker)
                    .map_or(0, |t| t.detail.version);
                let command = Command::request(RequestCode::PutTopic)
                    .with_ext("topic", topic)
                    .with_ext("expect", known)
                    .with_ext("version", next)
                    .with_body(json::to_vec(spec));
                async move {
                    (
                        broker.clone(),
                        addr.clone(),
                        self.call(addr, command, deadline).await,
                    )
                }
            });
            let mut round = Round::new(silent);
            let mut written = Vec::new();
            for (broker, addr, answer) in join_all(calls).await {
                if let Some(detail) = round.take(&broker, answer, mapping::About::Topic(topic))? {
                    written.push((addr, BrokerTopic { broker, detail }));
                }
            }
            if round.conflict {
                continue;
            }
            round.finish(written.len())?;
            let route = route_of(written.iter().map(|(addr, t)| (addr, t)));
            self.learn_route(topic, Arc::new(route));
            return Ok((
                written.into_iter().map(|(_, t)| t).collect(),
                version.is_none(),
                round.pending,
            ));
        }
        Err(too_many_writers())
    }

    /// How many queues each master gets: those it has, and the new ones where there are fewest.
    async fn spread(
        &self,
        current: &[BrokerTopic],
        queues: i32,
        attributes: &BTreeMap<String, String>,
        silent: &[String],
        deadline: Instant,
    ) -> Result<Vec<(String, String, TopicSpec)>, ApiError> {
        let masters = self.masters(deadline).await?;
        let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
        for (name, _) in masters.by_name.iter().filter(|(n, _)| !silent.contains(n)) {
            let has = current
                .iter()
                .find(|t| t.broker == **name)
                .map_or(0, |t| t.detail.spec.write_queues);
            counts.insert(name, has);
        }
        let mut missing = queues - counts.values().sum::<i32>();
        while missing > 0 {
            let Some((_, least)) = counts.iter_mut().min_by_key(|(_, n)| **n) else {
                break;
            };
            *least += 1;
            missing -= 1;
        }
        let spec = |n: i32| TopicSpec {
            read_queues: n,
            write_queues: n,
            perm: 6,
            attributes: attributes.clone(),
        };
        let all = counts.iter().filter(|(_, n)| **n > 0);
        Ok(all
            .filter_map(|(name, n)| {
                Some((
                    (*name).to_owned(),
                    masters.by_name.get(*name)?.clone(),
                    spec(*n),
                ))
            })
            .collect())
    }

    /// The route of a topic as its brokers have it; `None` = no broker has it.
    ///
    /// # Errors
    /// `no_route`, or what all masters failed with.
    pub(super) async fn route_from_masters(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<Option<Arc<Route>>, ApiError> {
        let (found, _) = self.topic_now(topic, deadline).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let masters = self.masters(deadline).await?;
        let addressed = found
            .iter()
            .filter_map(|t| Some((masters.by_name.get(&t.broker)?, t)));
        Ok(Some(Arc::new(route_of(addressed))))
    }

    /// Makes a topic with the default number of queues; one that exists is fine. Callers that meet make it once.
    pub(super) async fn create_topic(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let _one = self.0.creating.lock().await;
        if self.route(topic, deadline).await?.is_some() {
            return Ok(());
        }
        let change = |_: &[BrokerTopic]| Ok((QUEUES_DEFAULT, BTreeMap::new()));
        let absent = Precondition {
            version: None,
            absent: true,
        };
        match self.put_topic(topic, absent, change, deadline).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Code::TopicExists => {
                self.refresh_route(topic, deadline).await.map(|_| ())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes topic, group and subscription (from earliest) where they are missing.
    pub(super) async fn create_subscription(
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

    /// Deletes a topic on every master and in the name servers.
    ///
    /// # Errors
    /// `topic_not_found`, `broker_unavailable` when no master was reached.
    pub async fn delete_topic(&self, topic: &str, deadline: Instant) -> Result<Pending, ApiError> {
        let command = Command::request(RequestCode::DeleteTopicInBroker).with_ext("topic", topic);
        let pending = self
            .delete_everywhere(&command, mapping::About::Topic(topic), deadline)
            .await?;
        let forget = Command::request(RequestCode::DeleteTopicInNamesrv).with_ext("topic", topic);
        let calls = self
            .0
            .options
            .name_servers
            .iter()
            .map(|server| self.call(server, forget.clone(), deadline));
        for answer in join_all(calls).await {
            if let Err(error) = answer {
                tracing::debug!(%error, "name server did not forget the topic");
            }
        }
        self.0.routes.forget(topic);
        Ok(pending)
    }

    async fn delete_everywhere(
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

    /// Topics of users: name, queues in all, attributes.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`.
    pub async fn topics(
        &self,
        deadline: Instant,
    ) -> Result<BTreeMap<String, (i64, BTreeMap<String, String>)>, ApiError> {
        let masters = self.masters(deadline).await?;
        let mut topics: BTreeMap<String, (i64, BTreeMap<String, String>)> = BTreeMap::new();
        for (name, config) in self
            .tables(RequestCode::GetAllTopicConfig, "topicConfigTable", deadline)
            .await?
        {
            if is_system_topic(&name)
                || masters.by_name.contains_key(&name)
                || masters.clusters.contains(&name)
            {
                continue;
            }
            let entry = topics.entry(name).or_default();
            if let Some(Value::Number(n) | Value::String(n)) = config.get("writeQueueNums") {
                entry.0 += n.parse::<i64>().unwrap_or(0);
            }
            if let Some(Value::Object(attributes)) = config.get("attributes") {
                for (key, value) in attributes {
                    if let Value::String(value) = value {
                        entry.1.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        Ok(topics)
    }

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

    async fn tables(
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

    /// Brokers by name with the address of their master; for the start page.
    ///
    /// # Errors
    /// `no_route`.
    pub async fn cluster(&self, deadline: Instant) -> Result<BTreeMap<String, String>, ApiError> {
        Ok(self.refresh_masters(deadline).await?.by_name.clone())
    }
}

/// Where these brokers have a topic.
fn route_of<'a>(brokers: impl Iterator<Item = (&'a String, &'a BrokerTopic)>) -> Route {
    let mut route = Route::default();
    for (addr, topic) in brokers {
        let broker = Arc::new(Broker {
            name: topic.broker.clone(),
            addr: addr.clone(),
        });
        let spec = &topic.detail.spec;
        if spec.perm & PERM_WRITE != 0 {
            route
                .writable
                .extend((0..spec.write_queues).map(|id| (Arc::clone(&broker), id)));
        }
        if spec.perm & PERM_READ != 0 {
            route.readable.push(broker);
        }
    }
    route
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

fn too_many_writers() -> ApiError {
    ApiError::new(
        Code::VersionMismatch,
        "others write this resource at the same time; read it and try again",
    )
}

/// Answers of one write to all masters.
struct Round {
    pending: Pending,
    conflict: bool,
    last: Option<ApiError>,
}

impl Round {
    fn new(pending: Pending) -> Self {
        Self {
            pending,
            conflict: false,
            last: None,
        }
    }

    /// The body of a success; notes who was not reached and who has another version.
    fn take<T: DeserializeOwned>(
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

    fn finish(&mut self, reached: usize) -> Result<(), ApiError> {
        if reached > 0 {
            return Ok(());
        }
        Err(self
            .last
            .take()
            .unwrap_or_else(|| ApiError::new(Code::BrokerUnavailable, "no broker can be reached")))
    }
}
