//! What administrators ask of a broker beyond topics and groups: progress, ages, counters, queues, rights, lists.
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

use serde_json::Value;
use support::{Fixture, create_topic, heartbeat, number, pull, request};
use wire::body::inspect::{ConsumeTimeSpans, GroupSubscription, QueueEntries};
use wire::body::stats::{BrokerStatsData, ConsumeStats, ConsumeStatsList, OffsetProgress};
use wire::receipt::{self, Receipt};
use wire::{Command, RequestCode};

fn body<T: serde::de::DeserializeOwned>(answer: &Command) -> T {
    wire::json::from_slice(&answer.body.to_bytes()).unwrap()
}

async fn make_group(fix: &Fixture, group: &str) {
    let body = format!(r#"{{"groupName":"{group}"}}"#);
    fix.ok(Command::request(RequestCode::UpdateAndCreateSubscriptiongroup).with_body(body))
        .await;
}

async fn commit(fix: &Fixture, group: &str, topic: &str, queue: i32, offset: i64) {
    let (queue, offset) = (queue.to_string(), offset.to_string());
    fix.ok(request(
        RequestCode::UpdateConsumerOffset,
        &[
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", &queue),
            ("commitOffset", &offset),
        ],
    ))
    .await;
}

async fn stats_of(fix: &Fixture, group: &str, topic: &str) -> BTreeMap<i32, OffsetProgress> {
    let fields = [("consumerGroup", group), ("topic", topic)];
    let answer = fix.ok(request(RequestCode::GetConsumeStats, &fields)).await;
    let stats: ConsumeStats = body(&answer);
    let queues = stats.offset_table.0.into_iter();
    queues.map(|(queue, at)| (queue.queue_id, at)).collect()
}

async fn spans_of(fix: &Fixture, group: &str, topic: &str) -> ConsumeTimeSpans {
    let fields = [("group", group), ("topic", topic)];
    body(
        &fix.ok(request(RequestCode::QueryConsumeTimeSpan, &fields))
            .await,
    )
}

fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

fn pop(group: &str, topic: &str, count: i32) -> Command {
    let (count, now) = (count.to_string(), now_ms().to_string());
    request(
        RequestCode::PopMessage,
        &[
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", "0"),
            ("maxMsgNums", &count),
            ("invisibleTime", "60000"),
            ("pollTime", "0"),
            ("bornTime", &now),
            ("initMode", "0"),
        ],
    )
}

#[tokio::test]
async fn progress_and_ages_are_true_for_a_native_group() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    make_group(&fix, "g").await;
    for text in ["a", "b", "c", "d"] {
        fix.send("t", 0, &[], text).await;
    }
    let sent = fix.read("t", 0, 0, 4).await;
    // Two are settled, and the consumer was given four.
    fix.call(pull("g", "t", 0, 0, "*", 0)).await;
    commit(&fix, "g", "t", 0, 2).await;
    let stats = stats_of(&fix, "g", "t").await;
    assert_eq!(
        stats[&0],
        OffsetProgress {
            broker_offset: 4,
            consumer_offset: 2,
            last_timestamp: sent[1].store_ts_ms,
            pull_offset: 4
        }
    );
    assert_eq!(stats[&1], OffsetProgress::default());
    let spans = spans_of(&fix, "g", "t").await.consume_time_span_set;
    assert_eq!(spans.len(), 2);
    let first = &spans[0];
    assert_eq!(first.message_queue.queue_id, 0);
    assert_eq!(first.min_time_stamp, sent[0].store_ts_ms);
    assert_eq!(first.max_time_stamp, sent[3].store_ts_ms);
    assert_eq!(first.consume_time_stamp, sent[1].store_ts_ms);
    let now = now_ms();
    assert!(
        (0..=now - sent[2].store_ts_ms).contains(&first.delay_time),
        "{first:?}"
    );
    assert_eq!((spans[1].delay_time, spans[1].max_time_stamp), (0, 0));
    commit(&fix, "g", "t", 0, 4).await;
    assert_eq!(
        spans_of(&fix, "g", "t").await.consume_time_span_set[0].delay_time,
        0
    );
    let unknown = [("group", "g"), ("topic", "nowhere")];
    let refused = fix
        .call(request(RequestCode::QueryConsumeTimeSpan, &unknown))
        .await;
    assert_eq!(refused.code, 17);
}

