//! A table of parked requests by topic and queue: woken by a matching arrival or by their deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::Monotonic;
use parking_lot::Mutex;

use crate::filter::Filter;

/// One parked request.
#[derive(Debug)]
struct Held<T> {
    id: u64,
    /// Arrivals at or above this queue offset wake it.
    from: u64,
    filter: Arc<Filter>,
    deadline: Monotonic,
    payload: T,
}

#[derive(Debug)]
struct Inner<T> {
    next_id: u64,
    queues: HashMap<Arc<str>, HashMap<i32, Vec<Held<T>>>>,
    deadlines: BTreeMap<(Monotonic, u64), (Arc<str>, i32)>,
}

/// Parked requests. Pure: whoever parks and expires brings the time.
#[derive(Debug)]
pub(crate) struct Holds<T> {
    max: AtomicUsize,
    count: AtomicUsize,
    inner: Mutex<Inner<T>>,
}

impl<T> Holds<T> {
    /// A table for at most `max` requests.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: AtomicUsize::new(max),
            count: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                next_id: 1,
                queues: HashMap::new(),
                deadlines: BTreeMap::new(),
            }),
        }
    }

    /// Changes how many may be parked; those that are stay.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Parks a request. The answer is its id, and whether the next deadline came closer.
    ///
    /// # Errors
    /// Gives the request back when the table is full.
    pub(crate) fn park(
        &self,
        topic: &str,
        queue_id: i32,
        from: u64,
        filter: Arc<Filter>,
        deadline: Monotonic,
        payload: T,
    ) -> Result<(u64, bool), T> {
        let mut inner = self.inner.lock();
        if self.count.load(Ordering::Relaxed) >= self.max.load(Ordering::Relaxed) {
            return Err(payload);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let id = inner.next_id;
        inner.next_id += 1;
        let sooner = inner
            .deadlines
            .first_key_value()
            .is_none_or(|((first, _), _)| deadline < *first);
        let key = match inner.queues.get_key_value(topic) {
            Some((key, _)) => key.clone(),
            None => Arc::from(topic),
        };
        inner
            .deadlines
            .insert((deadline, id), (key.clone(), queue_id));
        inner
            .queues
            .entry(key)
            .or_default()
            .entry(queue_id)
            .or_default()
            .push(Held {
                id,
                from,
                filter,
                deadline,
                payload,
            });
        Ok((id, sooner))
    }

    /// Takes the requests that a message at this offset with this tag code wakes, in the order they came.
    pub(crate) fn arrived(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: u64,
        tags_code: i64,
    ) -> Vec<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.take_where(topic, queue_id, |held| {
            queue_offset >= held.from && held.filter.may_match(tags_code)
        })
    }

    /// Takes one request by id, if it is still parked.
    pub(crate) fn take(&self, topic: &str, queue_id: i32, id: u64) -> Option<T> {
        self.take_where(topic, queue_id, |held| held.id == id).pop()
    }

    /// Takes the requests of one queue that are wanted, in the order they came.
    pub(crate) fn take_of(
        &self,
        topic: &str,
        queue_id: i32,
        wanted: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        self.take_where(topic, queue_id, |held| wanted(&held.payload))
    }

    fn take_where(&self, topic: &str, queue_id: i32, wanted: impl Fn(&Held<T>) -> bool) -> Vec<T> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(queues) = inner.queues.get_mut(topic) else {
            return Vec::new();
        };
        let Some(parked) = queues.get_mut(&queue_id) else {
            return Vec::new();
        };
        if !parked.iter().any(&wanted) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        let mut kept = Vec::with_capacity(parked.len());
        for held in parked.drain(..) {
            if wanted(&held) {
                inner.deadlines.remove(&(held.deadline, held.id));
                taken.push(held.payload);
            } else {
                kept.push(held);
            }
        }
        if kept.is_empty() {
            queues.remove(&queue_id);
            if queues.is_empty() {
                inner.queues.remove(topic);
            }
        } else {
            *parked = kept;
        }
        self.count.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Takes the requests whose deadline has come.
    pub(crate) fn expire(&self, now: Monotonic) -> Vec<T> {
        let mut out = Vec::new();
        loop {
            let due = {
                let inner = self.inner.lock();
                match inner.deadlines.first_key_value() {
                    Some(((deadline, id), (topic, queue))) if *deadline <= now => {
                        Some((*id, topic.clone(), *queue))
                    }
                    _ => None,
                }
            };
            match due {
                Some((id, topic, queue)) => out.extend(self.take(&topic, queue, id)),
                None => return out,
            }
        }
    }

    /// Takes everything.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        inner.deadlines.clear();
        let queues = std::mem::take(&mut inner.queues);
        let all: Vec<T> = queues
            .into_values()
            .flat_map(HashMap::into_values)
            .flatten()
            .map(|held| held.payload)
            .collect();
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        all
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.inner
            .lock()
            .deadlines
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }

    /// Number of parked requests.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
