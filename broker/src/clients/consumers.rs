//! Consumers by group: members, subscriptions, and what changed with a heartbeat.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{MEMBERS_MAX, Member};
use crate::filter::Filter;
use crate::group::GROUPS_MAX;

/// Most topics in the subscriptions of one group.
pub(crate) const TOPICS_MAX: usize = 2_048;

/// What a group wants of one topic.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// The topic.
    pub(crate) topic: String,
    /// `TAG` or another kind, as sent.
    pub(crate) expression_type: String,
    /// The expression, as sent.
    pub(crate) expression: String,
    /// Version in ms, set by the client.
    pub(crate) version: i64,
    /// Class filter bit, passed through to views.
    pub(crate) class_filter: bool,
    /// The parsed filter; `None` for a kind that is not served.
    pub(crate) filter: Option<Arc<Filter>>,
}

impl Subscription {
    /// The JSON of RocketMQ 5.4.0 `SubscriptionData`.
    pub(crate) fn to_json(&self) -> Value {
        let (codes, tags): (Vec<i64>, Vec<&String>) = match self.filter.as_deref() {
            Some(Filter::Tags { tags, .. }) => (
                tags.iter()
                    .map(|tag| wire::message::tags::tags_code(tag))
                    .collect(),
                tags.iter().collect(),
            ),
            Some(Filter::All) | None => (Vec::new(), Vec::new()),
        };
        json!({
            "classFilterMode": self.class_filter,
            "codeSet": codes,
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": tags,
            "topic": self.topic,
        })
    }
}

/// One consumer group of one heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerHeartbeat {
    /// `CONSUME_ACTIVELY`, `CONSUME_PASSIVELY` or `CONSUME_POP`.
    pub(crate) consume_type: String,
    /// `CLUSTERING` or `BROADCASTING`.
    pub(crate) message_model: String,
    /// Where a new group starts.
    pub(crate) consume_from_where: String,
    /// Its subscriptions; `None` keeps what is stored (a short heartbeat).
    pub(crate) subscriptions: Option<Vec<Subscription>>,
}

/// What others may see of a group.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerView {
    /// Members, in no order.
    pub(crate) members: Vec<Member>,
    /// See [`ConsumerHeartbeat`].
    pub(crate) consume_type: String,
    /// See [`ConsumerHeartbeat`].
    pub(crate) message_model: String,
    /// See [`ConsumerHeartbeat`].
    pub(crate) consume_from_where: String,
    /// By topic.
    pub(crate) subscriptions: BTreeMap<String, Arc<Subscription>>,
}

#[derive(Debug, Default)]
struct Group {
    members: HashMap<u64, Member>,
    consume_type: String,
    message_model: String,
    consume_from_where: String,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
}

impl Group {
    /// Replaces the subscriptions: a topic's only by a newer version, absent topics are dropped.
    /// Whether the set of topics or one of them changed.
    fn subscribe(&mut self, wanted: Vec<Subscription>) -> bool {
        let mut changed = false;
        let mut topics = HashSet::new();
        for subscription in wanted.into_iter().take(TOPICS_MAX) {
            topics.insert(subscription.topic.clone());
            match self.subscriptions.get(&subscription.topic) {
                Some(known) if known.version >= subscription.version => {}
                Some(_) => {
                    self.subscriptions
                        .insert(subscription.topic.clone(), Arc::new(subscription));
                }
                None => {
                    changed = true;
                    self.subscriptions
                        .insert(subscription.topic.clone(), Arc::new(subscription));
                }
            }
        }
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| topics.contains(topic));
        changed || self.subscriptions.len() != before
    }
}

#[derive(Debug, Default)]
struct Inner {
    groups: HashMap<String, Group>,
    of_connection: HashMap<u64, HashSet<String>>,
}

impl Inner {
    fn remove(&mut self, conn_id: u64, group: &str) -> Option<Member> {
        if let Some(groups) = self.of_connection.get_mut(&conn_id) {
            groups.remove(group);
            if groups.is_empty() {
                self.of_connection.remove(&conn_id);
            }
        }
        let members = &mut self.groups.get_mut(group)?.members;
        let left = members.remove(&conn_id);
        if members.is_empty() {
            self.groups.remove(group);
        }
        left
    }
}

/// Consumers of all groups.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    inner: Mutex<Inner>,
}