#[tokio::test]
async fn progress_of_a_group_that_pops_is_what_was_acked() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    make_group(&fix, "g").await;
    for text in ["a", "b", "c"] {
        fix.send("t", 0, &[], text).await;
    }
    let sent = fix.read("t", 0, 0, 3).await;
    let popped = fix.ok(pop("g", "t", 2)).await;
    assert_eq!(support::decode(&popped).len(), 2);
    let at = stats_of(&fix, "g", "t").await[&0].clone();
    assert_eq!(
        (at.broker_offset, at.consumer_offset, at.pull_offset),
        (3, 0, 2)
    );
    let start =
        receipt::parse_start_offsets(popped.ext.get("startOffsetInfo").unwrap()).unwrap()[0];
    let receipt = Receipt {
        start_offset: start.start_offset,
        pop_time_ms: number(&popped, "popTime"),
        invisible_ms: number(&popped, "invisibleTime"),
        revive_queue_id: number(&popped, "reviveQid") as i32,
        retry: start.retry,
        broker_name: "broker-a".to_owned(),
        queue_id: 0,
        queue_offset: Some(0),
    }
    .encode();
    fix.ok(request(
        RequestCode::AckMessage,
        &[
            ("consumerGroup", "g"),
            ("topic", "t"),
            ("queueId", "0"),
            ("extraInfo", &receipt),
            ("offset", "0"),
        ],
    ))
    .await;
    let at = stats_of(&fix, "g", "t").await[&0].clone();
    assert_eq!(
        (at.broker_offset, at.consumer_offset, at.pull_offset),
        (3, 1, 2)
    );
    assert_eq!(at.last_timestamp, sent[0].store_ts_ms);
    let span = spans_of(&fix, "g", "t").await.consume_time_span_set[0].clone();
    assert_eq!(span.consume_time_stamp, sent[0].store_ts_ms);
    let all: ConsumeStatsList = body(
        &fix.ok(request(
            RequestCode::GetBrokerConsumeStats,
            &[("isOrder", "false")],
        ))
        .await,
    );
    assert_eq!(all.broker_addr.as_deref(), Some(fix.addr.as_str()));
    assert_eq!((all.total_diff, all.total_inflight_diff), (2, 1));
    assert!(
        all.consume_stats_list
            .iter()
            .any(|map| map.get("g").is_some_and(|list| list.len() == 1))
    );
    let ordered: ConsumeStatsList = body(
        &fix.ok(request(
            RequestCode::GetBrokerConsumeStats,
            &[("isOrder", "true")],
        ))
        .await,
    );
    assert_eq!(ordered.total_diff, 0);
}

#[tokio::test]
async fn counters_say_what_came_and_went() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for text in ["a", "b", "c"] {
        fix.send("t", 0, &[], text).await;
    }
    fix.read("t", 0, 0, 3).await;
    let view = async |name: &str, key: &str| {
        let fields = [("statsName", name), ("statsKey", key)];
        let answer = fix
            .call(request(RequestCode::ViewBrokerStatsData, &fields))
            .await;
        (answer.code == 0).then(|| body::<BrokerStatsData>(&answer))
    };
    let put = view("TOPIC_PUT_NUMS", "t").await.unwrap();
    assert_eq!(
        (put.stats_minute.sum, put.stats_hour.sum, put.stats_day.sum),
        (3, 3, 3)
    );
    assert!(put.stats_minute.tps > 0.0 && put.stats_minute.avgpt == 1.0);
    assert!(view("TOPIC_PUT_SIZE", "t").await.unwrap().stats_day.sum > 300);
    assert_eq!(
        view("GROUP_GET_NUMS", "t@tests")
            .await
            .unwrap()
            .stats_day
            .sum,
        3
    );
    assert_eq!(
        view("BROKER_PUT_NUMS", "DefaultCluster")
            .await
            .unwrap()
            .stats_day
            .sum,
        3
    );
    assert!(view("TOPIC_PUT_NUMS", "nowhere").await.is_none());
    assert!(view("NO_SUCH", "t").await.is_none());
    let fields = [("topic", "t")];
    let stats: Value = body(
        &fix.ok(request(RequestCode::GetTopicStatsInfo, &fields))
            .await,
    );
    assert!(stats["topicPutTps"].as_f64().unwrap() > 0.0, "{stats}");
    let fields = [("topic", "t")];
    fix.ok(request(RequestCode::DeleteTopicInBroker, &fields))
        .await;
    assert!(view("TOPIC_PUT_NUMS", "t").await.is_none());
}

