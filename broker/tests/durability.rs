//! What an answered send means when the power goes.
//!
//! BL-05 (nats-io/nats-server#7564): sends were acknowledged and synced minutes later, though the documentation said
//! "persisted". Here the disk forgets what was not synced.
#![allow(
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod pop_support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushConfig, FlushMode, Running};
use clock::SystemClock;
use node::{Context, Millis};
use parking_lot::Mutex;
use remoting::{Client, ClientOptions};
use store::disk::Disk;
use store::disk::sim::SimDisk;
use tokio::time::sleep;
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

const TIMEOUT: Duration = Duration::from_secs(20);

struct Bench {
    _running: Running,
    addr: String,
    client: Client,
}

/// A broker with the default settings, but for `flush` and the size of a log file.
async fn start(disk: &SimDisk, flush: Option<FlushConfig>) -> Bench {
    let mut config = Config {
        flush: flush.unwrap_or_default(),
        ..pop_support::config(Path::new("/data"), FlushMode::Sync)
    };
    config.data = "/data".into();
    config.segment.size = node::ByteSize(256 << 10);
    let context = Context::quiet(Arc::new(SystemClock::new()));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let running = broker::start_on(config, &context, disk).await.unwrap();
    let addr = running.addrs.listen.to_string();
    Bench {
        _running: running,
        addr,
        client: Client::new(ClientOptions::default()),
    }
}

fn send(queue_id: i32, body: &str) -> Command {
    Command::request(RequestCode::SendMessage)
        .with_ext("producerGroup", "p")
        .with_ext("topic", "T")
        .with_ext("defaultTopic", "TBW102")
        .with_ext("defaultTopicQueueNums", 4)
        .with_ext("queueId", queue_id)
        .with_ext("sysFlag", 0)
        .with_ext("bornTimestamp", 1)
        .with_ext("flag", 0)
        .with_ext("properties", "KEYS\u{1}k\u{2}")
        .with_ext("reconsumeTimes", 0)
        .with_body(body.to_owned())
}

impl Bench {
    /// Sends and checks that the answer says how far it came.
    async fn send(&self, cmd: Command, durability: &str) {
        let answer = self.client.invoke(&self.addr, cmd, TIMEOUT).await.unwrap();
        assert_eq!(
            answer.response_code(),
            ResponseCode::Success,
            "{:?}",
            answer.remark
        );
        assert_eq!(answer.ext.get("durability"), Some(durability));
    }

    async fn bodies(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for queue_id in 0..4 {
            let mut at = 0i64;
            loop {
                let cmd = Command::request(RequestCode::PullMessage)
                    .with_ext("consumerGroup", "TOOLS_CONSUMER")
                    .with_ext("topic", "T")
                    .with_ext("queueId", queue_id)
                    .with_ext("queueOffset", at)
                    .with_ext("maxMsgNums", 32)
                    .with_ext("sysFlag", 4)
                    .with_ext("commitOffset", 0)
                    .with_ext("suspendTimeoutMillis", 0)
                    .with_ext("subscription", "*")
                    .with_ext("subVersion", 0)
                    .with_ext("expressionType", "TAG");
                let answer = self.client.invoke(&self.addr, cmd, TIMEOUT).await.unwrap();
                if answer.response_code() != ResponseCode::Success {
                    break;
                }
                at = answer.ext.get("nextBeginOffset").unwrap().parse().unwrap();
                for view in RecordView::each(&answer.body.to_bytes()) {
                    let body = view.unwrap().body.to_vec();
                    found.insert(String::from_utf8(body).unwrap());
                }
            }
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_default_settings_a_power_cut_takes_nothing_that_was_answered() {
    for seed in 0..8u64 {
        let disk = SimDisk::new(seed);
        let bench = Arc::new(start(&disk, None).await);
        bench.send(send(0, "first"), "flushed").await;
        let answered = Arc::new(Mutex::new(BTreeSet::new()));
        let mut senders = tokio::task::JoinSet::new();
        for queue_id in 0..4 {
            let (bench, answered) = (bench.clone(), answered.clone());
            senders.spawn(async move {
                for number in 0.. {
                    let body = format!("{queue_id}-{number}-{}", "x".repeat(2_000));
                    bench.send(send(queue_id, &body), "flushed").await;
                    answered.lock().insert(body);
                }
            });
        }
        while answered.lock().len() < 100 + 40 * usize::try_from(seed).unwrap() {
            sleep(Duration::from_millis(1)).await;
        }
        // Everything answered by now must be there; the cut falls among sends at work.
        let promised = answered.lock().clone();
        let after = disk.crash();
        senders.abort_all();
        let found = start(&after, None).await.bodies().await;
        let lost: Vec<_> = promised.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}: lost {} of {}",
            lost.len(),
            promised.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_flush_says_buffered_and_loses_no_more_than_its_interval() {
    let interval = Duration::from_millis(200);
    let flush = || {
        Some(FlushConfig {
            mode: FlushMode::Async,
            interval: Millis(200),
        })
    };
    let mut taken = 0;
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let bench = start(&disk, flush()).await;
        // One small message, far less than a page worth a sync to RocketMQ.
        bench.send(send(0, "old"), "buffered").await;
        sleep(interval * 4).await;
        let found = start(&disk.crash(), flush()).await.bodies().await;
        assert!(
            found.contains("old"),
            "seed {seed}: older than the interval: {found:?}"
        );
        bench.send(send(1, "asked"), "buffered").await;
        bench
            .send(
                send(1, "wished").with_ext("durability", "flushed"),
                "flushed",
            )
            .await;
        bench.send(send(2, "young"), "buffered").await;
        let found = start(&disk.crash(), flush()).await.bodies().await;
        assert!(found.contains("wished"), "seed {seed}: {found:?}");
        assert!(
            found.contains("asked"),
            "seed {seed}: stored before one that is flushed: {found:?}"
        );
        taken += usize::from(!found.contains("young"));
    }
    assert!(taken > 0, "the disk of this test forgets nothing");
}
