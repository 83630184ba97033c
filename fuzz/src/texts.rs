//! Short texts with a form: native receipts and ids, marks that the broker puts on records, and those of the public API:
//! forged handles, durations, times, queries, names, tags, where readers begin and end.

use std::fmt::Debug;

use gateway::fuzzing;
use wire::message::id;
use wire::{WireError, body, receipt};

/// Tries the text as every kind.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(read) = receipt::Receipt::parse(text) {
        assert_eq!(receipt::Receipt::parse(&read.encode()).ok(), Some(read));
    }
    list(text, receipt::parse_start_offsets, |to, entry| {
        receipt::push_start_offset(to, *entry);
    });
    list(text, receipt::parse_message_offsets, |to, entry| {
        receipt::push_message_offsets(to, entry.retry, entry.queue_id, &entry.offsets);
    });
    list(text, receipt::parse_leases, |to, entry| {
        receipt::push_lease(to, *entry)
    });
    list(text, receipt::parse_peeked, |to, entry| {
        receipt::push_peeked(to, *entry)
    });
    list(text, receipt::parse_gaps, |to, entry| {
        receipt::push_gap(to, *entry)
    });
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
    broker::fuzzing::texts(text);
    fuzzing::texts(text);
}

/// A list that can be read reads the same once it is written again.
fn list<T: PartialEq + Debug>(
    text: &str,
    parse: fn(&str) -> Result<Vec<T>, WireError>,
    push: fn(&mut String, &T),
) {
    let Ok(entries) = parse(text) else {
        return;
    };
    let mut written = String::new();
    for entry in &entries {
        push(&mut written, entry);
    }
    assert_eq!(parse(&written).ok(), Some(entries));
}
