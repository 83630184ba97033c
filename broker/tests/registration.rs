//! What name servers hear from a broker, and when.
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
use std::time::Duration;

use remoting::{Responder, Server, ServerOptions, Service};
use support::{Fixture, SOON, heartbeat, request};
use tokio::sync::mpsc;
use wire::{Command, RequestCode, ResponseCode};

/// A name server that says yes and hands on what it hears.
struct Listener(mpsc::Sender<Command>);

impl Service for Listener {
    fn call(&self, cmd: Command, to: Responder) {
        // Who else is there is asked at other times than registrations come.
        if cmd.request_code() != RequestCode::GetBrokerClusterInfo {
            self.0.try_send(cmd).ok();
        }
        to.send(Command::response(ResponseCode::Success));
    }
}

fn listen(addr: SocketAddr) -> std::io::Result<(Server, mpsc::Receiver<Command>)> {
    let (send, heard) = mpsc::channel(1_000);
    Ok((
        Server::bind(ServerOptions::new(addr), Arc::new(Listener(send)))?,
        heard,
    ))
}

async fn next(heard: &mut mpsc::Receiver<Command>) -> Command {
    tokio::time::timeout(SOON, heard.recv())
        .await
        .unwrap()
        .unwrap()
}

fn body(cmd: &Command) -> serde_json::Value {
    serde_json::from_slice(&cmd.body.to_bytes()).unwrap()
}

fn topics(cmd: &Command) -> Vec<String> {
    let body = body(cmd);
    body["topicConfigSerializeWrapper"]["topicConfigTable"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

fn version(cmd: &Command) -> (i64, i64) {
    let version = &body(cmd)["topicConfigSerializeWrapper"]["dataVersion"];
    (
        version["counter"].as_i64().unwrap(),
        version["timestamp"].as_i64().unwrap(),
    )
}

#[tokio::test]
async fn all_topics_first_then_each_change_at_once_then_the_farewell() {
    let (server, mut heard) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let namesrv = server.local_addr().to_string();
    let fix = Fixture::start_with(|config| config.namesrv = vec![namesrv]).await;
    let first = next(&mut heard).await;
    assert_eq!(first.request_code(), RequestCode::RegisterBroker);
    assert_eq!(first.ext.get("brokerName"), Some("broker-a"));
    assert_eq!(first.ext.get("clusterName"), Some("DefaultCluster"));
    assert_eq!(first.ext.get("brokerAddr"), Some(fix.addr.as_str()));
    assert_eq!(first.ext.get("brokerId"), Some("0"));
    assert!(first.ext.get("haServerAddr").is_some());
    assert!(topics(&first).contains(&"TBW102".to_owned()));

    fix.create_topic("one", 1).await;
    let second = next(&mut heard).await;
    assert_eq!(topics(&second), ["one"]);
    assert_ne!(version(&second), version(&first));

    // The heartbeat is answered after the retry topic is known.
    fix.ok(heartbeat("a", "g", "one", "*")).await;
    let third = heard.try_recv().unwrap();
    assert_eq!(topics(&third), ["%RETRY%g"]);
    assert_ne!(version(&third), version(&second));

    fix.ok(request(
        RequestCode::DeleteTopicInBroker,
        &[("topic", "one")],
    ))
    .await;
    let fourth = next(&mut heard).await;
    assert!(topics(&fourth).len() > 5 && !topics(&fourth).contains(&"one".to_owned()));

    fix.running.stop().await.unwrap();
    let last = next(&mut heard).await;
    assert_eq!(last.request_code(), RequestCode::UnregisterBroker);
    assert_eq!(last.ext.get("brokerAddr"), Some(fix.addr.as_str()));
}

#[tokio::test]
async fn a_name_server_that_comes_back_hears_everything_again() {
    let (server, mut heard) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = server.local_addr();
    let fix = Fixture::start_with(|config| config.namesrv = vec![addr.to_string()]).await;
    next(&mut heard).await;
    server.shutdown(Duration::from_millis(10)).await;
    drop(server);
    fix.create_topic("meanwhile", 1).await;
    let (_server, mut heard) = loop {
        match listen(addr) {
            Ok(pair) => break pair,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let again = next(&mut heard).await;
    assert!(
        topics(&again).contains(&"meanwhile".to_owned())
            && topics(&again).contains(&"TBW102".to_owned())
    );
}

#[tokio::test]
async fn an_absent_name_server_delays_nothing_for_long() {
    let fix = Fixture::start_with(|config| config.namesrv = vec!["127.0.0.1:1".to_owned()]).await;
    let start = std::time::Instant::now();
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn the_brokers_permission_is_registered_for_every_topic() {
    let (server, mut heard) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let namesrv = server.local_addr().to_string();
    let fix = Fixture::start_with(|config| config.namesrv = vec![namesrv]).await;
    next(&mut heard).await;
    fix.ok(Command::request(RequestCode::UpdateBrokerConfig).with_body("brokerPermission=4"))
        .await;
    let again = next(&mut heard).await;
    assert_eq!(
        body(&again)["topicConfigSerializeWrapper"]["topicConfigTable"]["BenchmarkTest"]["perm"],
        4
    );
}
