//! Requests that wait for messages of a group on a topic: woken one per message, or at their exact deadline.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::Monotonic;
use parking_lot::Mutex;

/// Most waiting requests of one group on one topic (RocketMQ 5.4.0 `popPollingSize`).
pub const WAITERS_PER_KEY_MAX: usize = 1_024;

/// Who waits, for what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitKey {
    /// The topic asked for, not its retry topic.
    pub topic: Arc<str>,
    /// Consumer group.
    pub group: Arc<str>,
}

#[derive(Debug)]
struct Waiting<T> {
    id: u64,
    deadline: Monotonic,
    payload: T,
}

/// What a waiting request asks of an arrival.
pub trait Wants {
    /// Whether a message of this queue and tag code may be for it. No false negatives.
    fn wants(&self, queue_id: i32, tags_code: i64) -> bool;

    /// Whether it may also wait for a lease of its member to end.
    fn is_limited(&self) -> bool {
        false
    }
}

type Groups<T> = HashMap<Arc<str>, VecDeque<Waiting<T>>>;

#[derive(Debug)]
struct Inner<T> {
    next_id: u64,
    topics: HashMap<Arc<str>, Groups<T>>,
    deadlines: BTreeMap<(Monotonic, u64), WaitKey>,
    /// Requests of each group.
    of_group: HashMap<Arc<str>, Count>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    all: usize,
    limited: usize,
}

/// The waiting requests. Pure: whoever parks and expires brings the time.
#[derive(Debug)]
pub struct Waiters<T> {
    max: AtomicUsize,
    count: AtomicUsize,
    inner: Mutex<Inner<T>>,
}

/// Where a request is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked {
    /// Names it for [`Waiters::take`].
    pub id: u64,
    /// Its deadline is the earliest now.
    pub earliest: bool,
}

impl<T: Wants> Waiters<T> {
    /// A table for at most `max` requests in all.
    pub fn new(max: usize) -> Self {
        let inner = Inner {
            next_id: 1,
            topics: HashMap::new(),
            deadlines: BTreeMap::new(),
            of_group: HashMap::new(),
        };
        Waiters {
            max: AtomicUsize::new(max),
            count: AtomicUsize::new(0),
            inner: Mutex::new(inner),
        }
    }

    /// Changes how many may wait in all; those that wait stay.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Parks a request at the end of its line, or at the front when it was woken for nothing.
    ///
    /// # Errors
    /// Gives the request back when the table, or its line, is full.
    pub fn park(
        &self,
        key: &WaitKey,
        deadline: Monotonic,
        front: bool,
        payload: T,
    ) -> Result<Parked, T> {
        let mut inner = self.inner.lock();
        if self.count.load(Ordering::Relaxed) >= self.max.load(Ordering::Relaxed) {
            return Err(payload);
        }
        let id = inner.next_id;
        let line = inner
            .topics
            .entry(key.topic.clone())
            .or_default()
            .entry(key.group.clone())
            .or_default();
        if line.len() >= WAITERS_PER_KEY_MAX {
            return Err(payload);
        }
        let limited = payload.is_limited();
        let waiting = Waiting {
            id,
            deadline,
            payload,
        };
        if front {
            line.push_front(waiting)
        } else {
            line.push_back(waiting)
        }
        inner.next_id += 1;
        let earliest = inner
            .deadlines
            .first_key_value()
            .is_none_or(|((first, _), _)| deadline < *first);
        inner.deadlines.insert((deadline, id), key.clone());
        let count = inner.of_group.entry(key.group.clone()).or_default();
        count.all += 1;
        count.limited += usize::from(limited);
        self.count.fetch_add(1, Ordering::Release);
        Ok(Parked { id, earliest })
    }

