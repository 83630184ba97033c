//! Makes appended bytes durable: one sync for everyone who waits.

use crate::StoreError;
use crate::commit_log::Chunk;
use crate::disk::{AppendToken, WriteWay};
use crate::dispatch::Step;
use crate::gate::Gate;
use crate::mapped_file::MappedFile;
use crate::options::FlushPolicy;
use crate::shared::Shared;
use clock::Monotonic;
use parking_lot::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Called once when a position is durable, or never will be.
pub(crate) type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Who is to be told what.
type Told = Vec<(Done, Result<(), StoreError>)>;

/// Longest time without a sync while anything is dirty (RocketMQ 5.4.0
/// `flushCommitLogThoroughInterval`).
const THOROUGH: Duration = Duration::from_secs(10);
const PAGE_BYTES: u64 = 4096;
/// Dirty bytes that are synced without waiting for the interval, so that no sync is a burst.
const DIRTY_MAX_BYTES: u64 = 32 << 20;
/// Larger buffers are not kept.
const SPARE_MAX_BYTES: usize = 8 << 20;

/// Those who wait for a position to be durable.
#[derive(Default)]
pub(crate) struct Waiters {
    list: Mutex<Vec<(u64, Done)>>,
    gate: Gate,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters({})", self.list.lock().len())
    }
}

impl Waiters {
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn any(&self) -> bool {
        !self.list.lock().is_empty()
    }

    /// Takes those that wait for `flushed` or less.
    fn take_until(&self, flushed: u64) -> Vec<(u64, Done)> {
        let mut list = self.list.lock();
        if list.iter().all(|(end, _)| *end <= flushed) {
            return std::mem::take(&mut *list);
        }
        let (done, wait) = list.drain(..).partition(|(end, _)| *end <= flushed);
        *list = wait;
        done
    }
}

/// The worker that writes and syncs the log.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    /// The file being written and the right to do so, when this worker is the one who writes.
    current: Option<(Arc<MappedFile>, AppendToken)>,
    last_sync: Monotonic,
}

impl Flusher {
    /// Writes what waits and syncs if that is due (or `now`); answers who is to be told what.
    fn step(&mut self, shared: &Shared, now: bool) -> (Step, Told) {
        if shared.poisoned().is_none() {
            match self.run(shared, now) {
                Ok(step) => {
                    let flushed = shared.log.marks().flushed();
                    let done = shared.waiters.take_until(flushed).into_iter();
                    return (step, done.map(|(_, done)| (done, Ok(()))).collect());
                }
                Err(error) => shared.poison(&error),
            }
        }
        (Step::Idle, refuse_all(shared))
    }

    fn run(&mut self, shared: &Shared, now: bool) -> Result<Step, StoreError> {
        if shared.log.way() == WriteWay::File {
            self.write_pending(shared)?;
        }
        let marks = shared.log.marks();
        let (from, to) = (marks.flushed(), marks.written());
        if from < to {
            if !now && !self.is_due(shared, to - from) {
                return Ok(Step::Idle);
            }
            sync(shared, from, to)?;
            self.last_sync = shared.clock.monotonic();
            marks.raise_flushed(to);
        }
        let more = marks.appended() > marks.flushed();
        Ok(if more { Step::Again } else { Step::Idle })
    }

    fn is_due(&self, shared: &Shared, dirty_bytes: u64) -> bool {
        match shared.options.flush {
            FlushPolicy::Sync => true,
            FlushPolicy::Async { pages_min, .. } => {
                let interval_ms = shared.flush_interval_ms.load(Ordering::Relaxed);
                let age = shared.clock.monotonic() - self.last_sync;
                let enough = dirty_bytes >= u64::from(pages_min) * PAGE_BYTES;
                shared.waiters.any()
                    || age >= THOROUGH
                    || dirty_bytes >= DIRTY_MAX_BYTES
                    || (enough && age >= Duration::from_millis(interval_ms))
            }
        }
    }

    fn write_pending(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let mut spare = Vec::new();
        let mut chunks = shared.log.take_pending(&*shared.clock);
        if chunks.is_empty() {
            return Ok(());
        }
        for chunk in &mut chunks {
            self.write(shared, chunk)?;
            if chunk.bytes.capacity() <= SPARE_MAX_BYTES {
                spare = std::mem::take(&mut chunk.bytes);
            }
        }
        shared.log.give_back(spare);
        shared.dispatch_gate.wake();
        Ok(())
    }

    fn write(&mut self, shared: &Shared, chunk: &mut Chunk) -> Result<(), StoreError> {
        let path = || shared.layout.log_file(chunk.file.base());
        if let Some(token) = chunk.token.take() {
            self.current = Some((Arc::clone(&chunk.file), token));
        }
        let Some((file, token)) = self.current.as_mut() else {
            return Err(no_token(&path()));
        };
        let from = chunk.at.saturating_sub(file.base());
        file.region()
            .append(token, from, &chunk.bytes, WriteWay::File)
            .map_err(|e| StoreError::Io {
                operation: "write",
                path: path(),
                source: e,
            })?;
        let to = chunk.publish_to;
        file.region().publish(token, to.saturating_sub(file.base()));
        shared.log.marks().raise_written(to);
        Ok(())
    }
}

fn no_token(path: &Path) -> StoreError {
    StoreError::Layout {
        path: path.to_owned(),
        what: "nobody may write this file".to_owned(),
    }
}

/// Syncs the files that hold `[from, to)`, oldest first, so that the durable part has no holes.
fn sync(shared: &Shared, from: u64, to: u64) -> Result<(), StoreError> {
    let files = shared.log.files().snapshot();
    let first = files.partition_point(|file| file.end() <= from);
    for file in files.iter().skip(first).take_while(|file| file.base() < to) {
        if !shared.options.lies_about_flush() {
            let first = from.max(file.base()) - file.base();
            let last = to.min(file.end()) - file.base();
            let synced = file.region().sync(first, last, shared.log.way());
            synced.map_err(|e| StoreError::Io {
                operation: "sync",
                path: shared.layout.log_file(file.base()),
                source: e,
            })?;
        }
        if file.end() <= to {
            file.region().seal();
        }
    }
    Ok(())
}

/// Everyone who waits, with the failure, but for those whose position is durable already.
fn refuse_all(shared: &Shared) -> Told {
    let flushed = shared.log.marks().flushed();
    let waiting = shared.waiters.take_until(u64::MAX).into_iter();
    let answer = |end: u64| match shared.poisoned() {
        Some(error) if end > flushed => Err(error),
        _ => Ok(()),
    };
    waiting.map(|(end, done)| (done, answer(end))).collect()
}

/// Runs one round of the flusher and then, holding no lock, tells those who waited.
pub(crate) fn flush_step(shared: &Shared, now: bool) -> Step {
    let (step, told) = shared.flusher.lock().step(shared, now);
    for (done, result) in told {
        done(result);
    }
    step
}

/// Calls `done` once `end` is durable; at once, on this thread, if it is already.
pub(crate) fn when_flushed(shared: &Shared, end: u64, done: Done) {
    let marks = shared.log.marks();
    let mut list = shared.waiters.list.lock();
    // Looked at under the lock: the flusher raises first and takes the list then.
    if end <= marks.flushed() {
        drop(list);
        done(Ok(()));
        return;
    }
    if let Some(error) = shared.poisoned() {
        drop(list);
        done(Err(error));
        return;
    }
    if end > marks.appended() {
        drop(list);
        done(Err(StoreError::invalid("position was never appended")));
        return;
    }
    list.push((end, done));
    drop(list);
    shared.waiters.gate.wake();
}
