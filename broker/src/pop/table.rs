//! All queues that groups have leases or positions in: found by name, locked one by one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::apply::{self, Event};
use super::queue::QueueState;
use super::snapshot::{QueueSnapshot, Snapshot};

/// Most (group, topic, queue) states on one broker; beyond it pops of further queues are refused.
pub const STATES_MAX: usize = 200_000;

/// Names one state. Ordered, so that several are always locked in one order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Consumer group.
    pub group: Arc<str>,
    /// Topic of the queue, a retry topic for retries.
    pub topic: Arc<str>,
    /// Queue id.
    pub queue_id: i32,
}

/// One state and its lock.
#[derive(Debug)]
pub struct Slot {
    /// Its name.
    pub key: QueueKey,
    tally: Arc<Tally>,
    /// Retries of messages of this queue that stand below this log position were voided by a seek. Beside the lock, so
    /// that the retry queues of a topic may look while they are locked themselves.
    void_below: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: QueueState,
    /// Taken out of the table: a pop that still has the slot must look again.
    forgotten: bool,
    /// Queue offsets that retention deleted unread, not reported yet.
    gap: Option<(u64, u64)>,
    /// Deadline (epoch ms) under which the queue stands in the schedule; `i64::MAX` when it does not.
    scheduled_ms: i64,
}

/// The state of a slot, locked. Changed through [`Locked::apply`] only.
#[derive(Debug)]
pub struct Locked<'a> {
    slot: &'a Slot,
    inner: MutexGuard<'a, Inner>,
}

impl Slot {
    /// Whether a retry of a message of this queue, stored at log `position`, was voided by a seek.
    pub fn voids(&self, position: u64) -> bool {
        position < self.void_below.load(Ordering::Acquire)
    }

    /// Locks the state; `None` when it was forgotten meanwhile.
    pub fn lock(&self) -> Option<Locked<'_>> {
        let inner = self.inner.lock();
        (!inner.forgotten).then_some(Locked { slot: self, inner })
    }
}

impl Locked<'_> {
    /// The state.
    pub fn state(&self) -> &QueueState {
        &self.inner.state
    }

    /// Applies the record at `position`.
    pub fn apply(&mut self, position: u64, event: &Event) {
        let before = Sums::of(&self.inner.state);
        let offsets = touched(&self.inner.state, event);
        let held = holders(&self.inner.state, &offsets);
        apply::apply(&mut self.inner.state, position, event);
        let holds = holders(&self.inner.state, &offsets);
        let tally = &self.slot.tally;
        tally.add(Sums::of(&self.inner.state), before);
        tally.count_members(&holds, 1);
        tally.count_members(&held, -1);
        self.slot
            .void_below
            .store(self.inner.state.retries_void_below, Ordering::Release);
    }

    /// A deadline (epoch ms) that the caller must put in the schedule: the queue's next one, if it is earlier than the one
    /// that stands there.
    pub fn to_schedule(&mut self) -> Option<i64> {
        let due = self
            .inner
            .state
            .next_due_ms()
            .filter(|&due| due < self.inner.scheduled_ms)?;
        self.inner.scheduled_ms = due;
        Some(due)
    }

    /// Takes the queue out of the schedule if it stands there under `due_ms`; otherwise that entry was replaced.
    pub fn take_schedule(&mut self, due_ms: i64) -> bool {
        let current = self.inner.scheduled_ms == due_ms;
        if current {
            self.inner.scheduled_ms = i64::MAX;
        }
        current
    }

    /// Keeps the queue out of the schedule until `retry_ms`, when its work could not be done; the deadline to schedule.
    pub fn postpone(&mut self, retry_ms: i64) -> i64 {
        self.inner.scheduled_ms = retry_ms;
        retry_ms
    }

    /// See [`QueueState::skip_to`].
    pub fn skip_to(&mut self, next: u64) {
        self.inner.state.skip_to(next);
    }

    /// Passes over unread messages that retention deleted, and keeps in mind which.
    pub fn lose_to(&mut self, first_left: u64) {
        let from = self.inner.state.next;
        let begin = match self.inner.gap {
            Some((begin, end)) if end == from => begin,
            _ => from,
        };
        self.inner.gap = Some((begin, first_left));
        self.inner.state.skip_to(first_left);
    }

    /// Takes the loss that was not reported yet: queue offsets `[from, to)`.
    pub fn take_gap(&mut self) -> Option<(u64, u64)> {
        self.inner.gap.take()
    }

    /// Notes what was put in the group's offset table.
    pub fn set_mirrored(&mut self, next: u64) {
        self.inner.state.mirrored = Some(next);
    }
}

type Topics = HashMap<Arc<str>, HashMap<i32, Arc<Slot>>>;

/// What is summed over the queues of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    held: i64,
    open: i64,
}

