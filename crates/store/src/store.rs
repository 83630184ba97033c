//! The store: what others see of it.

use crate::commit_log::{Appended, DamagedRange, Place};
use crate::disk::{Disk, WriteWay};
use crate::dispatch::Step;
use crate::flush::{flush_step, when_flushed};
use crate::maintain::BACKLOG_MAX;
use crate::open::{self, RecoveryReport};
use crate::options::{BLANK_BYTES, Workers};
use crate::queue_ends;
use crate::record::is_topic;
use crate::shared::Shared;
use crate::workers::Threads;
use crate::{
    AppendOutcome, Arrival, MessageDraft, PhysicalOffset, QueueOffset, Scan, StoreError,
    StoreOptions,
};
use bytes::Bytes;
use clock::Clock;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::record::encode_record;

/// A put lock held longer than this means that the page cache cannot keep up
/// (RocketMQ 5.4.0 `osPageCacheBusyTimeOutMills`).
const BUSY: Duration = Duration::from_secs(1);
/// Log bytes after which the preparer, and the flusher of map writes, are woken.
const STRIDE_BYTES: u64 = 4 << 20;
/// Encoding buffers larger than this are not kept.
const KEEP_BUFFER_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the thread's buffer, empty.
fn with_buffer<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        let result = work(buffer);
        if buffer.capacity() > KEEP_BUFFER_BYTES {
            *buffer = Vec::new();
        }
        result
    })
}

fn outcome(appended: &Appended, len: usize) -> AppendOutcome {
    AppendOutcome {
        physical_offset: PhysicalOffset::new(appended.physical),
        queue_offset: QueueOffset::new(appended.position),
        wrote_bytes: u32::try_from(len).unwrap_or(u32::MAX),
        store_timestamp_ms: appended.store_timestamp_ms,
    }
}

fn check_size(size_bytes: u64, size_max_bytes: u64) -> Result<(), StoreError> {
    if size_bytes > size_max_bytes {
        return Err(StoreError::TooLarge {
            size_bytes,
            size_max_bytes,
        });
    }
    Ok(())
}

/// An open store. Clones are cheap and share it; any thread may call anything.
///
/// Dropping the last clone without [`Store::close`] leaves the directory as a crash would.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

/// The positions a queue has: `min` is the first, `max` the one the next message will get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueRange {
    /// First position whose message is still there.
    pub min: QueueOffset,
    /// One past the last.
    pub max: QueueOffset,
}

impl Store {
    /// Opens a data directory, making it if absent, and recovers what the last run left.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is open elsewhere, [`StoreError::Invalid`] for bad options,
    /// [`StoreError::Layout`] when the directory is not a whole store, [`StoreError::Full`] and
    /// [`StoreError::Io`].
    pub fn open(
        options: StoreOptions,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Store, RecoveryReport), StoreError> {
        let workers = options.workers;
        let (shared, report) = open::open(options, disk, clock)?;
        let shared = Arc::new(shared);
        let threads = match workers {
            Workers::Threads => Threads::start(&shared)?,
            Workers::Manual => Threads::none(&shared),
        };
        let threads = Arc::new(threads);
        Ok((Store { shared, threads }, report))
    }

