//! Answers of one HTTP/2 connection that their client does not take: a stream without window stops no write of the
//! socket.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Answers under way on a connection, and since when each waits for its client. As many as there are streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalled(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Stalled {
    /// An answer begins; it ends when this is dropped.
    pub(super) fn begin(&self) -> Waiting {
        let mut open = self.0.lock();
        let id = open.next;
        open.next += 1;
        open.since.insert(id, Instant::now());
        drop(open);
        Waiting {
            id,
            stalled: self.clone(),
        }
    }

    /// Since when the answer waits whose client took nothing for the longest time.
    pub(super) fn longest(&self) -> Option<Instant> {
        self.0.lock().since.values().min().copied()
    }
}

/// An answer that is not written yet.
#[derive(Debug)]
pub(super) struct Waiting {
    id: u64,
    stalled: Stalled,
}

impl Waiting {
    /// Some of it was written.
    pub(super) fn moved(&self) {
        let mut open = self.stalled.0.lock();
        open.since.insert(self.id, Instant::now());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.stalled.0.lock().since.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_answer_that_waits_longest_counts_until_it_moves_or_ends() {
        let stalled = Stalled::default();
        assert_eq!(stalled.longest(), None);
        let begin = Instant::now();
        let first = stalled.begin();
        tokio::time::advance(Duration::from_secs(5)).await;
        let second = stalled.begin();
        assert_eq!(stalled.longest(), Some(begin));
        tokio::time::advance(Duration::from_secs(5)).await;
        first.moved();
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(5)));
        drop(second);
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(10)));
        drop(first);
        assert_eq!(stalled.longest(), None);
    }
}
