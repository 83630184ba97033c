//! Appends, reads and restarts on the real disk.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use std::sync::{Arc, Mutex};
use store::{Boundary, FlushPolicy, QueueOffset, Store, StoreError};
use support::{
    append_flushed, bodies, draft, open, options, wait_dispatched, wait_flushed, with_flush,
};
use wire::message::record::RecordView;

#[test]
fn messages_survive_a_clean_stop_and_a_drop_in_both_flush_modes() {
    for flush in [FlushPolicy::Sync, FlushPolicy::ASYNC_DEFAULT] {
        for clean in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let options = with_flush(options(dir.path()), flush);
            let mut expected = Vec::new();
            for round in 0..3u32 {
                let (store, report) = open(options.clone()).unwrap();
                assert_eq!(report.clean, clean || round == 0, "{report:?}");
                assert_eq!(
                    bodies(&store, "orders", 1),
                    expected,
                    "{flush:?} {clean} {round}"
                );
                let mut end = store.written();
                for n in 0..200u32 {
                    let body = format!("{round}-{n}-{}", "x".repeat(700));
                    let outcome = store.append(&draft("orders", 1, body.as_bytes())).unwrap();
                    assert_eq!(outcome.queue_offset.get(), expected.len() as u64);
                    assert!(outcome.physical_offset >= end);
                    end = outcome.end();
                    expected.push((outcome.queue_offset.get(), body.into_bytes()));
                }
                let last = append_flushed(&store, &draft("other", 0, b"last"));
                wait_dispatched(&store, last.end());
                assert!(store.flushed() >= last.end());
                assert_eq!(bodies(&store, "orders", 1), expected);
                if clean {
                    store.close().unwrap();
                    store.close().unwrap();
                    let refused = store.append(&draft("orders", 1, b"late"));
                    assert!(matches!(refused, Err(StoreError::Closed)));
                }
            }
        }
    }
}

#[test]
fn a_directory_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(options(dir.path())).unwrap();
    let second = open(options(dir.path()));
    assert!(matches!(second, Err(StoreError::InUse { .. })));
    store.close().unwrap();
    open(options(dir.path())).unwrap();
}

#[test]
fn arrivals_come_after_the_entry_is_visible() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(options(dir.path())).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reader = store.clone();
    let into = Arc::clone(&seen);
    store.on_arrival(Box::new(move |arrival| {
        let at = arrival.queue_offset;
        let entries = reader
            .entries(arrival.topic, arrival.queue_id, at, 1)
            .unwrap();
        into.lock()
            .unwrap()
            .push((at.get(), entries.len(), arrival.tags_code));
    }));
    let mut last = None;
    for n in 0..10u8 {
        last = Some(append_flushed(&store, &draft("t", 0, &[n])));
    }
    wait_dispatched(&store, last.unwrap().end());
    let red = i64::from(wire::message::tags::java_string_hash("red"));
    let expected: Vec<_> = (0..10).map(|n| (n, 1, red)).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_batch_is_contiguous_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(options(dir.path())).unwrap();
    let body = vec![7; 20_000];
    let one = draft("t", 0, &body);
    let batch = [one.clone(), one.clone(), one.clone()];
    store.append(&one).unwrap();
    let stored = store.append_batch(&batch).unwrap();
    assert_eq!(stored.len(), 3);
    // 80 KB do not fit what the first left of 64 KiB, so the batch begins the next file.
    assert_eq!(stored[0].physical_offset.get(), 64 * 1024);
    for (n, pair) in stored.windows(2).enumerate() {
        assert_eq!(pair[0].end(), pair[1].physical_offset);
        assert_eq!(pair[0].queue_offset.get(), 1 + n as u64);
    }
    let too_many = [one.clone(), one.clone(), one.clone(), one.clone()];
    let refused = store.append_batch(&too_many);
    assert!(
        matches!(refused, Err(StoreError::TooLarge { .. })),
        "{refused:?}"
    );
    let mixed = [one.clone(), draft("t", 1, b"x")];
    assert!(matches!(
        store.append_batch(&mixed),
        Err(StoreError::Invalid { .. })
    ));
    assert_eq!(store.append(&one).unwrap().queue_offset.get(), 4);
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(options(dir.path())).unwrap();
    for topic in ["", ".", "..", "a/b", "a\0b"] {
        let refused = store.append(&draft(topic, 0, b"x"));
        assert!(
            matches!(refused, Err(StoreError::Invalid { .. })),
            "{topic:?}"
        );
    }
    assert!(matches!(
        store.append(&draft("t", -1, b"x")),
        Err(StoreError::Invalid { .. })
    ));
    let large = vec![0; 64 * 1024];
    assert!(matches!(
        store.append(&draft("t", 0, &large)),
        Err(StoreError::TooLarge { .. })
    ));
    assert_eq!(
        store
            .append(&draft("t", 0, b"x"))
            .unwrap()
            .queue_offset
            .get(),
        0
    );
}

