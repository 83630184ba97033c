//! Deleting the oldest log files: which go, what queues say afterwards, what a reader keeps.
#![allow(
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use clock::{Clock, ManualClock};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::disk::RealDisk;
use store::{PhysicalOffset, QueueOffset, Store, StoreOptions, Workers};
use support::{draft, open, options, wait_dispatched, wait_flushed};
use wire::message::record::RecordView;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A store stepped by hand under a clock set by hand, and what was appended to it.
struct Bench {
    store: Store,
    clock: ManualClock,
}

impl Bench {
    fn new(root: &Path) -> Bench {
        let clock = ManualClock::new(1_000_000);
        Bench::with(root, clock)
    }

    fn with(root: &Path, clock: ManualClock) -> Bench {
        let options = StoreOptions {
            workers: Workers::Manual,
            segment_size: 4096,
            queue_file_units: 5,
            ..options(root)
        };
        let (store, _) = Store::open(options, Arc::new(RealDisk), Arc::new(clock.clone())).unwrap();
        Bench { store, clock }
    }

    fn settle(&self) {
        while self.store.step_flush(true) {}
        while self.store.step_dispatch() {}
    }

    fn append(&self, topic: &str, count: usize) {
        for _ in 0..count {
            self.store.append(&draft(topic, 0, &[b'x'; 400])).unwrap();
        }
        self.settle();
    }

    /// First position whose record can be read, by reading.
    fn first_readable(&self, topic: &str) -> QueueOffset {
        let range = self.store.queue(topic, 0);
        let entries = self
            .store
            .entries(topic, 0, QueueOffset::ZERO, usize::MAX)
            .unwrap();
        for entry in &entries {
            assert!(
                self.store
                    .record(entry.physical_offset, entry.size)
                    .unwrap()
                    .is_some()
            );
        }
        entries
            .first()
            .map_or(range.max, |entry| entry.queue_offset)
    }
}

#[test]
fn whole_files_older_than_the_limit_go_and_queues_begin_where_the_log_does() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(dir.path());
    let store = &bench.store;
    bench.append("quiet", 3);
    bench.append("busy", 20);
    bench.clock.advance(Duration::from_secs(10));
    bench.append("busy", 20);
    let before_ms = i64::try_from(bench.clock.now_ms()).unwrap();
    let expected: Vec<PhysicalOffset> = store
        .segments()
        .iter()
        .filter(|segment| segment.newest_ms < before_ms)
        .map(|segment| segment.to)
        .collect();
    let border = *expected.last().unwrap();
    let kept = store.entries("busy", 0, QueueOffset::ZERO, 1).unwrap()[0];
    let held = store
        .record(kept.physical_offset, kept.size)
        .unwrap()
        .unwrap();

    let cleaned = store.clean_expired(before_ms).unwrap();
    assert_eq!(cleaned.files, expected.len() as u64);
    assert_eq!(cleaned.bytes, border.get());
    assert_eq!(
        (cleaned.min_physical, store.min_physical()),
        (border, border)
    );
    assert_eq!(
        names(&dir.path().join("commitlog"))[0],
        format!("{:020}", border.get())
    );
    // A queue without messages keeps its place, one with some begins at the first that is there.
    assert_eq!(
        (store.queue("quiet", 0).min, store.queue("quiet", 0).max),
        (3.into(), 3.into())
    );
    let range = store.queue("busy", 0);
    assert_eq!(
        (range.min, range.max),
        (bench.first_readable("busy"), 40.into())
    );
    assert!(range.min > QueueOffset::ZERO && range.min < QueueOffset::new(20));
    // Files of units before that are gone, the record in hand is not.
    let first_file = range.min.get() / 5 * 100;
    assert_eq!(
        names(&dir.path().join("consumequeue/busy/0"))[0],
        format!("{first_file:020}")
    );
    assert!(
        store
            .record(kept.physical_offset, kept.size)
            .unwrap()
            .is_none()
    );
    assert_eq!(RecordView::parse_checked(&held).unwrap().body, [b'x'; 400]);
    // Nothing more is old enough, and a second round finds nothing.
    assert_eq!(store.clean_expired(before_ms).unwrap().files, 0);

    // A crash and a clean stop find the same.
    let ranges = |store: &Store| (store.queue("quiet", 0), store.queue("busy", 0));
    let seen = ranges(store);
    let clock = bench.clock.clone();
    drop(bench);
    let again = Bench::with(dir.path(), clock.clone());
    assert_eq!(ranges(&again.store), seen);
    again.store.close().unwrap();
    drop(again);
    let again = Bench::with(dir.path(), clock);
    assert_eq!(ranges(&again.store), seen);
    again.append("quiet", 1);
    assert_eq!(again.store.queue("quiet", 0).max, QueueOffset::new(4));
    assert_eq!(again.first_readable("quiet"), QueueOffset::new(3));
}

