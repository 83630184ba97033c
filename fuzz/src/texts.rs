//! Short texts with a form: native receipts and ids, and those of the public API: handles, tokens, durations, times,
//! queries, names.

use gateway::fuzzing;
use wire::message::id;
use wire::{body, receipt};

/// Tries the text as every kind.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(read) = receipt::Receipt::parse(text) {
        assert_eq!(receipt::Receipt::parse(&read.encode()).ok(), Some(read));
    }
    drop(receipt::parse_start_offsets(text));
    drop(receipt::parse_message_offsets(text));
    drop(receipt::parse_leases(text));
    drop(receipt::parse_peeked(text));
    drop(receipt::parse_gaps(text));
    if let Some(map) = body::queue_map::QueueMap::parse(text) {
        let written = map.to_string();
        assert_eq!(body::queue_map::QueueMap::parse(&written), Some(map));
    }
    if let Ok((host, offset)) = id::parse_offset_msg_id(text) {
        assert_eq!(id::offset_msg_id(host, offset), text.to_ascii_uppercase());
    }
    let mut ack = body::BatchAck {
        bits: text.to_owned(),
        ..Default::default()
    };
    let offsets = ack.offsets();
    ack.set_offsets(&offsets);
    assert_eq!(ack.offsets(), offsets);
    fuzzing::texts(text);
}
