//! Members that are there without asking for messages: an open subscription keeps its group for the lease kind.

use super::routes::Broker;
use super::silence::PATIENCE;
use super::{Member, Upstream, mapping};
use crate::error::{ApiError, Code};
use clock::Monotonic;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::body::gantry::GroupDetail;
use wire::{Command, RequestCode, ResponseCode};

/// How often a broker is told that a subscription is still open; brokers remember a call for longer.
const EVERY: Duration = Duration::from_secs(15);
/// One round of telling.
const CALL: Duration = Duration::from_secs(5);

/// How often all brokers of a group are asked whether they have its members.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// For so long who asks meanwhile relies on the last answer.
const RELY: Duration = Duration::from_secs(30);
/// Groups and topics remembered.
const ENTRANCES_MAX: usize = 20_000;

/// Topics and the brokers asked about them.
type Told = Vec<(String, Arc<Broker>)>;
/// Group, and the one topic that is received.
type Key = (String, Option<String>);

/// What is known of how brokers take the members of a group.
#[derive(Debug, Default)]
struct Entrance {
    /// When all of them had one.
    accepted: Option<Monotonic>,
    /// Somebody asks now.
    asking: bool,
    /// Who refused last.
    refused_by: Option<String>,
}

/// Entrances of groups.
#[derive(Debug, Default)]
pub(super) struct Entrances(Mutex<HashMap<Key, Entrance>>);

impl Entrances {
    /// Whether the brokers are to be asked, and then who refused last.
    fn is_due(&self, key: &Key, now: Monotonic) -> Option<Option<String>> {
        let mut all = self.0.lock();
        if all.len() >= ENTRANCES_MAX && !all.contains_key(key) {
            all.clear();
        }
        let entrance = all.entry(key.clone()).or_default();
        let within = |span| entrance.accepted.is_some_and(|at| now.since(at) < span);
        if within(ASK_EVERY) || entrance.asking && within(RELY) {
            return None;
        }
        entrance.asking = true;
        Some(entrance.refused_by.clone())
    }

    /// The brokers were asked at this time.
    fn ended(&self, key: Key, refused_by: Option<String>, at: Monotonic) {
        let accepted = refused_by.is_none().then_some(at);
        let asked = Entrance {
            accepted,
            asking: false,
            refused_by,
        };
        self.0.lock().insert(key, asked);
    }
}

/// While it lives, the brokers hear of the member every 15 s.
#[derive(Debug)]
pub struct Presence {
    _over: DropGuard,
}

