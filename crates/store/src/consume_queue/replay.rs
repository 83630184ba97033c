//! Compares the queues with the log at start, and writes what differs or is missing.

use super::{Put, QueueTable, Unit};
use crate::StoreError;
use std::collections::HashMap;

/// Units that may wait before they are compared.
const WAITING_MAX: usize = 1 << 20;

/// Units of the log, gathered by queue so that files are read in long stretches.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    table: &'a QueueTable,
    /// True when the walk began at the first record of the log: a gap is then one of the log.
    whole_log: bool,
    waiting: HashMap<(String, i32), Vec<(u64, Unit)>>,
    count: usize,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// What came of comparing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Units on disk that were wrong and have been put right.
    pub(crate) repaired: u64,
    /// Units that were missing.
    pub(crate) added: u64,
    /// Units are missing before those seen: walk the whole log.
    pub(crate) gap: bool,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(table: &'a QueueTable, whole_log: bool) -> Self {
        Replay { table, whole_log, waiting: HashMap::new(), count: 0, outcome: Outcome::default() }
    }

    /// Adds the unit of a record; records come in log order.
    pub(crate) fn add(&mut self, topic: &str, queue_id: i32, position: u64, unit: Unit) -> Result<(), StoreError> {
        self.waiting.entry((topic.to_owned(), queue_id)).or_default().push((position, unit));
        self.count += 1;
        if self.count >= WAITING_MAX {
            self.compare()?;
        }
        Ok(())
    }

    /// Compares everything that waits.
    pub(crate) fn compare(&mut self) -> Result<(), StoreError> {
        self.count = 0;
        for ((topic, id), units) in std::mem::take(&mut self.waiting) {
            self.compare_queue(&topic, id, &units)?;
        }
        Ok(())
    }

    fn compare_queue(&mut self, topic: &str, id: i32, units: &[(u64, Unit)]) -> Result<(), StoreError> {
        let queue = self.table.get_or_make(topic, id);
        let files = self.table.files();
        let was_unsynced = queue.has_unsynced();
        let mut had: HashMap<u64, Option<Unit>> = HashMap::new();
        for (position, unit) in units {
            let (min, max) = queue.range();
            if *position >= max {
                if *position > max && !self.whole_log {
                    self.outcome.gap = true;
                    return Ok(());
                }
                if let Put::Added { first } = queue.put(*position, *unit) {
                    self.outcome.added += 1;
                    self.table.add_backlog(1);
                    if first {
                        self.table.list_dirty(&queue);
                    }
                    queue.set_next(position + 1);
                }
                continue;
            }
            if *position < min {
                continue;
            }
            if !had.contains_key(position) {
                had.clear();
                let (read, _) = queue.read(files, *position, units.len())?;
                had.extend(read);
            }
            let old = had.get(position).copied().flatten();
            if old == Some(*unit) {
                continue;
            }
            // Two records claim one position only if one of them lies; the first is believed.
            let claimed = old
                .is_some_and(|old| units.iter().any(|(p, u)| p == position && *u == old && u.physical < unit.physical));
            if !claimed {
                queue.repair(files, *position, *unit)?;
                had.insert(*position, Some(*unit));
                self.outcome.repaired += 1;
            }
        }
        if !was_unsynced && queue.has_unsynced() {
            self.table.list_unsynced(&queue);
        }
        Ok(())
    }
}
