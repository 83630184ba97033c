//! The name server over real sockets, asked as brokers, clients and tools ask it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use clock::{ManualClock, SystemClock};
use namesrv::{Config, Running, start};
use node::{AdminListen, Context, Millis};
use remoting::{Client, ClientOptions};
use wire::{Command, RequestCode, ResponseCode};

const WAIT: Duration = Duration::from_secs(10);
const TABLE: &str = r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"T":{"perm":6,"readQueueNums":4,"topicName":"T","topicSysFlag":0,"writeQueueNums":4},"TBW102":{"perm":7,"readQueueNums":8,"topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}"#;

struct Rig {
    server: Running,
    addr: String,
    client: Client,
}

fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin_listen: AdminListen::Off,
        scan_interval: Millis(10),
        ..Config::default()
    }
}

async fn rig(config: Config, ctx: Context) -> Rig {
    let server = start(config, ctx).await.unwrap();
    Rig {
        addr: server.addr().to_string(),
        server,
        client: Client::new(ClientOptions::default()),
    }
}

async fn usual() -> Rig {
    rig(config(), Context::quiet(Arc::new(SystemClock::new()))).await
}

fn request(code: RequestCode, fields: &[(&str, &str)]) -> Command {
    let mut cmd = Command::request(code);
    for (name, value) in fields {
        cmd.ext.put(name, *value);
    }
    cmd
}

fn registration(name: &str, id: &str, addr: &str) -> Command {
    let fields = [
        ("brokerName", name),
        ("brokerId", id),
        ("brokerAddr", addr),
        ("clusterName", "C"),
    ];
    let mut cmd = request(RequestCode::RegisterBroker, &fields).with_body(TABLE);
    cmd.ext.put("haServerAddr", "ha:1");
    cmd
}

impl Rig {
    async fn ask(&self, cmd: Command) -> Command {
        self.client.invoke(&self.addr, cmd, WAIT).await.unwrap()
    }

    async fn body(&self, code: RequestCode, fields: &[(&str, &str)]) -> String {
        let answer = self.ask(request(code, fields)).await;
        assert_eq!(
            answer.response_code(),
            ResponseCode::Success,
            "{:?}",
            answer.remark
        );
        String::from_utf8(answer.body.to_bytes().to_vec()).unwrap()
    }

