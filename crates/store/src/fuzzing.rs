//! The readers of the store's own files, opened to the fuzz targets: each takes anything, must not panic, and reads its own
//! writing.

use crate::consume_queue::Unit;
use crate::{checkpoint, layout, queue_ends as ends, removed};

/// A checkpoint file.
pub fn checkpoint(content: &[u8]) {
    if let Some(point) = checkpoint::newest(content) {
        let slot = checkpoint::encode_slot(point);
        assert_eq!(checkpoint::decode_slot(&slot), Some(point));
    }
}

/// The numbers of a checkpoint slot, under a checksum that fits.
pub fn checkpoint_slot(numbers: &[u8]) {
    let mut slot = checkpoint::MAGIC.to_vec();
    slot.extend_from_slice(numbers);
    slot.resize(40, 0);
    slot.extend_from_slice(&crc32fast::hash(&slot).to_be_bytes());
    if let Some(point) = checkpoint::decode_slot(&slot) {
        assert!(point.queues <= point.flushed);
        assert_eq!(checkpoint::encode_slot(point), slot);
    }
}

/// Units of a consume queue.
pub fn units(content: &[u8]) {
    for (at, unit) in (0_u64..).zip(Unit::decode_all(content)) {
        let Some(unit) = unit else { continue };
        let mut again = Vec::new();
        unit.encode(&mut again);
        assert_eq!(Unit::decode(&again), Some(unit));
        assert!(unit.end() >= unit.physical);
        assert_eq!(unit.entry(at).size, unit.size);
    }
}

/// The file `removed-topics`.
pub fn removed_topics(text: &[u8]) {
    let topics = removed::parse(text);
    assert_eq!(removed::parse(removed::text(&topics).as_bytes()), topics);
}

/// The file `queue-ends`.
pub fn queue_ends(text: &[u8]) {
    let Some(read) = ends::parse(text) else {
        return;
    };
    let lines = read
        .iter()
        .map(|(end, id, topic)| ends::line(*end, *id, topic));
    let again = ends::sealed(&lines.collect::<String>());
    assert_eq!(ends::parse(again.as_bytes()), Some(read));
}

/// Lines of `queue-ends`, under a checksum that fits.
pub fn queue_end_lines(lines: &[u8]) {
    queue_ends(ends::sealed(&String::from_utf8_lossy(lines)).as_bytes());
}

/// The file `layout`.
pub fn sizes(text: &[u8]) {
    if let Some(sizes) = layout::parse_sizes(text) {
        assert_eq!(layout::parse_sizes(sizes.text().as_bytes()), Some(sizes));
    }
}
