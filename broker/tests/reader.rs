//! Pulls by a gateway's reader: they see everything and leave no trace.
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

use support::{Fixture, decode, heartbeat, number, request};
use wire::body::gantry::TopicDetail;
use wire::{Command, RequestCode};

/// A reader's pull; `more` adds fields.
fn read(topic: &str, queue: i32, offset: i64, max: u32, more: &[(&str, &str)]) -> Command {
    let mut cmd = request(
        RequestCode::PullMessage,
        &[
            ("gantry", "1"),
            ("reader", "1"),
            ("consumerGroup", "GANTRY_READER"),
            ("topic", topic),
        ],
    );
    cmd.ext.put("queueId", queue);
    cmd.ext.put("queueOffset", offset);
    cmd.ext.put("maxMsgNums", max);
    for (name, value) in more {
        cmd.ext.put(*name, *value);
    }
    cmd
}

fn bodies(answer: &Command) -> Vec<String> {
    decode(answer).into_iter().map(|m| m.body).collect()
}

#[tokio::test]
async fn a_reader_reads_and_leaves_no_trace() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for i in 0..5 {
        fix.send(
            "t",
            0,
            &[("TAGS", if i == 3 { "x" } else { "y" })],
            &format!("m{i}"),
        )
        .await;
    }
    fix.read("t", 0, 0, 5).await;
    // A live lease-less native member does not stop it, and sees nothing of it.
    fix.ok(heartbeat("c1", "natives", "t", "*")).await;
    let mut pull = read("t", 0, 1, 2, &[]);
    pull.ext.put("commitOffset", "4");
    pull.ext.put("sysFlag", "1");
    let answer = fix.ok(pull).await;
    assert_eq!(bodies(&answer), ["m1", "m2"]);
    assert_eq!(
        (
            number(&answer, "nextBeginOffset"),
            number(&answer, "minOffset"),
            number(&answer, "maxOffset")
        ),
        (3, 0, 5)
    );
    assert!(number(&answer, "nextStoredAt") > 1_700_000_000_000);
    let group = fix
        .call(request(
            RequestCode::GetGroup,
            &[("group", "GANTRY_READER")],
        ))
        .await;
    assert_eq!(group.code, 26, "no group is made");
    let offset = fix
        .call(request(
            RequestCode::QueryConsumerOffset,
            &[
                ("consumerGroup", "GANTRY_READER"),
                ("topic", "t"),
                ("queueId", "0"),
                ("setZeroIfNotFound", "false"),
            ],
        ))
        .await;
    assert_eq!(offset.code, 22, "no offset is committed");
    let members = fix
        .call(request(
            RequestCode::GetConsumerListByGroup,
            &[("consumerGroup", "GANTRY_READER")],
        ))
        .await;
    assert_eq!(members.code, 1, "nobody is a member");
    let counted = [
        ("statsName", "GROUP_GET_NUMS"),
        ("statsKey", "t@GANTRY_READER"),
    ];
    let counted = fix
        .call(request(RequestCode::ViewBrokerStatsData, &counted))
        .await;
    assert_eq!(counted.code, 1, "nothing is counted for a group");
}

#[tokio::test]
async fn a_group_of_the_name_of_readers_is_none_of_theirs() {
    let fix = Fixture::start_with(|config| config.create.groups = true).await;
    fix.create_topic("t", 1).await;
    let member = heartbeat("c1", "GANTRY_READER", "t", "*");
    let body = String::from_utf8(member.body.to_bytes().to_vec()).unwrap();
    let body = body.replace("CONSUME_PASSIVELY", "CONSUME_POP");
    fix.ok(member.with_body(body)).await;
    let pull = support::pull("GANTRY_READER", "t", 0, 0, "*", 0);
    assert_eq!(fix.call(pull).await.code, 16, "it has lease members");
    let more = [("sysFlag", "2"), ("suspendTimeoutMillis", "15000")];
    let read = read("t", 0, 0, 2, &more);
    // On one connection the send is looked at behind the pull.
    let (answer, _) = tokio::join!(fix.call(read), fix.send("t", 0, &[], "m"));
    assert_eq!((answer.code, bodies(&answer)), (0, vec!["m".to_owned()]));
}

