//! Takes the front of a queue out of sight, and its files away, when the log behind it is deleted.

use super::files::STRETCH;
use super::{ConsumeQueue, QueueFiles, Unit};
use crate::StoreError;

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

    /// Forgets the positions before `to`.
    pub(crate) fn drop_before(&self, to: u64) {
        let mut state = self.state.lock();
        if to > state.first {
            state.first = to.min(state.max());
            state.first_physical = 0;
        }
    }

    /// Removes the files that hold nothing but forgotten positions. The file of the last unit
    /// stays: it says where the queue goes on. One caller at a time.
    pub(crate) fn remove_old_files(&self, files: &QueueFiles) -> Result<(), StoreError> {
        let needed = {
            let state = self.state.lock();
            state.first.min(state.on_disk.saturating_sub(1))
        };
        files.remove_before(self.dir(), needed / files.units_per_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::sim::{Failing, SimDisk};
    use crate::layout::make_dirs;
    use std::path::Path;
    use std::sync::Arc;

    /// What a damaged record says its position is may be anything.
    #[test]
    fn a_queue_that_begins_far_out_removes_the_files_there_are() {
        let disk = SimDisk::new(1);
        let root = Path::new("/data/consumequeue");
        make_dirs(&disk, root).unwrap();
        let files = QueueFiles::new(Arc::new(disk.clone()), root.to_owned(), 100);
        let queue = ConsumeQueue::new("t".into(), 0, files.dir("t", 0));
        let unit = Unit {
            physical: 7,
            size: 100,
            tags_code: 0,
        };
        let begin = 10_000_000_000_000;
        for at in begin..begin + 12 {
            queue.put(at, unit);
        }
        queue.write_out(&files).unwrap();
        disk.fail(Failing::None);
        queue.drop_before(begin + 7);
        queue.remove_old_files(&files).unwrap();
        assert!(disk.calls() < 10, "{}", disk.calls());
        assert_eq!(queue.range(), (begin + 7, begin + 12));
        let names: Vec<_> = disk.list(queue.dir()).unwrap();
        let names: Vec<_> = names.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["00000200000000000100", "00000200000000000200"]);
    }
}