#[tokio::test]
async fn entries_of_a_queue_and_subscriptions_are_shown() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[("TAGS", "A")], "a").await;
    fix.send("t", 0, &[("TAGS", "B")], "b").await;
    let sent = fix.read("t", 0, 0, 2).await;
    let ask = |group: &str, queue: &str| {
        request(
            RequestCode::QueryConsumeQueue,
            &[
                ("topic", "t"),
                ("queueId", queue),
                ("index", "0"),
                ("count", "10"),
                ("consumerGroup", group),
            ],
        )
    };
    let offline: QueueEntries = body(&fix.ok(ask("g", "0")).await);
    assert_eq!(offline.filter_data.as_deref(), Some("g@t is not online!"));
    assert_eq!((offline.min_queue_index, offline.max_queue_index), (0, 2));
    let places: Vec<i64> = offline
        .queue_data
        .iter()
        .map(|entry| entry.physic_offset)
        .collect();
    assert_eq!(places, [sent[0].physical_offset, sent[1].physical_offset]);
    assert_eq!(offline.queue_data[0].tags_code, 65);
    fix.ok(heartbeat("c1", "g", "t", "A")).await;
    let online: QueueEntries = body(&fix.ok(ask("g", "0")).await);
    assert_eq!(online.filter_data, None);
    assert_eq!(online.subscription_data.unwrap().sub_string, "A");
    let evals: Vec<bool> = online.queue_data.iter().map(|entry| entry.eval).collect();
    assert_eq!(evals, [true, false]);
    assert_eq!(fix.call(ask("g", "7")).await.code, 1);
    let fields = [("group", "g"), ("topic", "t")];
    let known: GroupSubscription = body(
        &fix.ok(request(RequestCode::QuerySubscriptionByConsumer, &fields))
            .await,
    );
    assert_eq!(
        known.subscription_data.unwrap().tags_set,
        vec!["A".to_owned()]
    );
    let fields = [("group", "nobody"), ("topic", "t")];
    let unknown: GroupSubscription = body(
        &fix.ok(request(RequestCode::QuerySubscriptionByConsumer, &fields))
            .await,
    );
    assert_eq!(
        (unknown.group.as_str(), unknown.subscription_data),
        ("nobody", None)
    );
}

#[tokio::test]
async fn a_group_forbidden_a_topic_reads_nothing_until_it_may_again() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    make_group(&fix, "g").await;
    fix.send("t", 0, &[], "a").await;
    fix.read("t", 0, 0, 1).await;
    let set = |readable: &str| {
        let fields = [("group", "g"), ("topic", "t"), ("readable", readable)];
        request(RequestCode::UpdateAndGetGroupForbidden, &fields)
    };
    let state = async |fix: &Fixture, cmd: Command| {
        body::<Value>(&fix.ok(cmd).await)["readable"]
            .as_bool()
            .unwrap()
    };
    assert!(state(&fix, set("")).await);
    assert!(!state(&fix, set("false")).await);
    let refused = fix.call(pull("g", "t", 0, 0, "*", 0)).await;
    assert_eq!((refused.code, number(&refused, "forbiddenType")), (16, 5));
    assert_eq!(fix.call(pop("g", "t", 1)).await.code, 16);
    let fields = [
        ("consumerGroup", "g"),
        ("topic", "t"),
        ("queueId", "-1"),
        ("maxMsgNums", "1"),
    ];
    let peek = request(RequestCode::PeekMessage, &fields);
    assert_eq!(fix.call(peek).await.code, 16);
    assert_eq!(fix.call(pull("other", "t", 0, 0, "*", 0)).await.code, 0);
    let fix = fix.restart().await;
    assert!(!state(&fix, set("")).await, "kept over a restart");
    assert!(state(&fix, set("true")).await);
    assert_eq!(fix.call(pull("g", "t", 0, 0, "*", 0)).await.code, 0);
}

