//! One queue of one topic: which record is at which position.
//!
//! New units live in memory until the maintenance worker writes them; the last few stay there
//! for readers at the tail. Everything here can be rebuilt from the log.

mod entry;
mod files;
mod load;
mod replay;
mod retire;
mod table;

pub use entry::QueueEntry;
pub(crate) use entry::Unit;
pub(crate) use files::QueueFiles;
pub(crate) use load::{Trust, load};
pub(crate) use replay::{Outcome, Replay};
pub(crate) use table::QueueTable;

use crate::StoreError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Written units kept in memory for readers at the tail.
const KEEP_UNITS: u64 = 32;
/// Longest run of missing positions that is filled with holes; a longer one is taken for damage.
const HOLES_MAX: u64 = 1_000_000;

/// One queue of one topic.
#[derive(Debug)]
pub(crate) struct ConsumeQueue {
    topic: Arc<str>,
    id: i32,
    dir: PathBuf,
    /// Position the next append gets. Changed only under the put lock.
    next: AtomicU64,
    /// Set under the put lock when the topic is removed: look the queue up again.
    removed: AtomicBool,
    state: Mutex<State>,
}

/// ```text
/// first .. hidden .. tail_from ..... on_disk ..... max
///                    |<------ tail, in memory ---->|
/// |<------------------ in files --->|
/// ```
#[derive(Debug, Default)]
struct State {
    /// First position whose record is in the log.
    first: u64,
    /// Log position of its record, 0 when not known.
    first_physical: u64,
    /// Positions before this one are not shown: they are about to be deleted, or were put again
    /// at the end of the log.
    hidden: u64,
    /// How far `hidden` may go back.
    floor: u64,
    on_disk: u64,
    tail_from: u64,
    tail: VecDeque<Unit>,
    /// Whether the queue stands in the list of queues to be written.
    listed: bool,
    /// Numbers of files written since their last sync.
    unsynced: Vec<u64>,
}

impl State {
    /// First position that is shown.
    fn min(&self) -> u64 {
        self.first.max(self.hidden).min(self.max())
    }

    fn max(&self) -> u64 {
        self.tail_from + self.tail.len() as u64
    }
}

/// A position and its unit, `None` where none was ever written.
pub(crate) type Placed = (u64, Option<Unit>);

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is now visible.
    Added {
        /// The queue must be put on the list of those to be written.
        first: bool,
        /// Units that were added, holes before it included.
        units: u64,
    },
    /// There was a unit at its position already.
    Old,
    /// Its position is too far ahead to be believed.
    TooFar,
}

