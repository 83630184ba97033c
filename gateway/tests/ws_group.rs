//! Group subscriptions against a broker: credit, settling, ends of sockets, adoption, filters.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod ws_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gateway::memory::Whose;
use serde_json::{Value, json};
use tokio::time::Instant;
use ws_support::client::{Got, LONG, open};
use ws_support::group::{receipts, send_many, subscribe, texts};
use ws_support::{Cluster, config};

const QUIET: Duration = Duration::from_millis(400);

/// C28: exactly as many as the credit says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_is_kept_to_the_message() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 5).await;
    let mut socket = open(cluster.gateway.addr).await;
    let answer = subscribe(&mut socket, "billing", "orders", 2, json!({})).await;
    assert_eq!(
        (
            &answer["sub"],
            &answer["adopted"],
            &answer["gone"],
            &answer["lag"]
        ),
        (&json!("s"), &json!([]), &json!([]), &json!(5))
    );
    let first = socket.messages(2, LONG).await;
    assert_eq!(first.len(), 2);
    assert_eq!(socket.next(QUIET).await, Got::Nothing, "credit is used up");
    socket
        .say(json!({"op": "credit", "sub": "s", "messages": 1}))
        .await;
    let more = socket.messages(1, LONG).await;
    assert_eq!(more.len(), 1);
    assert_eq!(socket.next(QUIET).await, Got::Nothing, "exactly one more");
    assert_eq!(texts(&[first, more].concat()).len(), 3);
}

/// C29: ack, nack and extend with ids, each answered once, and REST agrees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settling_answers_each_id_once_and_leaves_no_lag() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 3).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 3, json!({})).await;
    let messages = socket.messages(3, LONG).await;
    let held = receipts(&messages);

    let extended = socket
        .ask(
            2,
            json!({"op": "extend", "sub": "s", "receipts": [held[0]], "invisibleFor": "1m"}),
        )
        .await;
    assert_eq!(
        (&extended["op"], &extended["results"][0]["status"]),
        (&json!("ok"), &json!("extended")),
        "{extended}"
    );
    assert_eq!(extended["results"][0]["receipt"], held[0]);
    assert!(extended["results"][0]["invisibleUntil"].is_string());

    let acked = socket
        .ask(
            3,
            json!({"op": "ack", "sub": "s", "receipts": [held[0], held[1]]}),
        )
        .await;
    let statuses: Vec<&Value> = acked["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["status"])
        .collect();
    assert_eq!(statuses, ["acked", "acked"], "{acked}");

    let again = socket
        .ask(4, json!({"op": "ack", "sub": "s", "receipts": [held[0]]}))
        .await;
    assert_eq!(
        (&again["op"], &again["results"][0]["already"]),
        (&json!("ok"), &json!(true)),
        "{again}"
    );

    let item = json!({"receipt": held[2], "delay": "1s", "code": "E1", "reason": "because"});
    let nacked = socket
        .ask(5, json!({"op": "nack", "sub": "s", "items": [item]}))
        .await;
    assert_eq!(
        (&nacked["op"], &nacked["results"][0]["status"]),
        (&json!("ok"), &json!("nacked")),
        "{nacked}"
    );

    let late = socket
        .ask(6, json!({"op": "ack", "sub": "s", "receipts": [held[2]]}))
        .await;
    assert_eq!(
        (&late["op"], &late["code"], &late["fatal"]),
        (&json!("error"), &json!("receipt_gone"), &json!(false)),
        "{late}"
    );

    socket
        .say(json!({"op": "credit", "sub": "s", "messages": 1}))
        .await;
    let retry = socket.messages(1, LONG).await;
    assert_eq!(
        (&retry[0]["messageId"], &retry[0]["attempt"]),
        (&messages[2]["messageId"], &json!(2))
    );
    assert_eq!(retry[0]["lastError"]["code"], "E1", "{}", retry[0]);
    let done = socket
        .ask(
            7,
            json!({"op": "ack", "sub": "s", "receipts": receipts(&retry)}),
        )
        .await;
    assert_eq!(done["op"], "ok", "{done}");
    cluster.gateway.settled("billing").await;
}

