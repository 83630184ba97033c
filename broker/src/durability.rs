//! Answers that wait until their bytes are as durable as promised, with a deadline for each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use store::{PhysicalOffset, Store};

/// Longest wait for a flush before the answer says "stored, unconfirmed" (code 10).
pub(crate) const FLUSH_WAIT: Duration = Duration::from_secs(5);

/// How far a put came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutStatus {
    /// In the page cache; flushed within the flush interval.
    Buffered,
    /// On the disk.
    Flushed,
    /// Written, but not confirmed in time.
    FlushTimeout,
    /// The flush failed: the broker is ending.
    Failed,
}

impl PutStatus {
    /// The word in ext field `durability`.
    pub(crate) fn durability(self) -> &'static str {
        match self {
            Self::Flushed => "flushed",
            Self::Buffered | Self::FlushTimeout | Self::Failed => "buffered",
        }
    }
}

/// Whose answers are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A stored message.
    Send,
    /// An ack, nack, extension or position.
    Settle,
    /// A pop that leased messages: bytes of its records.
    Pop(usize),
}

impl Waiter {
    /// What it adds to its count.
    fn weight(self) -> usize {
        match self {
            Self::Send | Self::Settle => 1,
            Self::Pop(bytes) => bytes.saturating_add(ANSWER_BYTES),
        }
    }
}

/// What an answer takes beside its records, bytes.
const ANSWER_BYTES: usize = 1_024;

type Done = Box<dyn FnOnce(PutStatus) + Send>;

/// A wait that ends once, by whichever comes first.
struct Slot {
    done: Mutex<Option<Done>>,
    count: Arc<AtomicUsize>,
    weight: usize,
}

impl Slot {
    fn finish(&self, status: PutStatus) {
        let done = self.done.lock().take();
        if let Some(done) = done {
            self.count.fetch_sub(self.weight, Ordering::Relaxed);
            done(status);
        }
    }

    fn is_finished(&self) -> bool {
        self.done.lock().is_none()
    }
}

/// The broker's flush policy and the answers that wait for it.
pub(crate) struct Durability {
    sync: bool,
    sends: Arc<AtomicUsize>,
    settles: Arc<AtomicUsize>,
    pops: Arc<AtomicUsize>,
    /// All waits are equally long, so this is in order of deadline.
    waiting: Mutex<VecDeque<(Monotonic, Arc<Slot>)>>,
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durability")
            .field("sync", &self.sync)
            .field("sends", &self.waiting(Waiter::Send))
            .field("settles", &self.waiting(Waiter::Settle))
            .finish()
    }
}

impl Durability {
    /// `sync`: every put waits for the disk.
    pub(crate) fn new(sync: bool) -> Self {
        Self {
            sync,
            sends: Arc::default(),
            settles: Arc::default(),
            pops: Arc::default(),
            waiting: Mutex::new(VecDeque::new()),
        }
    }

    /// Calls `done` once everything below `end` is as durable as the policy asks, or `flushed` if
    /// the caller asks for it. Runs it inline when nothing has to be waited for, else on the flush
    /// thread, or on the deadline task after [`FLUSH_WAIT`].
    pub(crate) fn when_durable(
        &self,
        store: &Store,
        end: PhysicalOffset,
        want_flushed: bool,
        now: Monotonic,
        who: Waiter,
        done: impl FnOnce(PutStatus) + Send + 'static,
    ) {
        if !self.sync && !want_flushed {
            done(PutStatus::Buffered);
            return;
        }
        let count = self.count(who);
        let weight = who.weight();
        count.fetch_add(weight, Ordering::Relaxed);
        let slot = Arc::new(Slot {
            done: Mutex::new(Some(Box::new(done))),
            count: Arc::clone(count),
            weight,
        });
        let flushed = slot.clone();
        store.when_flushed(
            end,
            Box::new(move |result| {
                flushed.finish(if result.is_ok() {
                    PutStatus::Flushed
                } else {
                    PutStatus::Failed
                });
            }),
        );
        if slot.is_finished() {
            return;
        }
        let mut waiting = self.waiting.lock();
        while waiting.front().is_some_and(|(_, slot)| slot.is_finished()) {
            waiting.pop_front();
        }
        waiting.push_back((now + FLUSH_WAIT, slot));
    }

    /// Bytes of answers to pops that wait for the disk.
    pub(crate) fn popped_bytes(&self) -> usize {
        self.waiting(Waiter::Pop(0))
    }

    /// Number of answers that wait for the disk; of pops the bytes.
    pub(crate) fn waiting(&self, who: Waiter) -> usize {
        self.count(who).load(Ordering::Relaxed)
    }

    fn count(&self, who: Waiter) -> &Arc<AtomicUsize> {
        match who {
            Waiter::Send => &self.sends,
            Waiter::Settle => &self.settles,
            Waiter::Pop(_) => &self.pops,
        }
    }

    /// Ends the waits whose deadline has come.
    pub(crate) fn expire(&self, now: Monotonic) {
        loop {
            let due = {
                let mut waiting = self.waiting.lock();
                match waiting.front() {
                    Some((deadline, slot)) if *deadline <= now || slot.is_finished() => {
                        waiting.pop_front()
                    }
                    _ => None,
                }
            };
            match due {
                Some((_, slot)) => slot.finish(PutStatus::FlushTimeout),
                None => return,
            }
        }
    }
}