impl ConsumeQueue {
    pub(crate) fn new(topic: Arc<str>, id: i32, dir: PathBuf) -> Self {
        ConsumeQueue {
            topic,
            id,
            dir,
            next: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Position the next append gets. For holders of the put lock.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_removed(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    /// First and one past the last visible position.
    pub(crate) fn range(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.min(), state.max())
    }

    /// Starts an empty queue at `[min, max)` of which everything is in files.
    pub(crate) fn start_at(&self, min: u64, max: u64) {
        let mut state = self.state.lock();
        state.tail.clear();
        state.first = min;
        state.on_disk = max;
        state.tail_from = max;
    }

    /// Makes the unit of position `at` visible, filling a gap before it with holes.
    pub(crate) fn put(&self, at: u64, unit: Unit) -> Put {
        let mut state = self.state.lock();
        let max = state.max();
        if at < max {
            return Put::Old;
        }
        if at > max && max == state.first && state.on_disk == max {
            // Nothing before it is known: the queue begins here.
            state.first = at;
            state.on_disk = at;
            state.tail_from = at;
        } else if at - max > HOLES_MAX {
            return Put::TooFar;
        }
        let before = state.max();
        for _ in before..at {
            state.tail.push_back(Unit::HOLE);
        }
        state.tail.push_back(unit);
        let first = !std::mem::replace(&mut state.listed, true);
        let units = state.max() - before;
        Put::Added { first, units }
    }

    /// Units from `from` on, at most `max`, stopping at a file border; holes and units that
    /// cannot be read are left out. The second value is true where a unit came from a file.
    pub(crate) fn read(
        &self,
        files: &QueueFiles,
        from: u64,
        max: usize,
    ) -> Result<(Vec<Placed>, bool), StoreError> {
        let min = self.range().0;
        self.read_all(files, from.max(min), max)
    }

    /// As [`ConsumeQueue::read`], with the positions that are not shown.
    pub(crate) fn read_all(
        &self,
        files: &QueueFiles,
        from: u64,
        max: usize,
    ) -> Result<(Vec<Placed>, bool), StoreError> {
        let on_disk_part = {
            let state = self.state.lock();
            let from = from.max(state.first);
            if from >= state.max() {
                return Ok((Vec::new(), false));
            }
            if from >= state.tail_from {
                let skip = usize::try_from(from - state.tail_from).unwrap_or(usize::MAX);
                let units = state.tail.iter().skip(skip).take(max);
                let found = (from..).zip(units).map(|(at, unit)| (at, Some(*unit)));
                return Ok((found.collect(), false));
            }
            let left = usize::try_from(state.tail_from - from).unwrap_or(usize::MAX);
            (from, max.min(left))
        };
        // Written units do not change (but for repairs), so the lock is not needed to read them.
        let (from, max) = on_disk_part;
        let units = files.read(&self.dir, from, max)?;
        let mut found: Vec<_> = (from..).zip(units).collect();
        if found.is_empty() {
            // The file is gone: say so for the first position, which the log may still know.
            found.push((from, None));
        }
        Ok((found, true))
    }

    /// Writes the units that are only in memory. One caller at a time.
    ///
    /// Returns how many were written.
    pub(crate) fn write_out(&self, files: &QueueFiles) -> Result<u64, StoreError> {
        let (from, units) = {
            let mut state = self.state.lock();
            state.listed = false;
            let skip = usize::try_from(state.on_disk - state.tail_from).unwrap_or(0);
            let units: Vec<Unit> = state.tail.iter().skip(skip).copied().collect();
            (state.on_disk, units)
        };
        if units.is_empty() {
            return Ok(0);
        }
        let written = files.write(&self.dir, from, &units);
        let mut state = self.state.lock();
        match written {
            Ok(file_numbers) => {
                state.on_disk = from + units.len() as u64;
                for number in file_numbers {
                    if !state.unsynced.contains(&number) {
                        state.unsynced.push(number);
                    }
                }
                trim(&mut state);
                Ok(units.len() as u64)
            }
            Err(error) => {
                state.listed = true;
                Err(error)
            }
        }
    }

    /// Syncs the files written since the last time.
    pub(crate) fn sync(&self, files: &QueueFiles) -> Result<(), StoreError> {
        let unsynced = std::mem::take(&mut self.state.lock().unsynced);
        unsynced.iter().try_for_each(|n| files.sync(&self.dir, *n))
    }

    /// Forgets which files were written: all of them are about to be synced.
    pub(crate) fn mark_synced(&self) {
        self.state.lock().unsynced.clear();
    }

    /// Puts a right unit in the place of a wrong one, in the file.
    pub(crate) fn repair(&self, files: &QueueFiles, at: u64, unit: Unit) -> Result<(), StoreError> {
        let numbers = files.write(&self.dir, at, &[unit])?;
        self.mark_unsynced(&numbers);
        Ok(())
    }

    /// Makes a position before the first one the first: its record was found in the log after all.
    pub(crate) fn begin_before(&self, at: u64) {
        let mut state = self.state.lock();
        state.first = state.first.min(at);
    }

    pub(crate) fn mark_unsynced(&self, numbers: &[u64]) {
        let mut state = self.state.lock();
        for number in numbers {
            if !state.unsynced.contains(number) {
                state.unsynced.push(*number);
            }
        }
    }

    /// Forgets the units that are only in memory; returns how many.
    pub(crate) fn discard_unwritten(&self) -> u64 {
        let mut state = self.state.lock();
        let unwritten = state.max() - state.on_disk;
        state.on_disk = state.max();
        unwritten
    }

    /// True when files were written and not synced.
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.state.lock().unsynced.is_empty()
    }
}

/// Drops written units from memory but for the last few.
fn trim(state: &mut State) {
    let keep_from = state.on_disk.saturating_sub(KEEP_UNITS);
    while state.tail_from < keep_from && state.tail.pop_front().is_some() {
        state.tail_from += 1;
    }
    if state.tail.capacity() > 256 && state.tail.capacity() > state.tail.len() * 4 {
        state.tail.shrink_to_fit();
    }
}
