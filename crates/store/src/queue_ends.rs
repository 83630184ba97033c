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
use crate::{StoreError, config_file};

/// Name of the file.
const FILE: &str = "queue-ends";

/// Writes the ends of all queues that show no message, durably.
pub(crate) fn write(
    disk: &dyn Disk,
    layout: &Layout,
    table: &QueueTable,
) -> Result<(), StoreError> {
    let mut lines = Vec::new();
    for queue in table.all() {
        let (first, end) = queue.range();
        if end > 0 && first == end && !queue.is_removed() {
            lines.push(format!("{end} {} {}\n", queue.id(), queue.topic()));
        }
    }
    lines.sort();
    put(disk, layout, &lines.concat())
}

fn put(disk: &dyn Disk, layout: &Layout, body: &str) -> Result<(), StoreError> {
    let text = format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()));
    let path = layout.file(FILE);
    let there = config_file::read(disk, &path)?;
    if there.as_deref() == Some(text.as_bytes()) || (there.is_none() && body.is_empty()) {
        return Ok(());
    }
    config_file::write(disk, &path, text.as_bytes())
}

/// Forgets a topic that was removed: should it come again, its queues begin at 0.
pub(crate) fn forget(disk: &dyn Disk, layout: &Layout, topic: &str) -> Result<(), StoreError> {
    let lines = read(disk, layout)?;
    let kept: Vec<String> = lines
        .iter()
        .filter(|(_, _, of)| of != topic)
        .map(|(end, id, of)| format!("{end} {id} {of}\n"))
        .collect();
    if kept.len() == lines.len() {
        return Ok(());
    }
    put(disk, layout, &kept.concat())
}

/// Moves queues that are shorter than the file says to where they went on.
pub(crate) fn restore(
    disk: &dyn Disk,
    layout: &Layout,
    table: &QueueTable,
    removed: &Removed,
) -> Result<(), StoreError> {
    let per_file = table.files().units_per_file().max(1);
    for (end, id, topic) in read(disk, layout)? {
        if removed.before(&topic).is_some() {
            continue;
        }
        let queue = table.get_or_make(&topic, id);
        if queue.range().1 < end {
            queue.start_at(end, end, end / per_file);
            queue.set_next(end);
        }
    }
    Ok(())
}

/// The lines of the file, or of its backup if it is damaged; none without either.
fn read(disk: &dyn Disk, layout: &Layout) -> Result<Vec<(u64, i32, String)>, StoreError> {
    let path = layout.file(FILE);
    let whole = |text: Vec<u8>| {
        let text = String::from_utf8(text).ok()?;
        let (crc, body) = text.split_once('\n')?;
        let good = u32::from_str_radix(crc, 16).ok()? == crc32fast::hash(body.as_bytes());
        good.then(|| body.to_owned())
    };
    let body = match config_file::read(disk, &path)?.and_then(whole) {
        Some(body) => body,
        None => config_file::read_backup(disk, &path)?
            .and_then(whole)
            .unwrap_or_default(),
    };
    let line = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let end = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        Some((end, id, parts.next()?.to_owned()))
    };
    Ok(body.lines().filter_map(line).collect())
}
