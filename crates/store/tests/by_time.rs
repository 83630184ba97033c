//! Searches by store time, against a walk over every message.
#![allow(
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use clock::{Clock, ManualClock};
use std::sync::Arc;
use std::time::Duration;
use store::disk::RealDisk;
use store::disk::sim::{Rng, SimDisk};
use store::{Boundary, QueueOffset, Store, StoreOptions, Workers};
use support::{draft, options};

/// Positions that can be read and their times, by a walk.
fn walked(store: &Store) -> Vec<(QueueOffset, i64)> {
    let range = store.queue("t", 0);
    let positions = (range.min.get()..range.max.get()).map(QueueOffset::new);
    positions
        .filter_map(|at| Some((at, store.store_timestamp("t", 0, at)?)))
        .collect()
}

/// What the search must find, by the definition.
fn expected(
    store: &Store,
    times: &[(QueueOffset, i64)],
    time_ms: i64,
    bound: Boundary,
) -> QueueOffset {
    let range = store.queue("t", 0);
    let mut times = times.iter();
    match bound {
        Boundary::Lower => times
            .find(|(_, time)| *time >= time_ms)
            .map_or(range.max, |(at, _)| *at),
        Boundary::Upper => times
            .take_while(|(_, time)| *time <= time_ms)
            .last()
            .map_or(range.min, |(at, _)| *at),
    }
}

fn open(root: &std::path::Path, clock: &ManualClock) -> Store {
    let options = StoreOptions {
        workers: Workers::Manual,
        segment_size: 4 << 10,
        queue_file_units: 50,
        ..options(root)
    };
    Store::open(options, Arc::new(RealDisk), Arc::new(clock.clone()))
        .unwrap()
        .0
}

fn settle(store: &Store) {
    while store.step_flush(true) {}
    while store.step_dispatch() {}
    store.step_maintain(true);
}

/// Every time around every message, and far outside.
fn compare(store: &Store, times: &[i64], context: &str) {
    let mut asked: Vec<i64> = times.iter().flat_map(|t| [t - 1, *t, t + 1]).collect();
    asked.extend([i64::MIN, -1, 0, i64::MAX]);
    asked.sort_unstable();
    asked.dedup();
    let walked = walked(store);
    for time_ms in asked {
        for bound in [Boundary::Lower, Boundary::Upper] {
            assert_eq!(
                store.offset_by_time("t", 0, time_ms, bound),
                expected(store, &walked, time_ms, bound),
                "{context}: {bound:?} {time_ms}, times {times:?}"
            );
        }
    }
}

#[test]
fn a_search_by_time_finds_what_a_walk_finds_over_seeds() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_000_000);
        let mut store = open(dir.path(), &clock);
        let mut times = Vec::new();
        for _ in 0..40 {
            // Many at one millisecond, single or in a batch, with pauses of 0 ms to 5 s; the wall clock steps back
            // now and then, which store times never do.
            let most = if rng.one_in(6) { 60 } else { 4 };
            let count = 1 + rng.below(most) as usize;
            let bodies: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; 30]).collect();
            let drafts: Vec<_> = bodies.iter().map(|body| draft("t", 0, body)).collect();
            if rng.one_in(2) {
                let stored = store.append_batch(&drafts[..count.min(20)]).unwrap();
                times.push(stored[0].store_timestamp_ms);
                assert!(
                    stored
                        .iter()
                        .all(|s| s.store_timestamp_ms == stored[0].store_timestamp_ms)
                );
            } else {
                for draft in &drafts {
                    times.push(store.append(draft).unwrap().store_timestamp_ms);
                }
            }
            if rng.one_in(3) {
                store.append(&draft("other", 0, b"between")).unwrap();
            }
            match rng.below(8) {
                0 => clock.set_wall(clock.now_ms() - 500),
                1 => clock.advance(Duration::from_secs(5)),
                2..=4 => clock.advance(Duration::from_millis(rng.below(4))),
                _ => {}
            }
        }
        settle(&store);
        times.dedup();
        compare(&store, &times, &format!("seed {seed}, whole"));
        let middle = times[times.len() * 3 / 4];
        store.clean_expired(middle).unwrap();
        assert!(store.min_physical().get() > 0);
        compare(&store, &times, &format!("seed {seed}, front deleted"));
        store.close().unwrap();
        drop(store);
        store = open(dir.path(), &clock);
        compare(&store, &times, &format!("seed {seed}, opened again"));
        clock.advance(Duration::from_secs(9));
        let now_ms = i64::try_from(clock.now_ms()).unwrap();
        store.roll_if_older(now_ms).unwrap();
        settle(&store);
        store.clean_expired(now_ms).unwrap();
        assert_eq!(store.queue("t", 0).min, store.queue("t", 0).max);
        compare(&store, &times, &format!("seed {seed}, all deleted"));
    }
}

