//! What members of a group hold, and its release.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Cluster, send, text};

async fn in_flight(cluster: &Cluster, query: &str) -> Value {
    let path = format!("/groups/g/inflight?{query}");
    let answer = cluster.ns("GET", &path, "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn count(page: &Value) -> usize {
    page["items"].as_array().unwrap().len()
}

async fn receive(cluster: &Cluster, label: &str, max: usize) -> Vec<Value> {
    let path = format!("/v1/ns/default/groups/g/receive?topic=t&wait=0s&max={max}");
    let headers = [("Mq-Client", label)];
    let answer = send(cluster.addr(), "POST", &path, &headers, b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["messages"].as_array().unwrap().clone()
}

/// Receives until so many have come.
async fn hold(cluster: &Cluster, label: &str, wanted: usize) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut held = Vec::new();
    while held.len() < wanted {
        assert!(Instant::now() < end, "{} of {wanted}", held.len());
        held.extend(receive(cluster, label, wanted - held.len()).await);
    }
    held
}

async fn release(cluster: &Cluster, selection: Value) -> Value {
    let body = json!({ "selection": selection }).to_string();
    let answer = cluster
        .ns("POST", "/groups/g/inflight/release", &body)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn what_members_hold_is_listed_and_released() {
    let cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    cluster.make("/groups/g", "{}").await;
    let subscription = r#"{"initialPosition":"earliest"}"#;
    cluster
        .make("/groups/g/subscriptions/t", subscription)
        .await;
    for n in 0..8 {
        let body = json!({"text": format!("m{n}"), "keys": [format!("k{n}")]}).to_string();
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201);
    }
    let first = hold(&cluster, "w-1", 5).await;
    let second = hold(&cluster, "w-2", 3).await;
    assert_eq!(count(&in_flight(&cluster, "").await), 8);
    assert_eq!(count(&in_flight(&cluster, "client=w-1").await), 5);
    assert_eq!(count(&in_flight(&cluster, "topic=t").await), 8);
    assert_eq!(count(&in_flight(&cluster, "topic=u").await), 0);
    assert_eq!(count(&in_flight(&cluster, "olderThan=1h").await), 0);
    // An item says what the receive said.
    let wanted = &second[0];
    let key = wanted["keys"][0].as_str().unwrap();
    let page = in_flight(&cluster, &format!("key={key}")).await;
    let answer = cluster.ns("GET", "/groups/g", "").await;
    let gateway = answer.header("mq-gateway").unwrap();
    let expected = json!({
        "messageId": wanted["messageId"], "topic": "t", "queue": wanted["queue"], "offset": wanted["offset"],
        "attempt": 1, "client": "w-2", "keyId": null, "gateway": gateway,
        "deliveredAt": wanted["deliveredAt"], "invisibleUntil": wanted["invisibleUntil"],
    });
    assert_eq!(page["items"], json!([expected]));
    assert_eq!(
        (&page["nextPageToken"], &page["partial"]),
        (&Value::Null, &Value::Null)
    );
    // Page by page over both brokers, each once.
    let (mut seen, mut query) = (Vec::new(), "limit=3".to_owned());
    loop {
        let page = in_flight(&cluster, &query).await;
        for item in page["items"].as_array().unwrap() {
            seen.push(text(item, "messageId").to_owned());
        }
        match page["nextPageToken"].as_str() {
            Some(token) => query = format!("limit=3&pageToken={token}"),
            None => break,
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 8);
    // One member's go to another, as their second delivery.
    let done = release(&cluster, json!({"filter": {"client": "w-1"}})).await;
    let all = json!({"released": 5, "gone": 0, "unknown": 0, "more": false, "partial": null});
    assert_eq!(done, all);
    let again = hold(&cluster, "w-3", 5).await;
    let ids = |messages: &[Value]| {
        let ids = messages.iter().map(|m| text(m, "messageId").to_owned());
        let mut ids: Vec<String> = ids.collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&again), ids(&first));
    assert!(again.iter().all(|message| message["attempt"] == 2));
    // A retry is listed under its first place.
    let retries = in_flight(&cluster, "client=w-3&topic=t").await;
    assert_eq!(count(&retries), 5);
    let item = &retries["items"][0];
    let same = again
        .iter()
        .find(|m| m["messageId"] == item["messageId"])
        .unwrap();
    assert_eq!(
        [&item["queue"], &item["offset"], &item["attempt"]],
        [&same["queue"], &same["offset"], &json!(2)]
    );
    let rest = release(&cluster, json!({"all": true})).await;
    assert_eq!(rest["released"], 8);
}

#[tokio::test]
async fn a_selection_that_cannot_be_is_refused() {
    let cluster = Cluster::start(1, 1).await;
    cluster.make("/groups/g", "{}").await;
    let cases = [
        (
            json!({"selection": {"ids": ["x"]}}),
            501,
            "not_implemented",
            "/selection/ids",
        ),
        (json!({}), 400, "invalid_field", "/selection"),
        (
            json!({"selection": {"filter": {}}}),
            400,
            "invalid_field",
            "/selection/filter",
        ),
        (
            json!({"selection": {"all": true, "filter": {"topic": "t"}}}),
            400,
            "invalid_field",
            "/selection",
        ),
        (
            json!({"selection": {"filter": {"olderThan": "1"}}}),
            400,
            "invalid_duration",
            "/selection/filter/olderThan",
        ),
        (
            json!({"selection": {"filter": {"tag": "x"}}}),
            400,
            "unknown_field",
            "/selection/filter/tag",
        ),
    ];
    for (body, status, code, pointer) in cases {
        let path = "/groups/g/inflight/release";
        let answer = cluster.ns("POST", path, &body.to_string()).await;
        let problem = answer.problem(status, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let bad = cluster.ns("GET", "/groups/g/inflight?limit=501", "").await;
    bad.problem(400, "invalid_field");
}
