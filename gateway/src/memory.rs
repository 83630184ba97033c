//! A budget of memory that many requests share: bytes are taken before they are held and given back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The least that [`Budget::take_part`] asks for, bytes.
const PART_MIN: usize = 1 << 20;

/// Bytes that may be held at a time.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    used: AtomicUsize,
    freed: Notify,
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

    /// Waits until `bytes` are left and takes them. More than the whole budget is taken as the whole.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Held {
        let bytes = bytes.min(self.max);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let mut held = self.empty();
            if held.grow(bytes) {
                return held;
            }
            freed.await;
        }
    }

    /// A fitting part for a request that would take up to `wanted` bytes: less, the less is left, so that one more
    /// finds some.
    pub async fn take_part(self: &Arc<Self>, wanted: usize) -> Held {
        let left = self.max.saturating_sub(self.used());
        self.take(wanted.min((left / 8).max(PART_MIN))).await
    }

    /// Whether more than three quarters are held.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.used() > self.max / 4 * 3
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn who_finds_too_little_waits_until_enough_is_given_back() {
        let budget = Budget::new(100);
        let first = budget.take(60).await;
        let mut second = budget.take(30).await;
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, budget.take(20)).await.is_err());
        second.set(5);
        drop(timeout(wait, budget.take(20)).await.unwrap());
        assert!(timeout(wait, budget.take(1_000)).await.is_err());
        drop((first, second));
        let whole = timeout(wait, budget.take(1_000)).await.unwrap();
        assert_eq!(budget.used(), 100);
        assert!(!budget.empty().grow(1));
        drop(whole);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn parts_shrink_as_the_budget_does() {
        let budget = Budget::new(16 * PART_MIN);
        let first = budget.take_part(8 * PART_MIN).await;
        assert_eq!(first.bytes(), 2 * PART_MIN);
        let most = budget.hold(11 * PART_MIN);
        assert!(budget.is_short());
        assert_eq!(budget.take_part(8 * PART_MIN).await.bytes(), PART_MIN);
        drop(most);
        assert!(!budget.is_short());
        assert_eq!(budget.take_part(7).await.bytes(), 7);
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
