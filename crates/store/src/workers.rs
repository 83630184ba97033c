//! Runs the workers of a store on named threads.

use crate::StoreError;
use crate::dispatch::Step;
use crate::flush::flush_step;
use crate::maintain::BACKLOG_WRITE;
use crate::options::FlushPolicy;
use crate::shared::Shared;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long a worker sleeps when it waits for nothing but a wake.
const LONG: Duration = Duration::from_secs(1);
/// How long the dispatcher rests under load before it looks again. Being woken for every few records
/// costs two task switches each time; a rest costs them once for all that came meanwhile.
const REST: Duration = Duration::from_micros(100);
/// Log bytes since the last rest that count as load. Less, and the dispatcher sleeps until woken, so
/// that a single message is not late.
const LOAD_BYTES: u64 = 8 << 10;
/// Wait after the next file could not be made.
const RETRY: Duration = Duration::from_millis(100);

/// What a thread runs until the store stops.
type Work = fn(&Shared);

/// The threads of a store; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// No threads: the caller steps.
    pub(crate) fn none(shared: &Arc<Shared>) -> Threads {
        Threads {
            shared: Arc::clone(shared),
            handles: Mutex::default(),
        }
    }

    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Threads, StoreError> {
        let threads = Threads::none(shared);
        let workers: [(&str, Work); 4] = [
            ("store-flush", flush),
            ("store-dispatch", dispatch),
            ("store-queues", maintain),
            ("store-preallocate", prepare),
        ];
        for (name, work) in workers {
            let shared = Arc::clone(shared);
            let handle = Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&shared))
                .map_err(|e| StoreError::io("start thread", Path::new(name), e))?;
            threads.handles.lock().push(handle);
        }
        Ok(threads)
    }

    /// Ends the threads, waiting for each unless called on one of them.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake_all();
        let handles = std::mem::take(&mut *self.handles.lock());
        for handle in handles {
            if handle.thread().id() != std::thread::current().id() {
                // A worker that panicked has said so already.
                drop(handle.join());
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn flush(shared: &Shared) {
    let marks = shared.log.marks();
    while !shared.is_stopping() {
        let wait = match shared.options.flush {
            FlushPolicy::Sync => LONG,
            FlushPolicy::Async { .. } => {
                Duration::from_millis(shared.flush_interval_ms.load(Ordering::Relaxed))
            }
        };
        let step = flush_step(shared, false);
        if step == Step::Idle {
            shared.waiters.gate().sleep(wait, || {
                shared.is_stopping()
                    || (shared.options.flush == FlushPolicy::Sync
                        && shared.failure.get().is_none()
                        && marks.appended() > marks.flushed())
                    || shared.waiters.any()
            });
        }
    }
}

fn dispatch(shared: &Shared) {
    let marks = shared.log.marks();
    let mut rested_at = marks.dispatched();
    while !shared.is_stopping() {
        let step = shared.dispatcher.lock().step(shared);
        if shared.queues.backlog() >= BACKLOG_WRITE {
            shared.maintain_gate.wake();
        }
        if step == Step::Idle {
            let came = marks.dispatched().saturating_sub(rested_at);
            rested_at = marks.dispatched();
            if came >= LOAD_BYTES {
                std::thread::sleep(REST);
                continue;
            }
            let seen = marks.written();
            shared.dispatch_gate.sleep(LONG, || {
                shared.is_stopping() || marks.written() > seen || marks.dispatched() < seen
            });
        }
    }
}

fn maintain(shared: &Shared) {
    let interval = Duration::from_millis(shared.options.checkpoint_interval_ms);
    while !shared.is_stopping() {
        shared
            .maintain_gate
            .sleep(interval, || shared.is_stopping());
        if !shared.is_stopping() {
            shared.maintainer.lock().step(shared, false);
        }
    }
}

fn prepare(shared: &Shared) {
    let next = shared.log.next_file();
    let mut touched = shared.log.marks().written();
    while !shared.is_stopping() {
        let log = &shared.log;
        let made = if next_is_due(shared) {
            next.prepare(|| log.files().end().max(log.marks().appended()))
        } else {
            Ok(())
        };
        if log.way() == crate::disk::WriteWay::Map {
            touched = touch_ahead(shared, touched);
        }
        let wait = if made.is_ok() { LONG } else { RETRY };
        next.gate().sleep(wait, || {
            shared.is_stopping() || (made.is_ok() && next_is_due(shared) && !next.is_ready())
        });
    }
}

/// True when half of the last file is used: an idle store keeps no second file.
fn next_is_due(shared: &Shared) -> bool {
    let log = &shared.log;
    let left = log.files().end().saturating_sub(log.marks().appended());
    left <= log.files().file_size() / 2
}

/// Faults in the pages the writer comes to next; returns how far that has been done.
fn touch_ahead(shared: &Shared, touched: u64) -> u64 {
    let written = shared.log.marks().written();
    let goal = written.saturating_add(shared.options.touch_ahead_bytes);
    let mut at = touched.max(written);
    while at < goal {
        let file = shared.log.files().find(at);
        let Some(file) = file.or_else(|| shared.log.next_file().ready()) else {
            break;
        };
        if at < file.base() || at >= file.end() {
            break;
        }
        let to = goal.min(file.end());
        file.region().touch(at - file.base(), to - file.base());
        at = to;
    }
    at
}
