//! Topics and groups are the same on all masters: before a broker serves, and soon after a change.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Config, Running};
use clock::SystemClock;
use node::{Context, Millis};
use parking_lot::Mutex;
use remoting::{Client, Responder, Server, ServerOptions, Service};
use support::{SOON, client, create_topic, request};
use tempfile::TempDir;
use wire::{Command, RequestCode, ResponseCode};

/// A name server that lists who registered, and whoever it is told to list.
#[derive(Default)]
struct NameServer(Mutex<BTreeMap<String, String>>);

impl Service for NameServer {
    fn call(&self, cmd: Command, to: Responder) {
        let mut brokers = self.0.lock();
        let name = cmd.ext.get("brokerName").unwrap_or_default().to_owned();
        let mut answer = Command::response(ResponseCode::Success);
        match cmd.request_code() {
            RequestCode::RegisterBroker => {
                let addr = cmd.ext.get("brokerAddr").unwrap().to_owned();
                brokers.insert(name, addr);
            }
            RequestCode::UnregisterBroker => {
                brokers.remove(&name);
            }
            RequestCode::GetBrokerClusterInfo => {
                let table: serde_json::Map<String, serde_json::Value> = brokers
                    .iter()
                    .map(|(name, addr)| {
                        let data =
                            serde_json::json!({"brokerName": name, "brokerAddrs": {"0": addr}});
                        (name.clone(), data)
                    })
                    .collect();
                let names: Vec<&String> = brokers.keys().collect();
                let info = serde_json::json!({"brokerAddrTable": table, "clusterAddrTable": {"DefaultCluster": names}});
                answer = answer.with_body(info.to_string());
            }
            _ => {}
        }
        to.send(answer);
    }
}

/// Takes connections and answers nothing.
struct Silent;

impl Service for Silent {
    fn call(&self, _cmd: Command, to: Responder) {
        std::mem::forget(to);
    }
}

struct Cluster {
    names: Arc<NameServer>,
    _server: Server,
    namesrv: String,
    client: Client,
}

/// One broker with its directory.
struct Member {
    dir: TempDir,
    config: Config,
    running: Option<Running>,
    addr: String,
}

fn serve(service: Arc<dyn Service>) -> Server {
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::bind(ServerOptions::new(addr), service).unwrap()
}

impl Cluster {
    fn new() -> Self {
        let names = Arc::new(NameServer::default());
        let server = serve(names.clone());
        Self {
            namesrv: server.local_addr().to_string(),
            names,
            _server: server,
            client: client(),
        }
    }

    async fn member(&self, name: &str) -> Member {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            name: name.to_owned(),
            namesrv: vec![self.namesrv.clone()],
            level_interval: Millis::secs(1),
            ..support::config(dir.path())
        };
        let mut member = Member {
            dir,
            config,
            running: None,
            addr: String::new(),
        };
        member.start().await;
        member.registered(self).await;
        member
    }

    async fn call(&self, member: &Member, cmd: Command) -> Command {
        self.client.invoke(&member.addr, cmd, SOON).await.unwrap()
    }

    async fn ok(&self, member: &Member, cmd: Command) -> serde_json::Value {
        let answer = self.call(member, cmd).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        serde_json::from_slice(&answer.body.to_bytes()).unwrap_or_default()
    }

    async fn group_version(&self, member: &Member, group: &str) -> u64 {
        let cmd = request(RequestCode::GetGroup, &[("group", group)]);
        let answer = self.call(member, cmd).await;
        let body: serde_json::Value =
            serde_json::from_slice(&answer.body.to_bytes()).unwrap_or_default();
        body["version"].as_u64().unwrap_or(0)
    }

    async fn put_group(&self, member: &Member, group: &str, attempts: u32) {
        let cmd = request(RequestCode::PutGroup, &[("group", group)]);
        let spec = format!("{{\"maxAttempts\":{attempts}}}");
        self.ok(member, cmd.with_body(spec)).await;
    }

    async fn has_topic(&self, member: &Member, topic: &str) -> Option<serde_json::Value> {
        let cmd = request(RequestCode::GetTopic, &[("topic", topic)]);
        let answer = self.call(member, cmd).await;
        (answer.code == 0).then(|| serde_json::from_slice(&answer.body.to_bytes()).unwrap())
    }
}