/// Receipts that are none, or another group's, are answered one by one; the good ones count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_receipts_fail_alone() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 2).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 2, json!({})).await;
    let messages = socket.messages(2, LONG).await;
    let good = receipts(&messages)[0];
    let mut flipped = good.to_owned();
    flipped.replace_range(
        10..11,
        if flipped.as_bytes()[10] == b'A' {
            "B"
        } else {
            "A"
        },
    );
    let foreign = cluster.gateway.receive("audit", "orders", 1, "5s").await;
    let list = json!([good, flipped, "", "mqr_", receipts(&foreign)[0]]);
    let answer = socket
        .ask(2, json!({"op": "ack", "sub": "s", "receipts": list}))
        .await;
    assert_eq!(
        (&answer["op"], &answer["code"]),
        (&json!("error"), &json!("receipt_invalid")),
        "{answer}"
    );
    let results = answer["results"].as_array().unwrap().iter();
    let told: Vec<_> = results.map(|r| [&r["status"], &r["code"]]).collect();
    let invalid = [&json!("invalid"), &json!("receipt_invalid")];
    let acked = [&json!("acked"), &Value::Null];
    let forbidden = [&json!("forbidden"), &json!("receipt_wrong_group")];
    assert_eq!(told, [acked, invalid, invalid, invalid, forbidden]);
}

/// C30: publish answers as a REST send does, and REST receives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_message_is_received_over_rest() {
    let cluster = Cluster::start().await;
    let mut socket = open(cluster.gateway.addr).await;
    let message = json!({"json": {"x": 1, "big": 12345678901234567890_u64}, "tag": "t", "keys": ["k"], "properties": {"p": "v"}});
    let answer = socket
        .ask(
            9,
            json!({"op": "publish", "topic": "clicks", "message": message}),
        )
        .await;
    assert_eq!(
        (&answer["op"], &answer["duplicate"]),
        (&json!("ok"), &json!(false)),
        "{answer}"
    );
    assert_eq!(answer["messageId"].as_str().unwrap().len(), 26);
    assert!(
        answer["offset"].is_u64()
            && answer["queue"]["id"].is_u64()
            && answer["durability"].is_string()
    );
    let received = cluster.gateway.receive("g", "clicks", 10, "5s").await;
    assert_eq!(received.len(), 1);
    assert_eq!(
        (&received[0]["messageId"], &received[0]["json"]),
        (&answer["messageId"], &message["json"])
    );
    assert_eq!(
        (
            &received[0]["tag"],
            &received[0]["keys"],
            &received[0]["properties"]
        ),
        (&json!("t"), &json!(["k"]), &json!({"p": "v"}))
    );
}

/// Sends with one ordering key, pipelined on one socket, keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_sends_with_one_ordering_key_keep_their_order() {
    let cluster = Cluster::start().await;
    let mut socket = open(cluster.gateway.addr).await;
    for id in 0..50 {
        let message = json!({"text": format!("{id}"), "orderingKey": "k"});
        socket
            .say(json!({"op": "publish", "id": id, "topic": "ordered", "message": message}))
            .await;
    }
    let mut offsets = Vec::new();
    for id in 0..50 {
        let answer = socket.answer(id).await;
        assert_eq!(answer["op"], "ok", "{answer}");
        offsets.push((
            answer["queue"]["id"].as_u64().unwrap(),
            answer["offset"].as_u64().unwrap(),
        ));
    }
    assert!(
        offsets
            .windows(2)
            .all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1),
        "{offsets:?}"
    );
}

/// BL-21 (nats-io/nats-server#4716): a clean close makes unacked messages visible at once, whatever the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_close_gives_everything_back_at_once() {
    let cluster = Cluster::start().await;
    let sent = send_many(&cluster, "orders", 5).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        5,
        json!({"invisibleFor": "300s"}),
    )
    .await;
    assert_eq!(texts(&socket.messages(5, LONG).await), sent);
    let mut other = open(cluster.gateway.addr).await;
    subscribe(&mut other, "billing", "orders", 10, json!({})).await;
    assert_eq!(other.next(QUIET).await, Got::Nothing);
    socket.close().await;
    let began = Instant::now();
    let again = other.messages(5, LONG).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "took {:?}",
        began.elapsed()
    );
    assert_eq!(texts(&again), sent);
    assert!(
        again.iter().all(|message| message["attempt"] == 2),
        "{again:?}"
    );
}