/// The middle of a queue points at damage: the search goes around it, however wide it is.
#[test]
fn a_search_by_time_goes_around_what_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_000);
    let store = open(dir.path(), &clock);
    let mut times = Vec::new();
    let mut places = Vec::new();
    for _ in 0..300 {
        clock.advance(Duration::from_millis(10));
        let stored = store.append(&draft("t", 0, b"x")).unwrap();
        times.push(stored.store_timestamp_ms);
        places.push(stored.physical_offset.get());
    }
    settle(&store);
    store.close().unwrap();
    drop(store);
    // 110 records from the middle on lose their magic.
    for at in &places[140..250] {
        let path = dir
            .path()
            .join(format!("commitlog/{:020}", at / 4096 * 4096));
        let mut content = std::fs::read(&path).unwrap();
        content[(at % 4096) as usize + 4] ^= 0xff;
        std::fs::write(&path, content).unwrap();
    }
    let store = open(dir.path(), &clock);
    assert_eq!(store.store_timestamp("t", 0, QueueOffset::new(200)), None);
    compare(&store, &times, "damaged");
    let found = store.offset_by_time("t", 0, times[145], Boundary::Lower);
    assert_eq!(found, QueueOffset::new(250));
    let found = store.offset_by_time("t", 0, times[145], Boundary::Upper);
    assert_eq!(found, QueueOffset::new(139));
}

/// Each entry that has to be looked for in the log may cost a walk over much of it.
#[test]
fn a_search_over_a_damaged_queue_file_repairs_a_bounded_number_of_entries() {
    let disk = SimDisk::new(1);
    let clock = ManualClock::new(1_000_000);
    let open = || {
        let options = StoreOptions {
            workers: Workers::Manual,
            queue_file_units: 1000,
            ..options("/data".as_ref())
        };
        let opened = Store::open(options, Arc::new(disk.clone()), Arc::new(clock.clone()));
        opened.unwrap().0
    };
    let store = open();
    let mut places = Vec::new();
    for _ in 0..400 {
        clock.advance(Duration::from_millis(10));
        let stored = store.append(&draft("t", 0, b"x")).unwrap();
        places.push(stored.physical_offset.get());
    }
    settle(&store);
    store.close().unwrap();
    drop(store);
    // Where the search begins is a record without magic, so that it looks at many entries after it.
    let log = "/data/commitlog/00000000000000000000".as_ref();
    assert!(disk.flip_bit(log, places[200] + 4, 0));
    let store = open();
    assert_eq!(store.store_timestamp("t", 0, QueueOffset::new(200)), None);
    let path = "/data/consumequeue/t/0/00000000000000000000".as_ref();
    let right = store::config_file::read(&disk, path).unwrap().unwrap();
    for unit in (100..200).chain(201..300) {
        assert!(disk.flip_bit(path, unit * 20 + 7, 1));
    }
    for bound in [Boundary::Lower, Boundary::Upper] {
        assert!(store.offset_by_time("t", 0, 1_002_000, bound) < QueueOffset::new(400));
    }
    let now = store::config_file::read(&disk, path).unwrap().unwrap();
    let wrong = right.iter().zip(&now).filter(|(a, b)| a != b).count();
    assert!((199 - 16..199).contains(&wrong), "{wrong}");
    // What a reader asks for is repaired all the same.
    let entries = store.entries("t", 0, QueueOffset::ZERO, 400).unwrap();
    assert_eq!(entries.len(), 400);
    assert_eq!(
        store::config_file::read(&disk, path).unwrap().unwrap(),
        right
    );
}
