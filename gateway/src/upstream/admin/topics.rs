//! Topics: written to the masters that hold their queues.

use super::{Pending, Precondition, ROUNDS_MAX, Round, body, too_many_writers};
use crate::error::{ApiError, Code};
use crate::params::is_system_topic;
use crate::upstream::routes::{Broker, PERM_READ, PERM_WRITE, Route};
use crate::upstream::{Upstream, mapping};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use wire::body::gantry::{TopicDetail, TopicSpec};
use wire::json::{self, Value};
use wire::{Command, RequestCode, ResponseCode};

/// Queues of a topic nobody gave a number for.
const QUEUES_DEFAULT: i32 = 8;

/// A topic on one broker.
#[derive(Clone, Debug)]
pub struct BrokerTopic {
    /// Broker name.
    pub broker: String,
    /// What it has.
    pub detail: TopicDetail,
}

impl Upstream {
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
    pub(in crate::upstream) async fn route_from_masters(
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
    pub(in crate::upstream) async fn create_topic(
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
