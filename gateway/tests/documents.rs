//! What documents and lists of topics and groups hold.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{Cluster, text};

async fn names(cluster: &Cluster, path: &str) -> Vec<String> {
    let list = cluster.ns("GET", path, "").await;
    assert_eq!(list.status, 200, "{}", list.text());
    let list = list.json();
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| text(item, "name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_topics_keep_description_and_labels_and_are_listed_by_them() {
    let cluster = Cluster::start(2, 1).await;
    for kind in ["topics", "groups"] {
        for (name, body) in [
            (
                "a",
                r#"{"description":"bills","labels":{"team":"x","tier":"1"}}"#,
            ),
            ("b", r#"{"labels":{"team":"y"}}"#),
            ("c", "{}"),
        ] {
            cluster.make(&format!("/{kind}/{name}"), body).await;
        }
        let path = format!("/{kind}/a");
        let read = cluster.ns("GET", &path, "").await;
        let shown =
            |document: &Value| (document["description"].clone(), document["labels"].clone());
        let kept = (json!("bills"), json!({"team": "x", "tier": "1"}));
        assert_eq!(shown(&read.json()), kept, "{kind}");
        let back = cluster.ns("PUT", &path, &read.text()).await;
        assert_eq!(shown(&back.json()), kept, "{kind}");
        for (label, found) in [
            ("team", vec!["a", "b"]),
            ("team=x", vec!["a"]),
            ("team=z", vec![]),
            ("tier=1&prefix=b", vec![]),
        ] {
            let list = format!("/{kind}?label={label}");
            assert_eq!(names(&cluster, &list).await, found, "{list}");
        }
        let wrong = cluster.ns("GET", &format!("/{kind}?label=a%2Fb"), "").await;
        wrong.problem(400, "invalid_field");
        let patch = r#"{"description":null,"labels":{"team":null}}"#;
        let patched = cluster.ns("PATCH", &path, patch).await.json();
        assert_eq!(shown(&patched), (json!(""), json!({"tier": "1"})), "{kind}");
        assert_eq!(names(&cluster, &format!("/{kind}?label=team")).await, ["b"]);
        let replaced = cluster.ns("PUT", &path, "{}").await.json();
        assert_eq!(shown(&replaced), (json!(""), json!({})), "{kind}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_says_how_long_its_dead_letters_are_kept() {
    let cluster = Cluster::start(1, 1).await;
    let kept = |document: &Value| document["deadLetter"]["retention"].clone();
    cluster.make("/groups/g", "{}").await;
    let read = cluster.ns("GET", "/groups/g", "").await;
    assert_eq!(kept(&read.json()), "14d");
    let body = r#"{"deadLetter":{"retention":"36h"}}"#;
    let patched = cluster.ns("PATCH", "/groups/g", body).await;
    assert_eq!(kept(&patched.json()), "36h", "{}", patched.text());
    let read = cluster.ns("GET", "/groups/g", "").await;
    assert_eq!(kept(&read.json()), "36h");
    let back = cluster.ns("PUT", "/groups/g", &read.text()).await;
    assert_eq!(kept(&back.json()), "36h", "{}", back.text());
    let body = r#"{"deadLetter":{"retention":"1s"}}"#;
    let refused = cluster.ns("PATCH", "/groups/g", body).await;
    let refused = refused.problem(400, "invalid_field");
    assert_eq!(refused["errors"][0]["pointer"], "/deadLetter/retention");
    assert_eq!(refused["limit"], "3650d");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_told_by_queue_and_by_group_and_who_could_not_say_is_named() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    cluster.make("/topics/other", r#"{"queues":1}"#).await;
    for group in ["g", "h", "idle"] {
        cluster.make(&format!("/groups/{group}"), "{}").await;
    }
    for path in [
        "g/subscriptions/t",
        "h/subscriptions/t",
        "h/subscriptions/other",
    ] {
        let body = r#"{"initialPosition":"earliest"}"#;
        cluster.make(&format!("/groups/{path}"), body).await;
    }
    for (topic, count) in [("t", 3), ("other", 1)] {
        for _ in 0..count {
            let path = format!("/topics/{topic}/messages");
            let sent = cluster.ns("POST", &path, r#"{"text":"x"}"#).await;
            assert_eq!(sent.status, 201, "{}", sent.text());
        }
    }
    let lag = cluster.ns("GET", "/groups/g/lag", "").await.json();
    let queues = lag["queues"].as_array().unwrap();
    assert_eq!(queues.len(), 4, "{lag}");
    for queue in queues {
        let is_ready = queue["ready"].as_i64() > Some(0);
        assert_eq!(queue["oldestReadyAt"].is_string(), is_ready, "{queue}");
    }
    let oldest = queues.iter().filter_map(|q| q["oldestReadyAt"].as_str());
    assert_eq!(lag["oldestReadyAt"].as_str(), oldest.min(), "{lag}");
    assert_eq!((&lag["lag"], &lag["partial"]), (&json!(3), &Value::Null));

    let first = cluster
        .ns("GET", "/topics/t/groups?limit=1", "")
        .await
        .json();
    let token = text(&first, "nextPageToken");
    let next = format!("/topics/t/groups?limit=1&pageToken={token}");
    let next = cluster.ns("GET", &next, "").await.json();
    assert_eq!(next["nextPageToken"], Value::Null);
    for (page, name) in [(&first, "g"), (&next, "h")] {
        assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
        let mut wanted = json!({"name": name, "lag": 3, "ready": 3, "inFlight": 0, "retrying": 0,
            "partial": null});
        wanted["oldestReadyAt"] = lag["oldestReadyAt"].clone();
        assert_eq!(page["items"][0], wanted);
    }
    let group = cluster.ns("GET", "/groups/h", "").await.json();
    assert_eq!(group["stats"]["rateOut"], 0.0, "{group}");
    assert_eq!(group["blockedKeys"], json!([]));
    assert_eq!(cluster.receive("h", "wait=5s&topic=other").await.len(), 1);
    let group = cluster.ns("GET", "/groups/h", "").await.json();
    let rate = group["stats"]["rateOut"].as_f64().unwrap();
    assert!(rate > 0.0 && rate <= 1.0, "{group}");
    assert_eq!(group["stats"]["inFlight"], 1);

    let none = cluster.ns("GET", "/topics/none/groups", "").await;
    none.problem(404, "topic_not_found");

    cluster.stop_broker(1).await;
    let gone = json!([{"broker": "broker-b", "reason": "unreachable"}]);
    let lag = cluster.ns("GET", "/groups/g/lag", "").await.json();
    assert_eq!(lag["partial"], gone, "{lag}");
    assert_eq!(lag["queues"].as_array().map(Vec::len), Some(2), "{lag}");
    let group = cluster.ns("GET", "/groups/g", "").await.json();
    assert_eq!(group["stats"]["partial"], gone, "{group}");
    let groups = cluster.ns("GET", "/topics/t/groups", "").await.json();
    assert_eq!(groups["items"][1]["partial"], gone, "{groups}");
    let dead = cluster.ns("GET", "/groups/g/dlq", "").await.json();
    assert_eq!(dead["partial"], gone, "{dead}");
    cluster.stop().await;
}