impl Upstream {
    /// Tells the brokers of the topics that a member is there, and goes on telling them while the answer lives.
    /// `topic` None = all subscribed topics.
    ///
    /// # Errors
    /// `group_mode_conflict` where consumers that pull or push are in the group; as [`Upstream::pop`] otherwise. A broker
    /// that cannot be reached is no error.
    pub async fn present(
        &self,
        group: &str,
        topic: Option<&str>,
        member: &Member,
        deadline: Instant,
    ) -> Result<Presence, ApiError> {
        self.announce(group, topic, member, deadline).await?;
        let over = CancellationToken::new();
        let ended = over.clone();
        let upstream = self.clone();
        let (group, topic, member) = (group.to_owned(), topic.map(str::to_owned), member.clone());
        self.0.options.tracker.spawn(async move {
            loop {
                tokio::select! {
                    () = ended.cancelled() => return,
                    () = upstream.0.options.draining.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
                let deadline = Instant::now() + CALL;
                let told = upstream.announce(&group, topic.as_deref(), &member, deadline);
                if let Err(error) = told.await {
                    tracing::debug!(group, %error, "an open subscription is not announced");
                }
            }
        });
        Ok(Presence {
            _over: over.drop_guard(),
        })
    }

    async fn announce(
        &self,
        group: &str,
        topic: Option<&str>,
        member: &Member,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let detail = self.group_for_receive(group, topic, deadline).await?;
        let told = self.brokers_of(&detail, topic, deadline).await?;
        match self.tell(&told, group, member, deadline).await {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Before messages are taken anywhere: whether all brokers of the topics have the member. Each of them judges by the
    /// members that it sees, and a receive that is filled by some does not ask the others. Asked every 2 s for a group and
    /// topic; who refused last is asked alone first, so that a refused member is nowhere in the way of those who are there.
    ///
    /// # Errors
    /// `group_mode_conflict`.
    pub(super) async fn enter(
        &self,
        detail: &GroupDetail,
        topic: Option<&str>,
        member: &Member,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let entrances = &self.0.entrances;
        let key = (detail.group.clone(), topic.map(str::to_owned));
        let now = self.0.options.clock.monotonic();
        let Some(refused_by) = entrances.is_due(&key, now) else {
            return Ok(());
        };
        // What else is wrong the receive itself tells.
        let told = self.brokers_of(detail, topic, deadline).await;
        let mut told = told.unwrap_or_default();
        if told.len() < 2 {
            entrances.ended(key, None, now);
            return Ok(());
        }
        let until = deadline.min(Instant::now() + PATIENCE);
        let (first, others): (Told, Told) = told
            .drain(..)
            .partition(|(_, b)| Some(&b.name) == refused_by.as_ref());
        let mut refused = self.tell(&first, &detail.group, member, until).await;
        if refused.is_none() {
            refused = self.tell(&others, &detail.group, member, until).await;
            if refused.is_some() {
                self.leave_all(&detail.group, member, &first);
            }
        }
        let (broker, refusal) = refused.unzip();
        entrances.ended(key, broker, now);
        refusal.map_or(Ok(()), Err)
    }

    /// A broker refused a receive of this group.
    pub(super) fn refused_at(&self, group: &str, topic: Option<&str>, broker: &str) {
        let key = (group.to_owned(), topic.map(str::to_owned));
        let now = self.0.options.clock.monotonic();
        self.0.entrances.ended(key, Some(broker.to_owned()), now);
    }

    /// The brokers that a group reads from, each with one of its topics.
    async fn brokers_of(
        &self,
        detail: &GroupDetail,
        topic: Option<&str>,
        deadline: Instant,
    ) -> Result<Told, ApiError> {
        let mut told = Told::new();
        for topic in self.topics_of(detail, topic) {
            let Some(route) = self.route(&topic, deadline).await? else {
                continue;
            };
            for broker in &route.readable {
                if !told.iter().any(|(_, known)| known.name == broker.name) {
                    told.push((topic.clone(), Arc::clone(broker)));
                }
            }
        }
        Ok(told)
    }

    /// Tells brokers that the member is there. One refusal decides: it is answered, with who refused, and the member is
    /// nowhere.
    async fn tell(
        &self,
        told: &Told,
        group: &str,
        member: &Member,
        deadline: Instant,
    ) -> Option<(String, ApiError)> {
        let calls = told
            .iter()
            .map(|(topic, broker)| (broker.addr.as_str(), self.word(group, topic, member)));
        let answers = self.ask_each(calls, true, PATIENCE, deadline).await;
        for answer in answers.iter().flatten() {
            self.learn_version(answer, group, self.0.groups.known(group));
        }
        let refusals = answers.into_iter().zip(told);
        let mut refusals = refusals.filter_map(|(answer, (topic, broker))| {
            let answer = answer.ok()?;
            let is_refused = answer.response_code() == ResponseCode::NoPermission;
            let about = mapping::About::Receive(group, topic);
            let refusal = is_refused.then(|| mapping::answer(&answer, about))?;
            let is_conflict = refusal.code() == Code::GroupModeConflict;
            is_conflict.then(|| (broker.name.clone(), refusal))
        });
        let refusal = refusals.next()?;
        self.leave_all(group, member, told);
        Some(refusal)
    }

    fn leave_all(&self, group: &str, member: &Member, told: &Told) {
        for (topic, broker) in told {
            self.leave(group, topic, member, broker);
        }
    }

    /// Takes back that a member was there: one broker refused the call, and a refused call keeps nobody alive.
    pub(super) fn leave(&self, group: &str, topic: &str, member: &Member, broker: &Arc<Broker>) {
        let command = self.word(group, topic, member).with_ext("leave", "1");
        let (upstream, broker) = (self.clone(), Arc::clone(broker));
        self.0.options.tracker.spawn(async move {
            let deadline = Instant::now() + CALL;
            if let Err(error) = upstream.call(&broker.addr, command, deadline).await {
                tracing::debug!(broker = broker.name, %error, "not told that a member left");
            }
        });
    }

    /// A notification that does not wait: it only says that the member is there, or with `leave` is not.
    fn word(&self, group: &str, topic: &str, member: &Member) -> Command {
        let mut command = Command::request(RequestCode::Notification);
        let ext = &mut command.ext;
        ext.put("consumerGroup", group);
        ext.put("topic", topic);
        ext.put("queueId", "-1");
        ext.put("pollTime", "0");
        ext.put("gantry", "1");
        self.name(member, ext);
        command
    }
}
