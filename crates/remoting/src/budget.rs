//! Memory that incomplete large frames of all connections may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared by the connections of one server or client.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    used: Arc<AtomicUsize>,
    max: usize,
}

/// What one connection has taken of it; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            used: Arc::default(),
            max,
        }
    }

    pub(crate) fn none_reserved(&self) -> Reserved {
        Reserved {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl Reserved {
    /// Makes it `bytes` in all; `false`, and nothing changes, when that is more than is left.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
        if before + more > self.budget.max {
            self.budget.used.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Gives all back; says whether there was anything.
    pub(crate) fn release(&mut self) -> bool {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        std::mem::take(&mut self.bytes) > 0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Budget::new(100);
        let (mut one, mut two) = (budget.none_reserved(), budget.none_reserved());
        assert!(one.reserve(60) && one.reserve(50) && two.reserve(40));
        assert!(!two.reserve(41));
        drop(one);
        assert!(two.reserve(100));
        assert!(two.release() && !two.release());
        assert!(budget.none_reserved().reserve(100));
    }
}
