//! Queues assigned by the broker, and groups that pop by an administrator's word (RocketMQ 5.4.0 `QueryAssignmentProcessor`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use remoting::{Client, Responder, Server, ServerOptions, Service};
use serde_json::{Value, json};
use support::{Fixture, SOON, client, heartbeat, request};
use wire::{Command, RequestCode, ResponseCode};

async fn member(fix: &Fixture, id: &str, topic: &str) -> Client {
    let client = client();
    let beat = heartbeat(id, "g", topic, "*");
    client.invoke(&fix.addr, beat, SOON).await.unwrap();
    client
}

async fn ask(fix: &Fixture, topic: &str, id: &str, strategy: &str, model: &str) -> Value {
    let body = json!({"topic": topic, "consumerGroup": "g", "clientId": id, "strategyName": strategy,
        "messageModel": model});
    let cmd = Command::request(RequestCode::QueryAssignment).with_body(body.to_string());
    let answer = fix.ok(cmd).await;
    serde_json::from_slice(&answer.body.to_bytes()).unwrap()
}

/// Mode, broker and queue of each assignment.
async fn assigned(fix: &Fixture, topic: &str, id: &str) -> Vec<String> {
    let answer = ask(fix, topic, id, "AVG", "CLUSTERING").await;
    list(&answer)
}

fn list(answer: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    answer["messageQueueAssignments"]
        .as_array()
        .unwrap_or(&Vec::new())
        .iter()
        .map(|one| {
            let queue = &one["messageQueue"];
            let (mode, broker) = (text(&one["mode"]), text(&queue["brokerName"]));
            format!("{mode} {broker} {}", queue["queueId"])
        })
        .collect()
}

fn set_mode(topic: &str, mode: &str) -> Command {
    let body = json!({"topic": topic, "consumerGroup": "g", "mode": mode, "popShareQueueNum": 0});
    Command::request(RequestCode::SetMessageRequestMode).with_body(body.to_string())
}

#[tokio::test]
async fn members_get_their_shares_and_strangers_nothing() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 3).await;
    let _a = member(&fix, "a", "t").await;
    let _b = member(&fix, "b", "t").await;
    let shares = [
        assigned(&fix, "t", "a").await,
        assigned(&fix, "t", "b").await,
    ];
    assert_eq!(shares[0], ["PULL broker-a 0", "PULL broker-a 1"]);
    assert_eq!(shares[1], ["PULL broker-a 2"]);
    let circle = ask(&fix, "t", "b", "AVG_BY_CIRCLE", "CLUSTERING").await;
    assert_eq!(list(&circle), ["PULL broker-a 1"]);
    let all = ask(&fix, "t", "b", "AVG", "BROADCASTING").await;
    assert_eq!(list(&all).len(), 3);
    let fields = [
        ("topic", "unread"),
        ("readQueueNums", "1"),
        ("writeQueueNums", "1"),
        ("perm", "2"),
    ];
    fix.ok(request(RequestCode::UpdateAndCreateTopic, &fields))
        .await;
    let unread = ask(&fix, "unread", "b", "AVG", "BROADCASTING").await;
    assert_eq!(unread, json!({}), "nobody may read it");
    // What makes a client keep what it has.
    for (topic, id, strategy) in [("t", "c", "AVG"), ("t", "a", "OWN"), ("u", "a", "AVG")] {
        let nothing = ask(&fix, topic, id, strategy, "CLUSTERING").await;
        assert_eq!(nothing, json!({}), "{topic} {id} {strategy}");
    }
}

