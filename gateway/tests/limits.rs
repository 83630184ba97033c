//! Limits that the configuration raises.

mod support;

use serde_json::json;
use support::{Cluster, text};

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_settlements_hold_as_many_as_configured() {
    let cluster = Cluster::start_with(1, 1, |config| {
        (config.batch_max, config.receipts_max) = (1_000, 1_000);
    })
    .await;
    let batch = |count| json!({"messages": vec![json!({"text": "x"}); count]}).to_string();
    let path = "/topics/t/messages/batch";
    let sent = cluster.ns("POST", path, &batch(1_000)).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    assert_eq!(sent.json()["succeeded"], 1_000);
    let refused = cluster.ns("POST", path, &batch(1_001)).await;
    let refused = refused.problem(413, "batch_too_large");
    assert_eq!(
        (&refused["limit"], &refused["actual"]),
        (&json!(1_000), &json!(1_001))
    );

    let mut receipts = Vec::new();
    while receipts.len() < 1_000 {
        let got = cluster.receive("g", "topic=t&max=256&wait=5s").await;
        assert!(!got.is_empty(), "{} so far", receipts.len());
        receipts.extend(got.iter().map(|m| text(m, "receipt").to_owned()));
    }
    let ack = |receipts: &[String]| json!({ "receipts": receipts }).to_string();
    let acked = cluster.ns("POST", "/groups/g/ack", &ack(&receipts)).await;
    assert_eq!(acked.status, 200, "{}", acked.text());
    let lag = cluster.ns("GET", "/groups/g/lag", "").await.json();
    assert_eq!(lag["lag"], 0, "{lag}");
    receipts.push("mqr_x".to_owned());
    let refused = cluster.ns("POST", "/groups/g/ack", &ack(&receipts)).await;
    let refused = refused.problem(413, "batch_too_large");
    assert_eq!(refused["limit"], 1_000);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_as_large_as_gateway_and_broker_allow() {
    const BROKER_MAX: usize = (16 << 20) - (256 << 10);
    let cluster = Cluster::start_all(
        1,
        1,
        |config| {
            config.request_max = node::ByteSize::mib(64);
            config.message_max = node::ByteSize::mib(16);
        },
        |config| config.limits.message_size = node::ByteSize(BROKER_MAX as u64),
    )
    .await;
    let bytes = [("Content-Type", "application/octet-stream")];
    let mut body = vec![7_u8; BROKER_MAX + 1];
    let refused = cluster.with("POST", "/topics/t/raw", &bytes, &body).await;
    let refused = refused.problem(413, "message_too_large");
    assert_eq!(refused["limit"], BROKER_MAX);
    body.pop();
    // Each character of them is escaped on the way to the broker.
    let property = "\"".repeat(4_096);
    let mut headers = bytes.to_vec();
    for name in ["Mq-Prop-a", "Mq-Prop-b", "Mq-Prop-c"] {
        headers.push((name, &property));
    }
    let sent = cluster.with("POST", "/topics/t/raw", &headers, &body).await;
    assert_eq!(sent.status, 201, "{}", sent.text());
    let path = "/groups/g/receive?topic=t&wait=5s&bodyFormat=raw";
    let got = cluster.ns("POST", path, "").await;
    assert_eq!(got.status, 200);
    assert!(got.body == body, "{} bytes came back", got.body.len());
    cluster.stop().await;
}
