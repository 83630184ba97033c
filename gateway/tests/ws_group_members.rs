//! Members that share a group: over several gateways, dead ones, many at a time, and whose messages count for whom.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod ws_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use ws_support::Cluster;
use ws_support::client::{LONG, connect, open};
use ws_support::group::{receipts, send_many, subscribe, texts};

const QUIET: Duration = Duration::from_millis(400);

/// Any gateway settles and adopts what another one delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_gateway_adopts_and_settles() {
    let cluster = Cluster::start().await;
    let twin = cluster.gateway.twin().await;
    send_many(&cluster, "orders", 2).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        2,
        json!({"invisibleFor": "300s"}),
    )
    .await;
    let messages = socket.messages(2, LONG).await;
    let held: Vec<String> = receipts(&messages)
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    socket.reset();
    let mut next = open(twin.addr).await;
    let resume = json!({"resume": {"receipts": held}});
    let answer = subscribe(&mut next, "billing", "orders", 10, resume).await;
    assert_eq!(answer["adopted"], json!(held), "{answer}");
    let acked = next
        .ask(2, json!({"op": "ack", "sub": "s", "receipts": [held[0]]}))
        .await;
    assert_eq!(acked["results"][0]["status"], "acked", "{acked}");
    let path = format!("/groups/billing/ack?receipt={}", held[1]);
    let (status, answer) = twin.call("POST", &path, Value::Null).await;
    assert_eq!(
        (status, &answer["results"][0]["status"]),
        (200, &json!("acked")),
        "{answer}"
    );
    twin.settled("billing").await;
}

/// A subscription is a member of its own, under the label of its socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_shown_with_what_it_holds() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 3).await;
    let headers = [
        ("sec-websocket-protocol", "mq.v1.json"),
        ("mq-client", "shop"),
    ];
    let mut socket = connect(cluster.gateway.addr, &headers).await.unwrap();
    let welcome = socket.frame().await;
    subscribe(&mut socket, "billing", "orders", 3, json!({})).await;
    let messages = socket.messages(3, LONG).await;
    let first = json!({"op": "ack", "sub": "s", "receipts": [receipts(&messages)[0]]});
    socket.ask(2, first).await;
    let path = "/groups/billing/members";
    let (status, page) = cluster.gateway.call("GET", path, Value::Null).await;
    assert_eq!(
        (status, page["items"].as_array().unwrap().len()),
        (200, 1),
        "{page}"
    );
    let member = &page["items"][0];
    let session = welcome["session"].as_str().unwrap();
    let client = member["client"].as_str().unwrap();
    assert!(client.starts_with(&format!("shop.{session}.")), "{member}");
    assert_eq!(
        [
            &member["transport"],
            &member["gateway"],
            &member["inFlight"],
            &member["ackRate"]
        ],
        [
            &json!("websocket"),
            &welcome["gateway"],
            &json!(2),
            &json!(0.016)
        ]
    );
    assert_eq!(member["ip"], "127.0.0.1");
}

/// BL-54 (emqx/emqx#2708, #5063): members that died or stopped reading lose their share to the living one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_members_lose_their_share_to_the_living_one() {
    let mut config = ws_support::config();
    config.ws.idle = node::Millis(500);
    config.ws.grace = node::Millis(500);
    let cluster = Cluster::with(config).await;
    let sent = send_many(&cluster, "orders", 30).await;
    let more = json!({"invisibleFor": "300s", "resumeWindow": "1s"});
    let mut killed = open(cluster.gateway.addr).await;
    subscribe(&mut killed, "billing", "orders", 10, more.clone()).await;
    assert_eq!(killed.messages(10, LONG).await.len(), 10);
    let mut stopped = open(cluster.gateway.addr).await;
    subscribe(&mut stopped, "billing", "orders", 10, more.clone()).await;
    assert_eq!(stopped.messages(10, LONG).await.len(), 10);
    killed.reset();
    // From here on nobody reads `stopped`: its pings are not answered.
    let mut living = open(cluster.gateway.addr).await;
    subscribe(&mut living, "billing", "orders", 100, json!({})).await;
    let began = Instant::now();
    let mut got = BTreeSet::new();
    while got.len() < 30 {
        let messages = living.messages(1, LONG).await;
        assert!(!messages.is_empty(), "only {} of 30 came over", got.len());
        got.extend(texts(&messages));
        let acked = living
            .ask(
                9,
                json!({"op": "ack", "sub": "s", "receipts": receipts(&messages)}),
            )
            .await;
        assert_eq!(acked["op"], "ok", "{acked}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "took {:?}",
        began.elapsed()
    );
    assert_eq!(got, sent);
    assert_eq!(stopped.closed().await, 4000);
    cluster.gateway.settled("billing").await;
}

/// What is JSON comes out with the spelling it went in with, line feeds between tokens apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_body_keeps_its_spelling() {
    let cluster = Cluster::start().await;
    let body = r#"{"b":1.50,"a":123456789012345678901234567890,"\u00e4":"\ud83e\udd80 \u0000","z":[1e5, -0]}"#;
    let mut socket = open(cluster.gateway.addr).await;
    let frame =
        format!(r#"{{"op":"publish","id":1,"topic":"spelling","message":{{"json":{body}}}}}"#);
    socket.raw(frame).await;
    assert_eq!(socket.answer(1).await["op"], "ok");
    subscribe(&mut socket, "g", "spelling", 1, json!({})).await;
    let text = socket.text().await;
    assert!(text.contains(&format!("\"json\":{body}")), "{text}");
    assert!(!text.contains('\n'));
}

