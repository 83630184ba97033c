//! Answers of one HTTP/2 connection that their client does not take: a stream without window stops no write of the
//! socket.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A client that takes no more than this of an answer, bytes a second, counts as one that takes nothing.
const SLOWEST: u32 = 1_024;

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
    /// So many bytes of it were written.
    pub(super) fn moved(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let gained = Duration::from_secs(1) * bytes / SLOWEST;
        if let Some(since) = self.stalled.0.lock().since.get_mut(&self.id) {
            *since = (*since + gained).min(Instant::now());
        }
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
        first.moved(2_048);
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(2)));
        first.moved(usize::MAX);
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(5)));
        drop(second);
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(10)));
        drop(first);
        assert_eq!(stalled.longest(), None);
    }
}
