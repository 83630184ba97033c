//! Heartbeats, membership notices, offsets and queue locks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use remoting::{Client, ClientOptions, Responder, Service};
use support::{Fixture, SOON, decode, heartbeat, number, pull, request};
use tokio::sync::mpsc;
use wire::{Command, RequestCode};

/// Hands on what the broker pushes.
struct Pushed(mpsc::Sender<Command>);

impl Service for Pushed {
    fn call(&self, cmd: Command, _to: Responder) {
        self.0.try_send(cmd).ok();
    }
}

fn listening_client() -> (Client, mpsc::Receiver<Command>) {
    let (send, pushed) = mpsc::channel(100);
    let client = Client::new(ClientOptions::default());
    client.set_request_handler(Arc::new(Pushed(send)));
    (client, pushed)
}

async fn notice(pushed: &mut mpsc::Receiver<Command>) -> String {
    let cmd = tokio::time::timeout(SOON, pushed.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(cmd.request_code(), RequestCode::NotifyConsumerIdsChanged);
    assert!(cmd.is_oneway());
    cmd.ext.get("consumerGroup").unwrap().to_owned()
}

async fn members(fix: &Fixture, group: &str) -> Result<String, i32> {
    let answer = fix
        .call(request(
            RequestCode::GetConsumerListByGroup,
            &[("consumerGroup", group)],
        ))
        .await;
    if answer.code == 0 {
        Ok(String::from_utf8(answer.body.to_bytes().to_vec()).unwrap())
    } else {
        Err(answer.code)
    }
}

#[tokio::test]
async fn members_are_listed_at_once_and_told_of_joins_and_leaves() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    assert_eq!(members(&fix, "g").await, Err(1));
    let (first, mut first_pushed) = listening_client();
    let answer = first
        .invoke(&fix.addr, heartbeat("a", "g", "t", "*"), SOON)
        .await
        .unwrap();
    assert_eq!(answer.code, 0);
    assert_eq!(answer.ext.get("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
    assert!(answer.version > 400);
    assert_eq!(
        members(&fix, "g").await.unwrap(),
        r#"{"consumerIdList":["a"]}"#
    );
    assert_eq!(notice(&mut first_pushed).await, "g");

    let (second, mut second_pushed) = listening_client();
    second
        .invoke(&fix.addr, heartbeat("b", "g", "t", "*"), SOON)
        .await
        .unwrap();
    assert_eq!(notice(&mut first_pushed).await, "g");
    assert_eq!(notice(&mut second_pushed).await, "g");
    assert_eq!(
        members(&fix, "g").await.unwrap(),
        r#"{"consumerIdList":["a","b"]}"#
    );
    // The same again is no change.
    second
        .invoke(&fix.addr, heartbeat("b", "g", "t", "*"), SOON)
        .await
        .unwrap();
    assert!(second_pushed.try_recv().is_err());

    second
        .invoke(
            &fix.addr,
            request(
                RequestCode::UnregisterClient,
                &[("clientID", "b"), ("consumerGroup", "g")],
            ),
            SOON,
        )
        .await
        .unwrap();
    assert_eq!(notice(&mut first_pushed).await, "g");
    assert_eq!(
        members(&fix, "g").await.unwrap(),
        r#"{"consumerIdList":["a"]}"#
    );

    second
        .invoke(&fix.addr, heartbeat("b", "g", "t", "*"), SOON)
        .await
        .unwrap();
    assert_eq!(notice(&mut first_pushed).await, "g");
    drop(second);
    assert_eq!(notice(&mut first_pushed).await, "g");
    assert_eq!(
        members(&fix, "g").await.unwrap(),
        r#"{"consumerIdList":["a"]}"#
    );
}

#[tokio::test]
async fn the_first_heartbeat_creates_the_group_and_its_retry_topic() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.ok(heartbeat("a", "fresh", "t", "*")).await;
    let topic = fix
        .ok(request(
            RequestCode::GetTopicConfig,
            &[("topic", "%RETRY%fresh")],
        ))
        .await;
    let text = String::from_utf8(topic.body.to_bytes().to_vec()).unwrap();
    assert!(text.contains(r#""readQueueNums":1"#), "{text}");
    // A name no group may have is skipped, and the heartbeat is still good.
    fix.ok(heartbeat("a", "no good", "t", "*")).await;
    assert_eq!(
        fix.call(request(
            RequestCode::GetConsumerListByGroup,
            &[("consumerGroup", "no good")]
        ))
        .await
        .code,
        1
    );
}

#[tokio::test]
async fn without_auto_creation_an_unknown_group_is_skipped_and_its_pulls_refused() {
    let fix = Fixture::start_with(|config| config.create.groups = false).await;
    fix.create_topic("t", 1).await;
    fix.ok(heartbeat("a", "fresh", "t", "*")).await;
    let answer = fix.call(pull("fresh", "t", 0, 0, "*", 0)).await;
    assert_eq!(
        (answer.code, answer.ext.get("reason")),
        (26, Some("group_not_found"))
    );
}

#[tokio::test]
async fn pulls_are_filtered_by_the_subscription_of_the_heartbeat() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[("TAGS", "x")], "1").await;
    fix.send("t", 0, &[("TAGS", "ü")], "2").await;
    fix.read("t", 0, 0, 2).await;
    let mut cmd = pull("g", "t", 0, 0, "", 0);
    cmd.ext.put("sysFlag", "0");
    let early = fix.call(cmd.clone()).await;
    assert_eq!(
        (early.code, early.ext.get("reason")),
        (24, Some("subscription_not_found"))
    );
    fix.ok(heartbeat("a", "g", "t", "ü")).await;
    let answer = fix.call(cmd.clone()).await;
    assert_eq!(decode(&answer)[0].body, "2");
    cmd.ext.put("subVersion", "99");
    assert_eq!(fix.call(cmd).await.code, 25);
}

#[tokio::test]
async fn the_cplusplus_form_of_a_heartbeat_is_read() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let body = "{\"clientID\":\"cpp\",\"consumerDataSet\":[{\"consumeFromWhere\":0,\"consumeType\":1,\"groupName\":\"g\",\"messageModel\":1,\"subscriptionDataSet\":[{\"classFilterMode\":false,\"codeSet\":[\"-1\"],\"subString\":\"*\",\"subVersion\":\"7\",\"tagsSet\":[],\"topic\":\"t\"}],\"unitMode\":false}],\"producerDataSet\":[]}\n";
    fix.ok(Command::request(RequestCode::HeartBeat).with_body(body))
        .await;
    let info = fix
        .ok(request(
            RequestCode::GetConsumerConnectionList,
            &[("consumerGroup", "g")],
        ))
        .await;
    let text = String::from_utf8(info.body.to_bytes().to_vec()).unwrap();
    for part in [
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        r#""clientId":"cpp""#,
        r#""subVersion":7"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn producers_are_listed_while_they_are_connected() {
    let fix = Fixture::start().await;
    let ask = || {
        request(
            RequestCode::GetProducerConnectionList,
            &[("producerGroup", "producers")],
        )
    };
    assert_eq!(fix.call(ask()).await.code, 1);
    let client = support::client();
    client
        .invoke(&fix.addr, heartbeat("p", "g", "t", "*"), SOON)
        .await
        .unwrap();
    let text = String::from_utf8(fix.ok(ask()).await.body.to_bytes().to_vec()).unwrap();
    assert!(
        text.contains(r#""clientId":"p""#) && text.contains(r#""language":"JAVA""#),
        "{text}"
    );
    drop(client);
    let gone = async {
        while fix.call(ask()).await.code == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.unwrap();
}

#[tokio::test]
async fn offsets_are_kept_per_group_and_a_young_queue_starts_at_zero() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    let ask = |queue: &str, group: &str| {
        request(
            RequestCode::QueryConsumerOffset,
            &[("consumerGroup", group), ("topic", "t"), ("queueId", queue)],
        )
    };
    let commit = |queue: &str, offset: &str| {
        request(
            RequestCode::UpdateConsumerOffset,
            &[
                ("consumerGroup", "g"),
                ("topic", "t"),
                ("queueId", queue),
                ("commitOffset", offset),
            ],
        )
    };
    assert_eq!(fix.call(ask("0", "g")).await.code, 22);
    fix.send("t", 0, &[], "x").await;
    fix.read("t", 0, 0, 1).await;
    assert_eq!(number(&fix.ok(ask("0", "g")).await, "offset"), 0);
    let mut strict = ask("0", "g");
    strict.ext.put("setZeroIfNotFound", "false");
    assert_eq!(fix.call(strict).await.code, 22);
    assert_eq!(fix.call(ask("1", "g")).await.code, 22);
    assert_eq!(fix.call(commit("0", "1")).await.code, 26);
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    fix.ok(commit("0", "1")).await;
    fix.ok(commit("1", "-1")).await;
    assert_eq!(number(&fix.ok(ask("0", "g")).await, "offset"), 1);
    assert_eq!(fix.call(ask("1", "g")).await.code, 22);
    assert_eq!(fix.call(commit("7", "1")).await.code, 29);
    assert_eq!(
        fix.call(request(
            RequestCode::UpdateConsumerOffset,
            &[("consumerGroup", "g"), ("topic", "t"), ("queueId", "0")]
        ))
        .await
        .code,
        29
    );
    let table = fix
        .ok(request(RequestCode::GetAllConsumerOffset, &[]))
        .await;
    let text = String::from_utf8(table.body.to_bytes().to_vec()).unwrap();
    assert!(text.contains(r#""t@g":{0:1}"#), "{text}");
}

#[tokio::test]
async fn a_pull_commits_the_offset_it_carries() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "x").await;
    let mut cmd = pull("g", "t", 0, 0, "*", 0);
    cmd.ext.put("sysFlag", "5");
    cmd.ext.put("commitOffset", "1");
    fix.call(cmd).await;
    let ask = request(
        RequestCode::QueryConsumerOffset,
        &[("consumerGroup", "g"), ("topic", "t"), ("queueId", "0")],
    );
    assert_eq!(number(&fix.ok(ask).await, "offset"), 1);
}

#[tokio::test]
async fn queues_are_found_by_time_and_by_their_ends() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for i in 0..5 {
        fix.send("t", 0, &[], &i.to_string()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let messages = fix.read("t", 0, 0, 5).await;
    let ask = |code, more: &[(&str, &str)]| {
        let mut cmd = request(code, &[("topic", "t"), ("queueId", "0")]);
        for (name, value) in more {
            cmd.ext.put(name, *value);
        }
        cmd
    };
    assert_eq!(
        number(&fix.ok(ask(RequestCode::GetMaxOffset, &[])).await, "offset"),
        5
    );
    assert_eq!(
        number(&fix.ok(ask(RequestCode::GetMinOffset, &[])).await, "offset"),
        0
    );
    let earliest = fix.ok(ask(RequestCode::GetEarliestMsgStoretime, &[])).await;
    assert_eq!(number(&earliest, "timestamp"), messages[0].store_ts_ms);
    let third = messages[2].store_ts_ms;
    for (time, boundary, offset) in [
        (third, "LOWER", 2),
        (third, "UPPER", 2),
        (third + 1, "LOWER", 3),
        (third + 1, "UPPER", 2),
        (0, "LOWER", 0),
        (i64::MAX, "LOWER", 5),
    ] {
        let cmd = ask(
            RequestCode::SearchOffsetByTimestamp,
            &[("timestamp", &time.to_string()), ("boundaryType", boundary)],
        );
        assert_eq!(
            number(&fix.ok(cmd).await, "offset"),
            offset,
            "{time} {boundary}"
        );
    }
    let unknown = request(
        RequestCode::GetMaxOffset,
        &[("topic", "nowhere"), ("queueId", "0")],
    );
    assert_eq!(number(&fix.ok(unknown).await, "offset"), 0);
    let unknown = request(
        RequestCode::GetEarliestMsgStoretime,
        &[("topic", "nowhere"), ("queueId", "0")],
    );
    assert_eq!(number(&fix.ok(unknown).await, "timestamp"), -1);
}

#[tokio::test]
async fn queue_locks_have_one_holder_and_are_free_when_its_connection_closes() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    let lock = |client: &str| {
        let body = format!(
            r#"{{"clientId":"{client}","consumerGroup":"g","mqSet":[{{"brokerName":"broker-a","queueId":1,"topic":"t"}}]}}"#
        );
        Command::request(RequestCode::LockBatchMq).with_body(body)
    };
    let granted = |answer: &Command| {
        String::from_utf8(answer.body.to_bytes().to_vec())
            .unwrap()
            .contains("queueId")
    };
    let (first, _pushed) = listening_client();
    first
        .invoke(&fix.addr, heartbeat("a", "g", "t", "*"), SOON)
        .await
        .unwrap();
    assert!(granted(
        &first.invoke(&fix.addr, lock("a"), SOON).await.unwrap()
    ));
    assert!(!granted(&fix.ok(lock("b")).await));
    drop(first);
    let freed = async {
        while !granted(&fix.ok(lock("b")).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), freed)
        .await
        .unwrap();
}
