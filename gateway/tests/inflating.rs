//! Messages that a native client compressed: given inflated, and never more of them than were asked for.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use gantry_tests::native::Native;
use serde_json::{Value, json};
use support::{Cluster, text};

const SEND: i32 = 10;
/// Bit of the system flag: the body is compressed (RocketMQ 5.4.0 MessageSysFlag).
const COMPRESSED: &str = "1";
const SIZE: usize = 1_500_000;

/// A body that is far larger than what the broker stores of it.
fn body(number: usize) -> Vec<u8> {
    let mut body = number.to_string().into_bytes();
    body.resize(SIZE, b' ');
    body
}

async fn send(native: &Native, number: usize) {
    let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    deflated.write_all(&body(number)).unwrap();
    let header = json!({
        "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": COMPRESSED, "bornTimestamp": "1", "flag": "0", "properties": "",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false"
    });
    let sent = native.call(SEND, header, &deflated.finish().unwrap()).await;
    sent.unwrap().expect(0).unwrap();
}

fn numbers(messages: &[Value]) -> Vec<usize> {
    let number = |message: &Value| {
        let text = text(message, "text");
        assert_eq!(text.len(), SIZE);
        text.trim_end().parse().unwrap()
    };
    messages.iter().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_inflated_than_was_asked_for_and_the_rest_comes_later() {
    let cluster = Cluster::start(1, 1).await;
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let group = r#"{"initialPosition":"earliest","retry":{"maxAttempts":1}}"#;
    cluster.make("/groups/g", group).await;
    cluster.make("/groups/g/subscriptions/t", "{}").await;
    let native = Native::connect(cluster.brokers[0].addrs().listen)
        .await
        .unwrap();
    for number in 0..5 {
        send(&native, number).await;
    }

    let peeked = cluster.ns("GET", "/groups/g/peek", "").await.json();
    assert_eq!(numbers(peeked["items"].as_array().unwrap()), [0, 1]);
    assert_eq!(peeked["more"], true);
    // Where others hold most of the memory it takes no more than its part of the rest.
    let others = cluster.gateways[0].state().answers.hold(508 << 20);
    let peeked = cluster.ns("GET", "/groups/g/peek", "").await.json();
    assert_eq!(numbers(peeked["items"].as_array().unwrap()), [0]);
    drop(others);

    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while got.len() < 5 {
        assert!(Instant::now() < end, "{got:?}");
        let path = "/groups/g/receive?max=10&wait=5s&maxBytes=4000000";
        let answer = cluster.ns("POST", path, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let messages = answer.json()["messages"].as_array().unwrap().clone();
        assert!(messages.len() <= 2, "{} messages", messages.len());
        for message in &messages {
            assert_eq!(message["attempt"], 1);
        }
        got.extend(numbers(&messages));
        for message in messages {
            let nack = json!({"receipts": [message["receipt"]]}).to_string();
            let path = "/groups/g/nack";
            assert_eq!(cluster.ns("POST", path, &nack).await.status, 200);
        }
    }
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 4]);

    let dead = cluster.ns("GET", "/groups/g/dlq/messages", "").await.json();
    let dead = dead["items"].as_array().unwrap();
    assert_eq!(dead.len(), 5);
    for letter in dead {
        assert_eq!(letter["size"], SIZE);
        assert_eq!(text(letter, "preview").len(), 256);
    }
    cluster.stop().await;
}