#[test]
fn an_idle_log_lets_go_of_everything_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(dir.path());
    bench.append("t", 2);
    let end = bench.store.written();
    bench.clock.advance(Duration::from_secs(60));
    let now_ms = i64::try_from(bench.clock.now_ms()).unwrap();
    assert_eq!(
        bench.store.expired(now_ms, 9),
        PhysicalOffset::ZERO,
        "the last file stays"
    );
    assert!(bench.store.roll_if_older(now_ms).unwrap());
    assert!(
        !bench.store.roll_if_older(now_ms).unwrap(),
        "an empty file is not rolled"
    );
    bench.settle();
    assert_eq!(bench.store.clean_expired(now_ms).unwrap().files, 1);
    assert!(bench.store.min_physical() > end);
    let range = bench.store.queue("t", 0);
    assert_eq!((range.min, range.max), (2.into(), 2.into()));
    let clock = bench.clock.clone();
    bench.store.close().unwrap();
    drop(bench);

    // Also when the only file there is has nothing in it.
    let bench = Bench::with(dir.path(), clock);
    assert!(
        bench.store.written() > end,
        "positions in the log are never given out again"
    );
    bench.append("t", 1);
    let entries = bench.store.entries("t", 0, QueueOffset::ZERO, 9).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].queue_offset, QueueOffset::new(2));
}

#[test]
fn what_is_about_to_be_deleted_is_hidden_and_shown_again_if_it_stays() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(dir.path());
    let store = &bench.store;
    bench.append("t", 30);
    let border = store.segments()[1].to;
    let first = store.position_from("t", 0, border).unwrap();
    let retiring = store.retire(border).unwrap().unwrap();
    assert_eq!(store.queue("t", 0).min, first);
    assert_eq!(
        store.entries("t", 0, QueueOffset::ZERO, 1).unwrap()[0].queue_offset,
        first
    );
    let hidden = store
        .entries_with_hidden("t", 0, QueueOffset::ZERO, 1)
        .unwrap()[0];
    assert_eq!(hidden.queue_offset, QueueOffset::ZERO);
    assert!(
        store
            .record(hidden.physical_offset, hidden.size)
            .unwrap()
            .is_some()
    );
    assert!(store.retire(border).is_err(), "one at a time");
    store.hide_before("t", 0, QueueOffset::new(2));
    drop(retiring);
    assert_eq!(
        store.queue("t", 0).min,
        QueueOffset::new(2),
        "but for what was put again"
    );
    store.retire(border).unwrap().unwrap().remove().unwrap();
    assert_eq!(store.queue("t", 0).min, first);
    assert_eq!(store.first_stored("t", 0), first);
}

