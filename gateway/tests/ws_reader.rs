//! Reader subscriptions on sockets: places, the live tail, credit, gaps.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;
mod ws_support;

use std::time::{Duration, Instant};

use node::ByteSize;
use serde_json::{Value, json};
use support::{Cluster, text};
use ws_support::client::{Got, Socket, open};

const QUIET: Duration = Duration::from_millis(300);

async fn cluster(brokers: usize, gateways: usize) -> Cluster {
    let cluster = Cluster::start(brokers, gateways).await;
    let made = cluster
        .ns("PUT", "/topics/t", r#"{"type":"mixed","queues":4}"#)
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    cluster
}

async fn send(cluster: &Cluster, name: &str, more: Value) {
    let mut body = json!({"text": name});
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    let sent = cluster
        .ns("POST", "/topics/t/messages", &body.to_string())
        .await;
    assert_eq!(sent.status, 201, "{}", sent.text());
}

/// Sends `name0` … and waits until all can be read.
async fn send_all(cluster: &Cluster, name: &str, range: std::ops::Range<usize>) {
    for i in range.clone() {
        send(cluster, &format!("{name}{i}"), json!({})).await;
        // Messages of one millisecond on several brokers have no order of sending.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let last = format!("{name}{}", range.end - 1);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let page = cluster
            .ns("GET", "/topics/t/messages?from=last:1", "")
            .await
            .json();
        if page["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|m| m["text"] == *last)
        {
            return;
        }
        assert!(Instant::now() < end);
    }
}

/// Waits until so many messages can be read.
async fn until_readable(cluster: &Cluster, messages: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let page = cluster.ns("GET", "/topics/t/messages?limit=500", "").await;
        if page.json()["items"].as_array().map(Vec::len) == Some(messages) {
            return;
        }
        assert!(Instant::now() < end, "{}", page.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn subscribe(socket: &mut Socket, fields: Value) -> Value {
    let mut frame = json!({"op": "subscribe", "sub": "r", "mode": "reader", "topic": "t"});
    for (field, value) in fields.as_object().unwrap() {
        frame[field] = value.clone();
    }
    socket.ask(1, frame).await
}

/// Frames until `done` says so or nothing comes for a while.
async fn frames(socket: &mut Socket, mut done: impl FnMut(&[Value]) -> bool) -> Vec<Value> {
    let mut frames = Vec::new();
    while !done(&frames) {
        match socket.next(Duration::from_secs(10)).await {
            Got::Frame(frame) => frames.push(frame),
            other => panic!("{other:?} after {frames:?}"),
        }
    }
    frames
}

fn items(frames: &[Value]) -> Vec<Value> {
    let of = |f: &Value| f["items"].as_array().cloned().unwrap_or_default();
    frames
        .iter()
        .filter(|f| f["op"] == "messages")
        .flat_map(of)
        .collect()
}

fn texts(frames: &[Value]) -> Vec<String> {
    items(frames)
        .iter()
        .map(|m| text(m, "text").to_owned())
        .collect()
}

fn skipped(frames: &[Value], reason: &str) -> u64 {
    let gaps = frames.iter().filter(|f| f["op"] == "gap");
    gaps.map(|g| {
        assert_eq!(g["reason"], reason, "{g}");
        assert!(text(g, "from").starts_with("mqc_") && text(g, "to").starts_with("mqc_"));
        g["skipped"].as_u64().unwrap()
    })
    .sum()
}

fn count(frames: &[Value]) -> usize {
    items(frames).len()
}

/// Nothing comes for a while.
async fn quiet(socket: &mut Socket) {
    assert_eq!(socket.next(QUIET).await, Got::Nothing);
}

/// C31: the last three, then live ones in order; on to another gateway with the last cursor over 100 messages.
#[tokio::test]
async fn a_reader_goes_on_at_another_gateway_without_loss_or_repeat() {
    let cluster = cluster(2, 2).await;
    send_all(&cluster, "old", 0..5).await;
    let mut socket = open(cluster.gateways[0].addr()).await;
    let ok = subscribe(&mut socket, json!({"from": "last:3", "credit": 1000})).await;
    assert!(
        ok["op"] == "ok" && text(&ok, "sub") == "r" && text(&ok, "cursor").starts_with("mqc_"),
        "{ok}"
    );
    let got = frames(&mut socket, |f| count(f) == 3).await;
    assert_eq!(texts(&got), ["old2", "old3", "old4"]);
    for i in 0..5 {
        let name = format!("live{i}");
        send(&cluster, &name, json!({})).await;
        let start = Instant::now();
        let got = frames(&mut socket, |f| count(f) == 1).await;
        assert_eq!(texts(&got), [name]);
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
    }
    send(&cluster, "last", json!({})).await;
    let got = frames(&mut socket, |f| count(f) == 1).await;
    let (frame, item) = (&got[0], &items(&got)[0]);
    assert!(
        frame["seq"].as_u64() > Some(5) && item.get("receipt").is_none(),
        "{frame}"
    );
    let cursor = text(frame, "cursor").to_owned();
    socket.close().await;
    let mut socket = open(cluster.gateways[1].addr()).await;
    let sending = async {
        for i in 0..100 {
            send(&cluster, &format!("n{i}"), json!({})).await;
        }
    };
    let reading = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ok = subscribe(&mut socket, json!({"from": cursor, "credit": 1000})).await;
        assert_eq!(
            (ok["op"].as_str(), text(&ok, "cursor")),
            (Some("ok"), cursor.as_str())
        );
        frames(&mut socket, |f| count(f) >= 100).await
    };
    let ((), got) = tokio::join!(sending, reading);
    quiet(&mut socket).await;
    let mut all = texts(&got);
    let mut place = std::collections::HashMap::new();
    for item in items(&got) {
        let at = (
            text(&item["queue"], "broker").to_owned(),
            item["queue"]["id"].as_i64(),
        );
        let offset = item["offset"].as_i64();
        assert!(place.insert(at, offset) < Some(offset), "order of a queue");
    }
    all.sort_by_key(|t| t.trim_start_matches('n').parse::<u32>().unwrap());
    assert_eq!(all, (0..100).map(|i| format!("n{i}")).collect::<Vec<_>>());
    // Where the socket is, the REST reader agrees.
    let cursor = text(got.last().unwrap(), "cursor");
    let rest = cluster
        .ns("GET", &format!("/topics/t/messages?from={cursor}"), "")
        .await
        .json();
    assert_eq!(
        (
            rest["items"].as_array().map(Vec::len),
            rest["caughtUp"].as_bool()
        ),
        (Some(0), Some(true))
    );
    cluster.stop().await;
}

#[tokio::test]
async fn credit_is_never_exceeded() {
    let cluster = cluster(1, 1).await;
    send_all(&cluster, "m", 0..5).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(&mut socket, json!({"from": "earliest", "credit": 2})).await;
    let got = frames(&mut socket, |f| count(f) == 2).await;
    assert_eq!(
        (texts(&got), got.last().unwrap()["credit"].as_u64()),
        (vec!["m0".to_owned(), "m1".to_owned()], Some(0))
    );
    quiet(&mut socket).await;
    socket
        .say(json!({"op": "credit", "sub": "r", "messages": 1}))
        .await;
    assert_eq!(texts(&frames(&mut socket, |f| count(f) == 1).await), ["m2"]);
    quiet(&mut socket).await;
    // In a live run too, in the middle of a batch.
    socket
        .say(json!({"op": "credit", "sub": "r", "messages": 3}))
        .await;
    assert_eq!(
        texts(&frames(&mut socket, |f| count(f) == 2).await),
        ["m3", "m4"]
    );
    send_all(&cluster, "n", 0..4).await;
    assert_eq!(texts(&frames(&mut socket, |f| count(f) == 1).await), ["n0"]);
    quiet(&mut socket).await;
    socket
        .say(json!({"op": "credit", "sub": "r", "messages": 9}))
        .await;
    assert_eq!(
        texts(&frames(&mut socket, |f| count(f) == 3).await),
        ["n1", "n2", "n3"]
    );
    let over = socket
        .ask(7, json!({"op": "credit", "sub": "r", "messages": 10_000}))
        .await;
    assert_eq!(over["code"], "credit_overflow");
    let done = socket
        .ask(8, json!({"op": "unsubscribe", "sub": "r"}))
        .await;
    assert_eq!(
        (done["op"].as_str(), done["released"].as_u64()),
        (Some("ok"), Some(0))
    );
    cluster.stop().await;
}

/// What was read ahead is not kept where the client wants no more bytes.
#[tokio::test]
async fn a_reader_without_credit_holds_no_memory() {
    let cluster = cluster(1, 1).await;
    send_all(&cluster, "m", 0..5).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(&mut socket, json!({"from": "earliest", "credit": 0})).await;
    socket
        .say(json!({"op": "credit", "sub": "r", "messages": 100, "bytes": 1}))
        .await;
    assert_eq!(texts(&frames(&mut socket, |f| count(f) == 1).await), ["m0"]);
    quiet(&mut socket).await;
    assert_eq!(cluster.gateways[0].state().answers.used(), 0);
    socket
        .say(json!({"op": "credit", "sub": "r", "bytes": 100, "messages": 0}))
        .await;
    let got = frames(&mut socket, |f| count(f) == 4).await;
    assert_eq!(texts(&got), ["m1", "m2", "m3", "m4"]);
    cluster.stop().await;
}

/// Readers on one socket that wait for their turn forget what they have read ahead: of enough of them it would be all
/// the memory there is, and nobody would have a turn any more.
#[tokio::test]
async fn readers_that_wait_for_their_turn_hold_no_memory() {
    const READERS: usize = 20;
    const MESSAGES: usize = 80;
    let cluster = Cluster::start_with(1, 1, |config| {
        config.message_max = ByteSize::mib(1);
        config.answers_max = ByteSize::mib(2);
    })
    .await;
    cluster.make("/topics/t", r#"{"queues":2}"#).await;
    let large = "x".repeat(8 << 10);
    for _ in 0..MESSAGES {
        send(&cluster, &large, json!({})).await;
    }
    let mut socket = open(cluster.addr()).await;
    for i in 0..READERS {
        let fields = json!({"sub": format!("r{i}"), "from": "earliest", "credit": 1_000});
        assert_eq!(subscribe(&mut socket, fields).await["op"], "ok");
    }
    let mut left = READERS * MESSAGES;
    while left > 0 {
        let Got::Frame(frame) = socket.next(Duration::from_secs(5)).await else {
            panic!("{left} messages do not come");
        };
        left -= count(&[frame]);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_slow_reader_skips_to_the_newest_and_is_told_how_many() {
    let cluster = cluster(2, 1).await;
    for (tag, sent) in [(None, 20), (Some("x"), 41)] {
        let mut socket = open(cluster.addr()).await;
        subscribe(
            &mut socket,
            json!({"from": "latest", "credit": 3, "onSlow": "drop", "tag": tag}),
        )
        .await;
        for i in 0..10 {
            send(&cluster, &format!("m{i}"), json!({"tag": "x"})).await;
            send(
                &cluster,
                "other",
                json!({"tag": if tag.is_some() { "y" } else { "x" }}),
            )
            .await;
        }
        let first = frames(&mut socket, |f| count(f) == 3).await;
        until_readable(&cluster, sent).await;
        socket
            .say(json!({"op": "credit", "sub": "r", "messages": 50}))
            .await;
        let gap = frames(&mut socket, |f| f.len() == 1).await;
        let wanted = if tag.is_some() { 10 } else { 20 };
        assert_eq!(
            skipped(&gap, "slow") + count(&first) as u64,
            wanted,
            "{gap:?}"
        );
        assert_eq!(gap[0].get("exact"), None);
        send(&cluster, "after", json!({"tag": "x"})).await;
        let after = frames(&mut socket, |f| count(f) == 1).await;
        assert_eq!(texts(&after), ["after"]);
        socket.close().await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_slow_reader_is_closed_where_it_asked_for_that() {
    let cluster = cluster(1, 1).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(
        &mut socket,
        json!({"from": "latest", "credit": 1, "onSlow": "close"}),
    )
    .await;
    send(&cluster, "m0", json!({})).await;
    assert_eq!(texts(&frames(&mut socket, |f| count(f) == 1).await), ["m0"]);
    quiet(&mut socket).await;
    send(&cluster, "m1", json!({})).await;
    assert_eq!(socket.closed().await, 4001);
    cluster.stop().await;
}

#[tokio::test]
async fn a_rate_thins_the_tail_and_counts_what_it_leaves_out() {
    let cluster = cluster(2, 1).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(
        &mut socket,
        json!({"from": "latest", "credit": 1000, "maxRate": 5}),
    )
    .await;
    let start = Instant::now();
    send_all(&cluster, "m", 0..40).await;
    let got = frames(&mut socket, |f| count(f) as u64 + skipped(f, "rate") >= 40).await;
    let took = start.elapsed().as_secs_f64();
    assert_eq!(count(&got) as u64 + skipped(&got, "rate"), 40);
    let most = 6.0 + 5.0 * took;
    assert!(
        (5.0..most).contains(&(count(&got) as f64)),
        "{} in {took}",
        count(&got)
    );
    assert_eq!(
        texts(&got).last().map(String::as_str),
        Some("m39"),
        "the newest is given"
    );
    quiet(&mut socket).await;
    cluster.stop().await;
}

#[tokio::test]
async fn only_the_newest_of_each_key_is_given() {
    let cluster = cluster(1, 1).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(
        &mut socket,
        json!({"from": "latest", "credit": 1000, "latestBy": "key"}),
    )
    .await;
    let body: Vec<Value> = (0..30).map(|i| json!({"text": format!("m{i}"), "keys": [if i % 2 == 0 { "a" } else { "b" }], "orderingKey": "k"})).collect();
    let sent = cluster
        .ns(
            "POST",
            "/topics/t/messages/batch",
            &json!({"messages": body}).to_string(),
        )
        .await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let got = frames(&mut socket, |f| count(f) as u64 + skipped(f, "rate") >= 30).await;
    assert_eq!(count(&got) as u64 + skipped(&got, "rate"), 30);
    assert!(count(&got) < 20, "{got:?}");
    let texts = texts(&got);
    assert_eq!(texts[texts.len() - 2..], ["m28", "m29"]);
    cluster.stop().await;
}

#[tokio::test]
async fn several_readers_share_the_tail_and_each_has_its_place() {
    let cluster = cluster(2, 1).await;
    let mut sockets = Vec::new();
    for i in 0..5 {
        let mut socket = open(cluster.addr()).await;
        let tag = if i == 4 { json!("x") } else { Value::Null };
        subscribe(&mut socket, json!({"credit": 1000, "tag": tag})).await;
        sockets.push(socket);
    }
    for i in 0..40 {
        send(
            &cluster,
            &format!("m{i}"),
            json!({"tag": if i % 4 == 0 { "x" } else { "y" }}),
        )
        .await;
    }
    let mut cursors = Vec::new();
    for (i, socket) in sockets.iter_mut().enumerate() {
        let wanted = if i == 4 { 10 } else { 40 };
        let got = frames(socket, |f| count(f) == wanted).await;
        cursors.push(text(got.last().unwrap(), "cursor").to_owned());
    }
    for (i, cursor) in cursors.iter().enumerate() {
        let rest = cluster
            .ns("GET", &format!("/topics/t/messages?from={cursor}"), "")
            .await
            .json();
        let rest: Vec<&Value> = rest["items"].as_array().unwrap().iter().collect();
        assert!(
            if i == 4 {
                rest.iter().all(|m| m["tag"] == "y")
            } else {
                rest.is_empty()
            },
            "{i}: {rest:?}"
        );
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_reader_hears_that_its_topic_is_gone() {
    let cluster = cluster(1, 1).await;
    let mut socket = open(cluster.addr()).await;
    let ok = subscribe(&mut socket, json!({"credit": 10})).await;
    assert_eq!(
        cluster
            .ns("DELETE", "/topics/t?force=true", "")
            .await
            .status,
        204
    );
    let got = frames(&mut socket, |f| f.len() == 1).await;
    assert_eq!(
        (got[0]["op"].as_str(), got[0]["state"].as_str()),
        (Some("status"), Some("deleted")),
        "{got:?}"
    );
    assert_eq!(cluster.ns("PUT", "/topics/t", "{}").await.status, 201);
    let again = subscribe(&mut socket, json!({"from": ok["cursor"]})).await;
    assert_eq!(
        (
            again["op"].as_str(),
            again["code"].as_str(),
            again["fatal"].as_bool()
        ),
        (Some("error"), Some("cursor_expired"), Some(true))
    );
    let fresh = subscribe(&mut socket, json!({"from": "earliest", "credit": 5})).await;
    assert_eq!(fresh["op"], "ok", "{fresh}");
    send(&cluster, "new", json!({})).await;
    assert_eq!(
        texts(&frames(&mut socket, |f| count(f) == 1).await),
        ["new"]
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_broker_that_goes_is_told_and_the_others_are_read() {
    let mut cluster = cluster(2, 1).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(&mut socket, json!({"credit": 1000})).await;
    cluster.brokers.pop().unwrap().stop().await.unwrap();
    let got = frames(&mut socket, |f| f.iter().any(|f| f["op"] == "status")).await;
    assert_eq!(got.last().unwrap()["state"], "partial", "{got:?}");
    let end = Instant::now() + Duration::from_secs(10);
    let mut sent = 0;
    while sent < 3 {
        let answer = cluster
            .ns("POST", "/topics/t/messages", r#"{"text":"m"}"#)
            .await;
        sent += usize::from(answer.status == 201);
        assert!(Instant::now() < end, "{}", answer.text());
    }
    frames(&mut socket, |f| count(f) == 3).await;
    cluster.stop().await;
}

#[tokio::test]
async fn bad_subscriptions_are_refused_and_end_nothing_else() {
    let cluster = cluster(1, 1).await;
    let mut socket = open(cluster.addr()).await;
    for (fields, code) in [
        (json!({"topic": "none"}), "topic_not_found"),
        (json!({"from": "yesterday"}), "invalid_time"),
        (json!({"from": "mqc_x"}), "invalid_cursor"),
        (json!({"tag": ""}), "invalid_tag"),
        (json!({"sql": "a > 1"}), "not_implemented"),
        (json!({"onSlow": "maybe"}), "invalid_field"),
        (json!({"latestBy": "tag"}), "invalid_field"),
        (json!({"maxRate": 0}), "invalid_field"),
        (json!({"credit": 10_001}), "credit_overflow"),
        (json!({"group": "g"}), "unknown_field"),
        (json!({"bodyFormat": "raw"}), "invalid_field"),
    ] {
        let error = subscribe(&mut socket, fields.clone()).await;
        assert_eq!(
            (error["op"].as_str(), error["code"].as_str()),
            (Some("error"), Some(code)),
            "{fields}: {error}"
        );
    }
    assert_eq!(subscribe(&mut socket, json!({})).await["op"], "ok");
    assert_eq!(
        subscribe(&mut socket, json!({})).await["code"],
        "already_subscribed"
    );
    let ack = socket
        .ask(3, json!({"op": "ack", "sub": "r", "receipts": ["mqr_x"]}))
        .await;
    assert_eq!(ack["code"], "invalid_field");
    cluster.stop().await;
}

/// More than one step of catching up looks at lies before the first message that matches.
#[tokio::test]
async fn a_filter_finds_what_lies_far_behind() {
    const NOISE: usize = 20_100;
    let cluster = Cluster::start(1, 1).await;
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let noise = vec![json!({"text": "n", "tag": "noise"}); 100];
    let batch = json!({"messages": noise, "atomic": true}).to_string();
    for _ in 0..NOISE / 100 {
        let sent = cluster.ns("POST", "/topics/t/messages/batch", &batch).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    for i in 0..5 {
        send(&cluster, &format!("m{i}"), json!({"tag": "wanted"})).await;
    }
    let mut socket = open(cluster.addr()).await;
    let fields = json!({"from": "earliest", "tag": "wanted", "credit": 100});
    subscribe(&mut socket, fields).await;
    let got = frames(&mut socket, |f| count(f) == 5).await;
    assert_eq!(texts(&got), ["m0", "m1", "m2", "m3", "m4"]);
    cluster.stop().await;
}

#[tokio::test]
async fn readers_of_quiet_topics_hold_up_nobody() {
    let cluster = cluster(1, 1).await;
    cluster.make("/topics/quiet", r#"{"queues":1}"#).await;
    let mut socket = open(cluster.addr()).await;
    for i in 0..8 {
        let fields = json!({"sub": format!("q{i}"), "topic": "quiet", "credit": 100});
        assert_eq!(subscribe(&mut socket, fields).await["op"], "ok");
    }
    quiet(&mut socket).await;
    let held = cluster.gateways[0].state().answers.used();
    assert_eq!(held, 0, "who waits holds nothing");
    subscribe(&mut socket, json!({"credit": 100})).await;
    let group = json!({"op": "subscribe", "sub": "g", "mode": "group", "group": "g", "topic": "t", "credit": 100});
    assert_eq!(socket.ask(2, group).await["op"], "ok");
    send(&cluster, "m", json!({})).await;
    let got = frames(&mut socket, |f| count(f) == 2).await;
    let mut subs: Vec<_> = got.iter().map(|f| text(f, "sub")).collect();
    subs.sort_unstable();
    assert_eq!(
        (subs, texts(&got)),
        (vec!["g", "r"], vec!["m".to_owned(); 2])
    );
    socket.close().await;
    cluster.stop().await;
}

/// Queues that are added while a reader is at the tail are read from their beginning.
#[tokio::test]
async fn a_topic_that_grows_loses_nothing() {
    let cluster = cluster(1, 1).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(&mut socket, json!({"credit": 1000})).await;
    send(&cluster, "m0", json!({})).await;
    frames(&mut socket, |f| count(f) == 1).await;
    let grown = cluster.ns("PATCH", "/topics/t", r#"{"queues":8}"#).await;
    assert_eq!(grown.status, 200, "{}", grown.text());
    let (end, mut got) = (Instant::now() + Duration::from_secs(15), Vec::new());
    let mut sent = 0;
    while !items(&got)
        .iter()
        .any(|m| m["queue"]["id"].as_i64() > Some(3))
    {
        assert!(Instant::now() < end, "no message of a new queue");
        send(&cluster, "m", json!({})).await;
        sent += 1;
        if let Got::Frame(frame) = socket.next(Duration::from_millis(50)).await {
            got.push(frame);
        }
    }
    let missing = sent - count(&got);
    got.extend(frames(&mut socket, |f| count(f) == missing).await);
    quiet(&mut socket).await;
    let mut ids: Vec<_> = items(&got)
        .iter()
        .map(|m| text(m, "messageId").to_owned())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), sent);
    cluster.stop().await;
}

/// Log files of 64 KiB that are kept for a second: what a reader was too late for is counted.
#[tokio::test]
async fn a_reader_is_told_what_retention_deleted() {
    // More than the gateway keeps of a live topic.
    const MESSAGES: u64 = 800;
    let cluster = Cluster::start_all(
        1,
        1,
        |_| {},
        |broker| {
            broker.segment.size = node::ByteSize(64 << 10);
            broker.retention.time = node::Millis(1_000);
            broker.retention.check_interval = node::Millis(100);
            // Age alone decides here, however full the disk of the machine is.
            (
                broker.retention.clean_percent,
                broker.retention.refuse_percent,
            ) = (100, 100);
        },
    )
    .await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":2}"#).await;
    let mut socket = open(cluster.addr()).await;
    subscribe(&mut socket, json!({"from": "earliest", "credit": 5})).await;
    let large = "x".repeat(8 << 10);
    for _ in 0..MESSAGES {
        send(&cluster, &large, json!({})).await;
    }
    let mut got = frames(&mut socket, |f| count(f) == 5).await;
    // More goes than a reader without credit may have read ahead.
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let topic = cluster.ns("GET", "/topics/t", "").await.json();
        let queues = topic["queueList"].as_array().unwrap().iter();
        let gone: u64 = queues.map(|q| q["minOffset"].as_u64().unwrap()).sum();
        if gone > MESSAGES - 20 {
            break;
        }
        assert!(Instant::now() < end, "{gone} are deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    socket
        .say(json!({"op": "credit", "sub": "r", "messages": 1000}))
        .await;
    let rest = frames(&mut socket, |f| {
        count(f) as u64 + skipped(f, "retention") >= MESSAGES - 5
    })
    .await;
    got.extend(rest);
    let lost = skipped(&got, "retention");
    assert!(lost > 0);
    assert_eq!(count(&got) as u64 + lost, MESSAGES);
    send(&cluster, "after", json!({})).await;
    let after = frames(&mut socket, |f| count(f) == 1).await;
    assert_eq!(texts(&after), ["after"]);
    cluster.stop().await;
}
