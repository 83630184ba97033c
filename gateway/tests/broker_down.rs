//! A broker that cannot be reached: truthful refusals, nothing sent twice, the other brokers go on.

mod support;

use std::time::Duration;
use support::{Cluster, text};
use tokio::time::Instant;

/// Within the time of the request: 503 with Retry-After (confluentinc/kafka-rest#586; BL-37).
#[tokio::test(flavor = "multi_thread")]
async fn one_broker_down_is_503_and_nothing_was_applied() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/t/messages", r#"{"json":1}"#)
        .await;
    let message = cluster.receive("g", "topic=t&wait=5s").await.remove(0);
    cluster.brokers.remove(0).stop().await.unwrap();
    let begin = Instant::now();
    let headers = [("Content-Type", "application/json"), ("Mq-Timeout", "3s")];
    let answer = cluster
        .with("POST", "/topics/t/messages", &headers, br#"{"json":1}"#)
        .await;
    let problem = match answer.json()["code"].as_str() {
        Some("no_route") => answer.problem(503, "no_route"),
        _ => answer.problem(503, "broker_unavailable"),
    };
    assert_eq!(
        (text(&problem, "outcome"), problem["retryable"].as_bool()),
        ("notApplied", Some(true))
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );

    let path = format!("/groups/g/ack?receipt={}", text(&message, "receipt"));
    let settled = cluster
        .with("POST", &path, &[("Mq-Timeout", "2s")], b"")
        .await;
    let problem = settled.problem(503, "broker_unavailable");
    assert_eq!(
        (&problem["results"][0]["status"], text(&problem, "outcome")),
        (&"unavailable".into(), "unknown")
    );
    let received = cluster
        .with(
            "POST",
            "/groups/g/receive?topic=t&wait=1s",
            &[("Mq-Timeout", "3s")],
            b"",
        )
        .await;
    assert_eq!(received.status, 503, "{}", received.text());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_go_to_another_broker_and_receives_say_what_is_missing() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    cluster.brokers.remove(1).stop().await.unwrap();
    for i in 0..8 {
        let sent = cluster
            .ns("POST", "/topics/t/messages", &format!(r#"{{"json":{i}}}"#))
            .await;
        assert_eq!(sent.status, 201, "{}", sent.text());
        assert_eq!(sent.json()["queue"]["broker"], "broker-a");
    }
    let mut taken = 0;
    while taken < 8 {
        let answer = cluster
            .ns("POST", "/groups/g/receive?topic=t&wait=2s", "")
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        taken += answer.json()["messages"].as_array().unwrap().len();
    }
    assert_eq!(taken, 8);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_written_without_one_master_names_it() {
    let mut cluster = Cluster::start(2, 1).await;
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    cluster.brokers.remove(1).stop().await.unwrap();
    let put = cluster
        .ns("PATCH", "/groups/g", r#"{"maxInFlight":5}"#)
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
    let pending = put.json()["pending"].clone();
    // Gone from the name server at once, it is not expected to hold the group any more.
    assert!(
        pending.is_null() || pending == serde_json::json!(["broker-b"]),
        "{pending}"
    );
    cluster.stop().await;
}
