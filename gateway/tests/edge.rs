//! What the HTTP edge bounds and counts: receives that wait, one-way sends, batches with a bad item.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Cluster, send, text};
use tokio::time::Instant;

/// A bound on waiting: one more is refused, one that does not wait is served, and a place is free again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn receives_beyond_the_bound_are_refused_and_those_that_do_not_wait_are_served() {
    let cluster = Cluster::start_with(1, 1, |config| config.waiters_max = 1).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    let addr = cluster.addr();
    let path = "/v1/ns/default/groups/g/receive?topic=t&wait=2s";
    let first = tokio::spawn(async move { send(addr, "POST", path, &[], b"").await });
    let end = Instant::now() + Duration::from_secs(2);
    while cluster.gateways[0].state().upstream.waiters() == 0 {
        assert!(Instant::now() < end, "the first does not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = cluster
        .ns("POST", "/groups/g/receive?topic=t&wait=2s", "")
        .await;
    let problem = second.problem(429, "too_many_waiters");
    assert_eq!(
        (problem["limit"].as_u64(), problem["retryable"].as_bool()),
        (Some(1), Some(true))
    );
    assert_eq!(second.header("retry-after"), Some("1"));
    cluster.receive("g", "topic=t&wait=0s").await;
    assert_eq!(first.await.unwrap().status, 200);
    cluster.receive("g", "topic=t&wait=1s").await;
    cluster.stop().await;
}

/// Browses that wait take the same places.
#[tokio::test]
async fn browses_beyond_the_bound_are_refused_and_those_that_do_not_wait_are_served() {
    let cluster = Cluster::start_with(1, 1, |config| config.waiters_max = 1).await;
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let addr = cluster.addr();
    let path = "/v1/ns/default/topics/t/messages?wait=2s";
    let first = tokio::spawn(async move { send(addr, "GET", path, &[], b"").await });
    let end = Instant::now() + Duration::from_secs(2);
    while cluster.gateways[0].state().waiting.available_permits() > 0 {
        assert!(Instant::now() < end, "the first does not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = cluster.ns("GET", "/topics/t/messages?wait=2s", "").await;
    second.problem(429, "too_many_waiters");
    let none = cluster.ns("GET", "/topics/t/messages", "").await;
    assert_eq!(none.status, 200);
    assert_eq!(first.await.unwrap().status, 200);
    let again = cluster.ns("GET", "/topics/t/messages?wait=100ms", "").await;
    assert_eq!(again.status, 200);
    cluster.stop().await;
}

/// A one-way send is accepted as long as its topic is known; one that fails later is counted, and so many may be under
/// way and no more.
#[tokio::test(flavor = "multi_thread")]
async fn one_way_sends_that_fail_later_are_counted_and_bounded() {
    let mut cluster = Cluster::start(1, 1).await;
    let path = "/topics/t/messages?mode=oneway";
    let wrong = cluster.ns("POST", path, r#"{"txt":"a"}"#).await;
    wrong.problem(400, "unknown_field");
    let accepted = cluster.ns("POST", path, r#"{"text":"a"}"#).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert!(accepted.json()["durability"].is_null());
    let got = cluster.receive("g", "topic=t&wait=5s").await.remove(0);
    assert_eq!(text(&got, "messageId"), text(&accepted.json(), "messageId"));

    let state = cluster.gateways[0].state().clone();
    let all = u32::try_from(state.oneway.available_permits()).unwrap();
    let places = Arc::clone(&state.oneway)
        .try_acquire_many_owned(all)
        .unwrap();
    let refused = cluster.ns("POST", path, r#"{"text":"b"}"#).await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(places);

    assert_eq!(state.metrics.oneway_dropped.get(), 0);
    cluster.brokers.remove(0).stop().await.unwrap();
    let headers = [("Content-Type", "application/json"), ("Mq-Timeout", "1s")];
    let lost = cluster
        .with("POST", path, &headers, br#"{"text":"c"}"#)
        .await;
    assert_eq!(lost.status, 202, "{}", lost.text());
    let used = state.bodies.used();
    let under_way = state.metrics.oneway_dropped.get() == 0;
    assert!(!under_way || used == br#"{"text":"c"}"#.len(), "{used}");
    let end = Instant::now() + Duration::from_secs(3);
    while state.metrics.oneway_dropped.get() == 0 {
        assert!(Instant::now() < end, "the failure was not counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while state.bodies.used() > 0 {
        assert!(Instant::now() < end, "the body is held still");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let metrics = send(cluster.addr(), "GET", "/metrics", &[], b"").await;
    assert!(
        metrics
            .text()
            .contains("gantry_gateway_oneway_dropped_total 1\n"),
        "{}",
        metrics.text()
    );
    cluster.stop().await;
}

/// BL-37, confluentinc/kafka-rest#586: a bad item shows in the status and beside the good ones; alone it is an error;
/// with the broker gone every item is, soon, and may be tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_item_is_never_hidden_behind_200() {
    let mut cluster = Cluster::start(1, 1).await;
    let path = "/topics/t/messages/batch";
    let batch = r#"{"messages":[{"text":"a"},{"text":"b","json":2},{"text":"c"}]}"#;
    let mixed = cluster.ns("POST", path, batch).await;
    assert_eq!(mixed.status, 207, "{}", mixed.text());
    let answer = mixed.json();
    let statuses: Vec<u64> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [201, 400, 201]);
    assert_eq!(text(&answer["results"][1], "code"), "body_ambiguous");
    assert_eq!(
        (answer["succeeded"].as_u64(), answer["failed"].as_u64()),
        (Some(2), Some(1))
    );
    let stored = cluster.receive("g", "topic=t&wait=5s&max=10").await;
    assert!(stored.iter().all(|message| message["text"] != "b"));
    let alone = r#"{"messages":[{"text":"b","json":2}]}"#;
    assert_eq!(cluster.ns("POST", path, alone).await.status, 400);

    cluster.brokers.remove(0).stop().await.unwrap();
    let begin = Instant::now();
    let headers = [("Content-Type", "application/json"), ("Mq-Timeout", "3s")];
    let good = br#"{"messages":[{"text":"d"},{"text":"e"}]}"#;
    let down = cluster.with("POST", path, &headers, good).await;
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(down.status, 503, "{}", down.text());
    assert_eq!(down.header("retry-after"), Some("1"));
    for result in down.json()["results"].as_array().unwrap() {
        assert_eq!(
            (result["status"].as_u64(), result["retryable"].as_bool()),
            (Some(503), Some(true)),
            "{result}"
        );
    }
    cluster.stop().await;
}

/// `Server-Timing` tells how much of the time went to brokers.
#[tokio::test(flavor = "multi_thread")]
async fn answers_tell_how_long_the_broker_took() {
    let cluster = Cluster::start(1, 1).await;
    let milliseconds = |value: &str, name: &str| -> f64 {
        let entry = value.split(", ").find_map(|entry| {
            let (metric, time) = entry.split_once(";dur=")?;
            (metric == name).then_some(time)
        });
        entry.map_or(0.0, |time| time.parse().unwrap())
    };
    let sent = cluster
        .ns("POST", "/topics/t/messages", r#"{"text":"a"}"#)
        .await;
    let timing = sent.header("server-timing").unwrap();
    let (broker, total) = (
        milliseconds(timing, "broker"),
        milliseconds(timing, "total"),
    );
    assert!(0.0 < broker && broker <= total, "{timing}");
    let health = send(cluster.addr(), "GET", "/healthz", &[], b"").await;
    let timing = health.header("server-timing").unwrap();
    assert!(timing.starts_with("total;dur="), "{timing}");
    cluster.stop().await;
}