/// Many members, many messages, acks in pieces: each message is handled once and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_group_loses_and_repeats_nothing() {
    let cluster = Cluster::start().await;
    let mut senders = Vec::new();
    for _ in 0..2 {
        let mut socket = open(cluster.gateway.addr).await;
        senders.push(tokio::spawn(async move {
            for id in 0..500 {
                let message = json!({"text": format!("{id}")});
                socket
                    .say(json!({"op": "publish", "id": id, "topic": "busy", "message": message}))
                    .await;
            }
            for id in 0..500 {
                assert_eq!(socket.answer(id).await["op"], "ok");
            }
        }));
    }
    // Members go on until all came and a quiet second showed that nothing comes twice.
    let came = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(60);
    let mut members = Vec::new();
    for _ in 0..3 {
        let mut socket = open(cluster.gateway.addr).await;
        subscribe(&mut socket, "g", "busy", 50, json!({})).await;
        let came = Arc::clone(&came);
        members.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let messages = socket.messages(1, Duration::from_secs(1)).await;
                let all = came.load(Ordering::Relaxed) >= 1_000;
                if messages.is_empty() && all || Instant::now() >= end {
                    socket.close().await;
                    return ids;
                }
                came.fetch_add(messages.len(), Ordering::Relaxed);
                for message in &messages {
                    ids.push(message["messageId"].as_str().unwrap().to_owned());
                    let ack = json!({"op": "ack", "sub": "s", "receipts": [message["receipt"]]});
                    let credit = json!({"op": "credit", "sub": "s", "messages": 1});
                    socket.raw(format!("{ack}\n{credit}")).await;
                }
            }
        }));
    }
    for sender in senders {
        sender.await.unwrap();
    }
    let mut ids = Vec::new();
    for member in members {
        ids.extend(member.await.unwrap());
    }
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (1_000, 1_000));
    cluster.gateway.settled("g").await;
}

/// What the client acks through another gateway frees its place: the bound is kept by the broker, for each subscription
/// on its own, also where clients share a label.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_in_flight_is_counted_by_the_broker() {
    let cluster = Cluster::start().await;
    let other = cluster.gateway.twin().await;
    send_many(&cluster, "counted", 12).await;
    let labelled = [
        ("sec-websocket-protocol", "mq.v1.json"),
        ("mq-client", "worker"),
    ];
    let mut held = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut socket = connect(cluster.gateway.addr, &labelled).await.unwrap();
        socket.frame().await;
        let bound = json!({"maxInFlight": 3, "invisibleFor": "60s"});
        subscribe(&mut socket, "g-counted", "counted", 10, bound).await;
        let messages = socket.messages(4, QUIET).await;
        assert_eq!(messages.len(), 3, "each may hold three");
        held.push(messages);
        sockets.push(socket);
    }
    let acked = receipts(&held[0]);
    let body = json!({"receipts": acked[..2]});
    let (status, answer) = other.call("POST", "/groups/g-counted/ack", body).await;
    assert_eq!(status, 200, "{answer}");
    let more = sockets[0].messages(2, Duration::from_secs(3)).await;
    assert_eq!(more.len(), 2, "two places are free");
    assert_eq!(
        sockets[0].messages(1, Duration::from_millis(1_500)).await,
        Vec::<Value>::new()
    );
    assert_eq!(sockets[1].messages(1, QUIET).await, Vec::<Value>::new());
}

/// Messages that a socket goes on with count for its subscription.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_messages_count_for_the_subscription_that_took_them() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "moved", 6).await;
    let bound = json!({"maxInFlight": 2, "invisibleFor": "60s"});
    let mut first = open(cluster.gateway.addr).await;
    subscribe(&mut first, "g-moved", "moved", 2, bound.clone()).await;
    let held = first.messages(2, LONG).await;
    let held = receipts(&held);
    let mut second = open(cluster.gateway.addr).await;
    let mut resumed = bound;
    resumed["resume"] = json!({"receipts": held});
    let ok = subscribe(&mut second, "g-moved", "moved", 5, resumed).await;
    assert_eq!((&ok["adopted"], &ok["gone"]), (&json!(held), &json!([])));
    assert_eq!(
        second.messages(1, Duration::from_millis(1_500)).await,
        Vec::<Value>::new()
    );
    // The first one's are free now: it holds nothing any more as far as the broker knows.
    first
        .say(json!({"op": "credit", "sub": "s", "messages": 2}))
        .await;
    assert_eq!(first.messages(2, Duration::from_secs(3)).await.len(), 2);
    let acked = second
        .ask(7, json!({"op": "ack", "sub": "s", "receipts": held}))
        .await;
    assert_eq!(acked["op"], "ok", "{acked}");
    assert_eq!(second.messages(2, LONG).await.len(), 2);
}

/// A client that came back before its old socket was known to be dead keeps its messages when that is found out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_dies_late_takes_nothing_from_the_one_that_followed_it() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "late", 2).await;
    let window = json!({"invisibleFor": "60s", "resumeWindow": "100ms"});
    let mut old = open(cluster.gateway.addr).await;
    subscribe(&mut old, "g-late", "late", 2, window.clone()).await;
    let held = old.messages(2, LONG).await;
    let held = receipts(&held);
    let mut new = open(cluster.gateway.addr).await;
    let mut resumed = window;
    resumed["resume"] = json!({"receipts": held});
    let ok = subscribe(&mut new, "g-late", "late", 0, resumed).await;
    assert_eq!(ok["adopted"], json!(held));
    old.reset();
    assert_eq!(
        cluster.gateway.receive("g-late", "late", 10, "2s").await,
        Vec::<Value>::new(),
        "they are not the old socket's any more"
    );
    let acked = new
        .ask(7, json!({"op": "ack", "sub": "s", "receipts": held}))
        .await;
    assert_eq!(acked["op"], "ok", "{acked}");
    cluster.gateway.settled("g-late").await;
}
