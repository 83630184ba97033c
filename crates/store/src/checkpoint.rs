//! The checkpoint file: how far the log and the queues are known to be durable.
//!
//! ```text
//! 0    i64 store time of the last flushed record      as RocketMQ 5.4.0 StoreCheckpoint
//! 8    i64 store time of the last queue entry synced
//! 16   i64 0 (index)   24 i64 0 (master)   32 i64 confirmed position
//! 512  slot A          1024 slot B          4096 end
//!      slot: 8 bytes magic, u64 number, u64 flushed, u64 queues, i64 store time,
//!            u32 CRC of the 40 bytes before
//! ```
//! Slots are written in turn, so that a torn write leaves the other; the higher number counts.

use crate::StoreError;
use crate::config_file::read_whole;
use crate::disk::Disk;
use std::path::Path;

pub(crate) const MAGIC: &[u8; 8] = b"gantry1\0";
const FILE_BYTES: usize = 4096;
const SLOTS: [usize; 2] = [512, 1024];
const SLOT_BYTES: usize = 44;

/// What a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    /// Counts writes.
    pub(crate) number: u64,
    /// Everything before this log position is durable in the log.
    pub(crate) flushed: u64,
    /// Everything before this log position is durable in the queues. At most `flushed`.
    pub(crate) queues: u64,
    /// Store time of the last record before `flushed`, milliseconds.
    pub(crate) store_timestamp_ms: i64,
}

/// Reads the newest whole slot; `None` when there is no file or no such slot.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Checkpoint>, StoreError> {
    let Some(content) = read_whole(disk, path)? else {
        return Ok(None);
    };
    Ok(newest(&content))
}

/// The newest whole slot of a file's content.
pub(crate) fn newest(content: &[u8]) -> Option<Checkpoint> {
    let slots = SLOTS
        .iter()
        .filter_map(|at| decode_slot(content.get(*at..*at + SLOT_BYTES)?));
    slots.max_by_key(|slot| slot.number)
}

/// Writes `point` into the slot its number names and syncs the file (not the directory).
pub(crate) fn write(disk: &dyn Disk, path: &Path, point: Checkpoint) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("write", path, e);
    let file = disk.open(path, true).map_err(failed)?;
    if file.len().map_err(failed)? < FILE_BYTES as u64 {
        file.set_len(FILE_BYTES as u64).map_err(failed)?;
    }
    let mut head = Vec::with_capacity(40);
    for value in [point.store_timestamp_ms, point.store_timestamp_ms, 0, 0] {
        head.extend_from_slice(&value.to_be_bytes());
    }
    head.extend_from_slice(&point.flushed.to_be_bytes());
    file.write_at(0, &head).map_err(failed)?;
    let slot = if point.number.is_multiple_of(2) {
        SLOTS[0]
    } else {
        SLOTS[1]
    };
    file.write_at(slot as u64, &encode_slot(point))
        .map_err(failed)?;
    file.sync().map_err(failed)
}

pub(crate) fn encode_slot(point: Checkpoint) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(MAGIC);
    for value in [point.number, point.flushed, point.queues] {
        out.extend_from_slice(&value.to_be_bytes());
    }
    out.extend_from_slice(&point.store_timestamp_ms.to_be_bytes());
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

pub(crate) fn decode_slot(slot: &[u8]) -> Option<Checkpoint> {
    let (content, crc) = slot.split_at_checked(SLOT_BYTES - 4)?;
    let word = |at: usize| -> Option<[u8; 8]> { content.get(at..at + 8)?.try_into().ok() };
    let whole = crc == crc32fast::hash(content).to_be_bytes() && content.starts_with(MAGIC);
    whole.then_some(())?;
    let point = Checkpoint {
        number: u64::from_be_bytes(word(8)?),
        flushed: u64::from_be_bytes(word(16)?),
        queues: u64::from_be_bytes(word(24)?),
        store_timestamp_ms: i64::from_be_bytes(word(32)?),
    };
    (point.queues <= point.flushed).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn point(number: u64) -> Checkpoint {
        Checkpoint {
            number,
            flushed: number * 100,
            queues: number * 90,
            store_timestamp_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        assert_eq!(read(&RealDisk, &path).unwrap(), None);
        write(&RealDisk, &path, point(4)).unwrap();
        write(&RealDisk, &path, point(5)).unwrap();
        assert_eq!(read(&RealDisk, &path).unwrap(), Some(point(5)));
        let file = RealDisk.open(&path, false).unwrap();
        assert_eq!(file.len().unwrap(), 4096);
        file.write_at(1024 + 20, &[0xff]).unwrap();
        assert_eq!(read(&RealDisk, &path).unwrap(), Some(point(4)));
        file.write_at(512 + 43, &[0xff]).unwrap();
        assert_eq!(read(&RealDisk, &path).unwrap(), None);
    }
}
