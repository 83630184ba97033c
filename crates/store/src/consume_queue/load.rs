//! Finds the queues that are on disk and where each of them ends.

use super::files::STRETCH;
use super::{ConsumeQueue, QueueFiles, QueueTable, Unit};
use crate::StoreError;
use crate::layout::{NumberedFile, UNIT_BYTES, list, numbered_files};
use std::path::Path;

/// What the files were like.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loaded {
    /// Queues found.
    pub(crate) queues: u64,
    /// Something was not as it must be: build all queues again from the log.
    pub(crate) rebuild: bool,
}

/// Which units count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trust {
    /// Records that end after this log position do not.
    pub(crate) durable: u64,
    /// Records before this log position are gone. Their units still say how far the queue got.
    pub(crate) log_min: u64,
    /// Units of records before this log position do not: they are of a removed topic.
    pub(crate) removed: u64,
    /// The last run did not end with `close`: erase what does not count.
    pub(crate) dirty: bool,
    /// A queue of which nothing counts begins at 0 again, whatever files there are.
    pub(crate) restart: bool,
}

/// Enters every queue on disk into `table`. `removed_before` says up to which log position the
/// messages of a topic were removed.
pub(crate) fn load(
    table: &QueueTable,
    root: &Path,
    trust: Trust,
    removed_before: impl Fn(&str) -> Option<u64>,
) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    let files = table.files();
    for topic in list(files.disk(), root)? {
        for queue in list(files.disk(), &root.join(&topic.name))? {
            let id = queue.name.parse::<i32>().ok().filter(|id| *id >= 0);
            let Some(id) = id.filter(|id| queue.is_dir && id.to_string() == queue.name) else {
                continue;
            };
            let dir = files.dir(&topic.name, id);
            let made = table.get_or_make(&topic.name, id);
            let removed = removed_before(&topic.name);
            // Old units of a removed topic may lie behind those of the new one.
            let trust = Trust {
                removed: removed.unwrap_or(0),
                dirty: trust.dirty || removed.is_some(),
                restart: removed.is_some(),
                ..trust
            };
            let (mut found, odd) = usable_files(files, &made, trust)?;
            // The log has everything from its first byte, so the queue must begin at 0.
            let beheaded = trust.log_min == 0 && found.first().is_some_and(|file| file.base > 0);
            loaded.rebuild |= odd || beheaded;
            if beheaded {
                let per_file = files.units_per_file();
                for file in std::mem::take(&mut found) {
                    files.remove(&dir, file.base / UNIT_BYTES / per_file)?;
                }
            }
            if trust.dirty {
                // The run that made them may have been killed before it synced the directories.
                files.mark_dirs(&dir);
            }
            load_queue(files, &made, &found, trust)?;
            if made.has_unsynced() {
                table.list_unsynced(&made);
            }
            loaded.queues += 1;
        }
    }
    Ok(loaded)
}

/// Files of the right length without gaps; others are removed (`true`), since the log has it all.
/// A gap is where a deletion was cut short if units after it count, else where making files was.
fn usable_files(
    files: &QueueFiles,
    queue: &ConsumeQueue,
    trust: Trust,
) -> Result<(Vec<NumberedFile>, bool), StoreError> {
    let file_bytes = files.units_per_file() * UNIT_BYTES;
    let dir = queue.dir();
    let mut runs: Vec<Vec<NumberedFile>> = Vec::new();
    let mut odd = false;
    for file in numbered_files(files.disk(), dir)? {
        if file.len != file_bytes || !file.base.is_multiple_of(file_bytes) {
            // An empty last file is what a crash right after making it leaves.
            odd |= file.len != 0;
            files.remove(dir, file.base / file_bytes)?;
            continue;
        }
        let last = runs.last_mut().filter(|run| {
            run.last()
                .is_some_and(|last| last.base + file_bytes == file.base)
        });
        match last {
            Some(run) => run.push(file),
            None => runs.push(vec![file]),
        }
    }
    let mut chosen = 0;
    if trust.log_min > 0 {
        for (n, run) in runs.iter().enumerate().skip(1) {
            let first = run.first().map_or(0, |file| file.base / UNIT_BYTES);
            if last_unit(files, queue, first, trust)?.is_some() {
                chosen = n;
            }
        }
    }
    let mut usable = Vec::new();
    for (n, run) in runs.into_iter().enumerate() {
        if n == chosen {
            usable = run;
            continue;
        }
        odd = true;
        for file in run {
            files.remove(dir, file.base / file_bytes)?;
        }
    }
    Ok((usable, odd))
}

fn load_queue(
    files: &QueueFiles,
    queue: &ConsumeQueue,
    found: &[NumberedFile],
    trust: Trust,
) -> Result<(), StoreError> {
    let per_file = files.units_per_file();
    let mut max = None;
    for file in found.iter().rev() {
        let first = file.base / UNIT_BYTES;
        let last = last_unit(files, queue, first, trust)?;
        if let Some(last) = last {
            max = Some(last + 1);
            break;
        }
        if first == 0 || file.base == found.first().map_or(0, |f| f.base) {
            break;
        }
        files.remove(queue.dir(), first / per_file)?;
    }
    let start = match max {
        None if trust.restart => 0,
        _ => found.first().map_or(0, |file| file.base / UNIT_BYTES),
    };
    let max = max.unwrap_or(start);
    if trust.dirty && !found.is_empty() {
        files.erase_from(queue.dir(), max)?;
        queue.mark_unsynced(&[max / per_file]);
    }
    let min = first_unit(files, queue, start, max, trust.log_min.max(trust.removed))?;
    queue.start_at(min, max);
    if min / per_file > start / per_file {
        // What a deletion that was cut short has left.
        queue.remove_old_files(files)?;
    }
    queue.set_next(max);
    Ok(())
}

/// Position of the last unit that counts in the file that begins at `first`; a hole does when such
/// a unit follows. Stops at a stretch without any.
fn last_unit(
    files: &QueueFiles,
    queue: &ConsumeQueue,
    first: u64,
    trust: Trust,
) -> Result<Option<u64>, StoreError> {
    let border = first + files.units_per_file();
    let mut last = None;
    let mut at = first;
    while at < border {
        let units = files.read(queue.dir(), at, STRETCH)?;
        let count = units.len() as u64;
        let mut any = false;
        for (position, unit) in (at..).zip(units) {
            let Some(unit) = unit else { continue };
            any = true;
            let there = unit.physical >= trust.removed && unit.end() <= trust.durable;
            if there && !unit.is_hole() {
                last = Some(position);
            }
        }
        if !any || count == 0 {
            break;
        }
        at += count;
    }
    Ok(last)
}

/// Position of the first unit from `from` on whose record is still in the log; `max` if none is.
fn first_unit(
    files: &QueueFiles,
    queue: &ConsumeQueue,
    from: u64,
    max: u64,
    log_min: u64,
) -> Result<u64, StoreError> {
    let gone = |unit: &Option<Unit>| unit.is_none_or(|u| u.is_hole() || u.physical < log_min);
    let mut at = from;
    while at < max {
        let units = files.read(queue.dir(), at, STRETCH)?;
        if units.is_empty() {
            break;
        }
        if let Some(skip) = units.iter().position(|unit| !gone(unit)) {
            return Ok((at + skip as u64).min(max));
        }
        at += units.len() as u64;
    }
    Ok(max)
}
