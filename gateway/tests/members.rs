//! Who is in a group, over brokers and gateways.
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

async fn members(cluster: &Cluster, query: &str) -> Value {
    let path = format!("/groups/g/members?{query}");
    let answer = cluster.ns("GET", &path, "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn names(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|member| text(member, "client")).collect()
}

/// Receives up to `max` messages at a gateway under a label; the receipts.
async fn receive(cluster: &Cluster, gateway: usize, label: &str, max: usize) -> Vec<String> {
    let path = format!("/v1/ns/default/groups/g/receive?topic=t&wait=0s&max={max}");
    let headers = [("Mq-Client", label)];
    let addr = cluster.gateways[gateway].addr();
    let answer = send(addr, "POST", &path, &headers, b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page = answer.json();
    let messages = page["messages"].as_array().unwrap().iter();
    messages.map(|m| text(m, "receipt").to_owned()).collect()
}

/// A topic with messages on both brokers, and a group that reads it.
async fn filled(cluster: &Cluster, count: usize) {
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    cluster.make("/groups/g", "{}").await;
    let subscription = r#"{"initialPosition":"earliest"}"#;
    cluster
        .make("/groups/g/subscriptions/t", subscription)
        .await;
    for n in 0..count {
        let body = json!({"text": format!("m{n}")}).to_string();
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201);
    }
}

#[tokio::test]
async fn a_member_is_one_over_brokers_and_gateways() {
    let cluster = Cluster::start(2, 2).await;
    filled(&cluster, 8).await;
    let nobody = members(&cluster, "").await;
    assert_eq!(
        nobody,
        json!({"items": [], "nextPageToken": null, "partial": null})
    );
    let end = Instant::now() + Duration::from_secs(10);
    let mut held = Vec::new();
    while held.len() < 8 && Instant::now() < end {
        // Now here, now there.
        held.extend(receive(&cluster, held.len() % 2, "w-1", 3).await);
    }
    assert_eq!(held.len(), 8);
    receive(&cluster, 1, "w-1", 1).await;
    receive(&cluster, 0, "w-0", 1).await;
    let settle = |kind: &str, receipts: &[String]| {
        let body = json!({"receipts": receipts}).to_string();
        let path = format!("/groups/g/{kind}");
        let cluster = &cluster;
        async move {
            let answer = cluster.ns("POST", &path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    settle("ack", &held[..3]).await;
    settle("nack", &held[3..4]).await;
    let page = members(&cluster, "").await;
    assert_eq!(names(&page), ["w-0", "w-1"]);
    let mut worker = page["items"][1].clone();
    assert!(worker["lastReceiveAt"].is_string(), "{worker}");
    worker["lastReceiveAt"] = Value::Null;
    let gateway = send(cluster.gateways[1].addr(), "GET", "/", &[], b"").await;
    let expected = json!({
        "client": "w-1", "keyId": null, "kind": "lease", "transport": "rest",
        "gateway": gateway.header("mq-gateway").unwrap(), "lastReceiveAt": null, "inFlight": 4,
        "ackRate": 0.05, "errRate": 0.016, "ip": "127.0.0.1", "language": null,
    });
    assert_eq!(worker, expected);
    // Page by page.
    let first = members(&cluster, "limit=1").await;
    assert_eq!(names(&first), ["w-0"]);
    let token = text(&first, "nextPageToken");
    let next = members(&cluster, &format!("limit=1&pageToken={token}")).await;
    assert_eq!(
        (names(&next), &next["nextPageToken"]),
        (vec!["w-1"], &Value::Null)
    );
    let bad = cluster.ns("GET", "/groups/g/members?pageToken=x", "").await;
    assert_eq!(
        (bad.status, text(&bad.json(), "code")),
        (400, "page_token_invalid")
    );
    let unknown = cluster.ns("GET", "/groups/nobody/members", "").await;
    assert_eq!(
        (unknown.status, text(&unknown.json(), "code")),
        (404, "group_not_found")
    );
}

#[tokio::test]
async fn a_broker_that_is_away_is_named() {
    let mut cluster = Cluster::start(2, 1).await;
    filled(&cluster, 4).await;
    receive(&cluster, 0, "w-1", 4).await;
    cluster.stop_broker(1).await;
    let page = members(&cluster, "").await;
    assert_eq!(names(&page), ["w-1"]);
    let out = json!([{"broker": "broker-b", "reason": "unreachable"}]);
    assert_eq!(page["partial"], out);
    cluster.stop_broker(0).await;
    let none = cluster.ns("GET", "/groups/g/members", "").await;
    assert_eq!(none.status, 503, "{}", none.text());
}

/// A group that somebody uses is not deleted by mistake.
#[tokio::test]
async fn a_group_with_members_is_deleted_by_force_only() {
    let cluster = Cluster::start(1, 1).await;
    filled(&cluster, 0).await;
    receive(&cluster, 0, "w-1", 1).await;
    let refused = cluster.ns("DELETE", "/groups/g", "").await;
    let problem = refused.problem(409, "group_active");
    assert_eq!(problem["members"], json!(["w-1"]), "{problem}");
    assert_eq!(problem["counts"], json!({"inFlight": 0}));
    let forced = cluster.ns("DELETE", "/groups/g?force=true", "").await;
    assert_eq!(forced.status, 204, "{}", forced.text());
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    let unused = cluster.ns("DELETE", "/groups/g", "").await;
    assert_eq!(unused.status, 204, "{}", unused.text());
    cluster.stop().await;
}
