//! Bad input: each request is answered with a clear remark, and the connection goes on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use support::{Fixture, SOON, number, pull, request, send};
use wire::{Command, RequestCode};

/// Expects a refusal that names `word`, on a connection that still works.
async fn refused(fix: &Fixture, cmd: Command, codes: &[i32], word: &str) {
    let what = format!("{} {:?}", cmd.request_code(), cmd.ext);
    let conn = fix.client.connection(&fix.addr, SOON).await.unwrap();
    let answer = fix.call(cmd).await;
    assert!(
        codes.contains(&answer.code),
        "{what}: {} {:?}",
        answer.code,
        answer.remark
    );
    let remark = answer.remark.unwrap_or_default();
    assert!(
        remark.to_lowercase().contains(&word.to_lowercase()),
        "{what}: {remark:?} does not say {word:?}"
    );
    assert!(answer.ext.get("reason").is_some(), "{what}");
    assert!(!conn.is_closed(), "{what} closed the connection");
}

fn with(mut cmd: Command, name: &str, value: &str) -> Command {
    cmd.ext.put(name, value);
    cmd
}

fn without(mut cmd: Command, name: &str) -> Command {
    cmd.ext.remove(name);
    cmd
}

#[tokio::test]
async fn numbers_that_are_none_and_fields_that_are_missing() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for bad in [
        "2147483648",
        "-2147483649",
        "one",
        "",
        "1.5",
        "9223372036854775808",
    ] {
        refused(&fix, with(send("t", 0, &[], "x"), "e", bad), &[1], "e").await;
        refused(
            &fix,
            with(pull("g", "t", 0, 0, "*", 0), "queueId", bad),
            &[1],
            "queueId",
        )
        .await;
    }
    refused(&fix, with(send("t", 0, &[], "x"), "g", "soon"), &[1], "g").await;
    refused(
        &fix,
        with(
            pull("g", "t", 0, 0, "*", 0),
            "queueOffset",
            "9223372036854775808",
        ),
        &[1],
        "queueOffset",
    )
    .await;
    for field in ["a", "b", "e", "g"] {
        refused(&fix, without(send("t", 0, &[], "x"), field), &[1], field).await;
    }
    for field in [
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
    ] {
        refused(
            &fix,
            without(pull("g", "t", 0, 0, "*", 0), field),
            &[1],
            field,
        )
        .await;
    }
    let codes = [
        (RequestCode::QueryConsumerOffset, "consumerGroup"),
        (RequestCode::UpdateConsumerOffset, "consumerGroup"),
        (RequestCode::GetMaxOffset, "topic"),
        (RequestCode::SearchOffsetByTimestamp, "topic"),
        (RequestCode::ViewMessageById, "offset"),
        (RequestCode::ConsumerSendMsgBack, "group"),
        (RequestCode::UnregisterClient, "clientID"),
        (RequestCode::GetConsumerListByGroup, "consumerGroup"),
        (RequestCode::UpdateAndCreateTopic, "topic"),
        (RequestCode::DeleteTopicInBroker, "topic"),
        (RequestCode::GetTopicConfig, "topic"),
        (RequestCode::GetTopicStatsInfo, "topic"),
        (RequestCode::DeleteSubscriptiongroup, "groupName"),
        (RequestCode::GetSubscriptiongroupConfig, "group"),
        (RequestCode::GetConsumeStats, "consumerGroup"),
        (RequestCode::QueryTopicConsumeByWho, "topic"),
        (RequestCode::InvokeBrokerToResetOffset, "group"),
        (RequestCode::PutTopic, "topic"),
        (RequestCode::GetTopic, "topic"),
        (RequestCode::PutGroup, "group"),
        (RequestCode::GetGroup, "group"),
        (RequestCode::PutSubscription, "group"),
        (RequestCode::DeleteSubscription, "group"),
        (RequestCode::GroupLag, "group"),
        (RequestCode::GroupMembers, "group"),
        (RequestCode::InFlight, "group"),
    ];
    for (code, field) in codes {
        refused(&fix, Command::request(code), &[1], field).await;
    }
    // Still good.
    fix.send("t", 0, &[], "x").await;
}

#[tokio::test]
async fn queues_topics_and_groups_that_cannot_be() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    refused(&fix, send("t", 2, &[], "x"), &[29], "queueId[2]").await;
    refused(&fix, pull("g", "t", -1, 0, "*", 0), &[29], "queueId[-1]").await;
    refused(&fix, pull("g", "t", 2, 0, "*", 0), &[29], "queueId[2]").await;
    refused(&fix, pull("g", "nowhere", 0, 0, "*", 0), &[17], "nowhere").await;
    refused(&fix, pull("a b", "t", 0, 0, "*", 0), &[29], "a b").await;
    refused(
        &fix,
        pull(&"g".repeat(121), "t", 0, 0, "*", 0),
        &[29],
        "120",
    )
    .await;
    refused(&fix, send("a.b", 0, &[], "x"), &[29], "illegal characters").await;
    refused(&fix, send(" ", 0, &[], "x"), &[29], "blank").await;
    refused(&fix, send(&"t".repeat(128), 0, &[], "x"), &[29], "127").await;
    for topic in [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ] {
        refused(&fix, send(topic, 0, &[], "x"), &[16], "forbidden").await;
    }
    let create =
        |topic: &str, name: &str, value: &str| with(support::create_topic(topic, 4), name, value);
    refused(&fix, create("TBW102", "perm", "6"), &[29], "system").await;
    refused(&fix, create("rmq_sys_x", "perm", "6"), &[29], "system").await;
    refused(
        &fix,
        create("u", "readQueueNums", "-1"),
        &[29],
        "readQueueNums",
    )
    .await;
    refused(
        &fix,
        create("u", "readQueueNums", "2147483647"),
        &[29],
        "readQueueNums",
    )
    .await;
    refused(&fix, create("u", "perm", "99"), &[29], "perm").await;
    refused(
        &fix,
        create("u", "topicFilterType", "NONE"),
        &[1],
        "topicFilterType",
    )
    .await;
    refused(
        &fix,
        create("u", "attributes", "+foo=1"),
        &[1],
        "unsupported key: foo",
    )
    .await;
    refused(
        &fix,
        request(
            RequestCode::DeleteTopicInBroker,
            &[("topic", "SELF_TEST_TOPIC")],
        ),
        &[29],
        "system",
    )
    .await;
    refused(
        &fix,
        request(RequestCode::GetTopicConfig, &[("topic", "nowhere")]),
        &[17],
        "nowhere",
    )
    .await;
    refused(
        &fix,
        pull("g", "t", 0, 0, "x", 0).with_ext("expressionType", "SQL92"),
        &[23],
        "SQL92",
    )
    .await;
}

