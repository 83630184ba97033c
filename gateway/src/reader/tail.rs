//! Live tails: one long poll for each queue of a topic on this gateway, however many readers wait for its messages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cursor::Held;
use super::ring::Ring;
use super::view::{self, Opened, QueueView, TopicView};
use crate::error::{ApiError, Code};
use crate::state::AppState;
use crate::upstream::{Amount, Page, QueueAt};

/// A poll waits this long; after that it is renewed.
const POLL: Duration = Duration::from_secs(15);
/// Messages and bytes of one poll's answer.
const POLL_MESSAGES: usize = 64;
const POLL_BYTES: usize = 256 * 1024;
/// How often the topic is looked up: new queues, deletion.
const LOOK: Duration = Duration::from_secs(5);
/// A tail nobody uses is kept this long.
const LINGER: Duration = Duration::from_secs(5);
/// Pause after a failure; doubled up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Bytes that one topic keeps, and where all topics together keep more than the third, each keeps the second.
const RING_BYTES: (usize, usize, usize) = (1 << 20, 64 << 10, 64 << 20);
/// Topics tailed at a time.
const TAILS_MAX: usize = 10_000;

/// The tails of this gateway, by topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tails(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    slots: Mutex<HashMap<String, Slot>>,
    /// Bytes of all rings.
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Slot {
    cell: Arc<OnceCell<Arc<Tail>>>,
    users: usize,
}

/// The tail of one topic.
#[derive(Debug)]
pub(crate) struct Tail {
    topic: Arc<str>,
    pub(crate) ring: RwLock<Ring>,
    version: watch::Sender<u64>,
    look: Notify,
    stop: CancellationToken,
    shared: Arc<Shared>,
}

/// A use of a tail; the last one dropped ends it after a while.
#[derive(Debug)]
pub(crate) struct Joined {
    tail: Arc<Tail>,
    cell: Arc<OnceCell<Arc<Tail>>>,
    state: AppState,
}

impl Tails {
    /// Joins the tail of a topic; it begins now where there is none.
    ///
    /// # Errors
    /// `topic_not_found`, `broker_unavailable`, `overloaded`.
    pub(crate) async fn join(
        &self,
        state: &AppState,
        topic: &str,
        deadline: Instant,
    ) -> Result<Joined, ApiError> {
        let cell = {
            let mut slots = self.0.slots.lock();
            if slots.len() >= TAILS_MAX && !slots.contains_key(topic) {
                let detail = format!("this gateway follows {TAILS_MAX} topics already");
                return Err(ApiError::new(Code::Overloaded, detail));
            }
            let slot = slots.entry(topic.to_owned()).or_default();
            slot.users += 1;
            Arc::clone(&slot.cell)
        };
        let begun = cell
            .get_or_try_init(|| begin(state, Arc::clone(&self.0), topic, deadline))
            .await;
        match begun {
            Ok(tail) => Ok(Joined {
                tail: Arc::clone(tail),
                cell: Arc::clone(&cell),
                state: state.clone(),
            }),
            Err(error) => {
                self.0.leave(topic, &cell);
                Err(error)
            }
        }
    }
}

impl Shared {
    /// One user less; removes the tail where that was the last.
    fn leave(&self, topic: &str, cell: &Arc<OnceCell<Arc<Tail>>>) {
        let mut slots = self.slots.lock();
        let Some(slot) = slots
            .get_mut(topic)
            .filter(|slot| Arc::ptr_eq(&slot.cell, cell))
        else {
            return;
        };
        slot.users = slot.users.saturating_sub(1);
        if slot.users == 0 {
            slots.remove(topic);
            if let Some(tail) = cell.get() {
                tail.stop.cancel();
            }
        }
    }

    /// The topic is gone: who joins now begins anew.
    fn forget(&self, topic: &str, tail: &Arc<Tail>) {
        let mut slots = self.slots.lock();
        let same = |slot: &Slot| slot.cell.get().is_some_and(|t| Arc::ptr_eq(t, tail));
        if slots.get(topic).is_some_and(same) {
            slots.remove(topic);
        }
    }
}

