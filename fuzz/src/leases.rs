//! Lease facts in the log, and the snapshot file.

use broker::pop::{
    record,
    snapshot::{QueueSnapshot, Snapshot},
};
use wire::message::record::body_crc;

/// First byte below the number of tags: a record with that tag; the next one: the state of a snapshot, under a checksum
/// that fits; else a snapshot.
pub(crate) fn run(data: &[u8]) {
    const TAGS: [&str; 6] = [
        record::TAG_CK,
        record::TAG_ACK,
        record::TAG_BATCH_ACK,
        record::TAG_SETTLE,
        record::TAG_POSITION,
        record::TAG_FORGET,
    ];
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    match TAGS.get(usize::from(*first)) {
        Some(tag) => drop(record::decode(tag, rest, 7)),
        None if usize::from(*first) == TAGS.len() => {
            let head = format!("{{\"crc\":\"{:08x}\",\"state\":", body_crc(rest));
            snapshot(&[head.as_bytes(), rest, b"}"].concat());
        }
        None => snapshot(rest),
    }
}

/// Reads its own writing, and so do the queues that are taken from it.
fn snapshot(text: &[u8]) {
    let Some(read) = Snapshot::decode(text) else {
        return;
    };
    assert_eq!(written(&again(&read)), written(&read));
    let restored = taken_again(&read);
    assert_eq!(written(&taken_again(&restored)), written(&restored));
}

fn written(snapshot: &Snapshot) -> String {
    match snapshot.encode() {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => panic!("a snapshot that was read cannot be written: {error}"),
    }
}

fn again(snapshot: &Snapshot) -> Snapshot {
    let text = written(snapshot);
    match Snapshot::decode(text.as_bytes()) {
        Some(read) => read,
        None => panic!("cannot be read: {text}"),
    }
}

/// As after a start and a stop.
fn taken_again(snapshot: &Snapshot) -> Snapshot {
    let mut next = Snapshot::new(snapshot.epoch, snapshot.replay_from);
    for queue in &snapshot.queues {
        let (group, topic, id) = (&queue.group, &queue.topic, queue.queue_id);
        let taken = QueueSnapshot::take(group, topic, id, &queue.restore());
        next.queues.push(taken);
    }
    next
}
