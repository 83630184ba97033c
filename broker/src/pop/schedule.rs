//! When which queue has leases to put back: a heap of queues by deadline, old entries dropped when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::table::Slot;

#[derive(Debug)]
struct Entry {
    due_ms: i64,
    slot: Arc<Slot>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due_ms == other.due_ms
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due_ms.cmp(&other.due_ms)
    }
}

#[derive(Debug, Default)]
struct Inner {
    heap: BinaryHeap<Reverse<Entry>>,
    stopped: bool,
}

/// The schedule. A queue stands in it at most once under its current deadline; entries under older deadlines are told
/// apart by [`super::table::Locked::take_schedule`].
#[derive(Debug, Default)]
pub struct Schedule {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Schedule {
    /// Enters a queue under `due_ms` (epoch ms) and wakes the worker when that is the earliest.
    pub fn enter(&self, due_ms: i64, slot: Arc<Slot>) {
        let mut inner = self.inner.lock();
        let earliest = inner
            .heap
            .peek()
            .is_none_or(|Reverse(first)| due_ms < first.due_ms);
        inner.heap.push(Reverse(Entry { due_ms, slot }));
        if earliest {
            self.changed.notify_one();
        }
    }

    /// The next queue whose deadline has come at `now_ms`.
    pub fn take_due(&self, now_ms: i64) -> Option<(i64, Arc<Slot>)> {
        let mut inner = self.inner.lock();
        if inner
            .heap
            .peek()
            .is_none_or(|Reverse(first)| first.due_ms > now_ms)
        {
            return None;
        }
        inner
            .heap
            .pop()
            .map(|Reverse(entry)| (entry.due_ms, entry.slot))
    }

    /// Sleeps until the next deadline after `now_ms`, an earlier one, the stop, or `longest`. False once stopped.
    pub fn sleep(&self, now_ms: i64, longest: Duration) -> bool {
        let mut inner = self.inner.lock();
        if inner.stopped {
            return false;
        }
        let until = inner.heap.peek().map(|Reverse(first)| {
            Duration::from_millis(u64::try_from(first.due_ms - now_ms).unwrap_or(0))
        });
        let wait = until.unwrap_or(longest).min(longest);
        if !wait.is_zero() {
            self.changed.wait_for(&mut inner, wait);
        }
        !inner.stopped
    }

    /// Ends the worker.
    pub fn stop(&self) {
        self.inner.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Entries, old ones included.
    pub fn len(&self) -> usize {
        self.inner.lock().heap.len()
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