impl Joined {
    /// Begins to follow queues of this view that are not known yet, from their end.
    pub(crate) fn learn_now(&self, state: &AppState, view: &TopicView) {
        self.tail.learn(state, &view.queues);
    }
}

#[cfg(test)]
impl Joined {
    /// A tail with this ring, which nothing is added to.
    pub(crate) fn for_test(state: &AppState, ring: Ring) -> Self {
        let tail = Tail {
            topic: "t".into(),
            ring: RwLock::new(ring),
            version: watch::channel(0).0,
            look: Notify::new(),
            stop: CancellationToken::new(),
            shared: Arc::default(),
        };
        Self {
            tail: Arc::new(tail),
            cell: Arc::default(),
            state: state.clone(),
        }
    }
}

impl std::ops::Deref for Joined {
    type Target = Tail;
    fn deref(&self) -> &Tail {
        &self.tail
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let (tail, cell, draining) = (
            Arc::clone(&self.tail),
            Arc::clone(&self.cell),
            self.state.draining.clone(),
        );
        self.state.tracker.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(LINGER) => {}
                () = draining.cancelled() => {}
                () = tail.stop.cancelled() => {}
            }
            tail.shared.leave(&tail.topic, &cell);
        });
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let held = self.ring.get_mut().bytes();
        self.shared.bytes.fetch_sub(held, Ordering::Relaxed);
    }
}

impl Tail {
    /// Changes with every change of the ring.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn changed(&self) {
        self.version.send_modify(|v| *v += 1);
    }

    /// Returns once a queue (this one, or any) has something beyond these places, or the topic is gone.
    pub(crate) async fn beyond(
        &self,
        places: &BTreeMap<Arc<str>, Held>,
        queue: Option<&(String, i32)>,
    ) {
        let mut changes = self.changes();
        loop {
            let news = {
                let ring = self.ring.read();
                let place = |broker: &str, id: i32| {
                    let held = places.get(broker)?;
                    held.next.get(usize::try_from(id).ok()?).copied()
                };
                let asked =
                    |broker: &str, id: i32| queue.is_none_or(|(b, i)| b == broker && *i == id);
                let mut heads = ring.queues.iter().zip(&ring.head);
                ring.gone.is_some()
                    || heads.any(|(q, head)| {
                        asked(&q.broker, q.id) && *head > place(&q.broker, q.id).unwrap_or(0)
                    })
            };
            if news || changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins to follow queues that are not known yet, from their end; what is older is read by who wants it.
    fn learn(self: &Arc<Self>, state: &AppState, queues: &[QueueView]) {
        let mut fresh = Vec::new();
        {
            let mut ring = self.ring.write();
            for queue in queues {
                if let Some(number) = ring.add(queue, queue.max) {
                    fresh.push((number, queue.broker.clone(), queue.id, queue.max));
                }
            }
        }
        if !fresh.is_empty() {
            self.changed();
        }
        for (number, broker, queue_id, at) in fresh {
            let (tail, state) = (Arc::clone(self), state.clone());
            let tracker = state.tracker.clone();
            let stop = self.stop.clone();
            tracker.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = follow(&tail, &state, number, broker, queue_id, at) => {}
                }
            });
        }
    }

    fn take(&self, number: usize, page: Page) {
        self.change_ring(|ring, max| {
            ring.push(number, page.next, page.deleted, page.records, max);
        });
        self.changed();
    }

    /// A batch of the ring has grown by so many bytes.
    pub(crate) fn grown(&self, number: u64, bytes: usize) {
        if bytes > 0 {
            self.change_ring(|ring, max| ring.grown(number, bytes, max));
        }
    }

    /// Changes what the ring holds, given the bytes it may hold.
    fn change_ring(&self, change: impl FnOnce(&mut Ring, usize)) {
        let crowded = self.shared.bytes.load(Ordering::Relaxed) > RING_BYTES.2;
        let max = if crowded { RING_BYTES.1 } else { RING_BYTES.0 };
        let mut ring = self.ring.write();
        let before = ring.bytes();
        change(&mut ring, max);
        let after = ring.bytes();
        self.shared.bytes.fetch_add(after, Ordering::Relaxed);
        self.shared.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Remembers whether a broker answers.
    fn answers(&self, broker: &Arc<str>, well: bool) {
        if self.ring.read().down.contains(broker) != well {
            return;
        }
        let mut ring = self.ring.write();
        let changed = if well {
            ring.down.remove(broker)
        } else {
            ring.down.insert(Arc::clone(broker))
        };
        drop(ring);
        if changed {
            self.changed();
        }
    }

    fn end(self: &Arc<Self>, why: &'static str) {
        self.ring.write().gone = Some(why);
        self.shared.forget(&self.topic, self);
        self.changed();
        self.stop.cancel();
    }
}