#[tokio::test]
async fn bodies_over_the_limits_and_properties_that_are_none() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    refused(
        &fix,
        send("t", 0, &[], &"x".repeat((4 << 20) + 1)),
        &[13],
        "4194304",
    )
    .await;
    fix.ok(send("t", 0, &[], &"x".repeat(4 << 20))).await;
    refused(
        &fix,
        send("t", 0, &[("p", &"x".repeat(32_767))], "x"),
        &[13],
        "32767",
    )
    .await;
    fix.ok(with(
        send("t", 0, &[], "x"),
        "i",
        "\u{1}\u{2}novalue\u{1}\u{2}\u{1}noname\u{2}plain\u{2}a\u{1}b",
    ))
    .await;
    let message = fix.read("t", 0, 0, 2).await.remove(1);
    assert_eq!(message.property("a"), Some("b"));
    assert!(
        message
            .properties
            .iter()
            .all(|(name, value)| !name.is_empty() && !value.is_empty())
    );
    let mut batch = send("t", 0, &[], "not a batch");
    batch.ext.put("m", "true");
    refused(&fix, batch, &[13], "batch").await;
    let mut batch = send("%RETRY%g", 0, &[], "not a batch");
    batch.ext.put("m", "true");
    refused(&fix, batch, &[13], "retry group").await;
}

#[tokio::test]
async fn what_is_not_built_yet_is_refused_and_not_stored_as_something_weaker() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for property in [
        ("TRAN_MSG", "true"),
        ("TIMER_DELIVER_MS", "99999999999999"),
        ("TIMER_DELAY_SEC", "5"),
        ("TIMER_DELAY_MS", "5"),
    ] {
        refused(
            &fix,
            send("t", 0, &[property], "x"),
            &[1],
            "not supported yet",
        )
        .await;
    }
    for code in [12, 37, 370, 999, -7, 123_456] {
        let mut cmd = Command::request(RequestCode::GetMaxOffset);
        cmd.code = code;
        refused(
            &fix,
            cmd,
            &[3],
            &format!("request type {code} not supported"),
        )
        .await;
    }
    let max = fix
        .ok(request(
            RequestCode::GetMaxOffset,
            &[("topic", "t"), ("queueId", "0")],
        ))
        .await;
    assert_eq!(number(&max, "offset"), 0);
}

#[tokio::test]
async fn a_client_cannot_say_what_only_the_broker_may() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let forged = [
        ("__LEASE", "1 0 0 t"),
        ("__DELAYED_FROM", "1 5"),
        ("POP_CK", "x"),
        ("CLUSTER", "other"),
        ("TRACE_ON", "false"),
    ];
    let mut cmd = send("t", 0, &forged, "x");
    cmd.ext.put("f", (0x4 | 0x80 | 0x40).to_string());
    fix.ok(cmd).await;
    let message = fix.read("t", 0, 0, 1).await.remove(0);
    for name in ["__LEASE", "__DELAYED_FROM", "POP_CK"] {
        assert_eq!(message.property(name), None, "{name}");
    }
    assert_eq!(message.property("CLUSTER"), Some("DefaultCluster"));
    assert_eq!(message.property("TRACE_ON"), Some("true"));
}

#[tokio::test]
async fn bodies_that_are_no_json() {
    let fix = Fixture::start().await;
    let codes = [
        RequestCode::HeartBeat,
        RequestCode::LockBatchMq,
        RequestCode::UnlockBatchMq,
        RequestCode::QueryAssignment,
        RequestCode::UpdateAndCreateSubscriptiongroup,
    ];
    for code in codes {
        refused(&fix, Command::request(code), &[1], "empty").await;
        for text in ["{", "[1", "nonsense", "\u{0}\u{1}"] {
            refused(
                &fix,
                Command::request(code).with_body(text),
                &[1],
                "body is not valid",
            )
            .await;
        }
    }
    let deep = "[".repeat(100_000);
    refused(
        &fix,
        Command::request(RequestCode::HeartBeat).with_body(deep),
        &[1],
        "body is not valid",
    )
    .await;
    fix.ok(Command::request(RequestCode::HeartBeat).with_body("{}"))
        .await;
}
