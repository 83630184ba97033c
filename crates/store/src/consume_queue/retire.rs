//! Takes the front of a queue out of sight, and its files away, when the log behind it is deleted.

use super::{ConsumeQueue, QueueFiles, Unit};
use crate::StoreError;

/// Units read at a time.
const STRETCH: usize = 3276;

impl ConsumeQueue {
    /// First position whose record begins at or after log position `from`; the end of the queue if
    /// there is none. `fits` says whether a unit points at the record of its position.
    pub(crate) fn position_from(
        &self,
        files: &QueueFiles,
        from: u64,
        fits: impl Fn(u64, Unit) -> bool,
    ) -> Result<u64, StoreError> {
        let (mut at, max, known) = {
            let state = self.state.lock();
            (state.first, state.max(), state.first_physical)
        };
        if at >= max || known >= from {
            return Ok(at);
        }
        // Most queues have nothing to give up: one unit tells.
        let mut stretch = 1;
        while at < max {
            let (units, _) = self.read_all(files, at, stretch)?;
            stretch = STRETCH;
            let Some((last, _)) = units.last() else {
                break;
            };
            let next = last + 1;
            for (position, unit) in units {
                let Some(unit) = unit.filter(|unit| !unit.is_hole()) else {
                    continue;
                };
                if unit.physical >= from && fits(position, unit) {
                    if position == self.first() {
                        self.state.lock().first_physical = unit.physical;
                    }
                    return Ok(position);
                }
            }
            at = next;
        }
        Ok(max)
    }

    /// First position whose record is in the log, shown or not.
    pub(crate) fn first(&self) -> u64 {
        self.state.lock().first
    }

    /// Shows nothing before `to` until [`ConsumeQueue::show`].
    pub(crate) fn hide(&self, to: u64) {
        let mut state = self.state.lock();
        state.hidden = state.hidden.max(to);
    }

    /// Shows nothing before `to`, for good.
    pub(crate) fn hide_for_good(&self, to: u64) {
        let mut state = self.state.lock();
        state.floor = state.floor.max(to);
        state.hidden = state.hidden.max(to);
    }

    /// Shows again what [`ConsumeQueue::hide`] took out of sight.
    pub(crate) fn show(&self) {
        let mut state = self.state.lock();
        state.hidden = state.floor;
    }

    /// Forgets the positions before `to` and removes the files that hold nothing else. The file of
    /// the last unit stays: it says where the queue goes on. One caller at a time.
    pub(crate) fn drop_before(&self, files: &QueueFiles, to: u64) -> Result<(), StoreError> {
        let per_file = files.units_per_file();
        let (from, keep) = {
            let mut state = self.state.lock();
            if to > state.first {
                state.first = to.min(state.max());
                state.first_physical = 0;
            }
            let last = state.on_disk.saturating_sub(1);
            (state.first_file, state.first.min(last) / per_file)
        };
        for number in from..keep {
            files.remove(self.dir(), number)?;
            self.state.lock().first_file = number + 1;
        }
        if from < keep {
            files.mark_dirs(self.dir());
        }
        Ok(())
    }
}
