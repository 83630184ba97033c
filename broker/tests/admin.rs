//! Administration: topics, groups, offsets, settings, numbers; and Gantry's own requests.
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

use support::{Fixture, heartbeat, number, pull, request};
use wire::body::gantry::{GroupDetail, GroupLag, TopicDetail};
use wire::{Command, RequestCode};

fn text(answer: &Command) -> String {
    String::from_utf8(answer.body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_topic_lives_from_creation_to_deletion() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 4).await;
    fix.ok(support::create_topic("t", 6).with_ext("attributes", "+message.type=FIFO"))
        .await;
    let config = text(
        &fix.ok(request(RequestCode::GetTopicConfig, &[("topic", "t")]))
            .await,
    );
    assert!(
        config.contains(r#""readQueueNums":6"#) && config.contains(r#""message.type":"FIFO""#),
        "{config}"
    );
    let all = fix.ok(request(RequestCode::GetAllTopicConfig, &[])).await;
    assert!(number(&all, "totalTopicNum") > 5);
    assert!(text(&all).contains(r#""t":{"#));
    let page = fix
        .ok(request(
            RequestCode::GetAllTopicConfig,
            &[("topicSeq", "1"), ("maxTopicNum", "2"), ("dataVersion", "")],
        ))
        .await;
    let table: BTreeMap<String, serde_json::Value> =
        serde_json::from_value(serde_json::from_slice::<serde_json::Value>(&page.body.to_bytes()).unwrap()["topicConfigTable"].clone()).unwrap();
    assert_eq!(table.len(), 2);
    fix.send("t", 5, &[], "x").await;
    fix.read("t", 5, 0, 1).await;
    let stats = text(
        &fix.ok(request(RequestCode::GetTopicStatsInfo, &[("topic", "t")]))
            .await,
    );
    assert!(
        stats.contains(
            r#"{"brokerName":"broker-a","queueId":5,"topic":"t"}:{"lastUpdateTimestamp":"#
        ),
        "{stats}"
    );
    fix.ok(request(
        RequestCode::UpdateConsumerOffset,
        &[
            ("consumerGroup", "TOOLS_CONSUMER"),
            ("topic", "t"),
            ("queueId", "0"),
            ("commitOffset", "0"),
        ],
    ))
    .await;
    fix.ok(request(RequestCode::DeleteTopicInBroker, &[("topic", "t")]))
        .await;
    assert_eq!(
        fix.call(request(RequestCode::GetTopicConfig, &[("topic", "t")]))
            .await
            .code,
        17
    );
    assert!(
        !text(
            &fix.ok(request(RequestCode::GetAllConsumerOffset, &[]))
                .await
        )
        .contains("t@TOOLS")
    );
    // The name may be used again, from offset zero.
    fix.create_topic("t", 6).await;
    assert_eq!(fix.send("t", 5, &[], "new").await, (5, 0));
    assert_eq!(fix.read("t", 5, 0, 1).await[0].body, "new");
    fix.ok(request(
        RequestCode::DeleteTopicInBroker,
        &[("topic", "never-there")],
    ))
    .await;
    let system = text(
        &fix.ok(request(RequestCode::GetSystemTopicListFromBroker, &[]))
            .await,
    );
    assert!(
        system.contains("TBW102") && system.contains("DefaultCluster") && !system.contains("\"t\""),
        "{system}"
    );
}

#[tokio::test]
async fn a_group_lives_from_creation_to_deletion() {
    let fix = Fixture::start().await;
    let body = r#"{"groupName":"g","consumeEnable":true,"consumeBroadcastEnable":false,"retryMaxTimes":3,"retryQueueNums":2,"brokerId":0}"#;
    fix.ok(Command::request(RequestCode::UpdateAndCreateSubscriptiongroup).with_body(body))
        .await;
    let config = text(
        &fix.ok(request(
            RequestCode::GetSubscriptiongroupConfig,
            &[("group", "g")],
        ))
        .await,
    );
    assert!(
        config.contains(r#""retryMaxTimes":3"#)
            && config.contains(r#""consumeBroadcastEnable":false"#),
        "{config}"
    );
    let all = fix
        .ok(request(RequestCode::GetAllSubscriptiongroupConfig, &[]))
        .await;
    assert!(number(&all, "totalGroupNum") >= 11 && text(&all).contains(r#""forbiddenTable":{}"#));
    fix.ok(request(
        RequestCode::DeleteSubscriptiongroup,
        &[("groupName", "g"), ("cleanOffset", "true")],
    ))
    .await;
    fix.ok(request(
        RequestCode::DeleteSubscriptiongroup,
        &[("groupName", "g")],
    ))
    .await;
    assert_eq!(
        fix.call(request(
            RequestCode::DeleteSubscriptiongroup,
            &[("groupName", "TOOLS_CONSUMER")]
        ))
        .await
        .code,
        16
    );
    assert_eq!(
        fix.call(request(RequestCode::GetGroup, &[("group", "g")]))
            .await
            .code,
        26
    );
}

#[tokio::test]
async fn a_group_that_may_not_consume_is_told_so() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let body = r#"{"groupName":"g","consumeEnable":false}"#;
    fix.ok(Command::request(RequestCode::UpdateAndCreateSubscriptiongroup).with_body(body))
        .await;
    let answer = fix.call(pull("g", "t", 0, 0, "*", 0)).await;
    assert_eq!(
        (answer.code, answer.ext.get("forbiddenType")),
        (16, Some("2"))
    );
    fix.ok(support::create_topic("t", 1).with_ext("perm", "2"))
        .await;
    let answer = fix.call(pull("other", "t", 0, 0, "*", 0)).await;
    assert_eq!(
        (answer.code, answer.ext.get("forbiddenType")),
        (16, Some("3"))
    );
}

#[tokio::test]
async fn progress_is_shown_per_queue() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    for _ in 0..4 {
        fix.send("t", 1, &[], "x").await;
    }
    let messages = fix.read("t", 1, 0, 4).await;
    fix.ok(request(
        RequestCode::UpdateConsumerOffset,
        &[
            ("consumerGroup", "g"),
            ("topic", "t"),
            ("queueId", "1"),
            ("commitOffset", "3"),
        ],
    ))
    .await;
    let stats = text(
        &fix.ok(request(
            RequestCode::GetConsumeStats,
            &[("consumerGroup", "g")],
        ))
        .await,
    );
    let wanted = format!(
        r#"{{"brokerName":"broker-a","queueId":1,"topic":"t"}}:{{"brokerOffset":4,"consumerOffset":3,"lastTimestamp":{},"pullOffset":3}}"#,
        messages[2].store_ts_ms
    );
    assert!(stats.contains(&wanted), "{stats}\n{wanted}");
    let unknown = text(
        &fix.ok(request(
            RequestCode::GetConsumeStats,
            &[("consumerGroup", "nobody")],
        ))
        .await,
    );
    assert!(unknown.contains(r#""offsetTable":{}"#), "{unknown}");
    let groups = text(
        &fix.ok(request(
            RequestCode::QueryTopicConsumeByWho,
            &[("topic", "t")],
        ))
        .await,
    );
    assert!(groups.contains("\"g\""), "{groups}");
    let topics = text(
        &fix.ok(request(
            RequestCode::QueryTopicsByConsumer,
            &[("group", "g")],
        ))
        .await,
    );
    assert!(topics.contains("\"t\""), "{topics}");
}

#[tokio::test]
async fn a_reset_is_told_to_the_next_pull_once() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    for _ in 0..5 {
        fix.send("t", 0, &[], "x").await;
    }
    let messages = fix.read("t", 0, 0, 5).await;
    let reset = |more: &[(&str, &str)]| {
        let mut cmd = request(
            RequestCode::InvokeBrokerToResetOffset,
            &[
                ("group", "g"),
                ("topic", "t"),
                ("timestamp", "-1"),
                ("isForce", "true"),
            ],
        );
        for (name, value) in more {
            cmd.ext.put(name, *value);
        }
        cmd
    };
    let body = text(&fix.ok(reset(&[])).await);
    assert!(
        body.contains(r#"{"brokerName":"broker-a","queueId":0,"topic":"t"}:5"#),
        "{body}"
    );
    fix.ok(reset(&[("queueId", "0"), ("offset", "2")])).await;
    let commit = fix
        .ok(request(
            RequestCode::UpdateConsumerOffset,
            &[
                ("consumerGroup", "g"),
                ("topic", "t"),
                ("queueId", "0"),
                ("commitOffset", "5"),
            ],
        ))
        .await;
    assert!(commit.remark.unwrap().contains("reset"));
    let answer = fix.call(pull("g", "t", 0, 5, "*", 0)).await;
    assert_eq!(
        (
            answer.code,
            number(&answer, "nextBeginOffset"),
            answer.remark.as_deref()
        ),
        (21, 2, Some("OFFSET_RESET"))
    );
    let answer = fix.call(pull("g", "t", 0, 5, "*", 0)).await;
    assert_eq!(answer.code, 19);
    let time = messages[3].store_ts_ms.to_string();
    let body = text(&fix.ok(reset(&[("timestamp", &time)])).await);
    assert!(
        body.contains(":3}")
            || body.contains(":2}")
            || body.contains(":1}")
            || body.contains(":0}"),
        "{body}"
    );
    assert_eq!(
        fix.call(reset(&[("queueId", "0"), ("offset", "99")]))
            .await
            .code,
        1
    );
    assert_eq!(fix.call(reset(&[("topic", "nowhere")])).await.code, 17);
    assert_eq!(fix.call(reset(&[("group", "nobody")])).await.code, 26);
}

#[tokio::test]
async fn settings_are_shown_and_only_some_may_change() {
    let fix = Fixture::start().await;
    let shown = fix.ok(request(RequestCode::GetBrokerConfig, &[])).await;
    for line in [
        "brokerName=broker-a\n",
        "flushDiskType=ASYNC_FLUSH\n",
        "autoCreateTopicEnable=true\n",
        "maxMessageSize=4194304\n",
    ] {
        assert!(text(&shown).contains(line), "{line} in {}", text(&shown));
    }
    assert!(shown.ext.get("version").unwrap().contains("stateVersion"));
    let change =
        |body: &'static str| Command::request(RequestCode::UpdateBrokerConfig).with_body(body);
    fix.ok(change("autoCreateTopicEnable=false\n# comment\n"))
        .await;
    assert!(
        text(&fix.ok(request(RequestCode::GetBrokerConfig, &[])).await)
            .contains("autoCreateTopicEnable=false")
    );
    assert_eq!(fix.call(support::send("fresh", 0, &[], "x")).await.code, 17);
    let refused = fix
        .call(change("brokerPermission=4\nbrokerName=other\n"))
        .await;
    assert_eq!(refused.code, 16);
    assert!(refused.remark.unwrap().contains("create.topics"));
    assert!(
        text(&fix.ok(request(RequestCode::GetBrokerConfig, &[])).await)
            .contains("brokerPermission=6"),
        "all or nothing"
    );
    assert_eq!(fix.call(change("maxMessageSize=huge")).await.code, 29);
    assert_eq!(fix.call(change("no assignment")).await.code, 16);
}

#[tokio::test]
async fn the_running_broker_shows_numbers_that_tools_parse() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "x").await;
    let body: serde_json::Value = serde_json::from_slice(
        &fix.ok(request(RequestCode::GetBrokerRuntimeInfo, &[]))
            .await
            .body
            .to_bytes(),
    )
    .unwrap();
    let table = body["table"].as_object().unwrap();
    let value = |key: &str| {
        table
            .get(key)
            .unwrap_or_else(|| panic!("no {key}"))
            .as_str()
            .unwrap()
            .to_owned()
    };
    let numbers = [
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "bootTimestamp",
        "commitLogMaxOffset",
    ];
    for key in numbers {
        assert!(value(key).parse::<f64>().is_ok(), "{key}={}", value(key));
    }
    for key in ["putTps", "getTransferredTps", "getTotalTps"] {
        assert!(
            value(key).split(' ').next().unwrap().parse::<f64>().is_ok(),
            "{key}={}",
            value(key)
        );
    }
    assert_eq!(value("msgPutTotalTodayNow"), "1");
    assert_eq!(value("brokerVersionDesc"), "V5_4_0");
    assert_eq!(value("brokerActive"), "true");
}

fn put_topic(topic: &str, body: &'static str, expect: Option<&str>) -> Command {
    let mut cmd = request(RequestCode::PutTopic, &[("topic", topic)]).with_body(body);
    cmd.ext.put_opt("expect", expect);
    cmd
}

#[tokio::test]
async fn topics_have_versions_for_the_gateway() {
    let fix = Fixture::start().await;
    let detail =
        |answer: &Command| wire::json::from_slice::<TopicDetail>(&answer.body.to_bytes()).unwrap();
    let body = r#"{"readQueues":4,"writeQueues":4,"perm":6,"attributes":{"message.type":"NORMAL","gantry.labels":"{}"}}"#;
    let made = detail(&fix.ok(put_topic("t", body, Some("0"))).await);
    assert_eq!(
        (made.version, made.queues.len(), made.spec.attributes.len()),
        (1, 4, 2)
    );
    let again = fix.call(put_topic("t", body, Some("0"))).await;
    assert_eq!(
        (again.code, again.ext.get("reason")),
        (1, Some("topic_exists"))
    );
    let wider =
        r#"{"readQueues":8,"writeQueues":8,"perm":6,"attributes":{"message.type":"NORMAL"}}"#;
    assert_eq!(
        fix.call(put_topic("t", wider, Some("7")))
            .await
            .ext
            .get("reason"),
        Some("version_mismatch")
    );
    assert_eq!(
        detail(&fix.ok(put_topic("t", wider, Some("1"))).await).version,
        2
    );
    assert_eq!(
        detail(&fix.ok(put_topic("t", wider, None)).await).version,
        2
    );
    let other = r#"{"readQueues":8,"writeQueues":8,"perm":6,"attributes":{"message.type":"FIFO"}}"#;
    assert_eq!(
        fix.call(put_topic("t", other, None))
            .await
            .ext
            .get("reason"),
        Some("immutable_field")
    );
    fix.ok(support::create_topic("t", 9)).await;
    let seen = detail(
        &fix.ok(request(RequestCode::GetTopic, &[("topic", "t")]))
            .await,
    );
    assert_eq!((seen.version, seen.spec.read_queues), (3, 9));
    assert_eq!(
        fix.call(request(RequestCode::GetTopic, &[("topic", "nowhere")]))
            .await
            .code,
        17
    );
    fix.send("t", 1, &[], "x").await;
    fix.read("t", 1, 0, 1).await;
    let seen = detail(
        &fix.ok(request(RequestCode::GetTopic, &[("topic", "t")]))
            .await,
    );
    assert_eq!(
        (seen.queues[1].min_offset, seen.queues[1].max_offset),
        (0, 1)
    );
    assert!(seen.queues[1].latest_at_ms > 1_600_000_000_000 && seen.queues[0].latest_at_ms == -1);
}

#[tokio::test]
async fn groups_and_subscriptions_have_versions_for_the_gateway() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    fix.send("t", 0, &[], "before").await;
    fix.read("t", 0, 0, 1).await;
    let detail =
        |answer: &Command| wire::json::from_slice::<GroupDetail>(&answer.body.to_bytes()).unwrap();
    let put = |body: &'static str, expect: Option<&str>| {
        let mut cmd = request(RequestCode::PutGroup, &[("group", "g")]).with_body(body);
        cmd.ext.put_opt("expect", expect);
        cmd
    };
    assert_eq!(
        fix.call(request(RequestCode::GetGroup, &[("group", "g")]))
            .await
            .code,
        26
    );
    let made = detail(
        &fix.ok(put(r#"{"maxAttempts":3,"invisibleMs":5000}"#, Some("0")))
            .await,
    );
    assert_eq!(
        (made.version, made.spec.max_attempts, made.spec.invisible_ms),
        (1, 3, 5_000)
    );
    assert_eq!(
        fix.call(put("{}", Some("0"))).await.ext.get("reason"),
        Some("group_exists")
    );
    let bad = fix.call(put(r#"{"maxAttempts":0}"#, None)).await;
    assert_eq!(
        (bad.code, bad.ext.get("reason")),
        (29, Some("invalid_field"))
    );
    let subscribe = |topic: &str, body: &'static str| {
        request(
            RequestCode::PutSubscription,
            &[("group", "g"), ("topic", topic)],
        )
        .with_body(body)
    };
    let made = detail(
        &fix.ok(subscribe(
            "t",
            r#"{"kind":"tag","expression":"a||b","initialPosition":"earliest"}"#,
        ))
        .await,
    );
    assert_eq!(
        (
            made.version,
            made.subscriptions.len(),
            made.subscriptions[0].version
        ),
        (2, 1, 2)
    );
    assert_eq!(made.subscriptions[0].expression, "a||b");
    assert_eq!(fix.call(subscribe("nowhere", "{}")).await.code, 17);
    let sql = fix
        .call(subscribe("t", r#"{"kind":"sql92","expression":"a=1"}"#))
        .await;
    assert_eq!(sql.ext.get("reason"), Some("not_implemented"));
    let lag: GroupLag = wire::json::from_slice(
        &fix.ok(request(RequestCode::GroupLag, &[("group", "g")]))
            .await
            .body
            .to_bytes(),
    )
    .unwrap();
    let queue = lag
        .queues
        .iter()
        .find(|queue| queue.queue_id == 0 && !queue.retry)
        .unwrap();
    assert_eq!((queue.next_deliver, queue.max_offset), (0, 1));
    let fix = fix.restart().await;
    let kept = detail(
        &fix.ok(request(RequestCode::GetGroup, &[("group", "g")]))
            .await,
    );
    assert_eq!(kept, made);
    let drop_it = request(
        RequestCode::DeleteSubscription,
        &[("group", "g"), ("topic", "t")],
    );
    assert_eq!(
        detail(&fix.ok(drop_it.clone()).await).subscriptions.len(),
        0
    );
    assert_eq!(
        fix.call(drop_it).await.ext.get("reason"),
        Some("subscription_not_found")
    );
}

#[tokio::test]
async fn the_second_port_serves_producers_only() {
    // Port 0 has no second port; a fixed pair is looked for instead.
    for base in [23_411_u16, 24_513, 25_617] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = support::config(dir.path());
        config.listen.set_port(base);
        let Ok(running) = broker::start(
            config,
            &node::Context::quiet(std::sync::Arc::new(clock::SystemClock::new())),
        )
        .await
        else {
            continue;
        };
        let Some(fast) = running.addrs().fast else {
            continue;
        };
        let fix = Fixture {
            dir,
            client: support::client(),
            addr: running.addrs().listen.to_string(),
            running,
        };
        fix.create_topic("t", 1).await;
        let addr = fast.to_string();
        let sent = fix
            .client
            .invoke(&addr, support::send("t", 0, &[], "x"), support::SOON)
            .await
            .unwrap();
        assert_eq!(sent.code, 0);
        let pulled = fix
            .client
            .invoke(&addr, pull("g", "t", 0, 0, "*", 0), support::SOON)
            .await
            .unwrap();
        assert_eq!(pulled.code, 3);
        fix.running.stop().await.unwrap();
        return;
    }
    panic!("no free pair of ports");
}
