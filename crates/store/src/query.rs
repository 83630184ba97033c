//! Reads queues: entries by position, positions by time.

use crate::commit_log::Next;
use crate::consume_queue::{ConsumeQueue, Placed, Unit};
use crate::record::unit_of;
use crate::shared::Shared;
use crate::store::QueueRange;
use crate::{PhysicalOffset, QueueEntry, QueueOffset, Store, StoreError};
use bytes::Bytes;
use std::sync::Arc;
use wire::message::record::RecordView;

/// Log bytes that are searched for the record of a damaged queue entry at most.
const REPAIR_SCAN_BYTES: u64 = 256 << 20;
/// Damaged queue entries that one search by time repairs at most; it passes over more.
const SEARCH_REPAIRS: usize = 8;
/// Entries looked at together when the one in the middle of a search cannot be read.
const NEIGHBOURS: usize = 64;

/// Which end of a run of messages a search by time wants (RocketMQ 5.4.0 `BoundaryType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// The first message stored at or after the time; `max` when all are earlier.
    Lower,
    /// The last message stored at or before the time; `min` when all are later.
    Upper,
}

impl Store {
    /// The positions of a queue; both 0 when there is no such queue.
    #[must_use]
    pub fn queue(&self, topic: &str, queue_id: i32) -> QueueRange {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return QueueRange::default();
        };
        let (min, max) = queue.range();
        QueueRange {
            min: QueueOffset::new(min),
            max: QueueOffset::new(max),
        }
    }

    /// Entries from position `from` on, at most `max`. Positions before `min` and those whose
    /// message is gone are left out, so an entry's own position is the one to go by. An entry from
    /// disk that does not fit the log is repaired from it first.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn entries(
        &self,
        topic: &str,
        queue_id: i32,
        from: QueueOffset,
        max: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(Vec::new());
        };
        let mut repairs = usize::MAX;
        self.entries_of(&queue, from, max, &mut repairs)
    }

    /// As [`Store::entries`]; at most `repairs` entries are looked for in the log, less what earlier
    /// calls have used up, and others are left out.
    fn entries_of(
        &self,
        queue: &ConsumeQueue,
        from: QueueOffset,
        max: usize,
        repairs: &mut usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let files = self.shared.queues.files();
        gather(
            from,
            max,
            |at, max| queue.read(files, at, max),
            |position, unit, from_disk| {
                if from_disk {
                    self.fitting(queue, position, unit, repairs)
                } else {
                    Ok(unit.filter(|unit| !unit.is_hole()))
                }
            },
        )
    }

    /// The unit of a position if it points at its record, else the one the log says.
    fn fitting(
        &self,
        queue: &ConsumeQueue,
        position: u64,
        unit: Option<Unit>,
        repairs: &mut usize,
    ) -> Result<Option<Unit>, StoreError> {
        let log = &self.shared.log;
        if let Some(unit) = unit {
            if unit.is_hole() {
                return Ok(None);
            }
            let fits = log.view(unit.physical, |view| {
                is_of(view, queue, position) && u32::try_from(view.total_size()) == Ok(unit.size)
            });
            if fits == Some(true) || log.damage_at(unit.physical).is_some() {
                return Ok(Some(unit));
            }
        }
        // One that was retired while this was read is not looked for.
        if *repairs == 0 || position < queue.range().0 {
            return Ok(None);
        }
        *repairs -= 1;
        let found = self.find(queue, position)?;
        if let Some(found) = found {
            queue.repair(self.shared.queues.files(), position, found)?;
        }
        Ok(found)
    }

    /// Looks in the log, after the record of the previous position, for that of `position`.
    fn find(&self, queue: &ConsumeQueue, position: u64) -> Result<Option<Unit>, StoreError> {
        let log = &self.shared.log;
        let (min, _) = queue.range();
        let mut from = log.files().min();
        if position > min {
            let (before, _) = queue.read(self.shared.queues.files(), position - 1, 1)?;
            let before = before.first().and_then(|(_, unit)| *unit);
            let fits = |unit: &Unit| {
                log.view(unit.physical, |view| is_of(view, queue, position - 1)) == Some(true)
            };
            from = before.filter(fits).map_or(from, Unit::end);
        }
        let stop = from.saturating_add(REPAIR_SCAN_BYTES);
        let levels = &self.shared.options.delay_levels_ms;
        while from < stop {
            let next = log.next_record(from, |view| {
                is_of(view, queue, position)
                    .then(|| unit_of(view, levels))
                    .flatten()
            });
            match next {
                Next::Record {
                    made: Some((_, unit)),
                    ..
                } => return Ok(Some(unit)),
                Next::Record {
                    made: None, end, ..
                } => from = end,
                Next::End(_) => break,
            }
        }
        Ok(None)
    }

    /// Store time of the message at a position, milliseconds since 1970; `None` if there is none.
    #[must_use]
    pub fn store_timestamp(&self, topic: &str, queue_id: i32, at: QueueOffset) -> Option<i64> {
        let entries = self.entries(topic, queue_id, at, 1).ok()?;
        let entry = entries.first().filter(|entry| entry.queue_offset == at)?;
        let log = &self.shared.log;
        log.view(entry.physical_offset.get(), |view| view.store_ts_ms)
    }

    /// The position a search by store time finds. An absent or empty queue answers its `max`.
    #[must_use]
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        ts_ms: i64,
        bound: Boundary,
    ) -> QueueOffset {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return QueueOffset::ZERO;
        };
        let (min, max) = queue.range();
        let mut repairs = SEARCH_REPAIRS;
        let is_later = |time: i64| match bound {
            Boundary::Lower => time >= ts_ms,
            Boundary::Upper => time > ts_ms,
        };
        // Times do not go back in a queue. Of the positions that can be read, all before `low` are
        // not later and `last_before` is the last of them; all from `high` on are later and
        // `first_later` is the first of them.
        let (mut low, mut high) = (QueueOffset::new(min), QueueOffset::new(max));
        let (mut last_before, mut first_later) = (low, high);
        while low < high {
            let middle = low.plus(high.since(low) / 2);
            match self.readable(&queue, middle, high, &mut repairs) {
                Some((at, time)) if !is_later(time) => {
                    last_before = at;
                    low = at.plus(1);
                }
                Some((at, _)) => {
                    first_later = at;
                    high = middle;
                }
                None => high = middle,
            }
        }
        match bound {
            Boundary::Lower => first_later,
            Boundary::Upper => last_before,
        }
    }

    /// The first position of `[from, to)` whose message can be read, and its store time.
    fn readable(
        &self,
        queue: &ConsumeQueue,
        from: QueueOffset,
        to: QueueOffset,
        repairs: &mut usize,
    ) -> Option<(QueueOffset, i64)> {
        let mut at = from;
        // Nearly always it is the first; beyond, positions are gone in long runs.
        let mut count = 1;
        while at < to {
            let entries = self.entries_of(queue, at, count, repairs).ok()?;
            at = entries.last()?.queue_offset.plus(1);
            count = NEIGHBOURS;
            for entry in entries.iter().filter(|entry| entry.queue_offset < to) {
                let position = entry.physical_offset.get();
                let time = self.shared.log.view(position, |view| view.store_ts_ms);
                if let Some(time) = time {
                    return Some((entry.queue_offset, time));
                }
            }
        }
        None
    }
}

