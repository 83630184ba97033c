//! Lease facts in the log, and the snapshot file.

use broker::pop::{record, snapshot::Snapshot};

/// First byte below the number of tags: a record with that tag; else a snapshot.
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
        None => drop(Snapshot::decode(rest)),
    }
}
