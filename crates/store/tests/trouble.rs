//! Full disks, failing syncs, a stuck disk: what the store answers, and that it goes on after.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use clock::ManualClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use store::disk::sim::SimDisk;
use store::{FlushPolicy, QueueOffset, Store, StoreError, StoreOptions, Workers};
use support::draft;

fn options() -> StoreOptions {
    StoreOptions {
        segment_size: 16 * 1024,
        queue_file_units: 1000,
        workers: Workers::Manual,
        ..StoreOptions::new("/data")
    }
}

fn open(disk: &SimDisk, options: StoreOptions) -> Store {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    Store::open(options, Arc::new(disk.clone()), clock)
        .unwrap()
        .0
}

fn settle(store: &Store) {
    while store.step_flush(true) {}
    while store.step_dispatch() {}
    store.step_maintain(false);
}

/// A full disk refuses sends and nothing else, and is forgotten when there is space again
/// (alibaba/rocketmq#331, apache/rocketmq#2398; case BL-03).
#[test]
fn a_full_disk_refuses_until_there_is_space() {
    for flush in [FlushPolicy::Sync, FlushPolicy::ASYNC_DEFAULT] {
        let disk = SimDisk::new(1);
        let store = open(&disk, StoreOptions { flush, ..options() });
        let body = vec![1; 1000];
        let mut stored = 0;
        disk.set_capacity(100 * 1024);
        let refused = loop {
            match store.append(&draft("t", 0, &body)) {
                Ok(outcome) => {
                    assert_eq!(outcome.queue_offset.get(), stored);
                    stored += 1;
                }
                Err(error) => break error,
            }
            settle(&store);
        };
        assert!(matches!(refused, StoreError::Full), "{refused:?}");
        assert!(stored >= 30);
        for _ in 0..10 {
            assert!(matches!(
                store.append(&draft("t", 0, &body)),
                Err(StoreError::Full)
            ));
            settle(&store);
        }
        assert!(!store.poisoned());
        assert_eq!(
            store
                .entries("t", 0, QueueOffset::ZERO, 1000)
                .unwrap()
                .len() as u64,
            stored
        );

        disk.set_capacity(1 << 30);
        for n in 0..100 {
            let outcome = store.append(&draft("t", 0, &body)).unwrap();
            assert_eq!(outcome.queue_offset.get(), stored + n);
            settle(&store);
        }
        store.close().unwrap();
        let store = open(&disk, options());
        let entries = store.entries("t", 0, QueueOffset::ZERO, 1000).unwrap();
        assert_eq!(entries.len() as u64, stored + 100);
    }
}

#[test]
fn a_full_disk_keeps_queue_entries_in_memory_until_they_fit() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    store.append(&draft("t", 0, b"first")).unwrap();
    settle(&store);
    disk.set_capacity(disk.used());
    for id in 1..5 {
        store.append(&draft("t", id, b"x")).unwrap();
    }
    settle(&store);
    store.step_maintain(true);
    assert!(store.full());
    for id in 1..5 {
        assert_eq!(
            store.entries("t", id, QueueOffset::ZERO, 9).unwrap().len(),
            1
        );
    }
    assert!(matches!(store.close(), Err(StoreError::Full)));
    drop(store);
    disk.set_capacity(1 << 30);
    let store = open(&disk, options());
    for id in 0..5 {
        assert_eq!(
            store.entries("t", id, QueueOffset::ZERO, 9).unwrap().len(),
            1
        );
    }
    settle(&store);
    store.step_maintain(true);
    assert!(!store.full());
    store.close().unwrap();
}