impl Sums {
    fn of(state: &QueueState) -> Self {
        Sums {
            held: state.held(),
            open: i64::try_from(state.in_flight_len()).unwrap_or(i64::MAX),
        }
    }
}

/// The sums of one group.
#[derive(Debug, Default)]
struct Tally {
    /// Leases that consumers hold.
    held: AtomicI64,
    /// These and the ones that wait to be put back.
    open: AtomicI64,
    /// Those of each member that has any.
    members: Mutex<HashMap<Arc<str>, u64>>,
}

impl Tally {
    fn add(&self, plus: Sums, minus: Sums) {
        if plus.held != minus.held {
            self.held
                .fetch_add(plus.held - minus.held, Ordering::Relaxed);
        }
        if plus.open != minus.open {
            self.open
                .fetch_add(plus.open - minus.open, Ordering::Relaxed);
        }
    }
}

impl Tally {
    fn count_members(&self, members: &[Arc<str>], by: i64) {
        if members.is_empty() {
            return;
        }
        let mut counts = self.members.lock();
        for member in members {
            let count = counts.entry(member.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                counts.remove(member);
            }
        }
    }
}

/// Queue offsets whose leases an event may change.
fn touched(state: &QueueState, event: &Event) -> Vec<u64> {
    match event {
        Event::Leased { messages, .. } => messages.iter().map(|&(offset, _)| offset).collect(),
        Event::Settled { changes, .. } => {
            let offsets: BTreeSet<u64> = changes.iter().map(|change| change.offset).collect();
            offsets.into_iter().collect()
        }
        Event::Returned { offset, .. } => vec![*offset],
        Event::Positioned { .. } => state.in_flight().map(|(offset, _)| offset).collect(),
    }
}

/// The members that hold the leases at these offsets.
fn holders(state: &QueueState, offsets: &[u64]) -> Vec<Arc<str>> {
    offsets
        .iter()
        .filter_map(|&offset| state.holder(offset))
        .collect()
}

/// The members that hold leases of a queue, one entry a lease.
fn all_holders(state: &QueueState) -> Vec<Arc<str>> {
    state
        .in_flight()
        .filter_map(|(offset, _)| state.holder(offset))
        .collect()
}

#[derive(Debug)]
struct Group {
    tally: Arc<Tally>,
    topics: Topics,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    groups: RwLock<HashMap<Arc<str>, Group>>,
    states: AtomicUsize,
}

impl Table {
    /// The state's slot, if there is one.
    pub fn get(&self, group: &str, topic: &str, queue_id: i32) -> Option<Arc<Slot>> {
        self.groups
            .read()
            .get(group)?
            .topics
            .get(topic)?
            .get(&queue_id)
            .cloned()
    }

    /// The state's slot, made by `create` when there is none; `None` when the table is full.
    pub fn get_or_create(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        create: impl FnOnce() -> QueueState,
    ) -> Option<Arc<Slot>> {
        if let Some(slot) = self.get(group, topic, queue_id) {
            return Some(slot);
        }
        self.place_while(group, topic, queue_id, create(), || true)
    }

    /// The state's slot, made of `state` when there is none; `None` when the table is full or `holds` says no. What `holds`
    /// denies once a deletion has begun is never left behind by that deletion.
    pub fn place_while(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        state: QueueState,
        holds: impl FnOnce() -> bool,
    ) -> Option<Arc<Slot>> {
        let mut groups = self.groups.write();
        if !holds() {
            return None;
        }
        Self::place(&mut groups, &self.states, group, topic, queue_id, state)
    }

    /// Puts a state in place of whatever is there (start-up).
    pub fn insert(&self, group: &str, topic: &str, queue_id: i32, state: QueueState) {
        let mut groups = self.groups.write();
        Self::place(&mut groups, &self.states, group, topic, queue_id, state);
    }

    fn place(
        groups: &mut HashMap<Arc<str>, Group>,
        states: &AtomicUsize,
        group: &str,
        topic: &str,
        queue_id: i32,
        state: QueueState,
    ) -> Option<Arc<Slot>> {
        let known = groups
            .get(group)
            .and_then(|entry| entry.topics.get(topic))
            .and_then(|queues| queues.get(&queue_id));
        if let Some(slot) = known {
            return Some(slot.clone());
        }
        if states.load(Ordering::Relaxed) >= STATES_MAX {
            return None;
        }
        let name: Arc<str> = groups
            .get_key_value(group)
            .map_or_else(|| group.into(), |(name, _)| name.clone());
        let entry = groups.entry(name.clone()).or_insert_with(|| Group {
            tally: Arc::default(),
            topics: HashMap::new(),
        });
        let topic_name: Arc<str> = entry
            .topics
            .get_key_value(topic)
            .map_or_else(|| topic.into(), |(name, _)| name.clone());
        entry.tally.add(Sums::of(&state), Sums::default());
        entry.tally.count_members(&all_holders(&state), 1);
        let slot = Arc::new(Slot {
            key: QueueKey {
                group: name,
                topic: topic_name.clone(),
                queue_id,
            },
            tally: entry.tally.clone(),
            void_below: AtomicU64::new(state.retries_void_below),
            inner: Mutex::new(Inner {
                state,
                gap: None,
                forgotten: false,
                scheduled_ms: i64::MAX,
            }),
        });
        entry
            .topics
            .entry(topic_name)
            .or_default()
            .insert(queue_id, slot.clone());
        states.fetch_add(1, Ordering::Relaxed);
        Some(slot)
    }

