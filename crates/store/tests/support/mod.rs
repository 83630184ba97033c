//! What the integration tests of the store share: drafts, and a store opened on a directory.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

use clock::{Clock, SystemClock};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use store::disk::RealDisk;
use store::{
    AppendOutcome, FlushPolicy, MessageDraft, PhysicalOffset, QueueOffset, RecoveryReport, Store,
    StoreError, StoreOptions,
};
use wire::message::record::{RecordFields, RecordView};

/// Fields of a plain message.
pub fn fields<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_ts_ms: 1_700_000_000_000,
        born_host: ([127, 0, 0, 1], 1000).into(),
        store_host: ([127, 0, 0, 1], 10911).into(),
        reconsume_times: 0,
        prepared_offset: 0,
        body,
        properties: b"TAGS\x01red\x02UNIQ_KEY\x01k\x02",
    }
}

pub fn draft<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> MessageDraft<'a> {
    MessageDraft::from(fields(topic, queue_id, body))
}

/// Small files, so that tests roll them.
pub fn options(root: &Path) -> StoreOptions {
    StoreOptions {
        segment_size: 64 * 1024,
        queue_file_units: 100,
        ..StoreOptions::new(root)
    }
}

pub fn open(options: StoreOptions) -> Result<(Store, RecoveryReport), StoreError> {
    Store::open(options, Arc::new(RealDisk), Arc::new(SystemClock::new()))
}

pub fn with_flush(options: StoreOptions, flush: FlushPolicy) -> StoreOptions {
    StoreOptions { flush, ..options }
}

/// Appends and waits until it is durable.
pub fn append_flushed(store: &Store, draft: &MessageDraft<'_>) -> AppendOutcome {
    let outcome = store.append(draft).unwrap();
    wait_flushed(store, outcome.end()).unwrap();
    outcome
}

pub fn wait_flushed(store: &Store, end: PhysicalOffset) -> Result<(), StoreError> {
    let (send, receive) = mpsc::channel();
    store.when_flushed(end, Box::new(move |result| send.send(result).unwrap()));
    receive.recv_timeout(Duration::from_secs(30)).unwrap()
}

/// Waits until `end` is visible in the queues.
pub fn wait_dispatched(store: &Store, end: PhysicalOffset) {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    while store.dispatched() < end {
        assert!(
            clock.monotonic() - start < Duration::from_secs(30),
            "dispatch stuck"
        );
        std::thread::yield_now();
    }
}

/// Bodies of all messages of a queue, checked against the positions they claim.
pub fn bodies(store: &Store, topic: &str, queue_id: i32) -> Vec<(u64, Vec<u8>)> {
    let range = store.queue(topic, queue_id);
    let mut found = Vec::new();
    let mut from = range.min;
    loop {
        let entries = store.entries(topic, queue_id, from, 32).unwrap();
        let Some(last) = entries.last() else {
            return found;
        };
        from = last.queue_offset.plus(1);
        for entry in entries {
            let Some(record) = store.record(entry.physical_offset, entry.size).unwrap() else {
                continue;
            };
            let view = RecordView::parse_checked(&record).unwrap();
            assert_eq!(view.topic, topic);
            assert_eq!(view.queue_id, queue_id);
            assert_eq!(
                QueueOffset::from_wire(view.queue_offset),
                Some(entry.queue_offset)
            );
            found.push((entry.queue_offset.get(), view.body.to_vec()));
        }
    }
}