/// Entries from `from` on, at most `max`: `read` gives stretches of units and whether they come from
/// files, `judge` says which unit counts at a position.
pub(crate) fn gather(
    from: QueueOffset,
    max: usize,
    read: impl Fn(u64, usize) -> Result<(Vec<Placed>, bool), StoreError>,
    mut judge: impl FnMut(u64, Option<Unit>, bool) -> Result<Option<Unit>, StoreError>,
) -> Result<Vec<QueueEntry>, StoreError> {
    let mut entries = Vec::new();
    let mut at = from.get();
    while entries.len() < max {
        let (units, from_disk) = read(at, max - entries.len())?;
        let Some((last, _)) = units.last() else {
            break;
        };
        at = last + 1;
        for (position, unit) in units {
            let unit = judge(position, unit, from_disk)?;
            entries.extend(unit.map(|unit| unit.entry(position)));
        }
    }
    Ok(entries)
}

/// True when a record says that it is the one of a position of a queue.
pub(crate) fn is_of(view: &RecordView<'_>, queue: &ConsumeQueue, position: u64) -> bool {
    view.queue_id == queue.id()
        && u64::try_from(view.queue_offset) == Ok(position)
        && view.topic == queue.topic()
}

/// Whole records in log order; see [`Store::scan`].
#[derive(Debug)]
pub struct Scan {
    shared: Arc<Shared>,
    at: u64,
}

impl Scan {
    pub(crate) fn new(shared: Arc<Shared>, from: u64) -> Self {
        let at = from.max(shared.log.files().min());
        Scan { shared, at }
    }

    /// Where the next record is looked for: after the last one given.
    #[must_use]
    pub fn position(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.at)
    }
}

impl Iterator for Scan {
    type Item = (PhysicalOffset, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        let log = &self.shared.log;
        loop {
            match log.next_record(self.at, |_| ()) {
                Next::Record { at, end, .. } => {
                    self.at = end;
                    if let Some(record) = log.record(at, None) {
                        return Some((PhysicalOffset::new(at), record));
                    }
                }
                Next::End(end) => {
                    self.at = end;
                    return None;
                }
            }
        }
    }
}