    /// Leases of the group on this broker: those that consumers hold, and these with the ones that wait to be put back.
    pub fn open(&self, group: &str) -> (u64, u64) {
        let groups = self.groups.read();
        let Some(entry) = groups.get(group) else {
            return (0, 0);
        };
        let number = |sum: &AtomicI64| u64::try_from(sum.load(Ordering::Relaxed)).unwrap_or(0);
        (number(&entry.tally.held), number(&entry.tally.open))
    }

    /// Leases of the group on this broker that one member holds.
    pub fn held_by(&self, group: &str, member: &str) -> u64 {
        let groups = self.groups.read();
        let Some(entry) = groups.get(group) else {
            return 0;
        };
        let members = entry.tally.members.lock();
        members.get(member).copied().unwrap_or(0)
    }

    /// Whether the group has any state.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.read().contains_key(group)
    }

    /// Groups that have any state.
    pub fn group_names(&self) -> Vec<String> {
        self.groups
            .read()
            .keys()
            .map(|name| name.to_string())
            .collect()
    }

    /// Leases that consumers of all groups hold.
    pub fn held_in_all(&self) -> u64 {
        let groups = self.groups.read();
        groups
            .values()
            .map(|entry| u64::try_from(entry.tally.held.load(Ordering::Relaxed)).unwrap_or(0))
            .sum()
    }

    /// All slots of a group.
    pub fn of_group(&self, group: &str) -> Vec<Arc<Slot>> {
        self.groups
            .read()
            .get(group)
            .map(|entry| {
                entry
                    .topics
                    .values()
                    .flat_map(|queues| queues.values().cloned())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// All slots, ordered by name.
    pub fn all(&self) -> Vec<Arc<Slot>> {
        let groups = self.groups.read();
        let mut slots: Vec<Arc<Slot>> = groups
            .values()
            .flat_map(|entry| entry.topics.values())
            .flat_map(|queues| queues.values().cloned())
            .collect();
        drop(groups);
        slots.sort_by(|a, b| a.key.cmp(&b.key));
        slots
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.states.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the states that `matches` and that contain no record at or after `position`.
    pub fn forget(&self, position: u64, matches: impl Fn(&QueueKey) -> bool) -> usize {
        let mut forgotten = 0;
        // Each locked before the table: who holds one may look for others.
        for slot in self.all().iter().filter(|slot| matches(&slot.key)) {
            let mut inner = slot.inner.lock();
            if inner.forgotten || inner.state.applied > position {
                continue;
            }
            inner.forgotten = true;
            slot.tally.add(Sums::default(), Sums::of(&inner.state));
            slot.tally.count_members(&all_holders(&inner.state), -1);
            self.take_out(&slot.key);
            forgotten += 1;
        }
        forgotten
    }

    fn take_out(&self, key: &QueueKey) {
        let mut groups = self.groups.write();
        let Some(entry) = groups.get_mut(&key.group) else {
            return;
        };
        if let Some(queues) = entry.topics.get_mut(&key.topic)
            && queues.remove(&key.queue_id).is_some()
        {
            self.states.fetch_sub(1, Ordering::Relaxed);
            if queues.is_empty() {
                entry.topics.remove(&key.topic);
            }
        }
        if entry.topics.is_empty() {
            groups.remove(&key.group);
        }
    }

    /// Copies every state, one lock at a time. `replay_from` must have been read from the log before.
    pub fn snapshot(&self, epoch: u16, replay_from: u64) -> Snapshot {
        let mut snapshot = Snapshot::new(epoch, replay_from);
        for slot in self.all() {
            if let Some(locked) = slot.lock() {
                let key = &slot.key;
                snapshot.queues.push(QueueSnapshot::take(
                    &key.group,
                    &key.topic,
                    key.queue_id,
                    locked.state(),
                ));
            }
        }
        snapshot
    }
}

/// Whether a deletion of `group` and `topic` (either may be absent) takes `key` with it; the retry topics of the pair go
/// too.
pub fn is_forgotten_with(key: &QueueKey, group: Option<&str>, topic: Option<&str>) -> bool {
    group.is_none_or(|group| *key.group == *group)
        && topic.is_none_or(|topic| {
            *key.topic == *topic || super::names::origin_of(&key.group, &key.topic) == Some(topic)
        })
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
