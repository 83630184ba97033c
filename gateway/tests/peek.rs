//! Peeking at what a group would be given next.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Cluster, text};

async fn peek(cluster: &Cluster, query: &str) -> Value {
    let answer = cluster
        .ns("GET", &format!("/groups/g/peek?{query}"), "")
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn texts(page: &Value) -> Vec<&str> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| text(m, "text"))
        .collect()
}

/// Peeks until the page is as wanted.
async fn until(cluster: &Cluster, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let page = peek(cluster, "").await;
        if wanted(&page) {
            return page;
        }
        assert!(Instant::now() < end, "{page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_peek_shows_what_comes_next_and_changes_nothing() {
    let cluster = Cluster::start(2, 2).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":4}"#).await;
    cluster.ns("PUT", "/groups/g", "{}").await;
    let subscription =
        r#"{"filter":{"kind":"tag","expression":"yes"},"initialPosition":"earliest"}"#;
    let made = cluster
        .ns("PUT", "/groups/g/subscriptions/t", subscription)
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    for i in 0..6 {
        let body = json!({"text": format!("m{i}"), "tag": if i == 2 { "no" } else { "yes" }});
        let sent = cluster
            .ns("POST", "/topics/t/messages", &body.to_string())
            .await;
        assert_eq!(sent.status, 201);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let page = until(&cluster, |p| texts(p).len() == 5).await;
    assert_eq!(texts(&page), ["m0", "m1", "m3", "m4", "m5"]);
    assert_eq!(
        (&page["more"], &page["paused"], &page["partial"]),
        (&json!(false), &json!(false), &Value::Null)
    );
    let item = &page["items"][0];
    assert!(item.get("receipt").is_none(), "{item}");
    assert_eq!(
        (
            item["attempt"].as_u64(),
            &item["lastError"],
            text(item, "topic")
        ),
        (Some(1), &Value::Null, "t")
    );
    let few = peek(&cluster, "limit=2&topic=t&bodyFormat=none").await;
    assert_eq!(
        (few["items"].as_array().map(Vec::len), &few["more"]),
        (Some(2), &json!(true))
    );
    assert!(few["items"][0].get("text").is_none());
    let lag = async || cluster.ns("GET", "/groups/g/lag", "").await.json()["queues"].clone();
    let before = lag().await;
    peek(&cluster, "").await;
    assert_eq!(lag().await, before);
    // What is leased is not next; given back it is, as the next attempt, and says why.
    let taken = cluster.receive("g", "max=1&wait=5s&invisibleFor=1h").await;
    assert_eq!(taken[0]["attempt"], 1, "peeking counted nothing");
    let name = text(&taken[0], "text").to_owned();
    let page = until(&cluster, |p| texts(p).len() == 4).await;
    assert!(!texts(&page).contains(&name.as_str()));
    let nack =
        json!({"receipts": [taken[0]["receipt"]], "delay": "0s", "code": "E1", "reason": "why"});
    assert_eq!(
        cluster
            .ns("POST", "/groups/g/nack", &nack.to_string())
            .await
            .status,
        200
    );
    let page = until(&cluster, |p| texts(p).len() == 5).await;
    let items = page["items"].as_array().unwrap();
    let again = items.iter().find(|m| m["text"] == *name).unwrap();
    assert_eq!(
        (again["attempt"].as_u64(), &again["lastError"]["code"]),
        (Some(2), &json!("E1"))
    );
    for place in ["messageId", "topic", "queue", "offset", "storedAt"] {
        assert_eq!(
            again[place], taken[0][place],
            "{place}: as of the first store"
        );
    }
    cluster.ns("POST", "/groups/g/pause", "").await;
    assert_eq!(
        until(&cluster, |p| p["paused"] == true).await["partial"],
        Value::Null
    );
    cluster.stop().await;
}

#[tokio::test]
async fn bad_peeks_are_refused() {
    let cluster = Cluster::start(1, 1).await;
    cluster.ns("PUT", "/topics/t", "{}").await;
    cluster.ns("PUT", "/groups/g", "{}").await;
    for (path, status, code) in [
        ("/groups/none/peek", 404, "group_not_found"),
        ("/groups/g/peek?topic=none", 404, "topic_not_found"),
        ("/groups/g/peek?topic=t", 404, "subscription_not_found"),
        ("/groups/g/peek?limit=0", 400, "invalid_field"),
        ("/groups/g/peek?limit=501", 400, "invalid_field"),
        ("/groups/g/peek?bodyFormat=raw", 400, "invalid_field"),
        ("/groups/g/peek?max=1", 400, "unknown_field"),
    ] {
        cluster.ns("GET", path, "").await.problem(status, code);
    }
    let empty = peek(&cluster, "").await;
    assert_eq!(empty["items"], json!([]));
    cluster.stop().await;
}
