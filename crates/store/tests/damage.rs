//! One flipped bit anywhere: the store starts, says what it cannot read, serves everything else
//! and deletes nothing (nats-io/nats-server#7556, apache/iggy#2572; case BL-06).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use clock::ManualClock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::disk::sim::SimDisk;
use store::{
    AppendOutcome, LostEnd, PhysicalOffset, QueueOffset, RecoveryReport, Store, StoreOptions,
    Workers,
};
use support::draft;
use wire::message::record::RecordView;

const SEGMENT: u64 = 4096;

fn options(verify_at_open_bytes: u64) -> StoreOptions {
    StoreOptions {
        segment_size: SEGMENT,
        queue_file_units: 8,
        workers: Workers::Manual,
        verify_at_open_bytes,
        ..StoreOptions::new("/data")
    }
}

fn open(disk: &SimDisk, verify: u64) -> (Store, RecoveryReport) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    Store::open(options(verify), Arc::new(disk.clone()), clock).unwrap()
}

fn body(n: usize) -> Vec<u8> {
    format!("message {n} {}", "b".repeat(40 + n)).into_bytes()
}

/// A store of 60 messages over three queues, and where each lies.
fn filled(clean: bool) -> (SimDisk, Vec<(i32, AppendOutcome)>) {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, 0);
    let mut stored = Vec::new();
    for n in 0..60 {
        let queue_id = (n % 3) as i32;
        stored.push((
            queue_id,
            store.append(&draft("t", queue_id, &body(n))).unwrap(),
        ));
    }
    while store.step_flush(true) {}
    while store.step_dispatch() {}
    store.step_maintain(true);
    if clean {
        store.close().unwrap();
    }
    drop(store);
    (disk.kill(), stored)
}

/// Every message but `lost` is read by queue position and by log position.
fn check_all_but(store: &Store, stored: &[(i32, AppendOutcome)], lost: Option<usize>, what: &str) {
    for (n, (queue_id, at)) in stored.iter().enumerate() {
        let record = store.record_at(at.physical_offset).unwrap();
        if lost == Some(n) {
            continue;
        }
        let record = record.unwrap_or_else(|| panic!("{what}: message {n} is gone"));
        assert_eq!(
            RecordView::parse_checked(&record).unwrap().body,
            body(n),
            "{what}"
        );
        let entries = store.entries("t", *queue_id, at.queue_offset, 1).unwrap();
        let entry = entries
            .first()
            .unwrap_or_else(|| panic!("{what}: no entry of {n}"));
        assert_eq!(entry.queue_offset, at.queue_offset, "{what}: entry of {n}");
        assert_eq!(
            entry.physical_offset, at.physical_offset,
            "{what}: entry of {n}"
        );
        let by_entry = store.record(entry.physical_offset, entry.size).unwrap();
        assert_eq!(by_entry, Some(record), "{what}: message {n}");
    }
    let listed = |id| store.entries("t", id, QueueOffset::ZERO, 100).unwrap();
    for id in 0..3 {
        for entry in listed(id) {
            let record = store.record(entry.physical_offset, entry.size).unwrap();
            let Some(record) = record else { continue };
            let view = RecordView::parse_checked(&record).unwrap();
            assert_eq!(
                QueueOffset::from_wire(view.queue_offset),
                Some(entry.queue_offset)
            );
        }
    }
}

fn log_file(at: PhysicalOffset) -> (PathBuf, u64) {
    let base = at.get() / SEGMENT * SEGMENT;
    let path = Path::new("/data/commitlog").join(format!("{base:020}"));
    (path, at.get() - base)
}

/// Log content without the tail that later appends may fill.
fn log_until(disk: &SimDisk, end: PhysicalOffset) -> Vec<u8> {
    let files = disk.files().into_iter();
    let log = files.filter(|(path, _)| path.starts_with("/data/commitlog"));
    let mut bytes: Vec<u8> = log.flat_map(|(_, content)| content).collect();
    bytes.truncate(usize::try_from(end.get()).unwrap());
    bytes
}