#[test]
fn readers_and_writers_at_work_never_see_a_record_that_is_not_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(StoreOptions {
        segment_size: 16 << 10,
        ..options(dir.path())
    })
    .unwrap();
    let rounds = 3_000u64;
    let done = AtomicBool::new(false);
    let (store_at_work, done) = (&store, &done);
    std::thread::scope(|scope| {
        let store = store_at_work;
        let writer = scope.spawn(move || {
            for n in 0..rounds {
                let body = [&n.to_be_bytes()[..], &[0; 300]].concat();
                let outcome = store.append(&draft("t", 0, &body)).unwrap();
                assert_eq!(outcome.queue_offset, QueueOffset::new(n));
                if n % 64 == 0 {
                    wait_flushed(store, outcome.end()).unwrap();
                }
            }
        });
        scope.spawn(move || {
            while !writer.is_finished() {
                let segments = store.segments();
                if let Some(old) = segments.len().checked_sub(3).and_then(|n| segments.get(n))
                    && let Some(retiring) = store.retire(old.to).unwrap()
                {
                    retiring.remove().unwrap();
                }
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(move || {
                let mut at = QueueOffset::ZERO;
                while at < QueueOffset::new(rounds) && !done.load(Ordering::Acquire) {
                    let entries = store.entries("t", 0, at, 16).unwrap();
                    for entry in entries {
                        at = entry.queue_offset.plus(1);
                        // Deleted between the two is no fault; another record would be.
                        let Some(record) = store.record(entry.physical_offset, entry.size).unwrap()
                        else {
                            assert!(store.queue("t", 0).min > entry.queue_offset);
                            continue;
                        };
                        let view = RecordView::parse_checked(&record).unwrap();
                        assert_eq!(view.body[..8], entry.queue_offset.get().to_be_bytes());
                    }
                }
            });
        }
    });
    wait_dispatched(&store, store.written());
    assert!(store.min_physical() > PhysicalOffset::ZERO);
    let range = store.queue("t", 0);
    let all = store
        .entries("t", 0, QueueOffset::ZERO, usize::MAX)
        .unwrap();
    assert_eq!(all.first().unwrap().queue_offset, range.min);
    assert_eq!(all.len() as u64, range.max.since(range.min));
    assert!(all[0].physical_offset >= store.min_physical());
}

/// BL-06 (nats-io/nats-server#7556, apache/iggy#2572) where nothing in the log could tell it again: positions of a queue
/// whose messages are all gone are never given out twice.
#[test]
fn an_emptied_queue_goes_on_where_it_was_after_any_flipped_bit() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(dir.path());
    bench.append("quiet", 8);
    bench.append("busy", 20);
    bench.clock.advance(Duration::from_secs(10));
    let now_ms = i64::try_from(bench.clock.now_ms()).unwrap();
    assert!(bench.store.roll_if_older(now_ms).unwrap());
    bench.settle();
    bench.store.clean_expired(now_ms).unwrap();
    bench.append("busy", 1);
    let end = bench.store.queue("quiet", 0).max;
    assert_eq!(
        (bench.store.queue("quiet", 0).min, end),
        (8.into(), 8.into())
    );
    let clock = bench.clock.clone();
    bench.store.close().unwrap();
    drop(bench);
    let units = dir.path().join("consumequeue/quiet/0/00000000000000000100");
    let ends = dir.path().join("queue-ends");
    for (path, from, to) in [
        (&units, 40, 60),
        (&ends, 0, fs::metadata(&ends).unwrap().len()),
    ] {
        let whole = fs::read(path).unwrap();
        for bit in (from * 8..to * 8).step_by(5) {
            let mut damaged = whole.clone();
            damaged[bit as usize / 8] ^= 1 << (bit % 8);
            fs::write(path, &damaged).unwrap();
            let again = Bench::with(dir.path(), clock.clone());
            let max = again.store.queue("quiet", 0).max;
            assert_eq!(max, end, "{} bit {bit}", path.display());
            again.store.close().unwrap();
            drop(again);
            fs::write(path, &whole).unwrap();
        }
    }
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let again = Bench::with(dir.path(), clock);
    again.append("quiet", 1);
    let entries = again
        .store
        .entries("quiet", 0, QueueOffset::ZERO, 9)
        .unwrap();
    assert_eq!(entries[0].queue_offset, end);
    // A topic that is removed and comes again begins at 0.
    again.store.remove_topic("quiet").unwrap();
    again.append("quiet", 1);
    assert_eq!(again.first_readable("quiet"), QueueOffset::ZERO);
}

/// A directory that was copied here is kept its time, however old its messages are (the last change of a file is what
/// RocketMQ 5.4.0 goes by).
#[test]
fn files_of_an_earlier_run_are_as_old_as_their_last_change() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(dir.path());
    bench.append("t", 30);
    let clock = bench.clock.clone();
    bench.store.close().unwrap();
    drop(bench);
    let kept = StoreOptions {
        workers: Workers::Manual,
        age_by_file_time: true,
        ..options(dir.path())
    };
    let (store, _) = Store::open(kept, Arc::new(RealDisk), Arc::new(clock)).unwrap();
    let changed_ms = i64::try_from(clock::SystemClock::new().now_ms()).unwrap();
    assert_eq!(store.clean_expired(changed_ms - 60_000).unwrap().files, 0);
    assert_eq!(store.queue("t", 0).min, QueueOffset::ZERO);
    assert!(store.roll_if_older(changed_ms + 60_000).unwrap());
    while store.step_flush(true) {}
    while store.step_dispatch() {}
    assert!(store.clean_expired(changed_ms + 60_000).unwrap().files > 2);
    assert_eq!(store.queue("t", 0).min, QueueOffset::new(30));
}
