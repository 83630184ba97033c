//! Topics: written to the masters that hold their queues.

use super::view::{Kind, Versioned, View};
use super::{
    Pending, Precondition, ROUNDS_MAX, failed, is_conflict, is_out_of_reach, nobody, pending,
    too_many_writers,
};
use crate::error::{ApiError, Code};
use crate::upstream::consumer::{Partial, UNREACHABLE};
use crate::upstream::routes::{Broker, PERM_READ, PERM_WRITE, Route};
use crate::upstream::{Upstream, mapping};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;
use wire::body::config_level::ConfigEntry;
use wire::body::gantry::{TopicDetail, TopicSpec};
use wire::body::queue_map::QueueMap;
use wire::json;
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

impl Versioned for TopicDetail {
    fn age(&self) -> (u64, &str) {
        (self.version, &self.hash)
    }
}

/// Queues of a topic on all its brokers, the silent ones included.
#[must_use]
pub fn queues_in_all(brokers: &[BrokerTopic]) -> i32 {
    counts(brokers).values().sum()
}

/// Queues by broker: what the brokers say of themselves, and for the silent ones the newest queue map.
fn counts(brokers: &[BrokerTopic]) -> BTreeMap<String, i32> {
    let newest = brokers.iter().max_by_key(|t| t.detail.version);
    let mut counts = newest
        .and_then(|t| QueueMap::of(&t.detail.spec.attributes))
        .unwrap_or_default()
        .counts;
    for topic in brokers {
        counts.insert(topic.broker.clone(), topic.detail.spec.write_queues);
    }
    counts
}

/// The view as a list, the newest first.
fn listed(view: &View<TopicDetail>) -> Vec<BrokerTopic> {
    let mut list: Vec<BrokerTopic> = view
        .found
        .iter()
        .map(|(broker, detail)| BrokerTopic {
            broker: broker.clone(),
            detail: detail.clone(),
        })
        .collect();
    list.sort_by(|a, b| {
        b.detail
            .age()
            .cmp(&a.detail.age())
            .then(a.broker.cmp(&b.broker))
    });
    list
}

/// For a topic whose queues, or some of them, are on a broker that is away.
pub(crate) fn unreached(broker: &str, topic: &str) -> ApiError {
    let detail = format!("broker '{broker}' holds queues of '{topic}' and cannot be reached");
    ApiError::new(Code::BrokerUnavailable, detail)
}

