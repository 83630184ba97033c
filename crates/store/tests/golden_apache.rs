//! Opens directories written by Apache RocketMQ 5.4.0 and serves every message in them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: what is unexpected ends it"
)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use store::{Boundary, PhysicalOffset, QueueOffset, Store};
use support::{append_flushed, bodies, draft, open, options, wait_dispatched};
use wire::message::record::RecordView;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn unpack(name: &str) -> (tempfile::TempDir, Value) {
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new("tar")
        .arg("xzf")
        .arg(golden(&format!("{name}.tar.gz")))
        .arg("-C")
        .arg(dir.path())
        .args(["--exclude=*/timerwheel", "--exclude=*/rocksdbstore"])
        .status()
        .unwrap();
    assert!(status.success());
    let text = std::fs::read(golden(&format!("{name}.json"))).unwrap();
    (dir, serde_json::from_slice(&text).unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// `{topic: {queue: value}}` flattened.
fn queues(value: &Value) -> Vec<(String, i32, Value)> {
    let mut found = Vec::new();
    for (topic, of_topic) in value.as_object().unwrap() {
        for (id, value) in of_topic.as_object().unwrap() {
            found.push((topic.clone(), id.parse().unwrap(), value.clone()));
        }
    }
    found
}

fn check_ranges(store: &Store, expected: &Value) {
    for (topic, id, value) in queues(expected) {
        let range = store.queue(&topic, id);
        assert_eq!(range.min.get(), number(&value["min"]), "{topic} {id}");
        assert_eq!(range.max.get(), number(&value["max"]), "{topic} {id}");
    }
}

fn check_records(store: &Store, expected: &[Value]) {
    let scanned: Vec<_> = store.scan(PhysicalOffset::ZERO).collect();
    assert_eq!(scanned.len(), expected.len());
    for ((at, record), want) in scanned.iter().zip(expected) {
        let view = RecordView::parse_checked(record).unwrap();
        assert_eq!(at.get(), number(&want["physicalOffset"]));
        assert_eq!(record.len() as u64, number(&want["size"]));
        assert_eq!(view.topic, want["topic"].as_str().unwrap());
        assert_eq!(i64::from(view.queue_id), want["queueId"].as_i64().unwrap());
        assert_eq!(view.queue_offset, want["queueOffset"].as_i64().unwrap());
        assert_eq!(view.store_ts_ms, want["storeTimestamp"].as_i64().unwrap());
        let by_offset = store.record_at(*at).unwrap().unwrap();
        assert_eq!(&by_offset, record);
    }
}

fn check_units(store: &Store, expected: &Value) {
    for (topic, id, units) in queues(expected) {
        let units = units.as_array().unwrap();
        let entries = store
            .entries(&topic, id, QueueOffset::ZERO, 10_000)
            .unwrap();
        assert_eq!(entries.len(), units.len(), "{topic} {id}");
        for (n, (entry, unit)) in entries.iter().zip(units).enumerate() {
            assert_eq!(entry.queue_offset.get(), n as u64);
            assert_eq!(
                entry.physical_offset.get(),
                number(&unit[0]),
                "{topic} {id} {n}"
            );
            assert_eq!(u64::from(entry.size), number(&unit[1]), "{topic} {id} {n}");
            assert_eq!(
                entry.tags_code,
                unit[2].as_i64().unwrap(),
                "{topic} {id} {n}"
            );
            assert!(
                store
                    .record(entry.physical_offset, entry.size)
                    .unwrap()
                    .is_some()
            );
        }
    }
}

#[test]
fn a_cleanly_stopped_apache_store_is_served_whole() {
    let (dir, json) = unpack("store-5.4.0");
    // The directory that holds `store/`, as `--data DIR` may name it.
    let (store, report) = open(options(dir.path())).unwrap();
    assert!(report.clean, "{report:?}");
    assert_eq!(
        (report.repaired_entries, report.rebuilt_entries),
        (0, 0),
        "{report:?}"
    );
    assert_eq!(report.truncated_at, None);
    assert_eq!(report.damaged, []);
    assert_eq!(report.dispatched_to.get(), 1_655_032);
    assert_eq!(store.root(), dir.path().join("store"));
    check_ranges(&store, &json["brokerView_queues"]);
    check_records(&store, json["messages"].as_array().unwrap());
    check_units(&store, &json["consumeQueueUnits"]);
    let first = json["messages"][0]["storeTimestamp"].as_i64().unwrap();
    let found = store.offset_by_time("orders", 0, first + 1, Boundary::Lower);
    assert_eq!(found.get(), 1);

    let more = append_flushed(&store, &draft("orders", 0, b"ours"));
    assert_eq!(more.queue_offset.get(), 3);
    assert_eq!(more.physical_offset.get(), 1_655_032);
    store.close().unwrap();
    let sizes = std::fs::read_to_string(dir.path().join("store/layout")).unwrap();
    assert_eq!(sizes, "segment_size=1048576\nqueue_file_size=60000\n");
    assert!(!dir.path().join("store/abort").try_exists().unwrap());

    let (store, report) = open(options(&dir.path().join("store"))).unwrap();
    assert!(report.clean);
    assert_eq!(
        (report.repaired_entries, report.rebuilt_entries),
        (0, 0),
        "{report:?}"
    );
    assert_eq!(store.queue("orders", 0).max.get(), 4);
    assert_eq!(bodies(&store, "orders", 0)[3], (3, b"ours".to_vec()));
}

#[test]
fn queues_of_an_apache_store_are_built_again_when_they_are_gone() {
    let (dir, json) = unpack("store-5.4.0");
    std::fs::remove_dir_all(dir.path().join("store/consumequeue")).unwrap();
    let mut options = options(dir.path());
    options.queue_file_units = 3_000;
    let (store, _) = open(options).unwrap();
    check_ranges(&store, &json["brokerView_queues"]);
    check_units(&store, &json["consumeQueueUnits"]);
    store.close().unwrap();
    // What was written is the same, byte for byte, as what Apache wrote.
    let (original, _) = unpack("store-5.4.0");
    for (topic, id, _) in queues(&json["consumeQueueUnits"]) {
        let file = format!("store/consumequeue/{topic}/{id}/00000000000000000000");
        let ours = std::fs::read(dir.path().join(&file)).unwrap();
        let theirs = std::fs::read(original.path().join(&file)).unwrap();
        assert!(ours == theirs, "{file}");
    }
}

#[test]
fn a_killed_apache_store_loses_nothing_that_was_acknowledged() {
    let (dir, json) = unpack("store-5.4.0-killed");
    {
        let (store, report) = open(options(dir.path())).unwrap();
        assert!(!report.clean);
        assert_eq!(report.damaged, []);
        assert_eq!(report.dispatched_to.get(), 2_132_354);
        check_ranges(&store, &json["expectedAfterRecovery"]["queues"]);
        let acked = json["acked"].as_array().unwrap();
        for ack in acked {
            let topic = ack[0].as_str().unwrap();
            let id = i32::try_from(ack[1].as_i64().unwrap()).unwrap();
            let at = QueueOffset::new(number(&ack[2]));
            let entries = store.entries(topic, id, at, 1).unwrap();
            let entry = entries.first().unwrap();
            assert_eq!(
                (entry.queue_offset, entry.physical_offset.get()),
                (at, number(&ack[3]))
            );
            let record = store
                .record(entry.physical_offset, entry.size)
                .unwrap()
                .unwrap();
            let view = RecordView::parse_checked(&record).unwrap();
            assert_eq!(view.uniq_key(), ack[4].as_str());
        }
        assert_eq!(store.scan(PhysicalOffset::ZERO).count(), acked.len());
        let more = append_flushed(&store, &draft("load-0", 0, b"ours"));
        assert_eq!(more.queue_offset.get(), 421);
        wait_dispatched(&store, more.end());
    }
    // Dropped without `close`: what a crash of ours leaves.
    let (store, report) = open(options(dir.path())).unwrap();
    assert!(!report.clean);
    assert_eq!(
        bodies(&store, "load-0", 0).last().unwrap(),
        &(421, b"ours".to_vec())
    );
    store.close().unwrap();
}