impl Consumers {
    /// Notes a heartbeat. The answer says whether the members have to be told; `None` when a bound
    /// is reached.
    pub(crate) fn heartbeat(
        &self,
        group: &str,
        beat: ConsumerHeartbeat,
        mut member: Member,
    ) -> Option<bool> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if !inner.groups.contains_key(group) && inner.groups.len() >= GROUPS_MAX {
            return None;
        }
        let entry = inner.groups.entry(group.to_owned()).or_default();
        if entry.members.len() >= MEMBERS_MAX && !entry.members.contains_key(&member.conn.id()) {
            return None;
        }
        entry.consume_type = beat.consume_type;
        entry.message_model = beat.message_model;
        entry.consume_from_where = beat.consume_from_where;
        inner
            .of_connection
            .entry(member.conn.id())
            .or_default()
            .insert(group.to_owned());
        // A client that reconnected is one member, not two.
        let stale: Vec<u64> = entry
            .members
            .values()
            .filter(|known| {
                known.client_id == member.client_id
                    && known.conn.id() != member.conn.id()
                    && known.conn.is_closed()
            })
            .map(|known| known.conn.id())
            .collect();
        for id in stale {
            entry.members.remove(&id);
        }
        let known = entry.members.get(&member.conn.id());
        if let Some(known) = known {
            member.popped = known.popped;
            member.received_ms = known.received_ms;
        }
        let joined = entry.members.insert(member.conn.id(), member).is_none();
        let resubscribed = beat
            .subscriptions
            .is_some_and(|wanted| entry.subscribe(wanted));
        Some(joined || resubscribed)
    }

    /// Whether this connection has sent the group's subscriptions with that fingerprint: a short heartbeat may rely on
    /// them.
    pub(crate) fn knows(&self, group: &str, conn_id: u64, fingerprint: i64) -> bool {
        let inner = self.inner.lock();
        inner
            .groups
            .get(group)
            .and_then(|group| group.members.get(&conn_id))
            .is_some_and(|member| member.fingerprint == fingerprint)
    }

    /// A member left one group; the member, if it was one.
    pub(crate) fn leave(&self, conn_id: u64, group: &str) -> Option<Member> {
        self.inner.lock().remove(conn_id, group)
    }

    /// A connection ended: the groups it was in, with the member that left.
    pub(crate) fn disconnected(&self, conn_id: u64) -> Vec<(String, Member)> {
        let mut inner = self.inner.lock();
        let groups = inner
            .of_connection
            .get(&conn_id)
            .cloned()
            .unwrap_or_default();
        groups
            .into_iter()
            .filter_map(|group| inner.remove(conn_id, &group).map(|member| (group, member)))
            .collect()
    }

    /// Forgets members that have been silent too long, with their groups.
    pub(crate) fn expire(&self, now: Monotonic, silence: Duration) -> Vec<(String, Member)> {
        let mut inner = self.inner.lock();
        let gone: Vec<(u64, String)> = inner
            .groups
            .iter()
            .flat_map(|(name, group)| {
                group
                    .members
                    .iter()
                    .filter(|(_, m)| !m.is_live(now, silence))
                    .map(move |(id, _)| (*id, name.clone()))
            })
            .collect();
        gone.into_iter()
            .filter_map(|(id, group)| inner.remove(id, &group).map(|m| (group, m)))
            .collect()
    }

    /// The subscription of a group to a topic.
    pub(crate) fn subscription(&self, group: &str, topic: &str) -> Option<Arc<Subscription>> {
        self.inner
            .lock()
            .groups
            .get(group)?
            .subscriptions
            .get(topic)
            .cloned()
    }

    /// Whether the group has members, and whether it is a broadcasting one.
    pub(crate) fn is_broadcasting(&self, group: &str) -> Option<bool> {
        self.inner
            .lock()
            .groups
            .get(group)
            .map(|group| group.message_model == "BROADCASTING")
    }

    /// The member with that client id; where it has several connections, the one last heard of.
    pub(crate) fn member(&self, group: &str, client_id: &str) -> Option<Member> {
        let inner = self.inner.lock();
        let members = inner.groups.get(group)?.members.values();
        members
            .filter(|member| *member.client_id == *client_id && !member.conn.is_closed())
            .max_by_key(|member| member.seen)
            .cloned()
    }

    /// Client ids of a group, each once.
    pub(crate) fn client_ids(&self, group: &str) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self
            .inner
            .lock()
            .groups
            .get(group)
            .map(|group| {
                group
                    .members
                    .values()
                    .map(|member| member.client_id.clone())
                    .collect()
            })
            .unwrap_or_default();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether a member is present now and `wanted`.
    pub(crate) fn any_live(
        &self,
        group: &str,
        now: Monotonic,
        silence: Duration,
        wanted: impl Fn(&Member) -> bool,
    ) -> bool {
        let inner = self.inner.lock();
        inner.groups.get(group).is_some_and(|group| {
            let mut members = group.members.values();
            members.any(|member| wanted(member) && member.is_live(now, silence))
        })
    }

    /// Client ids of the members that are present now and `wanted`, each once, sorted.
    pub(crate) fn live(
        &self,
        group: &str,
        now: Monotonic,
        silence: Duration,
        wanted: impl Fn(&Member) -> bool,
    ) -> Vec<String> {
        let inner = self.inner.lock();
        let Some(group) = inner.groups.get(group) else {
            return Vec::new();
        };
        let live = group
            .members
            .values()
            .filter(|member| member.is_live(now, silence) && wanted(member));
        let ids: BTreeSet<String> = live.map(|member| member.client_id.to_string()).collect();
        ids.into_iter().collect()
    }

    /// At most `max` of the members that are present now, by client id after `after`, each once.
    pub(crate) fn page(
        &self,
        group: &str,
        now: Monotonic,
        silence: Duration,
        (after, max): (&str, usize),
    ) -> Vec<Member> {
        let inner = self.inner.lock();
        let Some(group) = inner.groups.get(group) else {
            return Vec::new();
        };
        let members = group.members.values();
        let mut live: Vec<&Member> = members
            .filter(|member| member.is_live(now, silence) && &*member.client_id > after)
            .collect();
        // Of several connections the one last heard of.
        live.sort_unstable_by(|a, b| (&a.client_id, b.seen).cmp(&(&b.client_id, a.seen)));
        live.dedup_by(|a, b| a.client_id == b.client_id);
        live.into_iter().take(max).cloned().collect()
    }

    /// Notes that a member pops at `now_ms` and waits until then: its client id. `None` when there is no such member.
    pub(crate) fn note_pop(
        &self,
        conn_id: u64,
        group: &str,
        until: Monotonic,
        now_ms: i64,
    ) -> Option<Arc<str>> {
        let mut inner = self.inner.lock();
        let member = inner.groups.get_mut(group)?.members.get_mut(&conn_id)?;
        member.popped = member.popped.max(Some(until));
        member.received_ms = Some(now_ms);
        Some(member.client_id.clone())
    }

    /// Notes that a member pulls at `now_ms`.
    pub(crate) fn note_pull(&self, conn_id: u64, group: &str, now_ms: i64) {
        let mut inner = self.inner.lock();
        let group = inner.groups.get_mut(group);
        if let Some(member) = group.and_then(|group| group.members.get_mut(&conn_id)) {
            member.received_ms = Some(now_ms);
        }
    }

    /// Whether a member has popped and not pulled since.
    pub(crate) fn has_popped(&self, conn_id: u64, group: &str) -> bool {
        let inner = self.inner.lock();
        let group = inner.groups.get(group);
        let member = group.and_then(|group| group.members.get(&conn_id));
        member.is_some_and(|member| member.popped.is_some())
    }

    /// Forgets that a member popped: it pulls from now on.
    pub(crate) fn forget_pop(&self, conn_id: u64, group: &str) {
        let mut inner = self.inner.lock();
        let group = inner.groups.get_mut(group);
        if let Some(member) = group.and_then(|group| group.members.get_mut(&conn_id)) {
            member.popped = None;
        }
    }

    /// Forgets who popped in a group.
    pub(crate) fn forget_pops(&self, group: &str) {
        if let Some(group) = self.inner.lock().groups.get_mut(group) {
            for member in group.members.values_mut() {
                member.popped = None;
            }
        }
    }

    /// Everything about a group.
    pub(crate) fn view(&self, group: &str) -> Option<ConsumerView> {
        let inner = self.inner.lock();
        let group = inner.groups.get(group)?;
        Some(ConsumerView {
            members: group.members.values().cloned().collect(),
            consume_type: group.consume_type.clone(),
            message_model: group.message_model.clone(),
            consume_from_where: group.consume_from_where.clone(),
            subscriptions: group.subscriptions.clone(),
        })
    }

    /// Groups with a member that subscribes to the topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        self.inner
            .lock()
            .groups
            .iter()
            .filter(|(_, group)| group.subscriptions.contains_key(topic))
            .map(|(name, _)| name.clone())
            .collect()
    }
}