impl Upstream {
    /// A topic on every master that has it, the newest first, and the masters that do not answer.
    ///
    /// # Errors
    /// `no_route`, or what all masters failed with.
    pub async fn topic_now(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(Vec<BrokerTopic>, Pending), ApiError> {
        let view = self.topic_view(topic, deadline).await?;
        let found = listed(&view);
        Ok((found, view.silent.into_iter().collect()))
    }

    /// A topic on every master that has it, the newest first, and the brokers left out: those that do not answer and have
    /// queues of it by its queue map, or may have where there is none.
    ///
    /// # Errors
    /// `no_route`, or what all masters failed with.
    pub(crate) async fn topic_in_part(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(Vec<BrokerTopic>, Partial), ApiError> {
        let view = self.topic_view(topic, deadline).await?;
        let masters = self.masters(deadline).await?;
        let newest = view.newest();
        let mut holders = match newest.and_then(|(_, t)| QueueMap::of(&t.spec.attributes)) {
            Some(map) => {
                let counts = map.counts.into_iter().filter(|(_, count)| *count > 0);
                counts.map(|(name, _)| name).collect()
            }
            None => self.masters_of_late(&masters),
        };
        if newest.is_none() {
            holders.extend(view.peers.iter().cloned());
        }
        holders.retain(|name| !view.answered.contains(name));
        let partial = holders.into_iter().map(|name| (name, UNREACHABLE));
        Ok((listed(&view), partial.collect()))
    }

    /// Keeps in mind who has a topic that was read, for when they are away.
    pub(crate) async fn remember(&self, topic: &str, found: &[BrokerTopic], deadline: Instant) {
        let known = self.route(topic, deadline).await.ok().flatten();
        let has = |broker: &str| {
            let mut readable = known.iter().flat_map(|route| &route.readable);
            readable.any(|known| known.name == broker)
        };
        if found.iter().all(|holder| has(&holder.broker)) {
            return;
        }
        if let Ok(masters) = self.masters(deadline).await {
            self.learn_route(topic, route_of(&masters.by_name, found));
        }
    }

    /// For a topic that no master that answers has: `Ok` = it does not exist, as far as this gateway and the name servers
    /// know.
    ///
    /// # Errors
    /// `broker_unavailable` naming a broker that has it and is away; `no_route`.
    pub(crate) async fn nowhere(
        &self,
        topic: &str,
        silent: &[String],
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let masters = self.masters(deadline).await?;
        let mut away = self.masters_of_late(&masters);
        away.retain(|name| !masters.by_name.contains_key(name));
        away.extend(silent.iter().cloned());
        if away.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.route(topic, deadline).await {
            tracing::debug!(%error, topic, "name servers not asked where the topic was");
        }
        let away: Vec<String> = away.into_iter().collect();
        match self.missing_holder(topic, &away, deadline).await? {
            Some(broker) => Err(unreached(&broker, topic)),
            None => Ok(()),
        }
    }

    /// What all masters say of the topic; the route of one that they deleted is forgotten.
    async fn topic_view(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<View<TopicDetail>, ApiError> {
        let command = Command::request(RequestCode::GetTopic).with_ext("topic", topic);
        let about = mapping::About::Topic(topic);
        let view = self
            .view(&command, ResponseCode::TopicNotExist, about, deadline)
            .await?;
        let now = self.0.options.clock.monotonic();
        match (view.version(), view.deleted_ago) {
            (Some(version), _) => self.0.routes.saw(topic, version),
            (None, Some(ago)) => self.0.routes.deleted(topic, view.deleted, ago, now),
            (None, None) => {}
        }
        Ok(view)
    }

    /// Writes a topic. `change` is given what is there (empty = new) and says the total number of queues and the
    /// attributes. Answers the topic, whether it is new, and the masters of its queue map that were not reached.
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
        let mut taken = false;
        let written = self.put_topic_everywhere(topic, condition, change, deadline, &mut taken);
        written.await.map_err(|error| failed(error, taken))
    }

    /// `taken`: a master took the write.
    async fn put_topic_everywhere<F>(
        &self,
        topic: &str,
        condition: Precondition,
        change: F,
        deadline: Instant,
        taken: &mut bool,
    ) -> Result<(Vec<BrokerTopic>, bool, Pending), ApiError>
    where
        F: Fn(&[BrokerTopic]) -> Result<(i32, BTreeMap<String, String>), ApiError>,
    {
        let mut unreachable = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let view = self.topic_view(topic, deadline).await?;
            let masters = self.masters(deadline).await?;
            let current = listed(&view);
            if current.is_empty() {
                let silent: Pending = view.silent.iter().cloned().collect();
                self.nowhere(topic, &silent, deadline).await?;
            }
            let what = format!("topic '{topic}'");
            condition.check(view.version(), Code::TopicExists, &what)?;
            let (queues, mut attributes) = change(&current)?;
            let version = view.next_version(0);
            let before = current
                .first()
                .and_then(|t| QueueMap::of(&t.detail.spec.attributes));
            let open: BTreeSet<&String> = view.answered.difference(&unreachable).collect();
            let counts = spread(counts(&current), queues, &open);
            let map = match before {
                Some(before) if before.counts == counts => before,
                _ => QueueMap { version, counts },
            };
            map.put(&mut attributes);
            let writer = current
                .iter()
                .map(|t| &t.broker)
                .chain(open.iter().copied())
                .find(|name| {
                    open.contains(name) && map.counts.get(*name).is_some_and(|count| *count > 0)
                })
                .and_then(|name| Some((name.clone(), masters.by_name.get(name)?)));
            let Some((writer, addr)) = writer else {
                return Err(nobody());
            };
            let known = view.found.get(&writer);
            let count = map.counts.get(&writer).copied().unwrap_or(0);
            let spec = TopicSpec {
                read_queues: count.max(known.map_or(0, |t| t.spec.read_queues)),
                write_queues: count,
                perm: known.map_or(PERM_READ | PERM_WRITE, |t| t.spec.perm),
                attributes,
            };
            let command = Command::request(RequestCode::PutTopic)
                .with_ext("topic", topic)
                .with_ext("expect", known.map_or(0, |t| t.version))
                .with_ext("version", version)
                .with_body(json::to_vec(&spec));
            let about = mapping::About::Topic(topic);
            match self
                .write_one::<TopicDetail>(addr, command, about, deadline)
                .await
            {
                Ok(_) => *taken = true,
                Err(error) if is_conflict(&error) => continue,
                Err(error) if is_out_of_reach(&error) => {
                    unreachable.insert(writer);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let entry = self.stored(Kind::Topic, topic, addr, deadline).await?;
            let mut others = BTreeMap::clone(&masters.by_name);
            others.retain(|name, _| *name != writer && map.counts.contains_key(name));
            let mut offered = self
                .offer(Kind::Topic, entry, &writer, others, deadline)
                .await?;
            if offered.lost {
                continue;
            }
            offered.reached.insert(writer);
            let wanted = map.counts.into_iter().filter(|(_, count)| *count > 0);
            let wanted = wanted.map(|(name, _)| name).collect();
            let (written, _) = self.topic_now(topic, deadline).await?;
            self.learn_route(topic, route_of(&masters.by_name, &written));
            let pending = pending(&wanted, &offered.reached);
            return Ok((written, current.is_empty(), pending));
        }
        Err(too_many_writers())
    }

    /// The route of a topic as its brokers have it; `None` = no broker has it.
    ///
    /// # Errors
    /// `no_route`, or what all masters failed with.
    pub(in crate::upstream) async fn route_from_masters(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<Option<Route>, ApiError> {
        let (found, _) = self.topic_now(topic, deadline).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let masters = self.masters(deadline).await?;
        Ok(Some(route_of(&masters.by_name, &found)))
    }

    /// Makes a topic in its turn, see [`Self::make_topic`].
    pub(in crate::upstream) async fn create_topic(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let _turn = self.0.creating.turn(deadline).await?;
        self.make_topic(topic, deadline).await
    }

    /// Makes a topic with the default number of queues; one that exists is fine.
    pub(super) async fn make_topic(&self, topic: &str, deadline: Instant) -> Result<(), ApiError> {
        if self.route(topic, deadline).await?.is_some() {
            return Ok(());
        }
        let change = |_: &[BrokerTopic]| Ok((QUEUES_DEFAULT, BTreeMap::new()));
        let absent = Precondition {
            absent: true,
            ..Precondition::default()
        };
        match self.put_topic(topic, absent, change, deadline).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Code::TopicExists => {
                self.refresh_route(topic, deadline).await.map(|_| ())
            }
            Err(error) => Err(error.before_the_write()),
        }
    }

    /// Deletes a topic on every master and in the name servers.
    ///
    /// # Errors
    /// `topic_not_found`, the precondition's, `broker_unavailable` when no master was reached.
    pub async fn delete_topic(
        &self,
        topic: &str,
        condition: Precondition,
        deadline: Instant,
    ) -> Result<Pending, ApiError> {
        let mut taken = false;
        let deleted = self.delete_topic_everywhere(topic, condition, deadline, &mut taken);
        deleted.await.map_err(|error| failed(error, taken))
    }

    /// `taken`: a master has deleted it, or may have.
    async fn delete_topic_everywhere(
        &self,
        topic: &str,
        condition: Precondition,
        deadline: Instant,
        taken: &mut bool,
    ) -> Result<Pending, ApiError> {
        for _ in 0..ROUNDS_MAX {
            let view = self.topic_view(topic, deadline).await?;
            let masters = self.masters(deadline).await?;
            let Some((_, newest)) = view.newest() else {
                let silent: Pending = view.silent.into_iter().collect();
                self.nowhere(topic, &silent, deadline).await?;
                return Err(ApiError::new(
                    Code::TopicNotFound,
                    format!("topic '{topic}' does not exist"),
                ));
            };
            let what = format!("topic '{topic}'");
            condition.check(view.version(), Code::TopicExists, &what)?;
            let mut wanted: BTreeSet<String> = match QueueMap::of(&newest.spec.attributes) {
                Some(map) => map.counts.into_keys().collect(),
                // A native tool made it, nobody knows on which brokers.
                None => self.masters_of_late(&masters),
            };
            wanted.extend(view.found.keys().cloned());
            let entry = ConfigEntry {
                name: topic.to_owned(),
                version: view.next_version(0),
                ..ConfigEntry::default()
            };
            let offered = self
                .offer(
                    Kind::Topic,
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
            self.forget_topic(topic, deadline).await;
            return Ok(pending(&wanted, &offered.reached));
        }
        Err(too_many_writers())
    }

    async fn forget_topic(&self, topic: &str, deadline: Instant) {
        let until = deadline.min(Instant::now() + super::ANSWER_WAIT);
        let forget = Command::request(RequestCode::DeleteTopicInNamesrv).with_ext("topic", topic);
        let servers = &self.0.options.name_servers;
        let calls = servers
            .iter()
            .map(|server| self.call(server, forget.clone(), until));
        for answer in join_all(calls).await {
            if let Err(error) = answer {
                tracing::debug!(%error, "name server did not forget the topic");
            }
        }
        self.0.routes.forget(topic);
    }
}

/// Adds what is missing to the `queues` wanted, each where there are fewest; `open` brokers only.
fn spread(
    mut counts: BTreeMap<String, i32>,
    queues: i32,
    open: &BTreeSet<&String>,
) -> BTreeMap<String, i32> {
    let mut missing = queues - counts.values().sum::<i32>();
    let mut own: BTreeMap<&String, i32> = open
        .iter()
        .map(|name| (*name, counts.get(*name).copied().unwrap_or(0)))
        .collect();
    while missing > 0 {
        let Some((_, least)) = own.iter_mut().min_by_key(|(_, n)| **n) else {
            break;
        };
        *least += 1;
        missing -= 1;
    }
    let grown = own.into_iter().filter(|(_, n)| *n > 0);
    counts.extend(grown.map(|(name, n)| (name.clone(), n)));
    counts
}

/// Where these brokers have a topic, without those that are not among the masters.
pub(in crate::upstream) fn route_of(
    masters: &BTreeMap<String, String>,
    brokers: &[BrokerTopic],
) -> Route {
    let mut route = Route::default();
    for topic in brokers {
        let Some(addr) = masters.get(&topic.broker) else {
            continue;
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(broker: &str, version: u64, queues: i32, map: &str) -> BrokerTopic {
        let mut spec = TopicSpec {
            write_queues: queues,
            ..TopicSpec::default()
        };
        if let Some(map) = QueueMap::parse(map) {
            map.put(&mut spec.attributes);
        }
        BrokerTopic {
            broker: broker.to_owned(),
            detail: TopicDetail {
                version,
                spec,
                ..TopicDetail::default()
            },
        }
    }

    #[test]
    fn queues_of_a_broker_that_is_down_count() {
        let topics = [at("a", 2, 4, "2 a:4 b:3")];
        assert_eq!(queues_in_all(&topics), 7);
        assert_eq!(queues_in_all(&[at("a", 1, 4, ""), at("b", 1, 2, "")]), 6);
    }

    #[test]
    fn new_queues_go_where_there_are_fewest_and_never_to_a_broker_that_is_down() {
        let names = ["a".to_owned(), "c".to_owned()];
        let open: BTreeSet<&String> = names.iter().collect();
        let had = BTreeMap::from([("a".to_owned(), 4), ("b".to_owned(), 3)]);
        let same = spread(had.clone(), 7, &open);
        assert_eq!(same, had);
        let grown = spread(had, 10, &open);
        let expected = [("a", 4), ("b", 3), ("c", 3)].map(|(n, q)| (n.to_owned(), q));
        assert_eq!(grown, BTreeMap::from(expected));
        let fresh = spread(BTreeMap::new(), 5, &open);
        assert_eq!(fresh.values().sum::<i32>(), 5);
        assert_eq!(fresh.len(), 2);
        let one = spread(BTreeMap::new(), 1, &open);
        assert_eq!(one.len(), 1);
    }
}