#[test]
fn a_removed_topic_stays_away_and_starts_again_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(options(dir.path())).unwrap();
    for n in 0..5u8 {
        append_flushed(&store, &draft("gone", 0, &[n]));
    }
    let kept = append_flushed(&store, &draft("kept", 0, b"k"));
    wait_dispatched(&store, kept.end());
    store.remove_topic("gone").unwrap();
    assert_eq!(store.topics(), [("kept".to_owned(), 0)]);
    let again = append_flushed(&store, &draft("gone", 0, b"new"));
    assert_eq!(again.queue_offset.get(), 0);
    drop(store);
    let (store, _) = open(options(dir.path())).unwrap();
    assert_eq!(bodies(&store, "gone", 0), [(0, b"new".to_vec())]);
    assert_eq!(bodies(&store, "kept", 0).len(), 1);
}

#[test]
fn positions_are_found_by_store_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock::ManualClock::new(1_000);
    let (store, _) = store::Store::open(
        options(dir.path()),
        Arc::new(store::disk::RealDisk),
        Arc::new(clock.clone()),
    )
    .unwrap();
    // Stored at 1000, 2000, 2000, 2000, 5000.
    let mut end = store.written();
    for wall in [1_000, 2_000, 2_000, 1_500, 5_000] {
        clock.set_wall(wall);
        end = append_flushed(&store, &draft("t", 0, b"x")).end();
    }
    wait_dispatched(&store, end);
    let cases = [
        (0, 0, 0),
        (1_000, 0, 0),
        (1_001, 1, 0),
        (2_000, 1, 3),
        (2_001, 4, 3),
        (5_000, 4, 4),
        (9_000, 5, 4),
    ];
    for (time, lower, upper) in cases {
        let found = |bound| store.offset_by_time("t", 0, time, bound);
        assert_eq!(found(Boundary::Lower), QueueOffset::new(lower), "{time}");
        assert_eq!(found(Boundary::Upper), QueueOffset::new(upper), "{time}");
    }
    assert_eq!(store.offset_by_time("none", 0, 5, Boundary::Lower).get(), 0);
}

/// Threads append to shared and own queues over many small files while others read.
#[test]
fn threads_append_and_read_at_once() {
    for flush in [FlushPolicy::Sync, FlushPolicy::ASYNC_DEFAULT] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(with_flush(options(dir.path()), flush)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let store = &store;
                scope.spawn(move || {
                    let mut last = None;
                    for n in 0..500u32 {
                        let mut body = vec![thread; 200 + (n % 300) as usize];
                        body[..4].copy_from_slice(&n.to_be_bytes());
                        store.append(&draft("shared", 0, &body)).unwrap();
                        let own = draft("own", i32::from(thread), &body);
                        last = Some(store.append(&own).unwrap());
                    }
                    wait_flushed(store, last.unwrap().end()).unwrap();
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut at = QueueOffset::ZERO;
                    while at.get() < 2000 {
                        for entry in store.entries("shared", 0, at, 16).unwrap() {
                            assert_eq!(entry.queue_offset, at);
                            let record = store.record(entry.physical_offset, entry.size).unwrap();
                            RecordView::parse_checked(&record.unwrap()).unwrap();
                            at = at.plus(1);
                        }
                        std::thread::yield_now();
                    }
                });
            }
        });
        let check = |store: &Store| {
            assert_eq!(bodies(store, "shared", 0).len(), 2000);
            for thread in 0..4u8 {
                let own = bodies(store, "own", i32::from(thread));
                assert_eq!(own.len(), 500);
                for (n, (position, body)) in (0..).zip(own) {
                    assert_eq!(position, u64::from(n));
                    assert_eq!(body[..4], u32::to_be_bytes(n));
                    assert_eq!(body[4], thread);
                }
            }
        };
        wait_dispatched(&store, store.written());
        check(&store);
        drop(store);
        let (store, report) = open(options(dir.path())).unwrap();
        assert_eq!(report.damaged, []);
        check(&store);
    }
}
