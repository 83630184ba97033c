//! A broker that cannot be reached: truthful refusals, nothing sent twice, the other brokers go on.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use remoting::{Responder, Server, ServerOptions, Service};
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use support::{Cluster, text};
use tokio::time::Instant;
use wire::{Command, RequestCode, ResponseCode};

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

/// A name server and the one broker it knows in one. It takes what it is told and then has no time to show it; a
/// deletion it does not even answer.
struct Busy(OnceLock<String>);

impl Service for Busy {
    fn call(&self, cmd: Command, to: Responder) {
        let done = |body: serde_json::Value| {
            Command::response(ResponseCode::Success).with_body(body.to_string())
        };
        let addr = self.0.get().unwrap();
        let answer = match cmd.request_code() {
            RequestCode::GetBrokerClusterInfo => done(json!({
                "brokerAddrTable": {"b": {"brokerName": "b", "brokerAddrs": {"0": addr}}},
                "clusterAddrTable": {"DefaultCluster": ["b"]},
            })),
            RequestCode::PutTopic | RequestCode::PutGroup => done(json!({"version": 1})),
            RequestCode::GetTopic => Command::error(ResponseCode::TopicNotExist, "new"),
            RequestCode::GetGroup if cmd.ext.get("group") == Some("new") => {
                Command::error(ResponseCode::SubscriptionGroupNotExist, "new")
            }
            RequestCode::GetGroup => done(json!({"version": 1})),
            RequestCode::OfferConfig => return std::mem::forget(to),
            _ => Command::error(ResponseCode::SystemBusy, "busy"),
        };
        to.send(answer);
    }
}

/// A failure after a broker has taken a write, or may have, does not claim that nothing was applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_taken_and_not_confirmed_has_an_unknown_outcome() {
    let broker = Arc::new(Busy(OnceLock::new()));
    let options = ServerOptions::new(([127, 0, 0, 1], 0).into());
    let server = Server::bind(options, Arc::clone(&broker) as _).unwrap();
    let addr = server.local_addr().to_string();
    broker.0.set(addr.clone()).unwrap();
    let cluster = Cluster::alone_with(|config| config.namesrv = vec![addr.clone()]).await;
    let headers = [("Content-Type", "application/json"), ("Mq-Timeout", "1s")];
    for (method, path, status, code, outcome) in [
        ("PUT", "/topics/new", 429, "broker_busy", "unknown"),
        ("PUT", "/groups/new", 429, "broker_busy", "unknown"),
        (
            "DELETE",
            "/groups/old?force=true",
            503,
            "broker_unavailable",
            "unknown",
        ),
        // The topic may have been made, the message was not sent.
        (
            "POST",
            "/topics/new/messages",
            429,
            "broker_busy",
            "notApplied",
        ),
    ] {
        let body: &[u8] = match method {
            "PUT" => b"{}",
            "POST" => br#"{"text":"a"}"#,
            _ => b"",
        };
        let headers = if body.is_empty() {
            &headers[1..]
        } else {
            &headers
        };
        let answer = cluster.with(method, path, headers, body).await;
        let problem = answer.problem(status, code);
        assert_eq!(text(&problem, "outcome"), outcome, "{method} {path}");
    }
    cluster.stop().await;
}

/// Where all masters of a topic are down and another one is up, nobody says that there is no such topic, nor makes it
/// anew on the other; a gateway knows it from its own writes, from a topic that was read, or from the name servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_brokers_are_all_down_is_neither_absent_nor_made_anew() {
    let mut cluster = Cluster::start(2, 2).await;
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let path = "/v1/ns/default/topics/t";
    let read = cluster.at(1, "GET", path, "").await.json();
    assert_eq!(read["queueList"][0]["broker"], "broker-a", "{read}");
    cluster.stop_broker(0).await;
    for gateway in [0, 1] {
        for (method, path, body) in [
            ("GET", path, ""),
            ("PATCH", path, r#"{"description":"x"}"#),
            ("DELETE", path, ""),
            ("DELETE", "/v1/ns/default/topics/t?force=true", ""),
            ("PUT", path, r#"{"queues":2}"#),
            ("PUT", "/v1/ns/default/groups/g/subscriptions/t", "{}"),
            ("GET", "/v1/ns/default/topics/t/messages?from=earliest", ""),
        ] {
            let answer = cluster.at(gateway, method, path, body).await;
            let problem = answer.problem(503, "broker_unavailable");
            assert!(
                text(&problem, "detail").contains("broker-a"),
                "{gateway} {method} {path}: {problem}"
            );
        }
    }
    // One nobody has heard of is made where there is a broker.
    let other = cluster.ns("PUT", "/topics/other", r#"{"queues":2}"#).await;
    assert_eq!(other.status, 201, "{}", other.text());
    cluster.start_broker(0, |_| {}).await;
    cluster.ready(2).await;
    let back = cluster.ns("GET", "/topics/t", "").await.json();
    assert_eq!(back["queues"], 1, "{back}");
    cluster.stop().await;
}

/// What a document or a list is without while a broker is down is said in it.
#[tokio::test(flavor = "multi_thread")]
async fn documents_and_lists_name_the_brokers_they_are_without() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    // The second topic goes where there is less: only on one of the two.
    cluster.make("/topics/one", r#"{"queues":1}"#).await;
    cluster
        .make("/groups/g", r#"{"retry":{"maxAttempts":1}}"#)
        .await;
    cluster.make("/groups/g/subscriptions/t", "{}").await;
    for i in 0..8 {
        let body = format!(r#"{{"json":{i}}}"#);
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    let mut nacked = 0;
    while nacked < 8 {
        for message in cluster.receive("g", "wait=2s").await {
            let path = format!("/groups/g/nack?receipt={}", text(&message, "receipt"));
            let answer = cluster.ns("POST", &path, "").await;
            assert_eq!(answer.json()["results"][0]["status"], "deadLettered");
            nacked += 1;
        }
    }
    let paths = [
        "/groups/g/dlq/messages?limit=3",
        "/groups/g/dlq",
        "/topics/t",
        "/topics",
        "/groups",
        "/topics/t/groups",
    ];
    for path in paths {
        let whole = cluster.ns("GET", path, "").await.json();
        assert_eq!(whole.get("partial"), Some(&json!(null)), "{path}: {whole}");
    }
    let letters = cluster.ns("GET", "/groups/g/dlq/messages", "").await.json();
    assert_eq!(letters["items"][0].get("client"), Some(&json!(null)));
    let sums = cluster.ns("GET", "/groups/g/dlq", "").await.json();
    assert_eq!(
        (&sums["open"], sums.get("bytes")),
        (&json!(8), Some(&json!(null)))
    );
    let only_a = cluster.ns("GET", "/topics/one", "").await.json();
    assert_eq!(only_a["queueList"][0]["broker"], "broker-a", "{only_a}");
    cluster.stop_broker(1).await;
    let without = json!([{"broker": "broker-b", "reason": "unreachable"}]);
    for path in paths {
        let part = cluster.ns("GET", path, "").await.json();
        assert_eq!(part["partial"], without, "{path}: {part}");
    }
    let only_a = cluster.ns("GET", "/topics/one", "").await.json();
    assert_eq!(only_a.get("partial"), Some(&json!(null)), "{only_a}");
    let letters = cluster.ns("GET", "/groups/g/dlq/messages", "").await.json();
    assert_eq!(
        letters["items"].as_array().map(Vec::len),
        Some(4),
        "{letters}"
    );
    cluster.stop().await;
}