/// BL-21, the other end: after a TCP reset the leases end with the resume window, not before and not with the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_gives_everything_back_after_the_resume_window() {
    let cluster = Cluster::start().await;
    let sent = send_many(&cluster, "orders", 5).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        5,
        json!({"invisibleFor": "300s", "resumeWindow": "2s"}),
    )
    .await;
    assert_eq!(texts(&socket.messages(5, LONG).await), sent);
    let mut other = open(cluster.gateway.addr).await;
    subscribe(&mut other, "billing", "orders", 10, json!({})).await;
    socket.reset();
    let began = Instant::now();
    let again = other.messages(5, LONG).await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_millis(1_900) && took < Duration::from_secs(4),
        "took {took:?}"
    );
    assert_eq!(texts(&again), sent);
    assert!(
        again.iter().all(|message| message["attempt"] == 2),
        "{again:?}"
    );
}

/// Within the resume window another socket adopts the leases: nothing is redelivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_adopts_the_leases_of_one_that_broke() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 3).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        3,
        json!({"resumeWindow": "2s"}),
    )
    .await;
    let messages = socket.messages(3, LONG).await;
    let held: Vec<String> = receipts(&messages)
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    let acked = socket
        .ask(2, json!({"op": "ack", "sub": "s", "receipts": [held[0]]}))
        .await;
    assert_eq!(acked["op"], "ok");
    socket.reset();
    let mut next = open(cluster.gateway.addr).await;
    let resume = json!({"resume": {"receipts": [held[0], held[1], held[2], "mqr_nonsense"]}});
    let answer = subscribe(&mut next, "billing", "orders", 10, resume).await;
    assert_eq!(answer["adopted"], json!([held[1], held[2]]));
    assert_eq!(answer["gone"], json!([held[0], "mqr_nonsense"]));
    assert_eq!(
        next.next(Duration::from_secs(4)).await,
        Got::Nothing,
        "nothing is redelivered after the window"
    );
    let acked = next
        .ask(
            3,
            json!({"op": "ack", "sub": "s", "receipts": [held[1], held[2]]}),
        )
        .await;
    assert_eq!(acked["op"], "ok", "{acked}");
    cluster.gateway.settled("billing").await;
}