#[tokio::test]
async fn a_group_pops_by_an_administrators_word_also_after_a_restart() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 3).await;
    let kept = member(&fix, "a", "t").await;
    let refused = |cmd: Command, code: i32| {
        let fix = &fix;
        async move {
            let answer = fix.call(cmd).await;
            assert_eq!(answer.code, code, "{:?}", answer.remark);
        }
    };
    refused(set_mode("%RETRY%g", "POP"), 16).await;
    refused(set_mode("t", "PUSH"), 29).await;
    refused(set_mode("", "POP"), 29).await;
    assert_eq!(assigned(&fix, "t", "a").await.len(), 3);
    fix.ok(set_mode("t", "Pop")).await;
    assert_eq!(assigned(&fix, "t", "a").await, ["POP broker-a -1"]);
    assert_eq!(assigned(&fix, "%RETRY%g", "a").await, ["PULL broker-a 0"]);
    let modes = json!({"messageRequestModeMap": {"t": {"g":
        {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "t"}}}});
    let all = async |fix: &Fixture| -> Value {
        let answer = fix
            .ok(Command::request(RequestCode::GetAllMessageRequestMode))
            .await;
        serde_json::from_slice(&answer.body.to_bytes()).unwrap()
    };
    assert_eq!(all(&fix).await, modes);
    drop(kept);
    let fix = fix.restart().await;
    let _again = member(&fix, "a", "t").await;
    assert_eq!(assigned(&fix, "t", "a").await, ["POP broker-a -1"]);
    fix.ok(set_mode("t", "PULL")).await;
    assert_eq!(assigned(&fix, "t", "a").await.len(), 3);
    // A topic made anew does not inherit.
    fix.ok(set_mode("t", "POP")).await;
    fix.ok(request(RequestCode::DeleteTopicInBroker, &[("topic", "t")]))
        .await;
    assert_eq!(all(&fix).await, json!({"messageRequestModeMap": {}}));
}

/// A name server with a topic on two brokers.
struct TwoBrokers;

impl Service for TwoBrokers {
    fn call(&self, cmd: Command, to: Responder) {
        let answer = Command::response(ResponseCode::Success);
        if cmd.request_code() != RequestCode::GetRouteinfoByTopic {
            return to.send(answer);
        }
        let queue = |broker: &str| {
            json!({"brokerName": broker, "perm": 6, "readQueueNums": 2, "topicSysFlag": 0,
                "writeQueueNums": 2})
        };
        let route = json!({"brokerDatas": [], "filterServerTable": {},
            "queueDatas": [queue("broker-b"), queue("broker-a")]});
        to.send(answer.with_body(route.to_string()));
    }
}

#[tokio::test]
async fn shares_cover_the_queues_of_all_brokers() {
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let namesrv = Server::bind(ServerOptions::new(addr), Arc::new(TwoBrokers)).unwrap();
    let at = namesrv.local_addr().to_string();
    let fix = Fixture::start_with(|config| config.namesrv = vec![at]).await;
    fix.create_topic("t", 2).await;
    let _a = member(&fix, "a", "t").await;
    let _b = member(&fix, "b", "t").await;
    let shares = [
        assigned(&fix, "t", "a").await,
        assigned(&fix, "t", "b").await,
    ];
    assert_eq!(shares[0], ["PULL broker-a 0", "PULL broker-a 1"]);
    assert_eq!(shares[1], ["PULL broker-b 0", "PULL broker-b 1"]);
    fix.ok(set_mode("t", "POP")).await;
    assert_eq!(
        assigned(&fix, "t", "b").await,
        ["POP broker-a -1", "POP broker-b -1"]
    );
}

/// A name server that knows no topic and counts who asks for one.
#[derive(Default)]
struct NoRoutes(AtomicUsize);

impl Service for NoRoutes {
    fn call(&self, cmd: Command, to: Responder) {
        if cmd.request_code() == RequestCode::GetRouteinfoByTopic {
            self.0.fetch_add(1, Ordering::Relaxed);
            return to.send(Command::error(ResponseCode::TopicNotExist, "no route"));
        }
        to.send(Command::response(ResponseCode::Success));
    }
}

#[tokio::test]
async fn a_topic_without_a_route_is_not_asked_for_again_at_once() {
    let names = Arc::new(NoRoutes::default());
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let namesrv = Server::bind(ServerOptions::new(addr), names.clone()).unwrap();
    let at = namesrv.local_addr().to_string();
    let clock = clock::ManualClock::new(1_700_000_000_000);
    let dir = tempfile::tempdir().unwrap();
    let mut config = support::config(dir.path());
    config.namesrv = vec![at];
    let context = node::Context::quiet(Arc::new(clock.clone()));
    let fix = Fixture {
        running: broker::start(config, &context).await.unwrap(),
        dir,
        client: client(),
        addr: String::new(),
    };
    let fix = Fixture {
        addr: fix.running.addrs().listen.to_string(),
        ..fix
    };
    for _ in 0..3 {
        let nothing = ask(&fix, "u", "a", "AVG", "CLUSTERING").await;
        assert_eq!(nothing, json!({}));
    }
    assert_eq!(names.0.load(Ordering::Relaxed), 1);
    clock.advance(std::time::Duration::from_secs(2));
    ask(&fix, "u", "a", "AVG", "CLUSTERING").await;
    assert_eq!(names.0.load(Ordering::Relaxed), 2);
}