impl Member {
    async fn start(&mut self) {
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let running = broker::start(self.config.clone(), &context).await.unwrap();
        self.addr = running.addrs().listen.to_string();
        self.config.listen = running.addrs().listen;
        self.running = Some(running);
    }

    async fn registered(&self, cluster: &Cluster) {
        until(async || cluster.names.0.lock().contains_key(&self.config.name)).await;
    }

    async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }
}

/// Waits until it holds.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, looking).await.unwrap();
}

fn put_topic(topic: &str, queues: i32, version: u64, map: &str) -> Command {
    let version = version.to_string();
    let fields = [("topic", topic), ("version", version.as_str())];
    request(RequestCode::PutTopic, &fields).with_body(format!(
        r#"{{"readQueues":{queues},"writeQueues":{queues},"perm":6,"attributes":{{"gantry.queueMap":"{map}"}}}}"#
    ))
}

#[tokio::test]
async fn a_broker_has_what_changed_while_it_was_down_before_it_answers_anything() {
    let cluster = Cluster::new();
    let (a, mut b) = (
        cluster.member("broker-a").await,
        cluster.member("broker-b").await,
    );
    cluster.put_group(&a, "g", 5).await;
    until(async || cluster.group_version(&b, "g").await == 1).await;
    cluster.ok(&a, create_topic("native", 2)).await;
    cluster
        .ok(&a, put_topic("both", 4, 1, "1 broker-a:4 broker-b:3"))
        .await;
    until(async || cluster.has_topic(&b, "both").await.is_some()).await;
    b.stop().await;
    cluster.put_group(&a, "g", 6).await;
    cluster.put_group(&a, "h", 7).await;
    let delete = request(RequestCode::DeleteTopicInBroker, &[("topic", "both")]);
    cluster.ok(&a, delete).await;
    cluster
        .ok(&a, put_topic("new", 4, 1, "1 broker-a:4 broker-b:2"))
        .await;
    b.start().await;
    assert_eq!(cluster.group_version(&b, "g").await, 2);
    assert_eq!(cluster.group_version(&b, "h").await, 1);
    assert!(cluster.has_topic(&b, "both").await.is_none());
    assert_eq!(
        cluster.has_topic(&b, "new").await.unwrap()["writeQueues"],
        2
    );
    assert!(
        cluster.has_topic(&b, "native").await.is_none(),
        "made for one broker by a native tool"
    );
    // Nothing comes back from the one that had been down.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(cluster.has_topic(&a, "both").await.is_none());
}

#[tokio::test]
async fn a_native_change_and_a_native_deletion_reach_the_other_master() {
    let cluster = Cluster::new();
    let (a, b) = (
        cluster.member("broker-a").await,
        cluster.member("broker-b").await,
    );
    let native = |retries: u32| {
        Command::request(RequestCode::UpdateAndCreateSubscriptiongroup).with_body(format!(
            r#"{{"groupName":"g","retryMaxTimes":{retries},"retryQueueNums":1,"consumeEnable":true}}"#
        ))
    };
    cluster.ok(&a, native(3)).await;
    until(async || cluster.group_version(&b, "g").await == 1).await;
    cluster.ok(&b, native(4)).await;
    until(async || cluster.group_version(&a, "g").await == 2).await;
    let body = cluster
        .ok(
            &a,
            request(RequestCode::GetSubscriptiongroupConfig, &[("group", "g")]),
        )
        .await;
    assert_eq!(body["retryMaxTimes"], 4);
    let delete = request(
        RequestCode::DeleteSubscriptiongroup,
        &[("groupName", "g"), ("cleanOffset", "true")],
    );
    cluster.ok(&a, delete).await;
    until(async || cluster.group_version(&b, "g").await == 0).await;
    cluster.ok(&b, native(5)).await;
    until(async || cluster.group_version(&a, "g").await == 4).await;
}

