//! Send, receive, settle against a real name server and brokers in this process.

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::{Cluster, Connection, base64, send, text};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

const JSON: (&str, &str) = ("Content-Type", "application/json");

async fn settle(
    cluster: &Cluster,
    gateway: usize,
    group: &str,
    action: &str,
    body: &str,
) -> support::Answer {
    cluster
        .at(
            gateway,
            "POST",
            &format!("/v1/ns/default/groups/{group}/{action}"),
            body,
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_received_and_acked() {
    let cluster = Cluster::start(1, 1).await;
    let sent = cluster
        .ns(
            "POST",
            "/topics/hello/messages",
            r#"{"json": {"b": 1.50,"a":1e3},"tag":"t","keys":["k1","k2"],"orderingKey":"o","properties":{"region":"eu"}}"#,
        )
        .await;
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
    for name in ["messageId", "queue", "offset", "storedAt"] {
        assert_eq!(message[name], receipt[name], "{name}");
    }
    assert_eq!(message["keys"], serde_json::json!(["k1", "k2"]));
    assert_eq!(message["properties"], serde_json::json!({"region": "eu"}));
    assert_eq!(
        (message["attempt"].as_i64(), message["maxAttempts"].as_i64()),
        (Some(1), Some(16))
    );
    let body = format!(r#"{{"receipts":["{}"]}}"#, text(message, "receipt"));
    let acked = settle(&cluster, 0, "g", "ack", &body).await;
    assert_eq!(acked.status, 200, "{}", acked.text());
    assert_eq!(acked.json()["results"][0]["status"], "acked");
    let again = settle(&cluster, 0, "g", "ack", &body).await.json();
    assert_eq!(
        (
            &again["results"][0]["status"],
            &again["results"][0]["already"]
        ),
        (&"acked".into(), &true.into())
    );
    settle(&cluster, 0, "other", "ack", &body)
        .await
        .problem(403, "receipt_wrong_group");
    assert!(cluster.receive("g", "topic=hello&wait=0s").await.is_empty());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_bytes_come_back_as_they_were_sent() {
    let cluster = Cluster::start(1, 1).await;
    let bytes: Vec<u8> = (0..=255).rev().collect();
    let headers = [
        ("Content-Type", "image/png"),
        ("Mq-Tag", "x%20y"),
        ("Mq-Keys", "k1, k%2C2"),
        ("Mq-Ordering-Key", "o"),
        ("Mq-Prop-Region", "e%C3%BC"),
    ];
    let sent = cluster
        .with("POST", "/topics/raw/raw", &headers, &bytes)
        .await;
    assert_eq!(sent.status, 201, "{}", sent.text());
    let message = cluster.receive("j", "topic=raw&wait=5s").await.remove(0);
    assert_eq!(
        (text(&message, "base64"), text(&message, "tag")),
        (base64(&bytes).as_str(), "x y")
    );
    assert_eq!(message["properties"]["region"], "eü");
    assert_eq!(message["keys"], serde_json::json!(["k1", "k,2"]));

    let raw = cluster
        .ns(
            "POST",
            "/groups/r/receive?topic=raw&bodyFormat=raw&wait=5s",
            "",
        )
        .await;
    assert_eq!((raw.status, &raw.body), (200, &bytes));
    for (name, value) in [
        ("content-type", "image/png"),
        ("mq-attempt", "1"),
        ("mq-topic", "raw"),
        ("mq-tag", "x%20y"),
        ("mq-keys", "k1,k%2C2"),
        ("mq-prop-region", "e%C3%BC"),
        ("content-security-policy", "sandbox"),
        ("mq-message-id", text(&sent.json(), "messageId")),
    ] {
        assert_eq!(raw.header(name), Some(value), "{name}");
    }
    let receipt = raw.header("mq-receipt").unwrap().to_owned();
    let acked = cluster
        .ns("POST", &format!("/groups/r/ack?receipt={receipt}"), "")
        .await;
    assert_eq!(
        acked.json()["results"][0]["status"],
        "acked",
        "{}",
        acked.text()
    );
    let octets = [("Accept", "application/octet-stream")];
    let none = cluster
        .with("POST", "/groups/r/receive?topic=raw&wait=0s", &octets, b"")
        .await;
    assert_eq!((none.status, none.body.len()), (204, 0));

    for (header, code) in [
        ("Mq-Tagg", "unknown_field"),
        ("Mq-Prop-a~b", "invalid_field"),
        ("Mq-Prop-__x", "reserved_property"),
    ] {
        cluster
            .with("POST", "/topics/raw/raw", &[(header, "x")], b"1")
            .await
            .problem(400, code);
    }
    cluster
        .with(
            "POST",
            "/topics/raw/raw",
            &[("Mq-Prop-A", "x"), ("Mq-Prop-a", "y")],
            b"1",
        )
        .await
        .problem(400, "invalid_field");
    cluster
        .with("POST", "/topics/raw/raw", &[("Mq-Delay", "1s")], b"1")
        .await
        .problem(501, "not_implemented");
    for (header, value, code) in [
        ("Mq-Delay", "1", "invalid_duration"),
        ("Mq-Deliver-At", "soon", "invalid_time"),
        ("Mq-Ttl", "", "invalid_duration"),
        ("Mq-Priority", "10", "invalid_field"),
    ] {
        cluster
            .with("POST", "/topics/raw/raw", &[(header, value)], b"1")
            .await
            .problem(400, code);
    }
    cluster.stop().await;
}

/// An answer without bytes is taken with its head: the receipt in it holds.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_message_in_the_raw_form_keeps_its_lease() {
    let cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/empty/messages", r#"{"text":""}"#)
        .await;
    let raw = "/groups/r/receive?topic=empty&bodyFormat=raw";
    let got = cluster.ns("POST", &format!("{raw}&wait=5s"), "").await;
    assert_eq!((got.status, got.body.len()), (200, 0));
    let receipt = got.header("mq-receipt").unwrap().to_owned();
    let again = cluster.ns("POST", &format!("{raw}&wait=500ms"), "").await;
    assert_eq!(again.status, 204, "delivered again: {:?}", again.headers);
    let acked = cluster
        .ns("POST", &format!("/groups/r/ack?receipt={receipt}"), "")
        .await;
    assert_eq!(
        acked.json()["results"][0]["status"],
        "acked",
        "{}",
        acked.text()
    );
    cluster.stop().await;
}

/// What a stream has no window for was not delivered, though the connection has it in hand: the lease goes back when
/// the client does, and the memory with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_takes_part_of_an_answer_gives_the_lease_back() {
    let cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/part/messages", r#"{"text":"abc"}"#)
        .await;
    let answers = Arc::clone(&cluster.gateways[0].state().answers);
    let raw = "/v1/ns/default/groups/h/receive?topic=part&bodyFormat=raw&wait=5s";
    for window in [2, 3] {
        let mut socket = support::http2(cluster.addr(), window, "POST", raw).await;
        let mut heard = Vec::new();
        while !heard.ends_with(&b"abc"[..usize::from(window)]) {
            assert!(socket.read_buf(&mut heard).await.unwrap() > 0);
        }
        if window == 2 {
            assert_eq!(answers.used(), 3);
        }
    }
    let end = Instant::now() + Duration::from_secs(5);
    while answers.used() > 0 {
        assert!(Instant::now() < end, "the memory is held still");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The second one took all of it.
    let left = cluster.receive("h", "topic=part&wait=500ms").await;
    assert_eq!(left.len(), 0);
    cluster.stop().await;
}

/// A broker may take less than the gateway, by its settings or because its log files are small.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_broker_is_413_with_its_limit() {
    for small_files in [false, true] {
        let limit = |config: &mut broker::Config| {
            if small_files {
                config.segment.size = node::ByteSize::mib(1);
            } else {
                config.limits.message_size = node::ByteSize(1 << 20);
            }
        };
        let cluster = Cluster::start_all(1, 1, |_| {}, limit).await;
        let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(2 << 20));
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        sent.problem(413, "message_too_large");
        let told = sent.json();
        let size = |name: &str| told[name].as_i64().unwrap();
        assert!(
            (1 << 20) - 100 < size("limit") && size("limit") <= 1 << 20,
            "{told}"
        );
        assert!(
            (2 << 20) <= size("actual") && size("actual") < (2 << 20) + 1_000,
            "{told}"
        );
        assert_eq!(told["outcome"], "notApplied");
        cluster.stop().await;
    }
}

/// A batch with one bad item (confluentinc/kafka-rest#586; BL-37): each item has its own status.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_reports_every_item() {
    let cluster = Cluster::start(1, 1).await;
    let big = "x".repeat(5 * 1024 * 1024);
    let body = format!(r#"{{"messages":[{{"json":1}},{{"text":"{big}"}},{{"base64":"Aw=="}}]}}"#);
    let answer = cluster.ns("POST", "/topics/b/messages/batch", &body).await;
    assert_eq!(answer.status, 207, "{}", answer.text());
    let result = answer.json();
    let statuses: Vec<_> = result["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].as_i64().unwrap())
        .collect();
    assert_eq!(statuses, [201, 413, 201]);
    assert_eq!(result["results"][1]["code"], "message_too_large");
    assert_eq!(
        (result["succeeded"].as_i64(), result["failed"].as_i64()),
        (Some(2), Some(1))
    );
    assert_eq!(
        cluster.receive("g", "topic=b&wait=2s").await.len()
            + cluster.receive("g", "topic=b&wait=0s").await.len(),
        2
    );

    let all = cluster
        .ns(
            "POST",
            "/topics/b/messages/batch",
            r#"{"messages":[{"json":1},{"json":2}]}"#,
        )
        .await;
    assert_eq!(all.status, 200);
    let bad = cluster
        .ns(
            "POST",
            "/topics/b/messages/batch",
            r#"{"messages":[{"tag":"x"},{"json":1,"nope":2}]}"#,
        )
        .await;
    assert_eq!(
        (bad.status, bad.header("content-type")),
        (400, Some("application/json"))
    );
    assert_eq!(bad.json()["results"][1]["pointer"], "/messages/1/nope");
    let single = cluster
        .ns("POST", "/topics/b/messages", r#"{"tag":"x"}"#)
        .await;
    single.problem(400, "body_required");

    let atomic = cluster
        .ns(
            "POST",
            "/topics/b/messages/batch",
            r#"{"messages":[{"json":1},{"json":2},{"json":3}],"atomic":true}"#,
        )
        .await;
    assert_eq!(atomic.status, 201, "{}", atomic.text());
    let results = atomic.json()["results"].as_array().unwrap().clone();
    let first = results[0]["offset"].as_i64().unwrap();
    for (i, result) in (0_i64..).zip(&results) {
        assert_eq!(
            (&result["queue"], result["offset"].as_i64()),
            (&results[0]["queue"], Some(first + i))
        );
    }
    let keys = r#"{"messages":[{"json":1,"orderingKey":"a"},{"json":2}],"atomic":true}"#;
    cluster
        .ns("POST", "/topics/b/messages/batch", keys)
        .await
        .problem(400, "invalid_field");
    cluster
        .ns("POST", "/topics/b/messages/batch", r#"{"messages":[]}"#)
        .await
        .problem(400, "batch_empty");
    let many = format!(
        r#"{{"messages":[{}]}}"#,
        vec![r#"{"json":1}"#; 257].join(",")
    );
    cluster
        .ns("POST", "/topics/b/messages/batch", &many)
        .await
        .problem(413, "batch_too_large");
    let oneway = cluster
        .ns(
            "POST",
            "/topics/b/messages?mode=oneway",
            r#"{"json":{"ping":1}}"#,
        )
        .await;
    assert_eq!(
        (oneway.status, oneway.json()["accepted"].as_bool()),
        (202, Some(true))
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_waits_as_long_as_it_was_told_and_no_longer() {
    let cluster = Cluster::start(1, 1).await;
    cluster.receive("g", "topic=w&wait=0s").await;
    let begin = Instant::now();
    let answer = cluster
        .ns("POST", "/groups/g/receive?topic=w&wait=0s", "")
        .await
        .json();
    assert!(
        begin.elapsed() < Duration::from_millis(100),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(
        (
            answer["messages"].as_array().map(Vec::len),
            answer["paused"].as_bool()
        ),
        (Some(0), Some(false))
    );
    let begin = Instant::now();
    assert!(cluster.receive("g", "topic=w&wait=2s").await.is_empty());
    assert!(
        (1.9..2.4).contains(&begin.elapsed().as_secs_f64()),
        "{:?}",
        begin.elapsed()
    );

    assert_eq!(
        cluster
            .ns("PATCH", "/groups/g", r#"{"paused":true}"#)
            .await
            .status,
        200
    );
    cluster
        .ns("POST", "/topics/w/messages", r#"{"json":1}"#)
        .await;
    let begin = Instant::now();
    let paused = cluster
        .ns("POST", "/groups/g/receive?topic=w&wait=1s", "")
        .await
        .json();
    assert_eq!(
        (
            paused["messages"].as_array().map(Vec::len),
            paused["paused"].as_bool()
        ),
        (Some(0), Some(true))
    );
    assert!(
        (0.9..1.4).contains(&begin.elapsed().as_secs_f64()),
        "{:?}",
        begin.elapsed()
    );
    let waiting = cluster.receive("g", "topic=w&wait=10s");
    let (messages, resumed) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.ns("POST", "/groups/g/resume", "").await.status
    });
    assert_eq!((messages.len(), resumed), (1, 200));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_is_woken_by_every_broker() {
    let cluster = Cluster::start(2, 1).await;
    let topic = cluster.ns("PUT", "/topics/wake", r#"{"queues":4}"#).await;
    assert_eq!(topic.status, 201, "{}", topic.text());
    cluster.receive("g", "topic=wake&wait=0s").await;
    for round in 0..10 {
        for broker in ["broker-a", "broker-b"] {
            let waiting = async {
                let messages = cluster.receive("g", "topic=wake&wait=20s").await;
                (messages, Instant::now())
            };
            let sending = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let body = format!(r#"{{"json":{round},"queue":{{"broker":"{broker}","id":0}}}}"#);
                let sent = cluster.ns("POST", "/topics/wake/messages", &body).await;
                assert_eq!(sent.status, 201, "{}", sent.text());
                Instant::now()
            };
            let ((messages, received), sent) = tokio::join!(waiting, sending);
            assert_eq!(messages[0]["queue"]["broker"], broker);
            let late = received.saturating_duration_since(sent);
            assert!(late < Duration::from_millis(300), "{late:?}");
            let body = format!(r#"{{"receipts":["{}"]}}"#, text(&messages[0], "receipt"));
            assert_eq!(settle(&cluster, 0, "g", "ack", &body).await.status, 200);
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unacked_message_comes_again_and_any_gateway_settles_it() {
    let cluster = Cluster::start(1, 2).await;
    let sent = cluster
        .ns("POST", "/topics/again/messages", r#"{"text":"x"}"#)
        .await
        .json();
    let first = cluster
        .receive("g", "topic=again&wait=5s&invisibleFor=2s")
        .await
        .remove(0);
    let begin = Instant::now();
    let second = cluster.receive("g", "topic=again&wait=10s").await.remove(0);
    assert!(
        (1.5..4.0).contains(&begin.elapsed().as_secs_f64()),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(second["messageId"], sent["messageId"]);
    assert_eq!(
        (
            second["attempt"].as_i64(),
            &second["offset"],
            &second["storedAt"]
        ),
        (Some(2), &sent["offset"], &sent["storedAt"])
    );
    assert_eq!(second["topic"], "again");
    assert_ne!(second["receipt"], first["receipt"]);
    let stale = format!(r#"{{"receipts":["{}"]}}"#, text(&first, "receipt"));
    settle(&cluster, 0, "g", "ack", &stale)
        .await
        .problem(410, "receipt_gone");
    let path = format!(
        "/v1/ns/default/groups/g/ack?receipt={}",
        text(&second, "receipt")
    );
    let acked = cluster.at(1, "POST", &path, "").await;
    assert_eq!(
        acked.json()["results"][0]["status"],
        "acked",
        "{}",
        acked.text()
    );
    let mixed = format!(
        r#"{{"receipts":["{}","{}"]}}"#,
        text(&first, "receipt"),
        text(&second, "receipt")
    );
    let answer = settle(&cluster, 1, "g", "ack", &mixed).await;
    assert_eq!(answer.status, 207, "{}", answer.text());
    assert!(cluster.receive("g", "topic=again&wait=3s").await.is_empty());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extended_lease_keeps_its_receipt() {
    let cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/long/messages", r#"{"text":"x"}"#)
        .await;
    let message = cluster
        .receive("g", "topic=long&wait=5s&invisibleFor=2s")
        .await
        .remove(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let receipt = text(&message, "receipt");
    let path = format!("/groups/g/extend?receipt={receipt}&invisibleFor=10s");
    let extended = cluster.ns("POST", &path, "").await.json();
    let result = &extended["results"][0];
    assert_eq!(
        (text(result, "status"), text(result, "receipt")),
        ("extended", receipt)
    );
    assert!(result["invisibleUntil"].is_string());
    assert!(cluster.receive("g", "topic=long&wait=4s").await.is_empty());
    let body = format!(r#"{{"items":[{{"receipt":"{receipt}"}}]}}"#);
    assert_eq!(
        settle(&cluster, 0, "g", "ack", &body).await.json()["results"][0]["status"],
        "acked"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nacks_carry_their_reason_to_the_next_delivery_and_to_the_dead_letters() {
    let cluster = Cluster::start(1, 1).await;
    let group = r#"{"retry":{"maxAttempts":3,"backoff":{"kind":"list","delays":["1s"]}},"initialPosition":"earliest"}"#;
    assert_eq!(cluster.ns("PUT", "/groups/g", group).await.status, 201);
    let sent = cluster
        .ns(
            "POST",
            "/topics/fail/messages",
            r#"{"json":{"n":1},"tag":"t"}"#,
        )
        .await
        .json();
    let mut message = cluster.receive("g", "topic=fail&wait=5s").await.remove(0);
    assert_eq!(message["lastError"], serde_json::Value::Null);
    for (attempt, form) in [(2, "receipts"), (3, "items")] {
        let receipt = text(&message, "receipt");
        let body = match form {
            "receipts" => format!(r#"{{"receipts":["{receipt}"],"code":"E1","reason":"x"}}"#),
            _ => format!(
                r#"{{"items":[{{"receipt":"{receipt}","delay":"500ms","code":"E1","reason":"x"}}]}}"#
            ),
        };
        let nacked = settle(&cluster, 0, "g", "nack", &body).await;
        assert_eq!(
            nacked.json()["results"][0]["status"],
            "nacked",
            "{}",
            nacked.text()
        );
        message = cluster.receive("g", "topic=fail&wait=10s").await.remove(0);
        assert_eq!(message["attempt"], attempt);
        assert_eq!(
            (
                text(&message["lastError"], "code"),
                text(&message["lastError"], "reason")
            ),
            ("E1", "x")
        );
    }
    let receipt = text(&message, "receipt");
    settle(
        &cluster,
        0,
        "g",
        "nack",
        &format!(r#"{{"receipts":["{receipt}"],"code":"E2","reason":"last"}}"#),
    )
    .await;
    let letters = loop {
        let answer = cluster.ns("GET", "/groups/g/dlq/messages", "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let items = answer.json()["items"].as_array().unwrap().clone();
        if !items.is_empty() {
            break items;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let letter = &letters[0];
    assert_eq!(letter["messageId"], sent["messageId"]);
    assert_eq!(
        (
            letter["attempts"].as_i64(),
            text(letter, "cause"),
            text(letter, "code")
        ),
        (Some(3), "maxAttempts", "E2")
    );
    assert_eq!(
        (
            text(letter, "topic"),
            text(letter, "reason"),
            text(letter, "tag")
        ),
        ("fail", "last", "t")
    );
    assert_eq!(text(letter, "preview"), r#"{"n":1}"#);
    assert!(cluster.receive("g", "topic=fail&wait=2s").await.is_empty());
    assert_eq!(
        cluster.ns("GET", "/groups/g/dlq", "").await.json()["open"],
        1
    );
    let refused = cluster
        .ns("DELETE", "/groups/g", "")
        .await
        .problem(409, "group_not_drained");
    assert_eq!(refused["counts"]["dlqOpen"], 1);
    assert_eq!(
        cluster
            .ns("DELETE", "/groups/g?force=true", "")
            .await
            .status,
        204
    );
    cluster
        .ns("GET", "/groups/g", "")
        .await
        .problem(404, "group_not_found");
    cluster.stop().await;
}

/// One stored record that is no JSON (strimzi/strimzi-kafka-bridge#373; BL-41): it does not spoil the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_what_it_says_does_not_spoil_the_others() {
    let cluster = Cluster::start(1, 1).await;
    for i in 0..9 {
        cluster
            .ns(
                "POST",
                "/topics/mixed/messages",
                &format!(r#"{{"json":{{"i":{i}}}}}"#),
            )
            .await;
    }
    let json = [JSON];
    assert_eq!(
        cluster
            .with("POST", "/topics/mixed/raw", &json, b"\xff{")
            .await
            .status,
        201
    );
    let mut messages = Vec::new();
    while messages.len() < 10 {
        messages.extend(cluster.receive("g", "topic=mixed&max=10&wait=2s").await);
    }
    let odd: Vec<_> = messages
        .iter()
        .filter(|m| m.get("base64").is_some())
        .collect();
    assert_eq!(
        (odd.len(), text(odd[0], "base64")),
        (1, base64(b"\xff{").as_str())
    );
    let receipts: Vec<&str> = messages.iter().map(|m| text(m, "receipt")).collect();
    let answer = settle(
        &cluster,
        0,
        "g",
        "ack",
        &serde_json::json!({ "receipts": receipts }).to_string(),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        cluster.ns("GET", "/groups/g/lag", "").await.json()["lag"],
        0
    );
    cluster.stop().await;
}

/// Unknown groups and topics (redpanda-data/redpanda#5843; BL-43): 4xx each, and everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_groups_and_topics_are_4xx() {
    let cluster = Cluster::start_with(1, 1, |c| c.auto_create = false).await;
    let receive = |query: &'static str| cluster.ns("POST", query, "");
    receive("/groups/nobody/receive?wait=0s")
        .await
        .problem(404, "group_not_found");
    receive("/groups/nobody/receive?topic=nothing&wait=0s")
        .await
        .problem(404, "group_not_found");
    cluster
        .ns("POST", "/topics/nothing/messages", r#"{"json":1}"#)
        .await
        .problem(404, "topic_not_found");
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    receive("/groups/g/receive?wait=0s")
        .await
        .problem(404, "subscription_not_found");
    receive("/groups/g/receive?topic=nothing&wait=0s")
        .await
        .problem(404, "subscription_not_found");
    cluster
        .ns("PUT", "/groups/g/subscriptions/nothing", "{}")
        .await
        .problem(404, "topic_not_found");
    assert_eq!(cluster.ns("PUT", "/topics/gone", "{}").await.status, 201);
    assert_eq!(
        cluster
            .ns("PUT", "/groups/g/subscriptions/gone", "{}")
            .await
            .status,
        201
    );
    assert!(cluster.receive("g", "wait=0s").await.is_empty());
    assert_eq!(
        cluster
            .ns("DELETE", "/topics/gone?force=true", "")
            .await
            .status,
        204
    );
    receive("/groups/g/receive?wait=5s")
        .await
        .problem(404, "topic_not_found");
    let after = receive("/groups/g/receive?topic=gone&wait=0s").await;
    assert!(matches!(after.status, 404), "{}", after.text());
    cluster
        .ns("POST", "/topics/gone/messages", r#"{"json":1}"#)
        .await
        .problem(404, "topic_not_found");
    assert_eq!(
        send(cluster.addr(), "GET", "/readyz", &[], b"")
            .await
            .status,
        200
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_costs_no_attempt() {
    let cluster = Cluster::start(1, 1).await;
    cluster.receive("g", "topic=hang&wait=0s").await;
    let mut waiting = Connection::open(cluster.addr()).await;
    let head = format!(
        "POST /v1/ns/default/groups/g/receive?topic=hang&wait=30s HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
        cluster.addr()
    );
    waiting.write(head.as_bytes()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(waiting);
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster
        .ns("POST", "/topics/hang/messages", r#"{"json":1}"#)
        .await;
    let message = cluster.receive("g", "topic=hang&wait=5s").await.remove(0);
    assert_eq!(message["attempt"], 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tag_filters_let_exactly_their_tags_through() {
    let cluster = Cluster::start(1, 1).await;
    let filter =
        r#"{"filter":{"kind":"tag","expression":"created||paid"},"initialPosition":"earliest"}"#;
    let put = cluster
        .ns("PUT", "/groups/g/subscriptions/orders", filter)
        .await;
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(put.json()["filter"]["expression"], "created||paid");
    for tag in ["created", "paid", "void", "Aa", "BB"] {
        cluster
            .ns(
                "POST",
                "/topics/orders/messages",
                &format!(r#"{{"text":"{tag}","tag":"{tag}"}}"#),
            )
            .await;
    }
    let mut texts = Vec::new();
    while texts.len() < 2 {
        texts.extend(
            cluster
                .receive("g", "topic=orders&wait=2s")
                .await
                .iter()
                .map(|m| text(m, "text").to_owned()),
        );
    }
    texts.sort();
    assert_eq!(texts, ["created", "paid"]);
    assert!(
        cluster
            .receive("g", "topic=orders&wait=1s")
            .await
            .is_empty()
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_acks_before_it_answers() {
    let cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/once/messages", r#"{"json":1}"#)
        .await;
    let messages = cluster
        .receive("g", "topic=once&wait=5s&autoAck=true")
        .await;
    assert_eq!(messages.len(), 1);
    assert_eq!(
        cluster.ns("GET", "/groups/g/lag", "").await.json()["lag"],
        0
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_answers_waiting_receives_and_ends_their_connections() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.receive("g", "topic=drain&wait=0s").await;
    let gateway = cluster.gateways.remove(0);
    let mut waiting = Connection::open(gateway.addr()).await;
    let mut idle = Connection::open(gateway.addr()).await;
    assert_eq!(idle.send("GET", "/healthz", &[], b"").await.status, 200);
    let begin = Instant::now();
    let (answer, ()) = tokio::join!(
        async {
            let path = "/v1/ns/default/groups/g/receive?topic=drain&wait=20s";
            let answer = waiting.send("POST", path, &[], b"").await;
            (answer, begin.elapsed())
        },
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            gateway.stop().await;
        }
    );
    assert_eq!(
        (answer.0.status, answer.0.header("connection")),
        (200, Some("close"))
    );
    assert!(answer.1 < Duration::from_millis(1_000), "{:?}", answer.1);
    assert!(waiting.closed().await && idle.closed().await);
    assert!(begin.elapsed() < Duration::from_secs(5));
    cluster.stop().await;
}

/// A topic of type normal takes no ordering key, on whichever way it comes; nothing of such a message is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_normal_topic_takes_no_ordering_key() {
    let cluster = Cluster::start(1, 1).await;
    cluster.ns("PUT", "/topics/n", r#"{"type":"normal"}"#).await;
    let keyed = r#"{"json":1,"orderingKey":"o"}"#;
    let refused = cluster.ns("POST", "/topics/n/messages", keyed).await;
    let problem = refused.problem(409, "message_type_mismatch");
    assert_eq!(problem["outcome"], "notApplied");
    assert_eq!(
        problem["detail"],
        "topic 'n' is of type normal: it takes no orderingKey"
    );
    let header = [("Mq-Ordering-Key", "o")];
    let raw = cluster.with("POST", "/topics/n/raw", &header, b"x").await;
    raw.problem(409, "message_type_mismatch");
    let batch = format!(r#"{{"messages":[{{"json":1}},{keyed}]}}"#);
    let some = cluster.ns("POST", "/topics/n/messages/batch", &batch).await;
    assert_eq!(some.status, 207, "{}", some.text());
    assert_eq!(some.json()["results"][1]["code"], "message_type_mismatch");
    let atomic = format!(r#"{{"messages":[{keyed},{keyed}],"atomic":true}}"#);
    let all = cluster
        .ns("POST", "/topics/n/messages/batch", &atomic)
        .await;
    all.problem(409, "message_type_mismatch");

    let stored = cluster.ns("GET", "/topics/n/messages?from=earliest", "");
    let stored = stored.await.json()["items"].as_array().unwrap().len();
    assert_eq!(stored, 1, "the one without a key");
    cluster.stop().await;
}
