//! Send, receive, settle against a real name server and broker in this process.

mod support;

use std::time::{Duration, Instant};
use support::{Cluster, base64, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_received_and_acked() {
    let cluster = Cluster::start(1, 1).await;
    let sent = cluster.ns("POST", "/topics/hello/messages", r#"{"json": {"b": 1.50,"a":1e3},"tag":"t","keys":["k1","k2"],"orderingKey":"o","properties":{"region":"eu"}}"#).await;
    assert_eq!(sent.status, 201, "{}", sent.text());
    let receipt = sent.json();
    assert_eq!(text(&receipt, "messageId").len(), 26);
    assert_eq!(receipt["duplicate"], false);
    assert_eq!(receipt["durability"], "flushed");
    assert!(receipt["offset"].as_i64().unwrap() >= 0);
    assert!(
        sent.header("mq-request-id")
            .is_some_and(|id| id.len() == 26)
    );
    assert!(
        sent.header("location")
            .unwrap()
            .ends_with(text(&receipt, "messageId"))
    );

    let answer = cluster
        .ns("POST", "/groups/g/receive?topic=hello&wait=5s", "")
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer.text().contains(r#""json":{"b": 1.50,"a":1e3}"#),
        "{}",
        answer.text()
    );
    let messages = answer.json()["messages"].as_array().unwrap().clone();
    let message = &messages[0];
    for (name, value) in [
        ("tag", "t"),
        ("orderingKey", "o"),
        ("contentType", "application/json"),
        ("topic", "hello"),
    ] {
        assert_eq!(message[name], value);
    }
    assert_eq!(message["messageId"], receipt["messageId"]);
    assert_eq!(message["queue"], receipt["queue"]);
    assert_eq!(message["offset"], receipt["offset"]);
    assert_eq!(message["storedAt"], receipt["storedAt"]);
    assert_eq!(message["keys"], serde_json::json!(["k1", "k2"]));
    assert_eq!(message["properties"], serde_json::json!({"region": "eu"}));
    assert_eq!(
        (message["attempt"].as_i64(), message["maxAttempts"].as_i64()),
        (Some(1), Some(16))
    );
    let body = format!(r#"{{"receipts":["{}"]}}"#, text(message, "receipt"));
    let acked = cluster.ns("POST", "/groups/g/ack", &body).await;
    assert_eq!(acked.status, 200, "{}", acked.text());
    assert_eq!(acked.json()["results"][0]["status"], "acked");
    let again = cluster.ns("POST", "/groups/g/ack", &body).await.json();
    assert_eq!(
        (
            &again["results"][0]["status"],
            &again["results"][0]["already"]
        ),
        (&"acked".into(), &true.into())
    );
    assert!(cluster.receive("g", "topic=hello&wait=0s").await.is_empty());
    cluster.stop().await;
}
