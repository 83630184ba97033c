//! Delay levels, messages given back, dead letters, and what survives a restart.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};

use support::{Fixture, Message, SOON, decode, heartbeat, number, pull, request, send};
use wire::{Command, RequestCode};

/// Waits for the next message of a queue.
async fn next(fix: &Fixture, topic: &str, offset: i64) -> Message {
    let reading = async {
        loop {
            let answer = fix.call(pull("tests", topic, 0, offset, "*", 2_000)).await;
            if let Some(message) = decode(&answer).into_iter().next() {
                return message;
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.unwrap()
}

fn give_back(group: &str, message: &Message, level: i32, max: Option<i32>) -> Command {
    let (offset, level) = (message.physical_offset.to_string(), level.to_string());
    let mut cmd = request(
        RequestCode::ConsumerSendMsgBack,
        &[
            ("group", group),
            ("offset", &offset),
            ("delayLevel", &level),
        ],
    );
    cmd.ext.put_opt("maxReconsumeTimes", max);
    cmd
}

#[tokio::test]
async fn a_delayed_message_comes_after_its_delay_into_its_own_queue() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let start = Instant::now();
    fix.ok(send(
        "t",
        0,
        &[("DELAY", "1"), ("TAGS", "late"), ("mine", "1")],
        "x",
    ))
    .await;
    let message = next(&fix, "t", 0).await;
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(990) && took < Duration::from_millis(2_500),
        "{took:?}"
    );
    assert_eq!(
        (
            message.topic.as_str(),
            message.body.as_str(),
            message.queue_offset
        ),
        ("t", "x", 0)
    );
    assert_eq!(message.property("DELAY"), Some("1"));
    assert_eq!(message.property("REAL_TOPIC"), Some("t"));
    assert_eq!(message.property("mine"), Some("1"));
    let answer = fix.call(pull("tests", "t", 0, 0, "late", 0)).await;
    assert_eq!(decode(&answer).len(), 1, "the tag counts after the delay");
}

#[tokio::test]
async fn many_delayed_messages_come_once_each_across_a_restart() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for i in 0..50 {
        fix.ok(send("t", 0, &[("DELAY", "1")], &i.to_string()))
            .await;
    }
    next(&fix, "t", 0).await;
    for i in 50..100 {
        fix.ok(send("t", 0, &[("DELAY", "1")], &i.to_string()))
            .await;
    }
    let fix = fix.restart().await;
    let messages = fix.read("t", 0, 0, 100).await;
    let bodies: Vec<String> = messages
        .iter()
        .map(|message| message.body.clone())
        .collect();
    assert_eq!(bodies, (0..100).map(|i| i.to_string()).collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let more = fix.call(pull("tests", "t", 0, 100, "*", 0)).await;
    assert_eq!(more.code, 19, "nothing comes twice: {more:?}");
}

#[tokio::test]
async fn a_message_given_back_comes_again_and_dies_at_its_limit() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    let sent = fix
        .ok(send("t", 0, &[("KEYS", "k"), ("TAGS", "x")], "work"))
        .await;
    let first = next(&fix, "t", 0).await;
    fix.ok(give_back("g", &first, 1, Some(2))).await;
    let second = next(&fix, "%RETRY%g", 0).await;
    assert_eq!((second.body.as_str(), second.reconsume_times), ("work", 1));
    assert_eq!(second.property("RETRY_TOPIC"), Some("t"));
    assert_eq!(second.property("UNIQ_KEY"), first.property("UNIQ_KEY"));
    assert_eq!(second.property("ORIGIN_MESSAGE_ID"), sent.ext.get("msgId"));
    assert_eq!(second.property("KEYS"), Some("k"));
    fix.ok(give_back("g", &second, 1, Some(2))).await;
    let third = next(&fix, "%RETRY%g", 1).await;
    assert_eq!(
        (third.reconsume_times, third.property("RETRY_TOPIC")),
        (2, Some("t"))
    );
    fix.ok(give_back("g", &third, 1, Some(2))).await;
    let dead = next(&fix, "%DLQ%g", 0).await;
    assert_eq!((dead.body.as_str(), dead.reconsume_times), ("work", 3));
    assert_eq!(dead.property("RETRY_TOPIC"), Some("t"));
    assert_eq!(dead.property("DLQ_ORIGIN_TOPIC"), Some("t"));
    assert_eq!(dead.property("ORIGIN_MESSAGE_ID"), sent.ext.get("msgId"));
}