/// An open socket keeps its leases beyond their time; without autoExtend it is told when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_extended_while_the_socket_lives() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "kept", 1).await;
    send_many(&cluster, "ended", 1).await;
    let mut kept = open(cluster.gateway.addr).await;
    subscribe(&mut kept, "g1", "kept", 5, json!({"invisibleFor": "1s"})).await;
    let mut ended = open(cluster.gateway.addr).await;
    subscribe(
        &mut ended,
        "g2",
        "ended",
        1,
        json!({"invisibleFor": "1s", "autoExtend": false}),
    )
    .await;
    let (held, lost) = (kept.messages(1, LONG).await, ended.messages(1, LONG).await);
    assert_eq!(
        ended.frame().await,
        json!({"op": "lease", "sub": "s", "receipts": receipts(&lost), "state": "expired"})
    );
    assert_eq!(
        kept.next(Duration::from_secs(4)).await,
        Got::Nothing,
        "neither redelivered nor ended"
    );
    let acked = kept
        .ask(
            2,
            json!({"op": "ack", "sub": "s", "receipts": receipts(&held)}),
        )
        .await;
    assert_eq!(
        (&acked["op"], &acked["results"][0]["late"]),
        (&json!("ok"), &json!(false)),
        "{acked}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processing_that_takes_too_long_loses_its_lease() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 1).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        1,
        json!({"invisibleFor": "1s", "maxProcessing": "2s"}),
    )
    .await;
    let held = socket.messages(1, LONG).await;
    let began = Instant::now();
    let lease = socket.frame().await;
    assert_eq!(
        (&lease["op"], &lease["state"], &lease["receipts"]),
        (&json!("lease"), &json!("limit"), &json!(receipts(&held)))
    );
    assert!(
        began.elapsed() > Duration::from_millis(1_500),
        "after {:?}",
        began.elapsed()
    );
    socket
        .say(json!({"op": "credit", "sub": "s", "messages": 1}))
        .await;
    assert_eq!(socket.messages(1, LONG).await[0]["attempt"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsubscribe_releases_and_the_socket_goes_on() {
    let cluster = Cluster::start().await;
    let sent = send_many(&cluster, "orders", 3).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(
        &mut socket,
        "billing",
        "orders",
        3,
        json!({"invisibleFor": "300s"}),
    )
    .await;
    socket.messages(3, LONG).await;
    assert_eq!(
        socket
            .ask(2, json!({"op": "unsubscribe", "sub": "s"}))
            .await,
        json!({"op": "ok", "id": 2, "released": 3})
    );
    subscribe(&mut socket, "billing", "orders", 5, json!({})).await;
    let again = socket.messages(3, LONG).await;
    assert_eq!(texts(&again), sent);
    assert!(
        again.iter().all(|message| message["attempt"] == 2),
        "{again:?}"
    );
}

/// A waiting subscription gets a message soon after it is stored, and its ack sent with the close counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_subscription_is_woken_and_an_ack_before_the_close_counts() {
    let cluster = Cluster::start().await;
    cluster.gateway.send("orders", "first").await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 10, json!({})).await;
    let mut held = socket.messages(1, LONG).await;
    for n in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.gateway.send("orders", &format!("{n}")).await;
        let began = Instant::now();
        held.extend(socket.messages(1, LONG).await);
        assert!(
            began.elapsed() < Duration::from_millis(300),
            "took {:?}",
            began.elapsed()
        );
        socket
            .say(json!({"op": "credit", "sub": "s", "messages": 1}))
            .await;
    }
    socket
        .say(json!({"op": "ack", "sub": "s", "receipts": receipts(&held)}))
        .await;
    socket.close().await;
    cluster.gateway.settled("billing").await;
}

/// Members of one group share the messages: each goes to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_a_topic() {
    let cluster = Cluster::start().await;
    let sent = send_many(&cluster, "orders", 60).await;
    let mut all = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let mut socket = open(cluster.gateway.addr).await;
        subscribe(&mut socket, "billing", "orders", 20, json!({})).await;
        sockets.push(socket);
    }
    for mut socket in sockets {
        let messages = socket.messages(20, LONG).await;
        assert_eq!(messages.len(), 20);
        all.extend(messages);
    }
    assert_eq!((all.len(), texts(&all)), (60, sent));
}

/// BL-48 (apache/pulsar#14242): messages of producer batches are acked one by one, out of order, over reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_acked_one_by_one_never_come_back() {
    let cluster = Cluster::start().await;
    let batch: Vec<Value> = (0..50)
        .map(|n| json!({"text": format!("b{n}"), "orderingKey": "one"}))
        .collect();
    let (status, answer) = cluster
        .gateway
        .call(
            "POST",
            "/topics/batches/messages/batch",
            json!({"messages": batch}),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let mut socket = open(cluster.gateway.addr).await;
        subscribe(
            &mut socket,
            "g",
            "batches",
            if round == 0 { 50 } else { 100 },
            json!({"maxInFlight": 100, "invisibleFor": "2s"}),
        )
        .await;
        let messages = socket
            .messages(if round == 0 { 50 } else { 1 }, Duration::from_secs(3))
            .await;
        let mut order: Vec<&Value> = messages.iter().collect();
        order.sort_by_key(|message| message["offset"].as_u64().unwrap() * 37 % 50);
        for (id, message) in order.into_iter().enumerate() {
            assert!(
                seen.insert(message["text"].to_string()),
                "round {round}: {message} came again"
            );
            let acked = socket
                .ask(
                    100 + u32::try_from(id).unwrap(),
                    json!({"op": "ack", "sub": "s", "receipts": [message["receipt"]]}),
                )
                .await;
            assert_eq!(acked["op"], "ok", "{acked}");
        }
        socket.close().await;
    }
    assert_eq!(seen.len(), 50);
    cluster.gateway.settled("g").await;
}

