//! Several name servers that do not know each other: any of them is enough, and one that comes back empty knows all within ten
//! seconds.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use clock::ManualClock;
use node::{AdminListen, Context};
use remoting::{Client, ClientOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use support::send;
use tokio::time::Instant;
use wire::{Command, RequestCode};

/// A third of what a broker waits between two registrations when nothing changes.
const SOON: Duration = Duration::from_secs(10);

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn context() -> Context {
    Context::quiet(Arc::new(clock::SystemClock::new()))
}

async fn name_server(listen: SocketAddr) -> namesrv::Running {
    let config = namesrv::Config {
        listen,
        admin_listen: AdminListen::Off,
        ..namesrv::Config::default()
    };
    namesrv::start(config, context()).await.unwrap()
}

/// How long a name server takes to know the route of a topic.
async fn knows(addr: SocketAddr, topic: &str) -> Duration {
    let client = Client::new(ClientOptions::default());
    let begun = Instant::now();
    loop {
        let cmd = Command::request(RequestCode::GetRouteinfoByTopic).with_ext("topic", topic);
        if let Ok(answer) = client.invoke(&addr.to_string(), cmd, SOON).await
            && answer.code == 0
        {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < SOON, "{topic} stays unknown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_enough_and_one_that_comes_back_empty_knows_all_within_ten_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (name_server(loopback()).await, name_server(loopback()).await);
    let addrs = [one.addr(), two.addr()];
    let list: Vec<String> = addrs.iter().map(ToString::to_string).collect();
    let mut config = broker::Config {
        listen: loopback(),
        admin_listen: AdminListen::Off,
        data: dir.path().join("broker"),
        namesrv: list.clone(),
        ..broker::Config::default()
    };
    config.segment.size = node::ByteSize::mib(64);
    let broker = broker::start(config, &context()).await.unwrap();
    let mut config = support::config(&dir);
    config.namesrv = list;
    let gateway = gateway::start(config, &context()).await.unwrap();
    let path = |topic: &str| format!("/v1/ns/default/topics/{topic}/messages");
    let json = [("Content-Type", "application/json")];
    let post = async |topic: &str| {
        send(
            gateway.addr(),
            "POST",
            &path(topic),
            &json,
            br#"{"json":1}"#,
        )
        .await
        .status
    };
    for addr in addrs {
        knows(addr, "TBW102").await;
    }
    assert_eq!(post("before").await, 201);

    one.stop().await;
    // Long enough for the broker to have tried again more than once.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(post("before").await, 201);
    assert_eq!(
        post("meanwhile").await,
        201,
        "a new topic, by the other one"
    );
    let one = name_server(addrs[0]).await;
    let took = knows(addrs[0], "before").await + knows(addrs[0], "meanwhile").await;
    assert!(took < SOON, "{took:?}");

    two.stop().await;
    assert_eq!(post("after").await, 201, "by the one that came back");
    let got = send(
        gateway.addr(),
        "POST",
        "/v1/ns/default/groups/g/receive?topic=meanwhile&wait=5s",
        &[],
        b"",
    )
    .await;
    assert_eq!(got.json()["messages"].as_array().unwrap().len(), 1);
    gateway.stop().await;
    broker.stop().await.unwrap();
    one.stop().await;
}

/// A name server that does not know a broker yet says nothing of its queues. They stay where they are all the same.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_moves_while_one_name_server_does_not_know_a_broker() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (name_server(loopback()).await, name_server(loopback()).await);
    let addrs = [&one, &two].map(|server| server.addr().to_string());
    let mut brokers = Vec::new();
    for (name, known_at) in [("broker-a", &addrs[..]), ("broker-b", &addrs[1..])] {
        let mut config = broker::Config {
            listen: loopback(),
            admin_listen: AdminListen::Off,
            data: dir.path().join(name),
            namesrv: known_at.to_vec(),
            name: name.to_owned(),
            ..broker::Config::default()
        };
        config.segment.size = node::ByteSize::mib(64);
        brokers.push(broker::start(config, &context()).await.unwrap());
    }
    let mut config = support::config(&dir);
    config.namesrv = addrs.to_vec();
    let time = Arc::new(ManualClock::new(1_800_000_000_000));
    let gateway = gateway::start(config, &Context::quiet(time.clone()))
        .await
        .unwrap();
    let json = [("Content-Type", "application/json")];
    let call = async |method: &str, path: &str, body: String| {
        let body = body.as_bytes();
        send(gateway.addr(), method, path, &json, body).await
    };
    let topic = "/v1/ns/default/topics/t";
    let end = Instant::now() + SOON;
    while !call("GET", "/", String::new())
        .await
        .text()
        .contains("broker-b")
    {
        assert!(Instant::now() < end);
    }
    let made = call("PUT", topic, r#"{"queues":4}"#.to_owned()).await;
    assert_eq!(made.status, 201, "{}", made.text());

    let messages = format!("{topic}/messages");
    let home = async |key: usize| {
        let body = format!(r#"{{"json":{key},"orderingKey":"k{key}"}}"#);
        let sent = call("POST", &messages, body).await;
        // Where both name servers that were asked do not know the broker it may be away.
        if sent.status != 201 {
            sent.problem(503, "broker_unavailable");
            return None;
        }
        Some(sent.json()["queue"].clone())
    };
    let mut homes = Vec::new();
    for key in 0..8 {
        homes.push(home(key).await.unwrap());
    }
    assert!(homes.iter().any(|queue| queue["broker"] == "broker-b"));
    for round in 0..12 {
        // The route is read again behind the first of these.
        time.advance(Duration::from_secs(11));
        for _ in 0..2 {
            for (key, queue) in homes.iter().enumerate() {
                let now = home(key).await;
                assert!(now.is_none_or(|now| now == *queue), "key {key}, {round}");
            }
        }
    }
    gateway.stop().await;
    for broker in brokers {
        broker.stop().await.unwrap();
    }
    one.stop().await;
    two.stop().await;
}