#[tokio::test]
async fn a_change_of_queues_by_a_native_tool_on_both_masters_stays_on_both() {
    let cluster = Cluster::new();
    let (a, b) = (
        cluster.member("broker-a").await,
        cluster.member("broker-b").await,
    );
    cluster
        .ok(&a, put_topic("t", 4, 1, "1 broker-a:4 broker-b:4"))
        .await;
    until(async || cluster.has_topic(&b, "t").await.is_some()).await;
    cluster.ok(&a, create_topic("t", 8)).await;
    cluster.ok(&b, create_topic("t", 8)).await;
    until(async || {
        let (at_a, at_b) = (
            cluster.has_topic(&a, "t").await,
            cluster.has_topic(&b, "t").await,
        );
        at_a.unwrap()["attributes"]["gantry.queueMap"]
            == at_b.unwrap()["attributes"]["gantry.queueMap"]
    })
    .await;
    for member in [&a, &b] {
        let topic = cluster.has_topic(member, "t").await.unwrap();
        assert_eq!(topic["writeQueues"], 8);
        let map = topic["attributes"]["gantry.queueMap"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(map.ends_with("broker-a:8 broker-b:8"), "{map}");
    }
}

#[tokio::test]
async fn a_silent_peer_delays_the_start_by_three_seconds_at_most() {
    let cluster = Cluster::new();
    let silent = serve(Arc::new(Silent));
    let addr = silent.local_addr().to_string();
    cluster.names.0.lock().insert("broker-x".to_owned(), addr);
    let begun = Instant::now();
    let a = cluster.member("broker-a").await;
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(2_900)..Duration::from_secs(8)).contains(&took),
        "{took:?}"
    );
    let answer = cluster
        .call(&a, request(RequestCode::GetGroup, &[("group", "g")]))
        .await;
    assert_eq!(answer.ext.get("peers"), Some("broker-x"));
}

#[tokio::test]
async fn two_that_start_at_once_do_not_wait_for_each_other() {
    let cluster = Cluster::new();
    let (mut a, mut b) = (
        cluster.member("broker-a").await,
        cluster.member("broker-b").await,
    );
    // Each remembers the other.
    a.stop().await;
    b.stop().await;
    let begun = Instant::now();
    tokio::join!(a.start(), b.start());
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2_900), "{took:?}");
    let _kept = (&a.dir, &b.dir);
}

#[tokio::test]
async fn a_pop_under_a_newer_version_is_refused_and_makes_the_broker_look() {
    let cluster = Cluster::new();
    let a = cluster.member("broker-a").await;
    cluster.ok(&a, create_topic("t", 1)).await;
    cluster.put_group(&a, "g", 5).await;
    let subscribe = request(
        RequestCode::PutSubscription,
        &[("group", "g"), ("topic", "t")],
    );
    cluster.ok(&a, subscribe.with_body("{}")).await;
    for code in [RequestCode::PopMessage, RequestCode::Notification] {
        let ask = |version: &str| {
            request(
                code,
                &[
                    ("consumerGroup", "g"),
                    ("topic", "t"),
                    ("queueId", "-1"),
                    ("maxMsgNums", "1"),
                    ("invisibleTime", "0"),
                    ("pollTime", "0"),
                    ("gantry", "1"),
                    ("groupVersion", version),
                ],
            )
        };
        let stale = cluster.call(&a, ask("3")).await;
        assert_eq!(
            (
                stale.code,
                stale.ext.get("reason"),
                stale.ext.get("groupVersion")
            ),
            (1, Some("stale_config"), Some("2"))
        );
        let fine = cluster.call(&a, ask("2")).await;
        assert_eq!(fine.ext.get("groupVersion"), Some("2"));
        assert_eq!(fine.ext.get("reason"), None);
    }
}

/// A peer of another version: its tables hold what nobody here can take, among what can be.
struct Strange;