    /// Takes, per group that waits on `topic`, the first request that wants the message: one message, one wake.
    pub fn arrived(&self, topic: &str, queue_id: i32, tags_code: i64) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut guard = self.inner.lock();
        let Some(groups) = guard.topics.get(topic) else {
            return Vec::new();
        };
        let wanting = |line: &VecDeque<Waiting<T>>| {
            line.iter()
                .find(|waiting| waiting.payload.wants(queue_id, tags_code))
                .map(|waiting| waiting.id)
        };
        let chosen: Vec<(Arc<str>, u64)> = groups
            .iter()
            .filter_map(|(group, line)| Some((group.clone(), wanting(line)?)))
            .collect();
        chosen
            .into_iter()
            .filter_map(|(group, id)| self.remove(&mut guard, topic, &group, id))
            .collect()
    }

    /// Takes the first request of a line.
    pub fn take_first(&self, group: &str, topic: &str) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut inner = self.inner.lock();
        let id = inner.topics.get(topic)?.get(group)?.front()?.id;
        self.remove(&mut inner, topic, group, id)
    }

    /// Takes one request, if it still waits.
    pub fn take(&self, key: &WaitKey, id: u64) -> Option<T> {
        self.remove(&mut self.inner.lock(), &key.topic, &key.group, id)
    }

    /// Takes the requests whose deadline has come.
    pub fn expire(&self, now: Monotonic) -> Vec<T> {
        let mut expired = Vec::new();
        let mut inner = self.inner.lock();
        while let Some((&(deadline, id), key)) = inner.deadlines.first_key_value() {
            if deadline > now {
                break;
            }
            let key = key.clone();
            expired.extend(self.remove(&mut inner, &key.topic, &key.group, id));
            inner.deadlines.remove(&(deadline, id));
        }
        expired
    }

    /// Takes all requests whose key matches.
    pub fn take_all(&self, matches: impl Fn(&WaitKey) -> bool) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let chosen: Vec<(WaitKey, u64)> = inner
            .deadlines
            .iter()
            .filter(|(_, key)| matches(key))
            .map(|(&(_, id), key)| (key.clone(), id))
            .collect();
        chosen
            .into_iter()
            .filter_map(|(key, id)| self.remove(&mut inner, &key.topic, &key.group, id))
            .collect()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.inner
            .lock()
            .deadlines
            .first_key_value()
            .map(|(&(deadline, _), _)| deadline)
    }

    /// Requests of one line.
    pub fn len_of(&self, group: &str, topic: &str) -> usize {
        self.inner
            .lock()
            .topics
            .get(topic)
            .and_then(|groups| groups.get(group))
            .map_or(0, VecDeque::len)
    }

    /// Whether a request of the group is as `wanted`.
    pub fn any_of(&self, group: &str, wanted: impl Fn(&T) -> bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let inner = self.inner.lock();
        inner.of_group.contains_key(group)
            && inner
                .topics
                .values()
                .filter_map(|groups| groups.get(group))
                .flatten()
                .any(|waiting| wanted(&waiting.payload))
    }

    /// Whether a request of the group waits for a lease of its member to end.
    pub fn is_limited(&self, group: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let inner = self.inner.lock();
        inner
            .of_group
            .get(group)
            .is_some_and(|count| count.limited > 0)
    }

    /// All requests.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn remove(&self, inner: &mut Inner<T>, topic: &str, group: &str, id: u64) -> Option<T> {
        let groups = inner.topics.get_mut(topic)?;
        let line = groups.get_mut(group)?;
        let index = line.iter().position(|waiting| waiting.id == id)?;
        let waiting = line.remove(index)?;
        if line.is_empty() {
            groups.remove(group);
            if groups.is_empty() {
                inner.topics.remove(topic);
            }
        }
        inner.deadlines.remove(&(waiting.deadline, id));
        if let Some(count) = inner.of_group.get_mut(group) {
            count.all -= 1;
            count.limited -= usize::from(waiting.payload.is_limited());
            if count.all == 0 {
                inner.of_group.remove(group);
            }
        }
        self.count.fetch_sub(1, Ordering::Release);
        Some(waiting.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Ask(&'static str, i32, i64);

    impl Wants for Ask {
        fn wants(&self, queue_id: i32, tags_code: i64) -> bool {
            (self.1 < 0 || self.1 == queue_id) && (self.2 == 0 || self.2 == tags_code)
        }
    }

    fn key(group: &str) -> WaitKey {
        WaitKey {
            topic: "T".into(),
            group: group.into(),
        }
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    #[test]
    fn one_message_wakes_one_request_of_each_group_that_wants_it() {
        let waiters = Waiters::new(10);
        for (group, ask) in [
            ("a", Ask("a1", -1, 7)),
            ("a", Ask("a2", -1, 0)),
            ("a", Ask("a3", -1, 0)),
            ("b", Ask("b1", 2, 0)),
        ] {
            waiters.park(&key(group), at(50), false, ask).unwrap();
        }
        assert_eq!(waiters.arrived("T", 1, 9), [Ask("a2", -1, 0)]);
        assert_eq!(waiters.arrived("T", 1, 7), [Ask("a1", -1, 7)]);
        assert_eq!(waiters.arrived("X", 1, 7), []);
        let mut both: Vec<&str> = waiters
            .arrived("T", 2, 9)
            .into_iter()
            .map(|ask| ask.0)
            .collect();
        both.sort_unstable();
        assert_eq!(both, ["a3", "b1"]);
        assert!(waiters.is_empty() && waiters.next_deadline().is_none());
    }

    #[test]
    fn deadlines_are_exact_and_in_order() {
        let waiters = Waiters::new(10);
        assert!(
            waiters
                .park(&key("a"), at(50), false, Ask("late", -1, 0))
                .unwrap()
                .earliest
        );
        assert!(
            waiters
                .park(&key("b"), at(20), false, Ask("soon", -1, 0))
                .unwrap()
                .earliest
        );
        assert!(
            !waiters
                .park(&key("b"), at(30), false, Ask("mid", -1, 0))
                .unwrap()
                .earliest
        );
        assert_eq!(waiters.next_deadline(), Some(at(20)));
        assert_eq!(waiters.expire(at(19)), []);
        assert_eq!(
            waiters.expire(at(30)),
            [Ask("soon", -1, 0), Ask("mid", -1, 0)]
        );
        assert_eq!(waiters.len(), 1);
        assert!(waiters.any_of("a", |ask| ask.0 == "late"));
        assert!(!waiters.any_of("a", |ask| ask.0 == "soon") && !waiters.any_of("b", |_| true));
    }

    #[test]
    fn lines_are_bounded_and_keep_their_order() {
        let waiters = Waiters::new(3);
        let first = waiters
            .park(&key("a"), at(1), false, Ask("1", -1, 0))
            .unwrap();
        waiters
            .park(&key("a"), at(1), false, Ask("2", -1, 0))
            .unwrap();
        waiters
            .park(&key("a"), at(1), true, Ask("0", -1, 0))
            .unwrap();
        assert!(
            waiters
                .park(&key("a"), at(1), false, Ask("x", -1, 0))
                .is_err()
        );
        assert_eq!(waiters.take_first("a", "T"), Some(Ask("0", -1, 0)));
        assert_eq!(waiters.take(&key("a"), first.id), Some(Ask("1", -1, 0)));
        assert_eq!(waiters.take(&key("a"), first.id), None);
        assert_eq!(
            waiters.take_all(|key| *key.group == *"a"),
            [Ask("2", -1, 0)]
        );
    }
}
