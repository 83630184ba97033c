//! Messages that inflate to more than the budget of answers, for many readers at a time: they take turns at the memory.
//! A file of its own, as it measures the memory of its process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;
mod ws_support;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gantry_tests::native::Native;
use node::ByteSize;
use serde_json::json;
use support::{Cluster, Connection, text};
use ws_support::client::open;

/// Bytes of a body; the broker stores some KiB of it.
const SIZE: usize = 8 << 20;
/// The budget of answers.
const BUDGET_MIB: u64 = 4;
const MESSAGES: usize = 3;
const SOCKETS: usize = 16;
/// Of a socket.
const READERS: usize = 4;
/// What the process may grow by: some messages with their frames, not one for each of 64 readers.
const GROWTH_MAX: usize = 64 << 20;
const SEND: i32 = 10;
/// Bit of the system flag: the body is compressed (RocketMQ 5.4.0 MessageSysFlag).
const COMPRESSED: &str = "1";

/// Bytes of this process that no file backs.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// The most this process grows by until `work` is done.
async fn growth(work: impl Future<Output = ()>) -> usize {
    let (before, done) = (memory(), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&done);
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        while !over.load(Ordering::Relaxed) {
            most = most.max(memory());
            std::thread::sleep(Duration::from_millis(2));
        }
        most
    });
    work.await;
    done.store(true, Ordering::Relaxed);
    watch.join().unwrap().saturating_sub(before)
}

/// Until a message is on its way to a client that does not take it, which is more than the budget, and a second more.
async fn given_and_more(cluster: &Cluster) {
    let answers = &cluster.gateways[0].state().answers;
    let end = Instant::now() + Duration::from_secs(20);
    while answers.used() < SIZE {
        assert!(Instant::now() < end, "{} bytes are held", answers.used());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn send(native: &Native, number: usize) {
    let mut body = number.to_string().into_bytes();
    body.resize(SIZE, b' ');
    let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    deflated.write_all(&body).unwrap();
    let header = json!({
        "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": number % 2, "sysFlag": COMPRESSED, "bornTimestamp": "1", "flag": "0", "properties": "",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false"
    });
    let sent = native.call(SEND, header, &deflated.finish().unwrap()).await;
    sent.unwrap().expect(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_read_in_turn_within_the_budget_each_once_in_order() {
    let cluster = Cluster::start_with(1, 1, |config| {
        config.message_max = ByteSize::mib(1);
        config.answers_max = ByteSize::mib(BUDGET_MIB);
    })
    .await;
    cluster.make("/topics/t", r#"{"queues":2}"#).await;
    let native = Native::connect(cluster.brokers[0].addrs().listen)
        .await
        .unwrap();
    for number in 0..MESSAGES {
        send(&native, number).await;
        // Several queues: the order of storing is known by the millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    let mut calls = Vec::new();
    let grown = growth(async {
        for order in ["asc", "desc"].repeat(SOCKETS) {
            let mut call = Connection::open(cluster.addr()).await;
            let path = format!("/v1/ns/default/topics/t/messages?order={order}");
            let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", cluster.addr());
            call.write(head.as_bytes()).await;
            calls.push(call);
        }
        given_and_more(&cluster).await;
    })
    .await;
    assert!(grown < GROWTH_MAX, "browses: {} MiB", grown >> 20);
    drop(calls);

    // Readers that take nothing of what they are given.
    let mut sockets = Vec::new();
    let grown = growth(async {
        for _ in 0..SOCKETS {
            let mut socket = open(cluster.addr()).await;
            for i in 0..READERS {
                let fields = json!({
                    "op": "subscribe", "id": i, "sub": format!("r{i}"), "mode": "reader", "topic": "t",
                    "from": "earliest", "credit": 100
                });
                socket.say(fields).await;
            }
            sockets.push(socket);
        }
        given_and_more(&cluster).await;
    })
    .await;
    assert!(grown < GROWTH_MAX, "readers: {} MiB", grown >> 20);
    drop(sockets);

    let readers = (0..2).map(|_| async {
        let mut socket = open(cluster.addr()).await;
        let fields = json!({
            "op": "subscribe", "id": 1, "sub": "r", "mode": "reader", "topic": "t", "from": "earliest", "credit": 100
        });
        socket.say(fields).await;
        let mut got = Vec::new();
        while got.len() < MESSAGES {
            let frame = socket.frame().await;
            for item in frame["items"].as_array().into_iter().flatten() {
                assert_eq!(text(item, "text").len(), SIZE);
                got.push(text(item, "text").trim_end().to_owned());
            }
        }
        got
    });
    for got in futures_util::future::join_all(readers).await {
        assert_eq!(got, ["0", "1", "2"]);
    }

    let end = Instant::now() + Duration::from_secs(10);
    for (order, numbers) in [("asc", ["0", "1", "2"]), ("desc", ["2", "1", "0"])] {
        let (mut got, mut from) = (Vec::new(), String::new());
        while got.len() < MESSAGES {
            assert!(Instant::now() < end, "{got:?}");
            let path = format!("/topics/t/messages?order={order}{from}");
            let page = cluster.ns("GET", &path, "").await;
            assert_eq!(page.status, 200, "{}", page.text());
            let page = page.json();
            for item in page["items"].as_array().unwrap() {
                got.push(text(item, "text").trim_end().to_owned());
            }
            from = format!("&from={}", text(&page, "cursor"));
        }
        assert_eq!(got, numbers);
    }
    let answers = Arc::clone(&cluster.gateways[0].state().answers);
    cluster.stop().await;
    assert_eq!(answers.used(), 0);
}
