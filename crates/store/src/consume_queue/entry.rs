//! The 20-byte unit of a consume queue.
//!
//! ```text
//! i64 physical offset | i32 size | i64 tag code          (big-endian, RocketMQ 5.4.0 ConsumeQueue)
//! ```

use crate::layout::UNIT_LEN;
use crate::{PhysicalOffset, QueueOffset};

/// One message of a queue: where its record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEntry {
    /// Position in the queue.
    pub queue_offset: QueueOffset,
    /// First byte of the record in the log.
    pub physical_offset: PhysicalOffset,
    /// Size of the record in bytes.
    pub size: u32,
    /// Java hash of the tag (0: none), or the deliver time in `SCHEDULE_TOPIC_XXXX`.
    pub tags_code: i64,
}

/// A unit as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) physical: u64,
    pub(crate) size: u32,
    pub(crate) tags_code: i64,
}

/// Size that marks a position whose message is gone (RocketMQ fills with `Integer.MAX_VALUE`).
const HOLE_SIZE: u32 = 0x7fff_ffff;

impl Unit {
    /// A position whose message is not in the log any more.
    pub(crate) const HOLE: Unit = Unit {
        physical: 0,
        size: HOLE_SIZE,
        tags_code: 0,
    };

    pub(crate) fn is_hole(self) -> bool {
        self.size == HOLE_SIZE
    }

    /// Position after the record.
    pub(crate) fn end(self) -> u64 {
        self.physical.saturating_add(u64::from(self.size))
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.physical.to_be_bytes());
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.tags_code.to_be_bytes());
    }

    /// `None` for a unit never written (size 0) or impossible (negative numbers).
    pub(crate) fn decode(bytes: &[u8]) -> Option<Unit> {
        let physical = i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
        let size = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
        let tags_code = i64::from_be_bytes(bytes.get(12..UNIT_LEN)?.try_into().ok()?);
        Some(Unit {
            physical: u64::try_from(physical).ok()?,
            size: u32::try_from(size).ok().filter(|size| *size > 0)?,
            tags_code,
        })
    }

    /// All whole units of `bytes`; `None` where there is none.
    pub(crate) fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Option<Unit>> + '_ {
        bytes.chunks_exact(UNIT_LEN).map(Unit::decode)
    }

    pub(crate) fn entry(self, queue_offset: u64) -> QueueEntry {
        QueueEntry {
            queue_offset: QueueOffset::new(queue_offset),
            physical_offset: PhysicalOffset::new(self.physical),
            size: self.size,
            tags_code: self.tags_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_twenty_big_endian_bytes() {
        let unit = Unit {
            physical: 0x0102_0304,
            size: 0x0506,
            tags_code: -2,
        };
        let mut out = Vec::new();
        unit.encode(&mut out);
        let expected = [
            0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 255, 255, 255, 255, 255, 255, 255, 254,
        ];
        assert_eq!(out, expected);
        assert_eq!(Unit::decode(&out), Some(unit));
        assert_eq!(Unit::decode(&out[..19]), None);
        assert_eq!(Unit::decode(&[0; 20]), None);
        assert_eq!(Unit::decode(&[255; 20]), None);
    }
}
