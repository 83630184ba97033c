//! Where queues go on whose messages were all deleted with their log files.
//!
//! Of such a queue nothing is in the log any more, so nothing could build it again: without this
//! file one flipped bit in its last unit, or a lost queue file, would give positions out a second
//! time, and groups that had read them would pass over new messages.
//!
//! Kept in the text file `queue-ends`: the CRC-32 of the rest in hexadecimal, then one
//! `END QUEUE TOPIC` a line.

use crate::consume_queue::QueueTable;
use crate::disk::Disk;
use crate::layout::Layout;
use crate::removed::Removed;
use crate::shared::Shared;
use crate::{StoreError, config_file};
use std::sync::atomic::Ordering;

/// Name of the file.
const FILE: &str = "queue-ends";

/// Writes the ends of all queues that show no message, durably; at the next round of the maintainer
/// if there is no space now. For holders of the maintainer lock.
///
/// # Errors
/// [`StoreError::Io`]: the store is poisoned.
pub(crate) fn write(shared: &Shared) -> Result<(), StoreError> {
    let mut lines = Vec::new();
    for queue in shared.queues.all() {
        let (first, end) = queue.range();
        if end > 0 && first == end && !queue.is_removed() {
            lines.push(line(end, queue.id(), queue.topic()));
        }
    }
    lines.sort();
    let written = shared.survive(put(&*shared.disk, &shared.layout, &lines.concat()));
    let is_full = matches!(written, Err(StoreError::Full));
    shared.ends_due.store(is_full, Ordering::Release);
    if is_full { Ok(()) } else { written }
}

/// Writes again what there was no space for.
pub(crate) fn write_if_due(shared: &Shared) -> Result<(), StoreError> {
    if shared.ends_due.load(Ordering::Acquire) {
        write(shared)
    } else {
        Ok(())
    }
}

fn put(disk: &dyn Disk, layout: &Layout, body: &str) -> Result<(), StoreError> {
    let text = sealed(body);
    let path = layout.file(FILE);
    let there = config_file::read(disk, &path)?;
    if there.as_deref() == Some(text.as_bytes()) || (there.is_none() && body.is_empty()) {
        return Ok(());
    }
    config_file::write(disk, &path, text.as_bytes())
}

/// Moves queues that are shorter than the file says to where they went on.
pub(crate) fn restore(
    disk: &dyn Disk,
    layout: &Layout,
    table: &QueueTable,
    removed: &Removed,
) -> Result<(), StoreError> {
    for (end, id, topic) in read(disk, layout)? {
        if removed.before(&topic).is_some() {
            continue;
        }
        let queue = table.get_or_make(&topic, id);
        if queue.range().1 < end {
            queue.start_at(end, end);
            queue.set_next(end);
        }
    }
    Ok(())
}

/// The lines of the file, or of its backup if it is damaged; none without either.
fn read(disk: &dyn Disk, layout: &Layout) -> Result<Vec<End>, StoreError> {
    let path = layout.file(FILE);
    if let Some(ends) = config_file::read(disk, &path)?.and_then(|text| parse(&text)) {
        return Ok(ends);
    }
    let backup = config_file::read_backup(disk, &path)?;
    Ok(backup.and_then(|text| parse(&text)).unwrap_or_default())
}

/// End, id and topic of a queue.
pub(crate) type End = (u64, i32, String);

pub(crate) fn line(end: u64, id: i32, topic: &str) -> String {
    format!("{end} {id} {topic}\n")
}

/// The text of the file: these lines under their checksum.
pub(crate) fn sealed(body: &str) -> String {
    format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()))
}

/// What the text of the file says; `None` when its checksum does not fit.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<End>> {
    let (crc, body) = std::str::from_utf8(text).ok()?.split_once('\n')?;
    if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let end = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let end = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        Some((end, id, parts.next()?.to_owned()))
    };
    Some(body.split_terminator('\n').filter_map(end).collect())
}
