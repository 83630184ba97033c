//! A broker that was away and is back: who waits hears of it, and it takes the members that the others have.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use remoting::{Client, ClientOptions};
use serde_json::json;
use std::time::Duration;
use support::{Cluster, send, text};
use tokio::time::Instant;
use wire::{Command, RequestCode, ResponseCode};

const SOON: Duration = Duration::from_secs(10);

/// A topic with a queue on each broker, and a group that reads it.
async fn prepare(cluster: &Cluster) {
    cluster.make("/topics/t", r#"{"queues":2}"#).await;
    cluster.make("/groups/g", "{}").await;
    let subscription = r#"{"initialPosition":"earliest"}"#;
    cluster
        .make("/groups/g/subscriptions/t", subscription)
        .await;
}

fn at(broker: &str, n: usize) -> String {
    format!(r#"{{"json":{n},"queue":{{"broker":"{broker}","id":0}}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_that_waits_is_woken_by_a_broker_that_was_away() {
    let mut cluster = Cluster::start(2, 2).await;
    prepare(&cluster).await;
    let addr = cluster.gateways[1].addr();
    let path = "/v1/ns/default/groups/g/receive?topic=t&wait=30s";
    let waiting = tokio::spawn(send_static(addr, path));
    let end = Instant::now() + SOON;
    while cluster.gateways[1].state().upstream.waiters() == 0 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.stop_broker(1).await;
    // Until that gateway knows that it is away.
    let once = "/v1/ns/default/groups/g/receive?topic=t&wait=0s";
    loop {
        let answer = cluster.at(1, "POST", once, "").await;
        if !answer.json()["partial"].is_null() {
            break;
        }
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // From here on nothing else goes on there, and the receive waits anew without the broker: before, it may hear of it by
    // its own calls.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.start_broker(1, |_| {}).await;
    let sent = loop {
        let sent = cluster
            .ns("POST", "/topics/t/messages", &at("broker-b", 7))
            .await;
        if sent.status == 201 {
            break Instant::now();
        }
        assert!(Instant::now() < end + SOON, "{}", sent.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let answer = waiting.await.unwrap();
    assert_eq!(answer.json()["messages"][0]["json"], 7, "{}", answer.text());
    // Its route is looked at every second.
    assert!(sent.elapsed() < SOON / 2, "{:?}", sent.elapsed());
    cluster.stop().await;
}

async fn send_static(addr: std::net::SocketAddr, path: &'static str) -> support::Answer {
    send(addr, "POST", path, &[], b"").await
}

/// A group has members of one kind, also where one of its brokers forgot them and let in the other kind: what a receive
/// takes from the others does not keep it in the group.
#[tokio::test(flavor = "multi_thread")]
async fn one_broker_that_refuses_decides_for_all() {
    // Acks keep a group as well, for so long.
    let silence = |config: &mut broker::Config| {
        config.members.lease_silence = "3s".parse().unwrap();
    };
    let mut cluster = Cluster::start_all(2, 1, |_| {}, silence).await;
    prepare(&cluster).await;
    for n in 0..300 {
        let body = at("broker-a", n);
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    let receive = async |cluster: &Cluster| {
        let path = "/groups/g/receive?topic=t&wait=0s&max=1&autoAck=true";
        cluster.ns("POST", path, "").await
    };
    assert_eq!(receive(&cluster).await.status, 200);
    cluster.stop_broker(1).await;
    cluster.start_broker(1, silence).await;
    let client = Client::new(ClientOptions::default());
    let beat = json!({"clientID": "puller@9", "producerDataSet": [], "consumerDataSet": [{
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [],
    }]});
    let beat = async |place: usize| {
        let addr = cluster.brokers[place].addrs().listen.to_string();
        let beat = Command::request(RequestCode::HeartBeat).with_body(beat.to_string());
        let answer = client.invoke(&addr, beat, SOON).await.unwrap();
        answer.response_code()
    };
    assert_eq!(beat(1).await, ResponseCode::Success);
    let end = Instant::now() + SOON;
    while receive(&cluster).await.status == 200 {
        assert!(Instant::now() < end, "both kinds are in the group");
    }
    for round in 0..20 {
        let refused = receive(&cluster).await;
        let problem = refused.problem(409, "group_mode_conflict");
        assert_eq!(text(&problem, "code"), "group_mode_conflict", "{round}");
    }
    // Refused, it is in nobody's way.
    while beat(0).await != ResponseCode::Success {
        assert!(Instant::now() < end + SOON, "it still holds the group");
        assert_eq!(receive(&cluster).await.status, 409);
    }
    cluster.stop().await;
}