async fn begin(
    state: &AppState,
    shared: Arc<Shared>,
    topic: &str,
    deadline: Instant,
) -> Result<Arc<Tail>, ApiError> {
    let Opened { view, .. } = view::open(state, topic, &[], false, deadline).await?;
    let tail = Arc::new(Tail {
        topic: Arc::clone(&view.topic),
        ring: RwLock::default(),
        version: watch::channel(0).0,
        look: Notify::new(),
        stop: CancellationToken::new(),
        shared,
    });
    tail.learn(state, &view.queues);
    let (watched, state, tracker) = (Arc::clone(&tail), state.clone(), state.tracker.clone());
    tracker.spawn(async move {
        let stop = watched.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = keep_looking(&watched, &state) => {}
        }
    });
    Ok(tail)
}

/// Looks the topic up from time to time, and at once where a poll says that it is gone.
async fn keep_looking(tail: &Arc<Tail>, state: &AppState) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = tail.look.notified() => {}
        }
        let deadline = Instant::now() + LOOK;
        match view::open(state, &tail.topic, &[], false, deadline).await {
            Ok(Opened { view, .. }) => {
                let anew = {
                    let ring = tail.ring.read();
                    let known =
                        |q: &QueueView| ring.number(&q.broker, q.id).map(|n| ring.queues[n].epoch);
                    view.queues
                        .iter()
                        .any(|q| known(q).is_some_and(|epoch| epoch != q.epoch))
                };
                if anew {
                    return tail.end("the topic was deleted and made again");
                }
                tail.learn(state, &view.queues);
            }
            Err(error) if error.code() == Code::TopicNotFound => {
                return tail.end("the topic was deleted");
            }
            Err(error) => tracing::debug!(%error, topic = &*tail.topic, "topic not looked up"),
        }
    }
}

/// Polls one queue from its end on.
async fn follow(
    tail: &Arc<Tail>,
    state: &AppState,
    number: usize,
    broker: Arc<str>,
    queue_id: i32,
    mut at: i64,
) {
    let mut pause = RETRY.0;
    loop {
        let amount = Amount {
            messages: POLL_MESSAGES,
            bytes: POLL_BYTES,
            room: usize::MAX,
            scan: 800,
            tags: None,
            wait: POLL,
        };
        let polled = async {
            let deadline = Instant::now() + POLL + LOOK;
            let masters = state.upstream.master_addresses(deadline).await?;
            let Some(addr) = masters.get(&*broker) else {
                return Err(ApiError::new(
                    Code::BrokerUnavailable,
                    "the broker is not registered",
                ));
            };
            let place = QueueAt {
                addr: addr.as_str().into(),
                broker: Arc::clone(&broker),
                topic: Arc::clone(&tail.topic),
                queue_id,
                offset: at,
            };
            state.upstream.read_queue(&place, amount, deadline).await
        };
        match polled.await {
            Ok(page) => {
                tail.answers(&broker, true);
                pause = RETRY.0;
                if page.next != at {
                    at = page.next;
                    tail.take(number, page);
                }
            }
            Err(error) => {
                if error.code() == Code::TopicNotFound {
                    tail.look.notify_one();
                } else {
                    tail.answers(&broker, false);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}
