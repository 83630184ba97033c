//! What a gateway remembers of brokers and topics does not outlive its truth: masters that come back, topics deleted
//! elsewhere, writers that meet.
#![allow(clippy::unwrap_used, clippy::string_slice, reason = "a test")]

mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::Cluster;
use tokio::time::Instant;

/// Far below the 10 s for which a complete list of brokers is taken to hold.
const SOON: Duration = Duration::from_secs(3);

/// Writes the group until no master is missing.
async fn written_everywhere(cluster: &Cluster) {
    let end = Instant::now() + SOON;
    loop {
        let put = cluster.ns("PUT", "/groups/g", "{}").await;
        assert_eq!(put.status, 200, "{}", put.text());
        if put.json()["pending"].is_null() {
            return;
        }
        assert!(Instant::now() < end, "still pending: {}", put.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_came_back_is_written_to_at_once_and_alone_is_enough() {
    let mut cluster = Cluster::start(2, 1).await;
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    cluster.stop_broker(1).await;
    // The page asks the name server, so that the gateway now knows a cluster of one.
    assert!(
        !cluster
            .call("GET", "/", "")
            .await
            .text()
            .contains("broker-b")
    );
    let put = cluster.ns("PUT", "/groups/g", "{}").await;
    assert_eq!(put.json()["pending"], json!(["broker-b"]), "{}", put.text());

    cluster.start_broker(1, |_| {}).await;
    written_everywhere(&cluster).await;

    cluster.stop_broker(0).await;
    let deleted = cluster.ns("DELETE", "/groups/g?force=true", "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.json()["pending"], json!(["broker-a"]));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_deleted_elsewhere_is_not_made_again_by_a_send() {
    for auto_create in [false, true] {
        let cluster = Cluster::start_with(2, 2, |config| config.auto_create = auto_create).await;
        let topic = "/v1/ns/default/topics/t";
        let send = || {
            cluster.at(
                1,
                "POST",
                "/v1/ns/default/topics/t/messages",
                r#"{"json":1}"#,
            )
        };
        assert_eq!(
            cluster
                .ns("PUT", "/topics/t", r#"{"queues":2}"#)
                .await
                .status,
            201
        );
        assert_eq!(send().await.status, 201);
        assert_eq!(cluster.ns("DELETE", "/topics/t", "").await.status, 204);
        let sent = send().await;
        let found = cluster.at(0, "GET", topic, "").await;
        if auto_create {
            assert_eq!(sent.status, 201, "{}", sent.text());
            assert_eq!(found.json()["queues"], 8, "made as autoCreate makes it");
        } else {
            sent.problem(404, "topic_not_found");
            found.problem(404, "topic_not_found");
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_meet_without_a_tag_all_get_through() {
    let cluster = Cluster::start(2, 2).await;
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    let writes = (1..=16).map(|i| {
        let body = format!(r#"{{"maxInFlight":{i}}}"#);
        let cluster = &cluster;
        async move {
            let answer = cluster
                .at(i % 2, "PATCH", "/v1/ns/default/groups/g", &body)
                .await;
            (answer.status, answer.json()["etag"].clone())
        }
    });
    let answers = futures_util::future::join_all(writes).await;
    assert!(answers.iter().all(|a| a.0 == 200), "{answers:?}");
    let mut versions: Vec<&Value> = answers.iter().map(|a| &a.1).collect();
    versions.sort_by_key(|etag| etag.to_string());
    versions.dedup();
    assert_eq!(versions.len(), 16, "each has a version of its own");
    cluster.stop().await;
}

/// A topic deleted while one of its brokers is away is gone for every gateway, not only for the one that deleted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_deleted_while_its_broker_is_away_is_absent_at_every_gateway() {
    let mut cluster = Cluster::start_with(2, 2, |config| config.auto_create = false).await;
    let topics = ["read", "sent"];
    for topic in topics {
        let path = format!("/topics/{topic}");
        cluster.make(&path, r#"{"queues":2}"#).await;
        for gateway in [0, 1] {
            let messages = format!("/v1/ns/default/topics/{topic}/messages");
            let sent = cluster.at(gateway, "POST", &messages, r#"{"json":1}"#);
            assert_eq!(sent.await.status, 201);
            // Lists the brokers, so that this gateway expects the one that leaves back.
            let page = cluster.at(gateway, "GET", "/", "").await;
            assert!(page.text().contains("broker-b"));
        }
    }
    cluster.stop_broker(1).await;
    for topic in topics {
        let path = format!("/topics/{topic}?force=true");
        let deleted = cluster.ns("DELETE", &path, "").await;
        assert_eq!(deleted.json(), json!({"pending": ["broker-b"]}));
    }
    for gateway in [0, 1] {
        for (method, path, body) in [
            ("GET", "read", ""),
            ("GET", "read/messages", ""),
            ("POST", "sent/messages", r#"{"json":2}"#),
            ("GET", "sent", ""),
        ] {
            let path = format!("/v1/ns/default/topics/{path}");
            let answer = cluster.at(gateway, method, &path, body).await;
            answer.problem(404, "topic_not_found");
        }
    }
    cluster.stop().await;
}

/// A deletion of a topic that was made again since, on a broker that is away now, is no news.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_again_on_a_broker_that_left_is_not_taken_for_deleted() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":2}"#).await;
    assert_eq!(cluster.ns("DELETE", "/topics/t", "").await.status, 204);
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let sent = cluster
        .ns("POST", "/topics/t/messages", r#"{"json":1}"#)
        .await;
    let home = sent.json()["queue"]["broker"].as_str().unwrap().to_owned();
    cluster.stop_broker(usize::from(home == "broker-b")).await;
    let read = cluster.ns("GET", "/topics/t", "").await;
    read.problem(503, "broker_unavailable");
    let sent = cluster
        .ns("POST", "/topics/t/messages", r#"{"json":2}"#)
        .await;
    sent.problem(503, "broker_unavailable");
    cluster.stop().await;
}