    /// The directory that holds `commitlog/`, `config/` and the rest.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.shared.layout.root().to_owned()
    }

    /// The disk the store lives on, for [`crate::config_file`].
    #[must_use]
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.shared.disk)
    }

    /// Changes the longest time between two syncs under [`crate::FlushPolicy::Async`], in
    /// milliseconds; at least 1. Under `Sync` it has no meaning.
    pub fn set_flush_interval(&self, interval_ms: u64) {
        let interval = &self.shared.flush_interval_ms;
        interval.store(interval_ms.max(1), Ordering::Relaxed);
        self.shared.waiters.gate().wake();
    }

    /// Stores a message, on the caller's thread. It is readable soon and durable once
    /// [`Store::flushed`] has reached [`AppendOutcome::end`].
    ///
    /// # Errors
    /// Nothing was stored: [`StoreError::Full`], [`StoreError::Busy`], [`StoreError::Poisoned`],
    /// [`StoreError::Closed`], [`StoreError::TooLarge`], [`StoreError::Invalid`].
    pub fn append(&self, draft: &MessageDraft<'_>) -> Result<AppendOutcome, StoreError> {
        let drafts = std::slice::from_ref(draft);
        with_buffer(|buffer| {
            let len = self.encode(draft, buffer)?;
            let appended = self.append_encoded(drafts, buffer, &[len])?;
            Ok(outcome(&appended, len))
        })
    }

    /// Stores messages of one queue next to each other in the log, with consecutive positions:
    /// all or none.
    ///
    /// # Errors
    /// As [`Store::append`]; [`StoreError::Invalid`] also when the queues differ or none is given.
    pub fn append_batch(
        &self,
        drafts: &[MessageDraft<'_>],
    ) -> Result<Vec<AppendOutcome>, StoreError> {
        let same = |w: &[MessageDraft<'_>]| match w {
            [a, b] => {
                a.fields.topic == b.fields.topic
                    && a.fields.queue_id == b.fields.queue_id
                    && Place::of(a.fields.sys_flag) == Place::of(b.fields.sys_flag)
            }
            _ => true,
        };
        if !drafts.windows(2).all(same) {
            return Err(StoreError::invalid("a batch must be of one queue"));
        }
        with_buffer(|buffer| {
            let mut lens = Vec::with_capacity(drafts.len());
            for draft in drafts {
                lens.push(self.encode(draft, buffer)?);
            }
            let mut next = self.append_encoded(drafts, buffer, &lens)?;
            let each = |len: usize| {
                let outcome = outcome(&next, len);
                next.physical = outcome.end().get();
                next.position += u64::from(next.place == Place::Queue);
                outcome
            };
            Ok(lens.into_iter().map(each).collect())
        })
    }

    /// Appends encoded records of one queue; answers where the first went.
    fn append_encoded(
        &self,
        drafts: &[MessageDraft<'_>],
        records: &mut [u8],
        lens: &[usize],
    ) -> Result<Appended, StoreError> {
        let shared = &*self.shared;
        if let Some(error) = shared.poisoned() {
            return Err(error);
        }
        if shared.queues.backlog() > BACKLOG_MAX {
            return Err(if self.full() {
                StoreError::Full
            } else {
                StoreError::Busy
            });
        }
        let Some(first) = drafts.first() else {
            return Err(StoreError::invalid("nothing to append"));
        };
        let room = shared.log.files().file_size() - BLANK_BYTES;
        check_size(records.len() as u64, room)?;
        let (topic, queue_id) = (first.fields.topic, first.fields.queue_id);
        let place = Place::of(first.fields.sys_flag);
        let (removals, end) = (shared.removed.begun(), shared.log.marks().appended());
        if shared.removed.is_closing(topic) {
            return Err(StoreError::Busy);
        }
        let queue = shared.queues.get_or_make(topic, queue_id);
        // A removal of the topic that took its queues before this one was looked up is seen here, also
        // when it is over; one that takes them from now on is seen under the put lock. So nothing lands
        // in the topic that comes after.
        if shared.removed.begun() != removals && shared.removed.closes_since(topic, end) {
            return Err(StoreError::Busy);
        }
        let appended = shared
            .log
            .append(records, lens, &queue, place, &*shared.clock)?;
        let appended = appended.ok_or(StoreError::Busy)?;
        let end = appended.physical + records.len() as u64;
        self.wake_workers(appended.physical, end);
        Ok(appended)
    }

    /// Wakes those who have to do with the bytes from `from` to `end`.
    fn wake_workers(&self, from: u64, end: u64) {
        let shared = &*self.shared;
        let stride = from / STRIDE_BYTES != end / STRIDE_BYTES;
        if shared.log.way() == WriteWay::Map {
            shared.dispatch_gate.wake();
        }
        // With map writes the flusher is needed only once enough may be dirty.
        if shared.log.way() == WriteWay::File || stride {
            shared.waiters.gate().wake();
        }
        if stride {
            // The next file may be due, or pages ahead may have to be touched.
            shared.log.next_file().gate().wake();
        }
    }

    fn encode(&self, draft: &MessageDraft<'_>, out: &mut Vec<u8>) -> Result<usize, StoreError> {
        let fields = &draft.fields;
        if !is_topic(fields.topic) {
            return Err(StoreError::invalid(format!(
                "topic name {:?}",
                fields.topic
            )));
        }
        if fields.queue_id < 0 {
            return Err(StoreError::invalid("negative queue id"));
        }
        if fields.properties.contains(&0) {
            return Err(StoreError::invalid("a property holds a NUL"));
        }
        let from = out.len();
        encode_record(fields, out).map_err(|e| StoreError::invalid(e.to_string()))?;
        let len = out.len() - from;
        check_size(len as u64, self.shared.options.record_max_bytes)?;
        Ok(len)
    }

    /// Everything before this position survived a sync.
    #[must_use]
    pub fn flushed(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.shared.log.marks().flushed())
    }

    /// Everything before this position was appended: the end of the log. With sync flush the last
    /// of it is readable ([`Store::max_physical`]) a moment later, when the flusher has written it.
    #[must_use]
    pub fn written(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.shared.log.marks().appended())
    }

    /// Everything before this position is visible in the queues.
    #[must_use]
    pub fn dispatched(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.shared.log.marks().dispatched())
    }

    /// Calls `done` when everything before `end` is durable, on the flush thread; at once on this
    /// thread when it is already. Wakes the flusher. `done` must not block.
    ///
    /// It gets [`StoreError::Poisoned`] when that will never be, [`StoreError::Closed`] at close.
    pub fn when_flushed(
        &self,
        end: PhysicalOffset,
        done: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
    ) {
        when_flushed(&self.shared, end.get(), done);
    }

    /// The whole record that starts at `at`, without a copy; `None` if none does or it is damaged.
    ///
    /// # Errors
    /// None at present; reads through the map.
    pub fn record_at(&self, at: PhysicalOffset) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.log.record(at.get(), None))
    }

    /// The record of a queue entry, without a copy; `None` if there is none of that size there or
    /// it is damaged: skip it.
    ///
    /// # Errors
    /// None at present; reads through the map.
    pub fn record(&self, at: PhysicalOffset, size: u32) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.log.record(at.get(), Some(size)))
    }

    /// First position of the log.
    #[must_use]
    pub fn min_physical(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.shared.log.files().min())
    }

    /// End of the readable log, at most [`Store::written`].
    #[must_use]
    pub fn max_physical(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.shared.log.marks().written())
    }

    /// Whole records in log order from `from` on, which must be the start of a record or of a
    /// file; ends at the readable end of the log as it is when it gets there.
    #[must_use]
    pub fn scan(&self, from: PhysicalOffset) -> Scan {
        Scan::new(Arc::clone(&self.shared), from.get())
    }

    /// Parts of the log that were found damaged at start.
    #[must_use]
    pub fn damaged(&self) -> Vec<DamagedRange> {
        self.shared.log.damaged().to_vec()
    }

    /// Calls `listener` on the dispatch thread for each message after its queue entry is visible.
    /// A listener that needs the store holds a weak handle of its owner: a `Store` in it would keep
    /// itself open. It must not block, and must not call [`Store::on_arrival`] or [`Store::remove_topic`].
    pub fn on_arrival(&self, listener: Box<dyn Fn(&Arrival<'_>) + Send + Sync>) {
        self.shared.listeners.write().push(Arc::new(listener));
    }

    /// True after a write or sync failed: nothing more is stored, the process should end.
    #[must_use]
    pub fn poisoned(&self) -> bool {
        self.shared.failure.get().is_some()
    }

    /// Why the store is poisoned.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.shared.poisoned()
    }

    /// True while an append has held the put lock for over a second: the page cache is busy.
    #[must_use]
    pub fn busy(&self) -> bool {
        let since = self.shared.log.held_since();
        let now = self.shared.clock.monotonic();
        since != 0 && now.since(clock::Monotonic::from_nanos(since)) > BUSY
    }

    /// True while queue files cannot be written because the disk is full.
    #[must_use]
    pub fn full(&self) -> bool {
        self.shared.queues_full.load(Ordering::Acquire)
    }

    /// Flushes, writes the queues and the checkpoint, removes the mark of a running store and
    /// unlocks the directory. Appends are refused from the start of it, deletions under way stop; a
    /// second call does nothing.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] or what failed; the next start then recovers as after a crash.
    pub fn close(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.log.close(&*shared.clock);
        self.threads.stop();
        let mut lock = shared.lock.lock();
        if lock.is_none() {
            return Ok(());
        }
        let closed = self.finish();
        // Nobody else changes files once this is held: see `Shared::usable`.
        let _maintainer = shared.maintainer.lock();
        *lock = None;
        closed
    }

    fn finish(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        while self.step_flush(true) {}
        while self.step_dispatch() {}
        self.step_maintain(true);
        if let Some(error) = shared.poisoned() {
            return Err(error);
        }
        if self.full() {
            return Err(StoreError::Full);
        }
        shared.log.next_file().discard()?;
        open::mark_stopped(&*shared.disk, &shared.layout)
    }

    /// Runs one round of the flusher, syncing even if it is not due when `now`. True: call again.
    pub fn step_flush(&self, now: bool) -> bool {
        flush_step(&self.shared, now) == Step::Again
    }

    /// Runs one round of the dispatcher. True: call again.
    pub fn step_dispatch(&self) -> bool {
        let step = self.shared.dispatcher.lock().step(&self.shared);
        step == Step::Again
    }

    /// Runs one round of queue files and checkpoint, syncing the queues too when `now`.
    pub fn step_maintain(&self, now: bool) {
        self.shared.maintainer.lock().step(&self.shared, now);
    }

    /// Makes the next log file unless it is ready.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`].
    pub fn step_prepare(&self) -> Result<(), StoreError> {
        let log = &self.shared.log;
        log.next_file()
            .prepare(|| log.files().end().max(log.marks().appended()))
    }

    /// Forgets a topic: its queues are gone at once and stay so after a restart; the records stay
    /// in the log. Appends to the topic meanwhile answer [`StoreError::Busy`].
    ///
    /// # Errors
    /// [`StoreError::Full`]: the topic is gone, and comes back if the process dies before there is
    /// space. [`StoreError::Io`]: the store is poisoned if the removal could not be recorded.
    /// [`StoreError::Poisoned`], [`StoreError::Closed`]: nothing was removed.
    pub fn remove_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.remove_topic_after(topic, || Ok(true))
    }

    /// As [`Store::remove_topic`] once `first` is done, unless it says false or fails. Appends answer
    /// [`StoreError::Busy`] from before `first` on, so that none goes the way of the topic that comes after it.
    ///
    /// # Errors
    /// Those of `first` and of [`Store::remove_topic`].
    pub fn remove_topic_after<E: From<StoreError>>(
        &self,
        topic: &str,
        first: impl FnOnce() -> Result<bool, E>,
    ) -> Result<(), E> {
        let _closing = self.shared.removed.begin(topic);
        if first()? {
            self.remove_topic_closed(topic)?;
        }
        Ok(())
    }

    /// True while the removal of `topic` is under way.
    #[must_use]
    pub fn is_removing(&self, topic: &str) -> bool {
        self.shared.removed.is_closing(topic)
    }

    /// How many removals have begun: unchanged between two calls, none has in between.
    #[must_use]
    pub fn removals_begun(&self) -> u64 {
        self.shared.removed.begun()
    }

    fn remove_topic_closed(&self, topic: &str) -> Result<(), StoreError> {
        let shared = &*self.shared;
        let _maintainer = shared.maintainer.lock();
        shared.usable()?;
        let dispatcher = shared.dispatcher.lock();
        let queues = shared.log.while_held(&*shared.clock, || {
            shared.removed.note(topic, shared.log.marks().appended());
            let queues = shared.queues.take_topic(topic);
            queues.iter().for_each(|queue| queue.mark_removed());
            queues
        });
        drop(dispatcher);
        queues.iter().for_each(|queue| shared.queues.forget(queue));
        // For want of space it is tried again; any other failure must not be survived.
        shared.survive(shared.removed.save(&*shared.disk))?;
        let files = shared.queues.files();
        let removed = queues
            .iter()
            .try_for_each(|queue| files.remove_queue(queue.dir()));
        // Should the topic come again, its queues begin at 0.
        queue_ends::write(shared)?;
        removed
    }

    /// All queues there are, sorted.
    #[must_use]
    pub fn topics(&self) -> Vec<(String, i32)> {
        let queues = self.shared.queues.all();
        let name = |q: &Arc<crate::consume_queue::ConsumeQueue>| (q.topic().to_owned(), q.id());
        let mut names: Vec<_> = queues.iter().map(name).collect();
        names.sort();
        names
    }
}