#[tokio::test]
async fn filters_scans_and_times() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for (i, tag) in ["Aa", "BB", "c", "Aa"].iter().enumerate() {
        fix.send("t", 0, &[("TAGS", tag)], &format!("m{i}")).await;
    }
    fix.read("t", 0, 0, 4).await;
    let answer = fix
        .ok(read(
            "t",
            0,
            0,
            9,
            &[("subscription", "Aa||c"), ("maxScan", "3")],
        ))
        .await;
    // "BB" shares its hash with "Aa": whoever reads compares the text.
    assert_eq!(bodies(&answer), ["m0", "m1", "m2"]);
    assert_eq!(number(&answer, "nextBeginOffset"), 3);
    let none = fix
        .call(read(
            "t",
            0,
            0,
            9,
            &[("subscription", "zz"), ("maxScan", "2")],
        ))
        .await;
    assert_eq!((none.code, number(&none, "nextBeginOffset")), (20, 2));
    let times = fix
        .ok(read(
            "t",
            0,
            0,
            9,
            &[("subscription", "Aa"), ("times", "1")],
        ))
        .await;
    assert!(times.body.is_empty());
    let entries: Vec<(i64, i64)> = times
        .ext
        .get("entries")
        .unwrap()
        .split(';')
        .map(|e| {
            let (offset, at) = e.split_once(' ').unwrap();
            (offset.parse().unwrap(), at.parse().unwrap())
        })
        .collect();
    assert_eq!(entries.iter().map(|e| e.0).collect::<Vec<_>>(), [0, 3]);
    assert!(entries.iter().all(|e| e.1 > 1_700_000_000_000));
    // One record at least, however few bytes are allowed.
    let one = fix.ok(read("t", 0, 0, 9, &[("maxMsgBytes", "1")])).await;
    assert_eq!(bodies(&one), ["m0"]);
}

#[tokio::test]
async fn positions_outside_the_queue_say_where_it_is() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    for i in 0..3 {
        fix.send("t", 0, &[], &format!("m{i}")).await;
    }
    fix.read("t", 0, 0, 3).await;
    let answer = |offset, queue| fix.call(read("t", queue, offset, 9, &[]));
    let at = |a: &Command| (a.code, number(a, "nextBeginOffset"), number(a, "maxOffset"));
    assert_eq!(at(&answer(3, 0).await), (19, 3, 3));
    assert_eq!(at(&answer(7, 0).await), (21, 3, 3));
    assert_eq!(at(&answer(-1, 0).await), (21, 0, 3));
    assert_eq!(at(&answer(0, 1).await), (19, 0, 0));
    assert_eq!(answer(0, 2).await.code, 29, "no such queue");
    assert_eq!(fix.call(read("u", 0, 0, 9, &[])).await.code, 17);
    let topics = fix
        .call(request(RequestCode::GetTopic, &[("topic", "u")]))
        .await;
    assert_eq!(topics.code, 17, "no topic is made");
    let mut bare = read("t", 0, 0, 9, &[]);
    bare.ext.put("maxMsgNums", "x");
    assert_eq!(fix.call(bare).await.code, 1);
}

#[tokio::test]
async fn a_reader_waits_for_the_next_message_and_no_longer_than_it_asked() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let wait = |ms: &'static str| {
        read(
            "t",
            0,
            0,
            9,
            &[("sysFlag", "2"), ("suspendTimeoutMillis", ms)],
        )
    };
    let start = Instant::now();
    let empty = fix.call(wait("300")).await;
    assert_eq!(empty.code, 19);
    assert!(
        (280..15_000).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    let waiting = fix.call(wait("20000"));
    let sending = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fix.send("t", 0, &[], "hello").await;
    };
    let start = Instant::now();
    let (answer, ()) = tokio::join!(waiting, sending);
    assert_eq!(bodies(&answer), ["hello"]);
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_topic_made_anew_has_another_epoch() {
    let fix = Fixture::start().await;
    let epoch = async || {
        let answer = fix
            .ok(request(RequestCode::GetTopic, &[("topic", "t")]))
            .await;
        let detail: TopicDetail = wire::json::from_slice(&answer.body.to_bytes()).unwrap();
        assert!(!detail.spec.attributes.contains_key("gantry.epoch"));
        detail.epoch
    };
    fix.create_topic("t", 1).await;
    let first = epoch().await;
    assert!(first > 0);
    fix.create_topic("t", 2).await;
    assert_eq!(epoch().await, first, "a change is no new topic");
    fix.ok(request(RequestCode::DeleteTopicInBroker, &[("topic", "t")]))
        .await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    fix.create_topic("t", 2).await;
    assert!(epoch().await > first);
}
