//! Log files that are filled and followed by the next, under load and to the last byte.
#![allow(
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use std::collections::BTreeMap;
use store::disk::sim::Rng;
use store::{FlushPolicy, PhysicalOffset, QueueOffset, Store, StoreError, StoreOptions};
use support::{draft, fields, open, options, wait_dispatched, wait_flushed, with_flush};
use wire::message::record::{RecordView, encode_record};

const SEGMENT: u64 = 64 << 10;

fn record_size(body: &[u8]) -> u64 {
    let mut record = Vec::new();
    encode_record(&fields("t0", 0, body), &mut record).unwrap();
    record.len() as u64
}

/// Every record from the beginning on, and that they lie next to each other but for the blanks.
fn walk(store: &Store) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut end = 0;
    for (at, record) in store.scan(PhysicalOffset::ZERO) {
        let at = at.get();
        let view = RecordView::parse_checked(&record).unwrap();
        assert_eq!(view.physical_offset, i64::try_from(at).unwrap());
        let next_file = u64::next_multiple_of(end, SEGMENT);
        assert!(at == end || at == next_file, "{at} after {end}");
        end = at + record.len() as u64;
        assert!(
            end % SEGMENT == 0 || (end - 1) / SEGMENT == at / SEGMENT,
            "over a border"
        );
        assert!(
            SEGMENT - (end - 1) % SEGMENT > 8,
            "no room for the blank after {at}"
        );
        found.insert(at, view.body.to_vec());
    }
    found
}

/// Four threads, single records and batches of up to half a file, in files of 64 KiB.
fn under_load(flush: FlushPolicy) {
    let dir = tempfile::tempdir().unwrap();
    let opened = || open(with_flush(options(dir.path()), flush)).unwrap().0;
    let store = opened();
    let mut appended = BTreeMap::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                let store = &store;
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    let mut own = Vec::new();
                    let topic = format!("t{writer}");
                    for round in 0..150u64 {
                        let count = if rng.one_in(4) { 1 + rng.below(12) } else { 1 };
                        let longest = if count > 1 { 2_500 } else { 9_000 };
                        let bodies: Vec<Vec<u8>> = (0..count)
                            .map(|_| vec![writer as u8; 1 + rng.below(longest) as usize])
                            .collect();
                        let drafts: Vec<_> =
                            bodies.iter().map(|body| draft(&topic, 0, body)).collect();
                        let stored = store.append_batch(&drafts).unwrap();
                        let together = stored
                            .windows(2)
                            .all(|w| w[0].end() == w[1].physical_offset);
                        assert!(together, "a batch is torn over a border");
                        if round % 16 == 0 {
                            wait_flushed(store, stored[0].end()).unwrap();
                        }
                        own.extend(stored.iter().map(|s| s.physical_offset.get()).zip(bodies));
                    }
                    own
                })
            })
            .collect();
        for writer in writers {
            appended.extend(writer.join().unwrap());
        }
    });
    wait_dispatched(&store, store.written());
    assert!(
        store.segments().len() > 30,
        "{} files",
        store.segments().len()
    );
    assert_eq!(walk(&store), appended);
    store.close().unwrap();
    drop(store);
    let store = opened();
    assert_eq!(walk(&store), appended);
    for writer in 0..4 {
        let topic = format!("t{writer}");
        let range = store.queue(&topic, 0);
        let entries = store
            .entries(&topic, 0, QueueOffset::ZERO, usize::MAX)
            .unwrap();
        assert_eq!(entries.len() as u64, range.max.get());
        let in_order = entries
            .windows(2)
            .all(|w| w[0].physical_offset < w[1].physical_offset);
        assert!(in_order, "queue and log disagree");
    }
}

#[test]
fn files_roll_under_load_with_sync_flush() {
    under_load(FlushPolicy::Sync);
}

#[test]
fn files_roll_under_load_with_async_flush() {
    under_load(FlushPolicy::ASYNC_DEFAULT);
}

#[test]
fn a_file_is_filled_to_the_last_byte_that_leaves_room_for_a_blank() {
    for (slack, rolls) in [(8, false), (9, false), (15, false), (7, true), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(options(dir.path())).unwrap().0;
        let first = store.append(&draft("t0", 0, &[1; 1000])).unwrap();
        let room = SEGMENT - first.end().get();
        let body = vec![2; (room - slack - record_size(b"")) as usize];
        let fitted = store.append(&draft("t0", 0, &body)).unwrap();
        let border = PhysicalOffset::new(SEGMENT);
        assert_eq!(fitted.physical_offset == border, rolls, "slack {slack}");
        let next = store.append(&draft("t0", 0, b"next")).unwrap();
        if !rolls {
            assert_eq!(next.physical_offset, border, "slack {slack}");
        }
        wait_flushed(&store, next.end()).unwrap();
        drop(store);
        let store = open(options(dir.path())).unwrap().0;
        let bodies: Vec<Vec<u8>> = walk(&store).into_values().collect();
        assert_eq!(
            bodies,
            [vec![1; 1000], body, b"next".to_vec()],
            "slack {slack}"
        );
    }
}

#[test]
fn what_fits_no_file_is_refused_with_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(StoreOptions {
        ..options(dir.path())
    })
    .unwrap()
    .0;
    let most = (SEGMENT - 8 - record_size(b"")) as usize;
    let stored = store.append(&draft("t0", 0, &vec![0; most])).unwrap();
    assert_eq!(stored.end().get(), SEGMENT - 8);
    let refused = store
        .append(&draft("t0", 0, &vec![0; most + 1]))
        .unwrap_err();
    assert!(
        matches!(refused, StoreError::TooLarge { size_max_bytes, .. } if size_max_bytes == SEGMENT - 8)
    );
    assert!(refused.to_string().contains("65528"), "{refused}");
    // A batch counts as one.
    let half = vec![0; most / 2];
    let refused = store
        .append_batch(&[draft("t0", 0, &half), draft("t0", 0, &half)])
        .unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }));
    assert_eq!(
        store.written().get(),
        SEGMENT - 8,
        "nothing of them was stored"
    );
}