#[tokio::test]
async fn offsets_are_compared_and_cloned() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    fix.create_topic("u", 1).await;
    for queue in [0, 0, 0, 1] {
        fix.send("t", queue, &[], "x").await;
    }
    for group in ["a", "b", "c"] {
        make_group(&fix, group).await;
    }
    for (group, topic, queue, offset) in [
        ("a", "t", 0, 3),
        ("a", "t", 1, 1),
        ("b", "t", 0, 1),
        ("c", "t", 0, 2),
        ("a", "u", 0, 0),
    ] {
        commit(&fix, group, topic, queue, offset).await;
    }
    let corrected = async |compared: &str, left_out: &str| {
        let fields = [
            ("topic", "t"),
            ("compareGroup", compared),
            ("filterGroups", left_out),
        ];
        let answer = fix
            .ok(request(RequestCode::QueryCorrectionOffset, &fields))
            .await;
        let table: Value = body(&answer);
        table["correctionOffsets"].clone()
    };
    assert_eq!(
        corrected("a", "").await,
        serde_json::json!({"0": 1, "1": 1})
    );
    assert_eq!(
        corrected("b", "b").await,
        serde_json::json!({"0": i64::MAX, "1": 1})
    );
    let clone = |to: &str, topic: &str| {
        let fields = [
            ("srcGroup", "a"),
            ("destGroup", to),
            ("topic", topic),
            ("offline", "true"),
        ];
        request(RequestCode::CloneGroupOffset, &fields)
    };
    fix.ok(clone("b", "t")).await;
    let b = stats_of(&fix, "b", "t").await;
    assert_eq!((b[&0].consumer_offset, b[&1].consumer_offset), (3, 1));
    fix.ok(clone("new", "")).await;
    assert_eq!(stats_of(&fix, "new", "t").await[&0].consumer_offset, 3);
    let fields = [("srcGroup", "nobody"), ("destGroup", "b"), ("topic", "t")];
    assert_eq!(
        fix.call(request(RequestCode::CloneGroupOffset, &fields))
            .await
            .code,
        26
    );
}

#[tokio::test]
async fn lists_change_many_at_once_or_nothing() {
    let fix = Fixture::start().await;
    let topics = |second: &str| {
        let body = format!(
            r#"{{"topicConfigList":[{{"topicName":"one","readQueueNums":2,"writeQueueNums":3,"perm":6,"attributes":{{"+message.type":"FIFO"}}}},{{"topicName":"{second}","readQueueNums":1,"writeQueueNums":1,"perm":4}}]}}"#
        );
        Command::request(RequestCode::UpdateAndCreateTopicList).with_body(body)
    };
    assert_eq!(fix.call(topics("bad name")).await.code, 29);
    let get = |topic: &'static str| request(RequestCode::GetTopicConfig, &[("topic", topic)]);
    assert_eq!(fix.call(get("one")).await.code, 17, "nothing of a bad list");
    fix.ok(topics("two")).await;
    let one: Value = body(&fix.ok(get("one")).await);
    assert_eq!(
        (
            one["writeQueueNums"].as_i64(),
            one["attributes"]["message.type"].as_str()
        ),
        (Some(3), Some("FIFO"))
    );
    assert_eq!(body::<Value>(&fix.ok(get("two")).await)["perm"], 4);
    let groups = r#"{"groupConfigList":[{"groupName":"g1","retryMaxTimes":2},{"groupName":"g2","consumeEnable":false}]}"#;
    fix.ok(Command::request(RequestCode::UpdateAndCreateSubscriptiongroupList).with_body(groups))
        .await;
    let fix = fix.restart().await;
    let get =
        |group: &'static str| request(RequestCode::GetSubscriptiongroupConfig, &[("group", group)]);
    assert_eq!(body::<Value>(&fix.ok(get("g1")).await)["retryMaxTimes"], 2);
    assert_eq!(
        body::<Value>(&fix.ok(get("g2")).await)["consumeEnable"],
        false
    );
    fix.ok(create_topic("one", 3)).await;
}

#[tokio::test]
async fn clean_ups_leave_what_is_used() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "a").await;
    for code in [
        RequestCode::CleanExpiredConsumequeue,
        RequestCode::CleanUnusedTopic,
        RequestCode::DeleteExpiredCommitlog,
    ] {
        fix.ok(request(code, &[])).await;
    }
    assert_eq!(fix.read("t", 0, 0, 1).await[0].body, "a");
    fix.ok(request(
        RequestCode::ResetMasterFlushOffset,
        &[("masterFlushOffset", "0")],
    ))
    .await;
    let delays: Value = body(&fix.ok(request(RequestCode::GetAllDelayOffset, &[])).await);
    assert!(delays["offsetTable"].is_object(), "{delays}");
}

#[tokio::test]
async fn what_is_not_served_says_what_is_missing() {
    let fix = Fixture::start().await;
    for (code, why) in [
        (RequestCode::QueryMessage, "index"),
        (RequestCode::EndTransaction, "transactions"),
        (RequestCode::GetTimerMetrics, "arbitrary time"),
        (RequestCode::GetBrokerHaStatus, "replication"),
        (RequestCode::AuthListUser, "access control"),
        (RequestCode::ExportRocksdbConfigToJson, "RocksDB"),
    ] {
        let answer = fix.call(request(code, &[])).await;
        assert_eq!(
            (answer.code, answer.ext.get("reason")),
            (3, Some("not_implemented"))
        );
        let remark = answer.remark.unwrap();
        assert!(remark.contains(why), "{remark}");
    }
}
