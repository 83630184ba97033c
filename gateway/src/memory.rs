//! A budget of memory that many requests share: bytes are taken before they are held and given back when dropped.
//!
//! Who finds too little waits in line. Each group or topic has a line of its own, and the first of each line take
//! turns: however many wait for one of them, another one's first is served soon.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};

/// The least that [`Budget::take_part`] asks for, bytes.
const PART_MIN: usize = 1 << 20;

/// In whose line a request for memory waits, by name.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// Members of a group.
    Group(&'a str),
    /// Those who read a topic without a group.
    Topic(&'a str),
    /// One socket.
    Socket(&'a str),
}

impl Whose<'_> {
    fn key(self) -> String {
        match self {
            Self::Group(name) => format!("group {name}"),
            Self::Topic(name) => format!("topic {name}"),
            Self::Socket(name) => format!("socket {name}"),
        }
    }
}

/// Bytes that may be held at a time.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    used: AtomicUsize,
    freed: Notify,
    /// Held by who is served next; it hands itself on in the order of asking.
    next: Mutex<()>,
    /// Those in line.
    waiting: AtomicUsize,
    /// The same for each [`Whose`], while somebody waits.
    lines: parking_lot::Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            next: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            lines: parking_lot::Mutex::default(),
        })
    }

    /// Nothing yet, to be grown.
    #[must_use]
    pub fn empty(self: &Arc<Self>) -> Held {
        Held {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Takes `bytes` whatever is left; for what is in memory already.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.used.fetch_add(bytes, Ordering::AcqRel);
        Held {
            budget: Arc::clone(self),
            bytes,
        }
    }

    /// Waits in the line of `whose` until `bytes` are left and takes them. More than the whole budget is taken as the
    /// whole.
    pub async fn take(self: &Arc<Self>, whose: Whose<'_>, bytes: usize) -> Held {
        self.take_fitting(whose, |_| bytes).await
    }

    /// The same for a request that would take up to `wanted` bytes: less, the less is left, so that one more finds some.
    pub async fn take_part(self: &Arc<Self>, whose: Whose<'_>, wanted: usize) -> Held {
        let part = |left: usize| wanted.min((left / 8).max(PART_MIN));
        self.take_fitting(whose, part).await
    }

    /// `bytes` is given what is left.
    async fn take_fitting(
        self: &Arc<Self>,
        whose: Whose<'_>,
        bytes: impl Fn(usize) -> usize,
    ) -> Held {
        let fitting = || bytes(self.max.saturating_sub(self.used())).min(self.max);
        let mut held = self.empty();
        // Nobody waits: the lock never passes over those in line.
        if let Ok(_next) = self.next.try_lock()
            && held.grow(fitting())
        {
            return held;
        }
        let line = Line::of(self, whose);
        let _first = line.first.lock().await;
        let _next = self.next.lock().await;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if held.grow(fitting()) {
                return held;
            }
            freed.await;
        }
    }

    /// Whether more than three quarters are held, or somebody waits for what is.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.used() > self.max / 4 * 3 || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

impl Held {
    /// Bytes of this part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `more` bytes; false where so many are not left.
    #[must_use]
    pub fn grow(&mut self, more: usize) -> bool {
        let budget = &self.budget;
        let taken = budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(more).filter(|used| *used <= budget.max)
            });
        if taken.is_ok() {
            self.bytes += more;
        }
        taken.is_ok()
    }

    /// Holds `bytes` from now on, whatever is left: what was estimated is known.
    pub fn set(&mut self, bytes: usize) {
        let known = self.budget.hold(bytes);
        *self = known;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
            self.budget.freed.notify_waiters();
        }
    }
}

/// One line; who leaves it last takes it away.
struct Line<'a> {
    budget: &'a Budget,
    key: String,
    first: Arc<Mutex<()>>,
}

impl<'a> Line<'a> {
    fn of(budget: &'a Budget, whose: Whose<'_>) -> Self {
        let key = whose.key();
        let first = Arc::clone(budget.lines.lock().entry(key.clone()).or_default());
        budget.waiting.fetch_add(1, Ordering::Relaxed);
        Self { budget, key, first }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let mut lines = self.budget.lines.lock();
        self.budget.waiting.fetch_sub(1, Ordering::Relaxed);
        // Given up under the lock: of two that leave at a time, the second sees that it is the last.
        drop(std::mem::take(&mut self.first));
        let unused = |line: &Arc<_>| Arc::strong_count(line) == 1;
        if lines.get(&self.key).is_some_and(unused) {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const A: Whose<'_> = Whose::Group("a");

    #[tokio::test(start_paused = true)]
    async fn who_finds_too_little_waits_until_enough_is_given_back() {
        let budget = Budget::new(100);
        let first = budget.take(A, 60).await;
        let mut second = budget.take(A, 30).await;
        let wait = Duration::from_secs(1);
        assert!(budget.is_short());
        drop(second);
        second = budget.take(A, 10).await;
        assert!(!budget.is_short());
        let waits = async { timeout(wait, budget.take(A, 40)).await.is_err() };
        let looks = async {
            tokio::task::yield_now().await;
            budget.is_short()
        };
        assert_eq!(tokio::join!(waits, looks), (true, true));
        assert!(!budget.is_short());
        second.set(30);
        assert!(timeout(wait, budget.take(A, 20)).await.is_err());
        second.set(5);
        drop(timeout(wait, budget.take(A, 20)).await.unwrap());
        assert!(timeout(wait, budget.take(A, 1_000)).await.is_err());
        drop((first, second));
        let whole = timeout(wait, budget.take(A, 1_000)).await.unwrap();
        assert_eq!(budget.used(), 100);
        assert!(!budget.empty().grow(1));
        drop(whole);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn parts_shrink_as_the_budget_does() {
        let budget = Budget::new(16 * PART_MIN);
        let first = budget.take_part(A, 8 * PART_MIN).await;
        assert_eq!(first.bytes(), 2 * PART_MIN);
        let most = budget.hold(11 * PART_MIN);
        assert!(budget.is_short());
        assert_eq!(budget.take_part(A, 8 * PART_MIN).await.bytes(), PART_MIN);
        drop(most);
        assert!(!budget.is_short());
        assert_eq!(budget.take_part(A, 7).await.bytes(), 7);
    }

    #[tokio::test]
    async fn the_first_of_each_line_take_turns_and_lines_end_with_their_last() {
        let budget = Budget::new(10);
        let all = budget.take(A, 10).await;
        let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut waits = Vec::new();
        // Asked for in this order; the small one goes before nobody.
        for (whose, name, bytes) in [
            (A, "a1", 10),
            (A, "a2", 10),
            (A, "a3", 10),
            (Whose::Group("b"), "b1", 1),
            (Whose::Topic("a"), "c1", 10),
        ] {
            let (budget, served) = (Arc::clone(&budget), Arc::clone(&served));
            waits.push(tokio::spawn(async move {
                let held = budget.take(whose, bytes).await;
                served.lock().push(name);
                tokio::task::yield_now().await;
                drop(held);
            }));
            tokio::task::yield_now().await;
        }
        // Who goes away holds up nobody.
        waits.remove(1).abort();
        tokio::task::yield_now().await;
        drop(all);
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*served.lock(), ["a1", "b1", "c1", "a3"]);
        assert!(budget.lines.lock().is_empty());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn what_is_held_anyway_counts() {
        let budget = Budget::new(10);
        let over = budget.hold(25);
        assert!(!budget.empty().grow(1));
        drop(over);
        assert!(budget.empty().grow(10));
    }
}