#[tokio::test]
async fn a_message_may_be_refused_for_good() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "poison").await;
    let message = next(&fix, "t", 0).await;
    fix.ok(give_back("g", &message, -1, None)).await;
    assert_eq!(next(&fix, "%DLQ%g", 0).await.body, "poison");
    let mut gone = message.clone();
    gone.physical_offset = 99_999_999;
    assert_eq!(fix.call(give_back("g", &gone, 0, None)).await.code, 1);
}

#[tokio::test]
async fn a_retry_sent_as_a_normal_message_dies_beyond_the_groups_limit() {
    let fix = Fixture::start().await;
    fix.ok(heartbeat("a", "g", "t", "*")).await;
    let mut retry = send("%RETRY%g", 0, &[("DELAY", "1")], "again");
    retry.ext.put("j", "17");
    retry.ext.put("l", "16");
    let answer = fix.ok(retry).await;
    assert_eq!(number(&answer, "queueId"), 0);
    let dead = next(&fix, "%DLQ%g", 0).await;
    assert_eq!(
        (
            dead.body.as_str(),
            dead.reconsume_times,
            dead.property("DELAY")
        ),
        ("again", 17, Some("-1"))
    );
    let mut retry = send("%RETRY%g", 0, &[("DELAY", "1")], "again");
    retry.ext.put("j", "3");
    retry.ext.put("l", "16");
    fix.ok(retry).await;
    assert_eq!(next(&fix, "%RETRY%g", 0).await.reconsume_times, 3);
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let fix = Fixture::start().await;
    fix.create_topic("kept", 3).await;
    fix.ok(heartbeat("a", "g", "kept", "*")).await;
    for i in 0..30 {
        fix.send("kept", i % 3, &[], &i.to_string()).await;
    }
    let commit = request(
        RequestCode::UpdateConsumerOffset,
        &[
            ("consumerGroup", "g"),
            ("topic", "kept"),
            ("queueId", "1"),
            ("commitOffset", "4"),
        ],
    );
    fix.ok(commit).await;
    let setting =
        Command::request(RequestCode::UpdateBrokerConfig).with_body("maxMessageSize=2048\n");
    fix.ok(setting).await;
    let fix = fix.restart().await;
    for queue in 0..3 {
        let bodies: Vec<String> = fix
            .read("kept", queue, 0, 10)
            .await
            .into_iter()
            .map(|m| m.body)
            .collect();
        assert_eq!(
            bodies,
            (0..10)
                .map(|i| (i * 3 + queue).to_string())
                .collect::<Vec<_>>()
        );
    }
    let ask = request(
        RequestCode::QueryConsumerOffset,
        &[("consumerGroup", "g"), ("topic", "kept"), ("queueId", "1")],
    );
    assert_eq!(number(&fix.ok(ask).await, "offset"), 4);
    assert_eq!(fix.send("kept", 0, &[], "more").await, (0, 10));
    assert_eq!(
        fix.call(send("kept", 0, &[], &"x".repeat(2_049)))
            .await
            .code,
        13
    );
}

/// What a kill would leave: the directory as it is, while the broker runs on.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn after_a_kill_delayed_messages_come_once_each() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for i in 0..60 {
        fix.ok(send(
            "t",
            0,
            &[("DELAY", if i % 2 == 0 { "1" } else { "2" })],
            &i.to_string(),
        ))
        .await;
    }
    // Level 1 is delivered, its progress perhaps not written; level 2 still waits.
    fix.read("t", 0, 0, 30).await;
    let dir = tempfile::tempdir().unwrap();
    copy(fix.dir.path(), dir.path());
    drop(fix);
    // The worst case: no progress was ever written, the log alone says what was delivered.
    for name in ["delayOffset.json", "delayOffset.json.bak"] {
        std::fs::remove_file(dir.path().join("config").join(name)).ok();
    }
    let config = support::config(dir.path());
    let fix = Fixture::open(dir, config).await;
    let mut bodies: Vec<u32> = fix
        .read("t", 0, 0, 60)
        .await
        .iter()
        .map(|message| message.body.parse().unwrap())
        .collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..60).collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let more = fix.call(pull("tests", "t", 0, 60, "*", 0)).await;
    assert_eq!(more.code, 19, "nothing comes twice: {more:?}");
}