    async fn until_no_route(&self) {
        for _ in 0..1000 {
            let answer = self
                .ask(request(RequestCode::GetRouteinfoByTopic, &[("topic", "T")]))
                .await;
            if answer.response_code() == ResponseCode::TopicNotExist {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the route stays");
    }
}

#[tokio::test]
async fn a_registered_broker_is_routable_in_both_dialects() {
    let rig = usual().await;
    let answer = rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    assert_eq!(answer.response_code(), ResponseCode::Success);
    assert!(answer.ext.is_present() && answer.ext.is_empty() && answer.body.is_empty());

    let expected = |key: &str| {
        format!(
            r#"{{"brokerDatas":[{{"brokerAddrs":{{{key}:"127.0.0.1:10911"}},"brokerName":"a","cluster":"C","enableActingMaster":false}}],"filterServerTable":{{}},"queueDatas":[{{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}}]}}"#
        )
    };
    for (version, key) in [(401, "\"0\""), (493, "\"0\""), (400, "0"), (317, "0")] {
        let mut cmd = request(RequestCode::GetRouteinfoByTopic, &[("topic", "T")]);
        cmd.version = version;
        assert_eq!(
            rig.ask(cmd).await.body.to_bytes(),
            expected(key),
            "{version}"
        );
    }
    let mut cmd = request(
        RequestCode::GetRouteinfoByTopic,
        &[("topic", "T"), ("acceptStandardJsonOnly", "true")],
    );
    cmd.version = 317;
    assert_eq!(rig.ask(cmd).await.body.to_bytes(), expected("\"0\""));

    let missing = rig
        .ask(request(
            RequestCode::GetRouteinfoByTopic,
            &[("topic", "none")],
        ))
        .await;
    assert_eq!(missing.response_code(), ResponseCode::TopicNotExist);
    assert!(
        missing
            .remark
            .unwrap()
            .starts_with("No topic route info in name server for the topic: none")
    );
    let nameless = rig
        .ask(request(RequestCode::GetRouteinfoByTopic, &[]))
        .await;
    assert_eq!(nameless.response_code(), ResponseCode::SystemError);

    assert_eq!(
        rig.body(RequestCode::GetBrokerClusterInfo, &[]).await,
        r#"{"brokerAddrTable":{"a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"a","cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["a"]}}"#
    );
    assert_eq!(
        rig.body(
            RequestCode::GetBrokerMemberGroup,
            &[("clusterName", "C"), ("brokerName", "a")]
        )
        .await,
        r#"{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"a","cluster":"C"}}"#
    );
    assert_eq!(
        rig.body(
            RequestCode::GetBrokerMemberGroup,
            &[("clusterName", "C"), ("brokerName", "x")]
        )
        .await,
        r#"{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"C"}}"#
    );
    rig.server.stop().await;
}

#[tokio::test]
async fn lists_of_topics() {
    let rig = usual().await;
    rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    let list = |names: &str| format!("{{\"topicList\":[{names}]}}");
    assert_eq!(
        rig.body(RequestCode::GetAllTopicListFromNameserver, &[])
            .await,
        list("\"T\",\"TBW102\"")
    );
    assert_eq!(
        rig.body(RequestCode::GetTopicsByCluster, &[("cluster", "C")])
            .await,
        list("\"T\",\"TBW102\"")
    );
    assert_eq!(
        rig.body(RequestCode::GetTopicsByCluster, &[("cluster", "zz")])
            .await,
        list("")
    );
    for code in [
        RequestCode::GetUnitTopicList,
        RequestCode::GetHasUnitSubTopicList,
        RequestCode::GetHasUnitSubUnunitTopicList,
    ] {
        assert_eq!(rig.body(code, &[]).await, list(""));
    }
    let system = rig.body(RequestCode::GetSystemTopicListFromNs, &[]).await;
    assert_eq!(
        system,
        r#"{"brokerAddr":"127.0.0.1:10911","topicList":["C","a"]}"#
    );
    rig.body(RequestCode::DeleteTopicInNamesrv, &[("topic", "T")])
        .await;
    assert_eq!(
        rig.body(RequestCode::GetAllTopicListFromNameserver, &[])
            .await,
        list("\"TBW102\"")
    );
    let added = request(RequestCode::RegisterTopicInNamesrv, &[("topic", "N")]).with_body(
        r#"{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSysFlag":0}],"brokerDatas":[]}"#,
    );
    assert_eq!(rig.ask(added).await.response_code(), ResponseCode::Success);
    assert_eq!(
        rig.body(RequestCode::GetAllTopicListFromNameserver, &[])
            .await,
        list("\"N\",\"TBW102\"")
    );
    rig.server.stop().await;
}

#[tokio::test]
async fn write_permission_and_data_version() {
    let rig = usual().await;
    rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    let wiped = rig
        .ask(request(
            RequestCode::WipeWritePermOfBroker,
            &[("brokerName", "a")],
        ))
        .await;
    assert_eq!(wiped.ext.get("wipeTopicCount"), Some("2"));
    assert!(
        rig.body(RequestCode::GetRouteinfoByTopic, &[("topic", "T")])
            .await
            .contains("\"perm\":4")
    );
    let added = rig
        .ask(request(
            RequestCode::AddWritePermOfBroker,
            &[("brokerName", "a")],
        ))
        .await;
    assert_eq!(added.ext.get("addTopicCount"), Some("2"));

    let ask = |addr: &str, body: &str| {
        let fields = [
            ("brokerName", "a"),
            ("brokerId", "0"),
            ("brokerAddr", addr),
            ("clusterName", "C"),
        ];
        request(RequestCode::QueryDataVersion, &fields).with_body(body.to_owned())
    };
    let same = r#"{"counter":3,"stateVersion":0,"timestamp":1700000000000}"#;
    let answer = rig.ask(ask("127.0.0.1:10911", same)).await;
    assert_eq!(
        (answer.ext.get("changed"), answer.body.to_bytes().as_ref()),
        (Some("false"), same.as_bytes())
    );
    let answer = rig.ask(ask("127.0.0.1:10911", r#"{"counter":4}"#)).await;
    assert_eq!(answer.ext.get("changed"), Some("true"));
    let answer = rig.ask(ask("127.0.0.1:1", same)).await;
    assert_eq!(
        (answer.ext.get("changed"), answer.body.len()),
        (Some("true"), 0)
    );
    rig.server.stop().await;
}

#[tokio::test]
async fn keys_and_values_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        data: Some(dir.path().display().to_string()),
        ..config()
    };
    let rig_one = rig(config.clone(), Context::quiet(Arc::new(SystemClock::new()))).await;
    let key = [("namespace", "n"), ("key", "k")];
    let missing = rig_one.ask(request(RequestCode::GetKvConfig, &key)).await;
    assert_eq!(missing.response_code(), ResponseCode::QueryNotFound);
    assert_eq!(
        missing.remark.as_deref(),
        Some("No config item, Namespace: n Key: k")
    );
    let put = [("namespace", "n"), ("key", "k"), ("value", "v")];
    rig_one.ask(request(RequestCode::PutKvConfig, &put)).await;
    rig_one.server.stop().await;

    let rig = rig(config, Context::quiet(Arc::new(SystemClock::new()))).await;
    assert_eq!(
        rig.ask(request(RequestCode::GetKvConfig, &key))
            .await
            .ext
            .get("value"),
        Some("v")
    );
    assert_eq!(
        rig.body(RequestCode::GetKvlistByNamespace, &key[..1]).await,
        r#"{"table":{"k":"v"}}"#
    );
    rig.ask(request(RequestCode::DeleteKvConfig, &key)).await;
    assert_eq!(
        rig.body(RequestCode::GetKvlistByNamespace, &key[..1]).await,
        r#"{"table":{}}"#
    );
    let never = rig
        .ask(request(
            RequestCode::GetKvlistByNamespace,
            &[("namespace", "never")],
        ))
        .await;
    assert_eq!(never.response_code(), ResponseCode::QueryNotFound);
    rig.server.stop().await;
}

#[tokio::test]
async fn settings_are_properties_text() {
    let rig = usual().await;
    assert!(
        rig.body(RequestCode::GetNamesrvConfig, &[])
            .await
            .contains("orderMessageEnable=false\n")
    );
    let change =
        |text: &'static str| request(RequestCode::UpdateNamesrvConfig, &[]).with_body(text);
    assert_eq!(
        rig.ask(change("orderMessageEnable=true\n"))
            .await
            .response_code(),
        ResponseCode::Success
    );
    assert_eq!(
        rig.ask(change("kvConfigPath=/x")).await.response_code(),
        ResponseCode::NoPermission
    );

    rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    let put = [
        ("namespace", "ORDER_TOPIC_CONFIG"),
        ("key", "T"),
        ("value", "a:4"),
    ];
    rig.ask(request(RequestCode::PutKvConfig, &put)).await;
    let route = rig
        .body(RequestCode::GetRouteinfoByTopic, &[("topic", "T")])
        .await;
    assert!(
        route.contains(r#""filterServerTable":{},"orderTopicConf":"a:4","queueDatas""#),
        "{route}"
    );
    let answer = rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    assert_eq!(answer.body.to_bytes(), r#"{"table":{"T":"a:4"}}"#);

    rig.ask(change("enableAllTopicList=false")).await;
    let list = rig
        .ask(request(RequestCode::GetAllTopicListFromNameserver, &[]))
        .await;
    assert_eq!(
        (list.response_code(), list.remark.as_deref()),
        (ResponseCode::SystemError, Some("disable"))
    );
    rig.server.stop().await;
}

#[tokio::test]
async fn a_broker_leaves_with_its_connection_and_a_replica_learns_its_master() {
    let rig = usual().await;
    let broker = Client::new(ClientOptions::default());
    broker
        .invoke(&rig.addr, registration("a", "0", "127.0.0.1:10911"), WAIT)
        .await
        .unwrap();
    let replica = rig.ask(registration("a", "1", "127.0.0.1:10921")).await;
    assert_eq!(replica.ext.get("masterAddr"), Some("127.0.0.1:10911"));
    assert_eq!(replica.ext.get("haServerAddr"), Some("ha:1"));
    let goodbye = [
        ("brokerName", "a"),
        ("brokerId", "1"),
        ("brokerAddr", "127.0.0.1:10921"),
        ("clusterName", "C"),
    ];
    rig.ask(request(RequestCode::UnregisterBroker, &goodbye))
        .await;
    assert!(
        rig.body(RequestCode::GetBrokerClusterInfo, &[])
            .await
            .contains(r#"{0:"127.0.0.1:10911"}"#)
    );
    broker.disconnect(&rig.addr);
    rig.until_no_route().await;
    let none = rig.body(RequestCode::GetBrokerClusterInfo, &[]).await;
    assert_eq!(none, r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#);
    rig.server.stop().await;
}

#[tokio::test]
async fn a_silent_broker_leaves_after_two_minutes_of_the_clock() {
    let clock = ManualClock::new(1_700_000_000_000);
    let rig = rig(config(), Context::quiet(Arc::new(clock.clone()))).await;
    rig.ask(registration("a", "0", "127.0.0.1:10911")).await;
    clock.advance(Duration::from_secs(100));
    let beat = [
        ("brokerName", "a"),
        ("brokerAddr", "127.0.0.1:10911"),
        ("clusterName", "C"),
    ];
    rig.ask(request(RequestCode::BrokerHeartbeat, &beat)).await;
    clock.advance(Duration::from_secs(119));
    tokio::time::sleep(Duration::from_millis(50)).await;
    rig.body(RequestCode::GetRouteinfoByTopic, &[("topic", "T")])
        .await;
    clock.advance(Duration::from_secs(2));
    rig.until_no_route().await;
    rig.server.stop().await;
}

#[tokio::test]
async fn refusals_say_why() {
    let rig = usual().await;
    let unknown = rig.ask(request(RequestCode::from_code(9999), &[])).await;
    assert_eq!(
        unknown.response_code(),
        ResponseCode::RequestCodeNotSupported
    );
    assert_eq!(
        unknown.remark.as_deref(),
        Some("request type 9999 not supported")
    );
    let mut corrupt = registration("a", "0", "127.0.0.1:10911");
    corrupt.ext.put("bodyCrc32", "1");
    assert_eq!(
        rig.ask(corrupt).await.remark.as_deref(),
        Some("crc32 not match")
    );
    let bare = rig.ask(request(RequestCode::RegisterBroker, &[])).await;
    assert_eq!(bare.response_code(), ResponseCode::SystemError);
    let one = r#"{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}}}"#;
    let first = rig
        .ask(registration("a", "0", "127.0.0.1:10911").with_body(one))
        .await;
    assert!(first.remark.unwrap().starts_with("register broker failed"));
    let none = rig.body(RequestCode::GetBrokerClusterInfo, &[]).await;
    assert_eq!(none, r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#);
    let long = "x".repeat(70_000);
    let route = request(RequestCode::GetRouteinfoByTopic, &[("topic", &long)]);
    let remark = rig.ask(route).await.remark.unwrap();
    assert_eq!(remark.chars().count(), 1024, "a long name is not sent back");
    rig.server.stop().await;
}