#[test]
fn a_flipped_bit_in_the_log_costs_that_record_and_nothing_else() {
    for clean in [true, false] {
        let (disk, stored) = filled(clean);
        let lost = 30;
        let victim = stored[lost].1;
        let end = stored[59].1.end();
        let (path, from) = log_file(victim.physical_offset);
        for byte in 0..u64::from(victim.wrote_bytes) {
            let what = format!("byte {byte}, clean {clean}");
            let disk = disk.kill();
            assert!(disk.flip_bit(&path, from + byte, u8::try_from(byte % 8).unwrap()));
            let damaged = log_until(&disk, end);
            let (store, report) = open(&disk, 1 << 30);
            check_all_but(&store, &stored, Some(lost), &what);
            // Sizes, magic, checksum, own position and body tell; other fields are not covered.
            let told = matches!(byte, 0..=11 | 28..=35 | 84..=160);
            if told {
                let range = report
                    .damaged
                    .first()
                    .unwrap_or_else(|| panic!("{what}: not told"));
                assert_eq!(range.from, victim.physical_offset, "{what}");
                assert_eq!(range.to, victim.end(), "{what}");
                assert_eq!(report.damaged.len(), 1, "{what}");
                assert_eq!(store.damaged(), report.damaged);
                assert_eq!(
                    store.record_at(victim.physical_offset).unwrap(),
                    None,
                    "{what}"
                );
                assert_eq!(store.scan(PhysicalOffset::ZERO).count(), 59, "{what}");
            }
            assert_eq!(report.truncated_at, None, "{what}");
            assert_eq!(report.dispatched_to, end, "{what}");
            let next = store.append(&draft("t", 0, b"goes on")).unwrap();
            assert_eq!(next.queue_offset.get(), 20, "{what}");
            store.close().unwrap();
            drop(store);
            assert_eq!(
                log_until(&disk, end),
                damaged,
                "{what}: the log was touched"
            );
            let (store, again) = open(&disk, 1 << 30);
            assert_eq!(again.damaged, report.damaged, "{what}");
            check_all_but(&store, &stored, Some(lost), &what);
            assert!(store.record_at(next.physical_offset).unwrap().is_some());
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_does_not_move_the_end() {
    let (disk, stored) = filled(true);
    let victim = stored[59].1;
    let (path, from) = log_file(victim.physical_offset);
    assert!(disk.flip_bit(&path, from + 90, 3));
    let (store, report) = open(&disk, 1 << 30);
    assert_eq!(report.dispatched_to, victim.end());
    assert_eq!(report.damaged.len(), 1);
    check_all_but(&store, &stored, Some(59), "last");
    // Its position in the queue is not given to another message.
    let next = store.append(&draft("t", 2, b"next")).unwrap();
    assert_eq!(next.queue_offset.get(), victim.queue_offset.get() + 1);
    assert_eq!(next.physical_offset, victim.end());
}

#[test]
fn a_flipped_bit_in_a_queue_file_is_repaired_from_the_log() {
    for clean in [true, false] {
        let (disk, stored) = filled(clean);
        let path = Path::new("/data/consumequeue/t/1/00000000000000000160");
        for bit in 0..160u64 {
            // Checked at the start over the whole log, or only when the entry is read.
            for verify in [1 << 30, 0] {
                let in_tag = bit >= 96;
                if in_tag && verify == 0 {
                    continue;
                }
                let what = format!("bit {bit}, verify {verify}, clean {clean}");
                let disk = disk.kill();
                assert!(disk.flip_bit(path, 3 * 20 + bit / 8, u8::try_from(bit % 8).unwrap()));
                let (store, report) = open(&disk, verify);
                assert_eq!(report.damaged, [], "{what}");
                check_all_but(&store, &stored, None, &what);
                let red = i64::from(wire::message::tags::java_string_hash("red"));
                let entries = store.entries("t", 1, QueueOffset::ZERO, 100).unwrap();
                assert_eq!(entries.len(), 20, "{what}");
                assert!(entries.iter().all(|entry| entry.tags_code == red), "{what}");
                assert_eq!(store.queue("t", 1).max.get(), 20, "{what}");
                store.close().unwrap();
                drop(store);
                let (_, again) = open(&disk, 1 << 30);
                assert_eq!(again.repaired_entries, 0, "{what}: the repair is on disk");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_small_file_loses_nothing() {
    for clean in [true, false] {
        let (disk, stored) = filled(clean);
        for name in ["checkpoint", "layout", "abort", "lock"] {
            let path = Path::new("/data").join(name);
            let file = disk.files().into_iter().find(|(file, _)| *file == path);
            let bytes = file.map_or(0, |(_, content)| content.len().min(1100));
            // The empty stretch between head and slots is sampled.
            let bytes = (0..bytes as u64).filter(|at| *at < 64 || *at >= 500 || at % 50 == 0);
            for byte in bytes {
                let what = format!("{name} byte {byte} clean {clean}");
                let disk = disk.kill();
                assert!(disk.flip_bit(&path, byte, u8::try_from(byte % 8).unwrap()));
                let (store, report) = open(&disk, 1 << 30);
                assert_eq!(report.damaged, [], "{what}");
                assert_eq!(report.dispatched_to, stored[59].1.end(), "{what}");
                check_all_but(&store, &stored, None, &what);
            }
        }
    }
}

#[test]
fn queue_files_that_are_gone_are_built_again() {
    for clean in [true, false] {
        let (disk, stored) = filled(clean);
        for (path, _) in disk.files() {
            if path.starts_with("/data/consumequeue") {
                let disk = disk.kill();
                store::disk::Disk::remove_file(&disk, &path).unwrap();
                let (store, _) = open(&disk, 1 << 30);
                check_all_but(&store, &stored, None, &path.display().to_string());
            }
        }
    }
}

/// Small segments over many rolls, killed and cut off around each of them: every message that was
/// answered as flushed is in its queue, in sequence (apache/rocketmq#1434; case BL-01).
#[test]
fn nothing_is_missing_after_a_crash_around_a_roll() {
    for seed in 0..30 {
        let mut disk = SimDisk::new(seed);
        let mut sent = 0u64;
        let mut rolls = 0;
        while rolls < 3 {
            let (store, _) = open(&disk, 0);
            let mut last_file = None;
            let rolled = loop {
                let text = format!("{sent:06}{}", "x".repeat(300));
                let outcome = store.append(&draft("t", 0, text.as_bytes())).unwrap();
                assert_eq!(outcome.queue_offset.get(), sent, "seed {seed}");
                while store.step_flush(true) {}
                assert!(store.flushed() >= outcome.end());
                sent += 1;
                let file = outcome.physical_offset.get() / SEGMENT;
                if last_file.is_some_and(|last| last != file) {
                    break true;
                }
                last_file = Some(file);
                if seed % 3 == 0 {
                    while store.step_dispatch() {}
                    store.step_maintain(seed % 2 == 0);
                }
            };
            rolls += u32::from(rolled);
            drop(store);
            disk = if seed % 2 == 0 {
                disk.crash()
            } else {
                disk.kill()
            };
            let (store, report) = open(&disk, 0);
            assert_eq!(report.damaged, []);
            let entries = store.entries("t", 0, QueueOffset::ZERO, 10_000).unwrap();
            assert_eq!(entries.len() as u64, sent, "seed {seed}");
            for (n, entry) in entries.iter().enumerate() {
                let record = store
                    .record(entry.physical_offset, entry.size)
                    .unwrap()
                    .unwrap();
                let view = RecordView::parse_checked(&record).unwrap();
                assert_eq!(entry.queue_offset.get(), n as u64);
                assert_eq!(&view.body[..6], format!("{n:06}").as_bytes(), "seed {seed}");
            }
        }
    }
}

/// A log that ends before what it once held says so; one that a kill has torn does not.
#[test]
fn an_end_before_data_is_told_and_a_torn_end_is_not() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, 0);
    let mut stored = Vec::new();
    for n in 0..60 {
        stored.push(store.append(&draft("t", 0, &body(n))).unwrap());
        while store.step_flush(true) {}
    }
    drop(store);
    let killed = disk.kill();
    let (_, report) = open(&killed.kill(), 0);
    assert_eq!((report.lost, report.truncated_at), (None, None), "killed");

    let torn = killed.kill();
    let last = stored[59];
    let (path, from) = log_file(last.physical_offset);
    let file = store::disk::Disk::open(&torn, &path, false).unwrap();
    let half = from + u64::from(last.wrote_bytes) / 2;
    file.zero(half, from + u64::from(last.wrote_bytes)).unwrap();
    drop(file);
    let (_, report) = open(&torn, 0);
    assert_eq!(report.truncated_at, Some(last.physical_offset));
    assert_eq!(report.lost, None, "torn");

    let garbled = killed.kill();
    let victim = stored[10].physical_offset;
    let (path, offset) = log_file(victim);
    assert!(garbled.flip_bit(&path, offset + 100, 3));
    let (_, report) = open(&garbled, 0);
    assert_eq!(report.dispatched_to, victim);
    let lost = LostEnd {
        file: path,
        offset,
        records: 49,
        durable_bytes: 0,
    };
    assert_eq!(report.lost, Some(lost), "garbled");
    assert_eq!(open(&garbled.kill(), 0).1.lost, None, "told once");

    for clean in [true, false] {
        let (cut, stored) = filled(clean);
        let end = stored[59].1.end();
        let (path, _) = log_file(end);
        store::disk::Disk::remove_file(&cut, &path).unwrap();
        let (store, report) = open(&cut, 0);
        let lost = LostEnd {
            file: path,
            offset: 0,
            records: 0,
            durable_bytes: end.get() % SEGMENT,
        };
        assert_eq!(report.lost, Some(lost), "the last file is gone");
        let next = store.append(&draft("t", 0, b"next")).unwrap();
        assert_eq!(next.physical_offset.get(), end.get() / SEGMENT * SEGMENT);
        while store.step_flush(true) {}
        while store.step_dispatch() {}
        let entries = store.entries("t", 0, next.queue_offset, 9).unwrap();
        assert_eq!(entries.len(), 1, "units of the file that is gone");
        store.close().unwrap();
        drop(store);
        let (store, report) = open(&cut, 1 << 30);
        assert_eq!((report.lost, report.repaired_entries), (None, 0));
        assert_eq!(store.queue("t", 0).max.get(), next.queue_offset.get() + 1);
    }
}