#[test]
fn a_failed_sync_ends_the_store() {
    for flush in [FlushPolicy::Sync, FlushPolicy::ASYNC_DEFAULT] {
        let disk = SimDisk::new(1);
        let store = open(&disk, StoreOptions { flush, ..options() });
        let answers = Arc::new(Mutex::new(Vec::new()));
        let wait = |end| {
            let answers = Arc::clone(&answers);
            let done = move |result| answers.lock().unwrap().push(result);
            store.when_flushed(end, Box::new(done));
        };
        let good = store.append(&draft("t", 0, b"good")).unwrap();
        wait(good.end());
        store.step_flush(false);
        assert!(matches!(answers.lock().unwrap()[..], [Ok(())]));

        disk.fail_syncs(true);
        let doubtful = store.append(&draft("t", 0, b"doubtful")).unwrap();
        wait(doubtful.end());
        wait(doubtful.end());
        store.step_flush(false);
        disk.fail_syncs(false);
        assert!(store.poisoned());
        assert!(matches!(
            answers.lock().unwrap()[..],
            [
                Ok(()),
                Err(StoreError::Poisoned { .. }),
                Err(StoreError::Poisoned { .. })
            ]
        ));
        // Nothing is tried again: neither appends nor syncs nor waits.
        assert!(matches!(
            store.append(&draft("t", 0, b"x")),
            Err(StoreError::Poisoned { .. })
        ));
        store.step_flush(true);
        assert_eq!(store.flushed(), good.end());
        wait(doubtful.end());
        assert!(matches!(
            answers.lock().unwrap()[3],
            Err(StoreError::Poisoned { .. })
        ));
        wait(good.end());
        assert!(matches!(answers.lock().unwrap()[4], Ok(())));
        let text = store.failure().unwrap().to_string();
        assert!(
            text.contains("sync") && text.contains("simulated sync error"),
            "{text}"
        );
        assert!(matches!(store.close(), Err(StoreError::Poisoned { .. })));
        drop(store);
        let store = open(&disk.crash(), options());
        assert!(store.record_at(good.physical_offset).unwrap().is_some());
    }
}

#[test]
fn bytes_that_wait_for_the_disk_are_bounded() {
    let disk = SimDisk::new(1);
    let store = open(
        &disk,
        StoreOptions {
            pending_max_bytes: 10_000,
            ..options()
        },
    );
    let body = vec![1; 1000];
    let mut stored = 0;
    let refused = loop {
        match store.append(&draft("t", 0, &body)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Busy), "{refused:?}");
    assert!((5..10).contains(&stored));
    settle(&store);
    let outcome = store.append(&draft("t", 0, &body)).unwrap();
    assert_eq!(outcome.queue_offset.get(), stored);
}

/// A topic goes also where there is no space for more than its name, and makes space by that.
#[test]
fn a_topic_is_removed_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    store.append(&draft("old", 0, b"x")).unwrap();
    settle(&store);
    assert!(store.roll_if_older(i64::MAX).unwrap());
    settle(&store);
    // Now the file of queue ends names it.
    assert_eq!(store.clean_expired(i64::MAX).unwrap().files, 1);
    store.append(&draft("old", 1, b"x")).unwrap();
    store.append(&draft("new", 0, b"x")).unwrap();
    settle(&store);
    store.step_maintain(true);
    let files = |topic: &str| {
        let dir = std::path::Path::new("/data/consumequeue").join(topic);
        let paths = disk.files().into_iter().map(|(path, _)| path);
        paths.filter(|path| path.starts_with(&dir)).count()
    };
    assert_eq!((files("old"), files("new")), (2, 1));
    disk.set_capacity(disk.used() + 4096);
    store.remove_topic("old").unwrap();
    assert_eq!((files("old"), files("new")), (0, 1));
    disk.set_capacity(1 << 30);
    settle(&store);
    store.close().unwrap();
    drop(store);
    let store = open(&disk, options());
    assert_eq!(store.topics(), [("new".to_owned(), 0)]);
}

/// Appends to a topic are refused while any removal of it goes on, and taken again after the last, however it ended.
#[test]
fn removals_of_a_topic_nest_and_survive_a_panic() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    let append = || store.append(&draft("t", 0, b"x"));
    append().unwrap();
    let outer = store.remove_topic_after("t", || {
        store.remove_topic("t")?;
        assert!(matches!(append(), Err(StoreError::Busy)));
        store.append(&draft("other", 0, b"x"))?;
        Ok::<_, StoreError>(true)
    });
    outer.unwrap();
    assert_eq!(append().unwrap().queue_offset, QueueOffset::ZERO);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.remove_topic_after("t", || -> Result<bool, StoreError> { panic!("planted") })
    }));
    assert!(caught.is_err());
    assert_eq!(append().unwrap().queue_offset, QueueOffset::new(1));
}

/// Appends are refused for a removal of their own topic alone.
#[test]
fn removals_of_other_topics_refuse_nothing() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    let done = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let nothing = || Ok::<_, StoreError>(false);
                store.remove_topic_after("other", nothing).unwrap();
            }
        });
        let refused = (0..20_000).filter(|number| {
            if number % 16 == 0 {
                settle(&store);
            }
            store.append(&draft("t", 0, b"x")).is_err()
        });
        let refused = refused.count();
        done.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, 0);
}