/// BL-36 (apache/rocketmq#8472): a filter that matches one message in a hundred neither strands nor lags.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sparse_filter_is_served_soon_and_leaves_no_lag() {
    let cluster = Cluster::start().await;
    cluster.gateway.send("busy", "creates the topic").await;
    let (status, answer) = cluster
        .gateway
        .call(
            "PUT",
            "/groups/sparse",
            json!({"initialPosition": "latest"}),
        )
        .await;
    assert!(status == 200 || status == 201, "{answer}");
    let filter = json!({"filter": {"kind": "tag", "expression": "rare"}});
    let (status, answer) = cluster
        .gateway
        .call("PUT", "/groups/sparse/subscriptions/busy", filter)
        .await;
    assert!(status == 200 || status == 201, "{answer}");
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "sparse", "busy", 100, json!({})).await;
    let noise: Vec<Value> = (0..100)
        .map(|n| json!({"text": format!("{n}"), "tag": "common"}))
        .collect();
    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        let (status, answer) = cluster
            .gateway
            .call(
                "POST",
                "/topics/busy/messages/batch",
                json!({"messages": noise}),
            )
            .await;
        assert_eq!(status, 200, "{answer}");
        let (status, answer) = cluster
            .gateway
            .call(
                "POST",
                "/topics/busy/messages",
                json!({"text": format!("rare {round}"), "tag": "rare"}),
            )
            .await;
        assert_eq!(status, 201, "{answer}");
        let began = Instant::now();
        let messages = socket.messages(1, LONG).await;
        slowest = slowest.max(began.elapsed());
        assert_eq!(texts(&messages), BTreeSet::from([format!("rare {round}")]));
        let acked = socket
            .ask(
                round + 10,
                json!({"op": "ack", "sub": "s", "receipts": receipts(&messages)}),
            )
            .await;
        assert_eq!(acked["op"], "ok");
    }
    assert!(slowest < Duration::from_millis(500), "slowest {slowest:?}");
    cluster.gateway.settled("sparse").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_group_says_so_and_goes_on_when_resumed() {
    let cluster = Cluster::start().await;
    cluster.gateway.send("orders", "x").await;
    let (status, answer) = cluster
        .gateway
        .call(
            "PUT",
            "/groups/billing",
            json!({"paused": true, "initialPosition": "earliest"}),
        )
        .await;
    assert!(status == 200 || status == 201, "{answer}");
    let (status, answer) = cluster
        .gateway
        .call(
            "PUT",
            "/groups/billing/subscriptions/orders",
            json!({"filter": {"kind": "all"}}),
        )
        .await;
    assert!(status == 200 || status == 201, "{answer}");
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 5, json!({})).await;
    let status = socket.frame().await;
    assert_eq!(
        (&status["op"], &status["state"]),
        (&json!("status"), &json!("paused"))
    );
    let (status, answer) = cluster
        .gateway
        .call("PATCH", "/groups/billing", json!({"paused": false}))
        .await;
    assert_eq!(status, 200, "{answer}");
    let status = socket.frame().await;
    assert_eq!(
        (&status["op"], &status["state"]),
        (&json!("status"), &json!("active"))
    );
    assert_eq!(socket.messages(1, LONG).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribing_to_nothing_is_refused_where_nothing_is_created() {
    let mut config = ws_support::config();
    config.auto_create = false;
    let cluster = Cluster::with(config).await;
    let mut socket = open(cluster.gateway.addr).await;
    let frame = json!({"op": "subscribe", "sub": "s", "mode": "group", "group": "nobody", "topic": "nothing", "credit": 1});
    let answer = socket.ask(1, frame).await;
    assert_eq!(
        (&answer["op"], &answer["code"], &answer["fatal"]),
        (&json!("error"), &json!("group_not_found"), &json!(true)),
        "{answer}"
    );
    assert_eq!(socket.ask(2, json!({"op": "ping"})).await["op"], "pong");
}

/// Topics and groups of the system are neither written nor made by a socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_the_system_is_refused() {
    let cluster = Cluster::start().await;
    cluster.gateway.send("orders", "x").await;
    let mut socket = open(cluster.gateway.addr).await;
    let publish = |topic: &str| json!({"op": "publish", "topic": topic, "message": {"json": 1}});
    let subscribe = |group: &str, topic: &str| json!({"op": "subscribe", "sub": "s", "mode": "group", "group": group, "topic": topic});
    for (id, frame) in [
        publish("TBW102"),
        publish("RMQ_SYS_t"),
        subscribe("RMQ_SYS_g", "orders"),
        subscribe("g", "TBW102"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = socket.ask(u32::try_from(id).unwrap(), frame).await;
        assert_eq!(answer["code"], "system_resource", "{answer}");
    }
}

/// A client that leaves while messages are being popped costs no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_reached_the_socket_is_no_attempt() {
    let cluster = Cluster::start().await;
    let sent = send_many(&cluster, "orders", 5).await;
    for _ in 0..5 {
        let mut socket = open(cluster.gateway.addr).await;
        // A budget of one byte holds all but one message back in the gateway.
        subscribe(
            &mut socket,
            "billing",
            "orders",
            0,
            json!({"invisibleFor": "300s"}),
        )
        .await;
        socket.close().await;
    }
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 10, json!({})).await;
    let messages = socket.messages(5, LONG).await;
    assert_eq!(texts(&messages), sent);
    assert!(
        messages.iter().all(|message| message["attempt"] == 1),
        "{messages:?}"
    );
}

