//! Compares the queues with the log at start, and writes what differs or is missing.

use super::{ConsumeQueue, Put, QueueTable, Unit};
use crate::StoreError;
use std::collections::HashMap;
use std::sync::Arc;

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
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Units on disk that were wrong and have been put right.
    pub(crate) repaired: u64,
    /// Units that were missing.
    pub(crate) added: u64,
    /// Log position of the first record whose unit was missing, or will be: `u64::MAX` if none.
    pub(crate) first_added: u64,
    /// Units are missing before those seen: walk the whole log.
    pub(crate) gap: bool,
    /// Units of records that claim a position which is not theirs.
    pub(crate) liars: Vec<Unit>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(table: &'a QueueTable, whole_log: bool) -> Self {
        Replay {
            table,
            whole_log,
            waiting: HashMap::new(),
            count: 0,
            outcome: Outcome {
                repaired: 0,
                added: 0,
                first_added: u64::MAX,
                gap: false,
                liars: Vec::new(),
            },
        }
    }

    /// Adds the unit of a record; records come in log order.
    pub(crate) fn add(
        &mut self,
        topic: &str,
        queue_id: i32,
        position: u64,
        unit: Unit,
    ) -> Result<(), StoreError> {
        self.waiting
            .entry((topic.to_owned(), queue_id))
            .or_default()
            .push((position, unit));
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

    fn compare_queue(
        &mut self,
        topic: &str,
        id: i32,
        units: &[(u64, Unit)],
    ) -> Result<(), StoreError> {
        let queue = self.table.get_or_make(topic, id);
        let was_unsynced = queue.has_unsynced();
        let mut known = Known::default();
        let mut expected = None;
        for (n, (position, unit)) in units.iter().enumerate() {
            if let Some(expected) = expected.filter(|expected| expected != position) {
                let next = units.get(n + 1).map(|(position, _)| *position);
                let pointed_at = known.get(self.table, &queue, expected, units.len())?;
                let lies = next == Some(expected + 1)
                    || pointed_at.is_some_and(|old| old.physical == unit.physical);
                if lies {
                    self.outcome.liars.push(*unit);
                    continue;
                }
            }
            expected = Some(position + 1);
            let (min, max) = queue.range();
            if *position >= max {
                if *position > max && !self.whole_log {
                    self.outcome.gap = true;
                    return Ok(());
                }
                self.add_one(&queue, *position, *unit);
                continue;
            }
            let old = known.get(self.table, &queue, *position, units.len())?;
            if *position >= min && old == Some(*unit) {
                continue;
            }
            // Two records claim one position only if one of them lies; the first is believed.
            let claimed = old.is_some_and(|old| {
                let first = |(p, u): &(u64, Unit)| p == position && *u == old;
                old.physical < unit.physical && units.iter().any(first)
            });
            if claimed {
                self.outcome.liars.push(*unit);
                continue;
            }
            queue.repair(self.table.files(), *position, *unit)?;
            queue.begin_before(*position);
            known.set(*position, *unit);
            self.outcome.repaired += 1;
        }
        if !was_unsynced && queue.has_unsynced() {
            self.table.list_unsynced(&queue);
        }
        Ok(())
    }

    fn add_one(&mut self, queue: &Arc<ConsumeQueue>, position: u64, unit: Unit) {
        let Put::Added { first, units } = queue.put(position, unit) else {
            self.outcome.liars.push(unit);
            return;
        };
        self.outcome.added += 1;
        self.outcome.first_added = self.outcome.first_added.min(unit.physical);
        self.table.add_backlog(units);
        if first {
            self.table.list_dirty(queue);
        }
        queue.set_next(position + 1);
    }
}

/// Units as they are on disk, read in long stretches.
#[derive(Default)]
struct Known(HashMap<u64, Option<Unit>>);

impl Known {
    fn get(
        &mut self,
        table: &QueueTable,
        queue: &ConsumeQueue,
        position: u64,
        stretch: usize,
    ) -> Result<Option<Unit>, StoreError> {
        if !self.0.contains_key(&position) {
            self.0.clear();
            let (units, _) = queue.read(table.files(), position, stretch)?;
            self.0.extend(units);
        }
        Ok(self.0.get(&position).copied().flatten())
    }

    fn set(&mut self, position: u64, unit: Unit) {
        self.0.insert(position, Some(unit));
    }
}
