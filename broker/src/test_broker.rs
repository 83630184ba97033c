//! A broker for tests of what cannot be seen from outside.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use node::{ByteSize, Context};
use store::MessageDraft;
use store::disk::sim::SimDisk;
use wire::message::record::RecordFields;

use crate::broker::Broker;
use crate::{Config, Running, SegmentConfig, start_on};

/// An empty one on a disk in memory.
pub(crate) async fn start() -> Running {
    start_with(|_| {}).await
}

/// The same with settings of its own.
pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Running {
    start_both(&SimDisk::new(1), change).await
}

/// One on this disk.
pub(crate) async fn start_at(disk: &SimDisk) -> Running {
    start_both(disk, |_| {}).await
}

async fn start_both(disk: &SimDisk, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config {
        data: PathBuf::from("/data"),
        listen: "127.0.0.1:0".parse().unwrap(),
        segment: SegmentConfig {
            size: ByteSize::mib(1),
        },
        fast_port: false,
        ..Config::default()
    };
    change(&mut config);
    let context = Context::quiet(Arc::new(SystemClock::new()));
    start_on(config, &context, Arc::new(disk.clone()))
        .await
        .unwrap()
}

/// Stores messages in queue 0 of a topic, past all checks.
pub(crate) async fn append(broker: &Broker, topic: &str, count: u64) {
    put(broker, topic, count);
    dispatched(broker).await;
}

/// The same, without waiting until it can be read.
pub(crate) fn put(broker: &Broker, topic: &str, count: u64) {
    for _ in 0..count {
        let fields = RecordFields {
            topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_ts_ms: 0,
            born_host: broker.store_host,
            store_host: broker.store_host,
            reconsume_times: 0,
            prepared_offset: 0,
            body: b"body",
            properties: b"",
        };
        broker.append(&MessageDraft::from(fields)).unwrap();
    }
}

/// Waits until the queues show what was stored.
pub(crate) async fn dispatched(broker: &Broker) {
    while broker.store.dispatched() < broker.store.written() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