/// A lease begins when the messages are taken, not when the socket began to wait for memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_a_wait_for_memory_is_delivered() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 1).await;
    let answers = &cluster.gateway.state().answers;
    let all = answers.hold(usize::try_from(config().answers_max.bytes()).unwrap());
    let mut socket = open(cluster.gateway.addr).await;
    let lease = json!({"invisibleFor": "1s"});
    subscribe(&mut socket, "billing", "orders", 1, lease).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    drop(all);
    let messages = socket.messages(1, LONG).await;
    assert_eq!(messages[0]["attempt"], 1);
    socket.close().await;
}

/// A socket that ends while it waits for memory, for what it sent and for what it is to be given, holds up nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_ends_leaves_the_lines_for_memory() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 1).await;
    let (answers, bodies) = {
        let state = cluster.gateway.state();
        (Arc::clone(&state.answers), Arc::clone(&state.bodies))
    };
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 0, json!({})).await;
    let mut all = vec![answers.hold(usize::try_from(config().answers_max.bytes()).unwrap())];
    socket
        .say(json!({"op": "credit", "sub": "s", "messages": 1}))
        .await;
    tokio::time::sleep(QUIET).await;
    all.push(bodies.hold(usize::try_from(config().bodies_max.bytes()).unwrap()));
    socket.say(json!({"op": "ping"})).await;
    tokio::time::sleep(QUIET).await;
    // The socket is closed, and the client does not answer that for a while.
    cluster.gateway.drain();
    tokio::time::sleep(QUIET).await;
    drop(all);
    let soon = Duration::from_secs(1);
    for budget in [answers, bodies] {
        let taken = budget.take(Whose::Socket("other"), 1);
        assert!(tokio::time::timeout(soon, taken).await.is_ok());
    }
    assert_eq!(socket.closed().await, 1012);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_lets_a_client_finish_what_it_holds() {
    let cluster = Cluster::start().await;
    send_many(&cluster, "orders", 2).await;
    let mut socket = open(cluster.gateway.addr).await;
    subscribe(&mut socket, "billing", "orders", 1, json!({})).await;
    let held = socket.messages(1, LONG).await;
    cluster.gateway.drain();
    assert_eq!(socket.frame().await["op"], "drain");
    socket
        .say(json!({"op": "credit", "sub": "s", "messages": 5}))
        .await;
    assert_eq!(socket.next(QUIET).await, Got::Nothing, "no new messages");
    let acked = socket
        .ask(
            2,
            json!({"op": "ack", "sub": "s", "receipts": receipts(&held)}),
        )
        .await;
    assert_eq!(acked["op"], "ok", "{acked}");
    assert_eq!(socket.closed().await, 1012);
}