impl Service for Strange {
    fn call(&self, cmd: Command, to: Responder) {
        let kind = cmd.ext.get("kind").unwrap_or_default();
        let topic = |name: &str, version: u64, queues: i32| {
            serde_json::json!({"name": name, "version": version, "deletedAtMs": 0, "config": {"topicName": name,
                "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "attributes":
                {"gantry.version": version.to_string(), "gantry.queueMap": "1 broker-a:2 broker-x:2"}}})
        };
        let group = |name: &str, version: u64| {
            serde_json::json!({"name": name, "version": version, "deletedAtMs": 0, "config": {"groupName": name,
                "attributes": {"gantry.version": version.to_string()}}})
        };
        let deleted = |version: u64| serde_json::json!({"name": "c-deleted", "version": version, "config": null});
        let entries = match kind {
            "topic" => vec![
                topic("a b", 1, 2),
                topic("b-shape", 1, -1),
                deleted(u64::MAX),
                topic("d-version", u64::MAX, 2),
                topic("e-good", 1, 2),
            ],
            _ => vec![
                group("a b", 1),
                deleted(u64::MAX),
                group("d-version", u64::MAX),
                group("e-good", 1),
            ],
        };
        let answer = Command::response(ResponseCode::Success);
        to.send(match cmd.request_code() {
            RequestCode::ListConfig => {
                let marks: Vec<serde_json::Value> = entries
                    .iter()
                    .map(|entry| {
                        serde_json::json!({"name": entry["name"], "version": entry["version"], "hash": "",
                            "deleted": entry["config"].is_null()})
                    })
                    .collect();
                let mut answer = answer.with_body(
                    serde_json::json!({"marks": marks, "more": false, "state": "1"}).to_string(),
                );
                answer.ext.put("brokerName", "broker-x");
                answer.ext.put("clusterName", "DefaultCluster");
                answer
            }
            _ => answer.with_body(serde_json::json!({ "entries": entries }).to_string()),
        });
    }
}

#[tokio::test]
async fn what_cannot_be_taken_from_a_peer_keeps_nothing_else_back() {
    let cluster = Cluster::new();
    let strange = serve(Arc::new(Strange));
    let addr = strange.local_addr().to_string();
    cluster.names.0.lock().insert("broker-x".to_owned(), addr);
    let a = cluster.member("broker-a").await;
    assert_eq!(cluster.has_topic(&a, "e-good").await.unwrap()["version"], 1);
    assert_eq!(cluster.group_version(&a, "e-good").await, 1);
    for name in ["b-shape", "c-deleted", "d-version"] {
        assert!(cluster.has_topic(&a, name).await.is_none(), "{name}");
        assert_eq!(cluster.group_version(&a, name).await, 0, "{name}");
    }
}

#[tokio::test]
async fn an_offer_that_cannot_be_is_refused() {
    let fixture = support::Fixture::start().await;
    for kind in ["topic", "group"] {
        let answer = fixture.call(deletion(kind, "t", u64::MAX, 1)).await;
        assert_eq!(answer.ext.get("reason"), Some("invalid_field"));
    }
}

/// A deletion in this version, as a peer tells of it.
fn deletion(kind: &str, name: &str, version: u64, at_ms: u64) -> Command {
    request(RequestCode::OfferConfig, &[("kind", kind)]).with_body(format!(
        r#"{{"entries":[{{"name":"{name}","version":{version},"config":null,"deletedAtMs":{at_ms}}}]}}"#
    ))
}

#[tokio::test]
async fn messages_of_a_topic_made_after_its_deletion_elsewhere_stay() {
    let fixture = support::Fixture::start().await;
    fixture.send("t", 0, &[], "acknowledged").await;
    let group = request(RequestCode::GetSubscriptiongroupConfig, &[("group", "g")]);
    fixture.ok(group.clone()).await;
    fixture.ok(deletion("topic", "t", 6, 1_000)).await;
    fixture.ok(deletion("group", "g", 6, 1_000)).await;
    assert_eq!(fixture.read("t", 0, 0, 1).await.len(), 1);
    let version = async |code, field: &str, name: &str| {
        let answer = fixture.call(request(code, &[(field, name)])).await;
        let body: serde_json::Value =
            serde_json::from_slice(&answer.body.to_bytes()).unwrap_or_default();
        (answer.code, body["version"].as_u64())
    };
    let topic = version(RequestCode::GetTopic, "topic", "t").await;
    let group = version(RequestCode::GetGroup, "group", "g").await;
    assert_eq!((topic, group), ((0, Some(7)), (0, Some(7))));
    // What was there before the deletion goes, also when nobody says when that was.
    let now_ms = clock::Clock::now_ms(&SystemClock::new());
    fixture.ok(deletion("topic", "t", 8, now_ms + 1)).await;
    fixture.ok(deletion("group", "g", 8, 0)).await;
    assert_ne!(version(RequestCode::GetTopic, "topic", "t").await.0, 0);
    assert_ne!(version(RequestCode::GetGroup, "group", "g").await.0, 0);
}
