//! Deleting log files while calls fail, the disk is full, or the store is closed.
#![allow(
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use clock::{Clock, ManualClock};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::disk::sim::{Failing, SimDisk};
use store::disk::{AppendToken, DirEntry, Disk, DiskFile, DiskLock, DiskUsage, Region};
use store::{PhysicalOffset, QueueOffset, Retiring, Store, StoreError, StoreOptions, Workers};
use support::draft;

fn options() -> StoreOptions {
    StoreOptions {
        segment_size: 4096,
        queue_file_units: 5,
        workers: Workers::Manual,
        ..StoreOptions::new("/data")
    }
}

fn open(disk: &SimDisk) -> Store {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    Store::open(options(), Arc::new(disk.clone()), clock)
        .unwrap()
        .0
}

fn append(store: &Store, topic: &str, count: usize) {
    for _ in 0..count {
        store.append(&draft(topic, 0, &[b'x'; 400])).unwrap();
    }
}

fn settle(store: &Store) {
    while store.step_flush(true) {}
    while store.step_dispatch() {}
    store.step_maintain(true);
}

/// A queue that loses all its messages with the first log file, and one that loses some with each.
fn filled(disk: &SimDisk) -> Store {
    let store = open(disk);
    append(&store, "quiet", 3);
    append(&store, "busy", 40);
    settle(&store);
    store
}

fn retire(store: &Store, files: usize) -> Retiring {
    let border = store.segments()[files - 1].to;
    store.retire(border).unwrap().unwrap()
}

/// All positions from the first whose record is there are shown, and no others.
fn assert_shows_what_is_there(store: &Store, context: &str) {
    for (topic, end) in [("quiet", 3), ("busy", 40)] {
        let range = store.queue(topic, 0);
        assert_eq!(range.max, QueueOffset::new(end), "{context}: {topic}");
        let mut records = store.scan(PhysicalOffset::ZERO).filter(|(_, record)| {
            let view = wire::message::record::RecordView::parse_checked(record).unwrap();
            view.topic == topic
        });
        let there = records.by_ref().count() as u64;
        assert_eq!(
            range.max.since(range.min),
            there,
            "{context}: {topic} {range:?}"
        );
    }
}

#[test]
fn a_deletion_that_fails_at_any_call_shows_what_is_there_and_survives_no_failed_sync() {
    let (mut cut_short, mut syncs) = (0, 0);
    for call in 1.. {
        let disk = SimDisk::new(call);
        let store = filled(&disk);
        let retiring = retire(&store, 3);
        disk.fail(Failing::Once(call));
        let removed = retiring.remove();
        let calls = disk.calls();
        disk.fail(Failing::None);
        let context = format!("call {call}: {removed:?}");
        assert_shows_what_is_there(&store, &context);
        if let Err(error) = &removed {
            if format!("{error:?}").contains("simulated sync error") {
                syncs += 1;
                assert!(store.poisoned(), "{context}");
            }
            cut_short += u64::from(store.min_physical() > PhysicalOffset::ZERO);
        }
        if !store.poisoned() {
            let rest = store.retire(store.segments()[2].to);
            if let Some(retiring) = rest.unwrap() {
                retiring.remove().unwrap();
            }
            assert_shows_what_is_there(&store, &context);
        }
        drop(store);
        assert_shows_what_is_there(&open(&disk.crash()), &context);
        if calls < call {
            assert!(removed.is_ok(), "{context}");
            break;
        }
    }
    assert!(cut_short > 3 && syncs > 6, "{cut_short} {syncs}");
}

#[test]
fn a_closed_or_poisoned_store_deletes_nothing() {
    let names = |disk: &SimDisk| -> Vec<_> {
        let of_log = |(path, _): (std::path::PathBuf, Vec<u8>)| {
            path.starts_with("/data/commitlog").then_some(path)
        };
        disk.files().into_iter().filter_map(of_log).collect()
    };
    let disk = SimDisk::new(1);
    let store = filled(&disk);
    let retiring = retire(&store, 3);
    store.close().unwrap();
    let before = names(&disk);
    assert!(matches!(retiring.remove(), Err(StoreError::Closed)));
    assert!(matches!(
        store.retire(store.segments()[2].to),
        Err(StoreError::Closed)
    ));
    assert!(matches!(
        store.remove_topic("busy"),
        Err(StoreError::Closed)
    ));
    assert_eq!(names(&disk), before);

    let disk = SimDisk::new(1);
    let store = filled(&disk);
    let retiring = retire(&store, 3);
    disk.fail_syncs(true);
    append(&store, "busy", 1);
    store.step_flush(true);
    disk.fail_syncs(false);
    assert!(store.poisoned());
    let before = names(&disk);
    assert!(matches!(
        retiring.remove(),
        Err(StoreError::Poisoned { .. })
    ));
    assert!(matches!(
        store.roll_if_older(i64::MAX),
        Err(StoreError::Poisoned { .. })
    ));
    assert_eq!(names(&disk), before);
}

/// The ends of emptied queues need some space to be written down: a disk without any must not keep its log for that.
#[test]
fn a_disk_without_a_free_byte_gets_space_by_a_deletion() {
    let disk = SimDisk::new(1);
    let store = filled(&disk);
    disk.set_capacity(disk.used());
    assert_eq!(retire(&store, 1).remove().unwrap().files, 1);
    assert_shows_what_is_there(&store, "after");
    let ends = store::config_file::read(&disk, "/data/queue-ends".as_ref());
    let ends = String::from_utf8(ends.unwrap().unwrap()).unwrap();
    assert!(ends.contains("\n3 0 quiet\n"), "{ends}");
    assert!(disk.used() <= 10 * 4096 * 2 && !store.poisoned());
}

/// A disk that looks, whenever a log file is made, whether somebody holds the put lock.
#[derive(Debug)]
struct Watching {
    disk: SimDisk,
    clock: ManualClock,
    store: OnceLock<Store>,
    held: AtomicBool,
}

impl Disk for Watching {
    fn create_region(&self, path: &Path, len: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        // The store is busy once an append has waited a second for the disk.
        self.clock.advance(Duration::from_secs(2));
        let busy = self.store.get().is_some_and(Store::busy);
        self.held.fetch_or(busy, Ordering::Relaxed);
        self.disk.create_region(path, len)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path, create)
    }
    fn open_region(&self, path: &Path, to: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        self.disk.open_region(path, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_all(dir)
    }
    fn usage(&self, dir: &Path) -> io::Result<DiskUsage> {
        self.disk.usage(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }
}

#[test]
fn appends_do_not_wait_for_the_file_that_an_idle_log_goes_on_in() {
    let clock = ManualClock::new(1_700_000_000_000);
    let disk = Arc::new(Watching {
        disk: SimDisk::new(1),
        clock: clock.clone(),
        store: OnceLock::new(),
        held: AtomicBool::new(false),
    });
    let (store, _) = Store::open(options(), disk.clone(), Arc::new(clock.clone())).unwrap();
    disk.store.set(store.clone()).unwrap();
    append(&store, "t", 1);
    assert!(disk.held.swap(false, Ordering::Relaxed), "the check works");
    clock.advance(Duration::from_secs(60));
    let now_ms = i64::try_from(clock.now_ms()).unwrap();
    assert!(store.roll_if_older(now_ms).unwrap());
    assert!(!disk.held.load(Ordering::Relaxed));
    assert_eq!(store.segments().len(), 1);
    append(&store, "t", 1);
    assert!(!disk.held.load(Ordering::Relaxed));
}
