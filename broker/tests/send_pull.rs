//! Sends, pulls and long polls over real sockets.
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

use support::{Fixture, decode, number, properties_text, pull, request, send};
use wire::message::batch::{BatchEntry, encode_batch};
use wire::message::record::RecordView;
use wire::{Command, RequestCode};

#[tokio::test]
async fn a_message_comes_back_as_it_was_sent() {
    let fix = Fixture::start().await;
    fix.create_topic("orders", 4).await;
    let answer = fix
        .ok(send(
            "orders",
            2,
            &[("TAGS", "new"), ("KEYS", "k1 k2"), ("amount", "7")],
            "body",
        ))
        .await;
    assert_eq!(
        (number(&answer, "queueId"), number(&answer, "queueOffset")),
        (2, 0)
    );
    assert_eq!(answer.ext.get("msgId").map(str::len), Some(32));
    assert_eq!(answer.ext.get("transactionId").map(str::len), Some(32));
    assert_eq!(answer.ext.get("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(answer.ext.get("TRACE_ON"), Some("true"));
    assert_eq!(answer.ext.get("durability"), Some("buffered"));
    let messages = fix.read("orders", 2, 0, 1).await;
    let message = &messages[0];
    assert_eq!(
        (
            message.topic.as_str(),
            message.body.as_str(),
            message.queue_offset
        ),
        ("orders", "body", 0)
    );
    assert_eq!(message.property("amount"), Some("7"));
    assert_eq!(message.property("KEYS"), Some("k1 k2"));
    assert_eq!(
        message.property("UNIQ_KEY"),
        answer.ext.get("transactionId")
    );
    assert_eq!(message.property("CLUSTER"), Some("DefaultCluster"));
    assert_eq!(
        Some(message.store_ts_ms.to_string().as_str()),
        answer.ext.get("storedAt")
    );
}

#[tokio::test]
async fn the_first_send_creates_its_topic_from_the_template() {
    let fix = Fixture::start().await;
    let answer = fix.ok(send("fresh", -1, &[], "x")).await;
    assert!((0..4).contains(&number(&answer, "queueId")));
    let detail = fix
        .ok(request(RequestCode::GetTopicConfig, &[("topic", "fresh")]))
        .await;
    let text = String::from_utf8(detail.body.to_bytes().to_vec()).unwrap();
    assert!(
        text.contains(r#""perm":6"#) && text.contains(r#""readQueueNums":4"#),
        "{text}"
    );
}

#[tokio::test]
async fn without_auto_creation_an_unknown_topic_is_refused() {
    let fix = Fixture::start_with(|config| config.create.topics = false).await;
    let answer = fix.call(send("fresh", 0, &[], "x")).await;
    assert_eq!(
        (answer.code, answer.ext.get("reason")),
        (17, Some("topic_not_found"))
    );
    assert_eq!(answer.ext.get("MSG_REGION"), Some("DefaultRegion"));
}

#[tokio::test]
async fn sends_say_when_they_are_on_the_disk() {
    let fix = Fixture::start_with(|config| config.flush.mode = broker::FlushMode::Sync).await;
    fix.create_topic("t", 1).await;
    let answer = fix.ok(send("t", 0, &[], "x")).await;
    assert_eq!(answer.ext.get("durability"), Some("flushed"));
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let answer = fix
        .ok(send("t", 0, &[], "x").with_ext("durability", "flushed"))
        .await;
    assert_eq!(answer.ext.get("durability"), Some("flushed"));
}

#[tokio::test]
async fn a_batch_gets_consecutive_offsets_and_keeps_its_properties() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "before").await;
    let text = properties_text(&[("TAGS", "b")]);
    let entries = ["one", "two", "three"].map(|body| BatchEntry {
        flag: 3,
        body: body.as_bytes(),
        properties: text.as_bytes(),
    });
    for (code, flag) in [
        (RequestCode::SendBatchMessage, "true"),
        (RequestCode::SendMessageV2, "1"),
    ] {
        let mut cmd = send("t", 0, &[], "").with_body(encode_batch(entries).unwrap());
        cmd.code = code.code();
        cmd.ext.put("m", flag);
        let answer = fix.ok(cmd).await;
        assert_eq!(
            answer.ext.get("msgId").map(|ids| ids.split(',').count()),
            Some(3)
        );
    }
    let messages = fix.read("t", 0, 0, 7).await;
    let bodies: Vec<&str> = messages
        .iter()
        .map(|message| message.body.as_str())
        .collect();
    assert_eq!(
        bodies,
        ["before", "one", "two", "three", "one", "two", "three"]
    );
    assert_eq!(
        messages[1].properties,
        [("TAGS".to_owned(), "b".to_owned())]
    );
    assert!(
        messages
            .iter()
            .enumerate()
            .all(|(i, message)| message.queue_offset == i as i64)
    );
}

/// As the C++ client sends a batch of more than 4 KiB: apache/rocketmq 5.4.0 keeps it as one message.
#[tokio::test]
async fn a_batch_that_is_packed_as_a_whole_is_unpacked() {
    use std::io::Write as _;
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let entries = ["one", "two"].map(|body| BatchEntry {
        flag: 0,
        body: body.as_bytes(),
        properties: b"",
    });
    let pack = |bytes: &[u8]| {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    let batch = |body: Vec<u8>, sys_flag: &str| {
        let mut cmd = send("t", 0, &[], "").with_body(body);
        cmd.ext.put("m", "1");
        cmd.ext.put("f", sys_flag);
        cmd
    };
    let plain = encode_batch(entries).unwrap();
    fix.ok(batch(pack(&plain), "1")).await;
    // The bit of compression is gone with it: these bodies are as they were.
    let pulled = fix.ok(pull("g", "t", 0, 0, "*", 1_000)).await;
    let bytes = pulled.body.to_bytes();
    let stored: Vec<(String, i32)> = RecordView::each(&bytes)
        .map(|view| view.unwrap())
        .map(|view| {
            (
                String::from_utf8_lossy(view.body).into_owned(),
                view.sys_flag,
            )
        })
        .collect();
    assert_eq!(stored, [("one".to_owned(), 0), ("two".to_owned(), 0)]);
    // Not announced, not zlib, or more than a message may hold.
    let bomb = pack(&vec![0; 5 << 20]);
    for (body, sys_flag) in [(pack(&plain), "0"), (b"none".to_vec(), "1"), (bomb, "1")] {
        assert_eq!(fix.call(batch(body, sys_flag)).await.code, 13);
    }
}

#[tokio::test]
async fn the_long_form_of_the_send_header_is_read() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let cmd = request(
        RequestCode::SendMessage,
        &[
            ("producerGroup", "p"),
            ("topic", "t"),
            ("defaultTopic", "TBW102"),
            ("defaultTopicQueueNums", "4"),
            ("queueId", "0"),
            ("sysFlag", "0"),
            ("bornTimestamp", "1"),
            ("flag", "9"),
            ("properties", "TAGS\u{1}x"),
        ],
    );
    fix.ok(cmd.with_body("long".to_owned())).await;
    assert_eq!(fix.read("t", 0, 0, 1).await[0].property("TAGS"), Some("x"));
}

#[tokio::test]
async fn tags_select_and_what_does_not_match_is_passed_over() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for i in 0..20 {
        fix.send(
            "t",
            0,
            &[("TAGS", if i % 5 == 0 { "keep" } else { "drop" })],
            &i.to_string(),
        )
        .await;
    }
    fix.read("t", 0, 0, 20).await;
    let answer = fix.call(pull("g", "t", 0, 0, "keep || other", 0)).await;
    let bodies: Vec<String> = decode(&answer)
        .into_iter()
        .map(|message| message.body)
        .collect();
    assert_eq!(bodies, ["0", "5", "10", "15"]);
    assert_eq!(number(&answer, "nextBeginOffset"), 20);
    let answer = fix.call(pull("g", "t", 0, 0, "none", 0)).await;
    assert_eq!((answer.code, number(&answer, "nextBeginOffset")), (20, 20));
    assert_eq!(answer.remark.as_deref(), Some("NO_MATCHED_MESSAGE"));
}

#[tokio::test]
async fn every_offset_outside_the_queue_is_told_where_to_go() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 2).await;
    for _ in 0..3 {
        fix.send("t", 0, &[], "x").await;
    }
    fix.read("t", 0, 0, 3).await;
    let check = async |queue: i32, offset: i64, code: i32, next: i64, remark: &str| {
        let answer = fix.call(pull("g", "t", queue, offset, "*", 0)).await;
        assert_eq!(
            (answer.code, number(&answer, "nextBeginOffset")),
            (code, next),
            "queue {queue} offset {offset}"
        );
        assert_eq!(answer.remark.as_deref(), Some(remark));
        assert_eq!(number(&answer, "maxOffset"), if queue == 0 { 3 } else { 0 });
        assert_eq!(number(&answer, "minOffset"), 0);
        assert_eq!(number(&answer, "suggestWhichBrokerId"), 0);
    };
    check(0, 3, 19, 3, "OFFSET_OVERFLOW_ONE").await;
    check(0, 4, 21, 3, "OFFSET_OVERFLOW_BADLY").await;
    check(0, -1, 21, 0, "OFFSET_TOO_SMALL").await;
    check(1, 0, 19, 0, "NO_MESSAGE_IN_QUEUE").await;
    check(1, 5, 21, 0, "NO_MESSAGE_IN_QUEUE").await;
}

#[tokio::test]
async fn a_long_poll_wakes_when_something_matches() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let start = Instant::now();
    let waiting = fix.call(pull("g", "t", 0, 0, "wanted", 10_000));
    let sending = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fix.send("t", 0, &[("TAGS", "other")], "no").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        fix.send("t", 0, &[("TAGS", "wanted")], "yes").await;
    };
    let (answer, ()) = tokio::join!(waiting, sending);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(decode(&answer)[0].body, "yes");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_long_poll_ends_at_its_deadline() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for wait in [300_u64, 1_200] {
        let start = Instant::now();
        let answer = fix.call(pull("g", "t", 0, 0, "*", wait)).await;
        let took = start.elapsed();
        assert_eq!(answer.code, 19);
        assert!(took >= Duration::from_millis(wait - 5), "{took:?}");
        assert!(took < Duration::from_millis(wait + 700), "{took:?}");
    }
}

#[tokio::test]
async fn what_does_not_match_moves_a_waiting_consumer_on() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let waiting = async {
        let mut offset = 0;
        while offset < 5 {
            let answer = fix.call(pull("g", "t", 0, offset, "wanted", 300)).await;
            assert!(answer.code == 20 || answer.code == 19, "{answer:?}");
            offset = number(&answer, "nextBeginOffset");
        }
        offset
    };
    let sending = async {
        for _ in 0..5 {
            fix.send("t", 0, &[("TAGS", "other")], "no").await;
        }
    };
    let (offset, ()) = tokio::join!(waiting, sending);
    assert_eq!(offset, 5);
}

#[tokio::test]
async fn one_way_sends_are_stored_and_not_answered() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for _ in 0..10 {
        let mut cmd = send("t", 0, &[], "quiet");
        cmd.flag |= wire::command::FLAG_ONEWAY;
        fix.client
            .oneway(&fix.addr, cmd, support::SOON)
            .await
            .unwrap();
    }
    assert_eq!(fix.read("t", 0, 0, 10).await.len(), 10);
}

#[tokio::test]
async fn a_message_is_found_by_its_place_in_the_log() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "first").await;
    let message = fix.read("t", 0, 0, 1).await.remove(0);
    let at = message.physical_offset.to_string();
    let answer = fix
        .ok(request(
            RequestCode::ViewMessageById,
            &[("topic", "t"), ("offset", &at)],
        ))
        .await;
    assert_eq!(decode(&answer)[0], message);
    for offset in ["999999", "1", "-5"] {
        let answer: Command = fix
            .call(request(RequestCode::ViewMessageById, &[("offset", offset)]))
            .await;
        assert_eq!(answer.code, 1, "{offset}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_during_sends_give_every_offset_once() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    const COUNT: i64 = 2_000;
    let sending = async {
        for _ in 0..COUNT {
            fix.send("t", 0, &[], "x").await;
        }
    };
    let reading = async {
        let reader = support::client();
        let mut offset = 0;
        while offset < COUNT {
            let answer = reader
                .invoke(
                    &fix.addr,
                    pull("g", "t", 0, offset, "*", 5_000),
                    support::SOON,
                )
                .await
                .unwrap();
            for message in decode(&answer) {
                assert_eq!(message.queue_offset, offset);
                offset += 1;
            }
            assert_eq!(number(&answer, "nextBeginOffset"), offset);
            assert!(number(&answer, "maxOffset") >= offset);
        }
    };
    tokio::join!(sending, reading);
}

/// Messages of a gateway must be of the topic's type; RocketMQ's broker takes any from its clients.
#[tokio::test]
async fn messages_of_a_gateway_are_of_the_topics_type() {
    let fix = Fixture::start().await;
    for kind in ["NORMAL", "FIFO", "DELAY"] {
        let attributes = format!("+message.type={kind}");
        let create = support::create_topic(kind, 1).with_ext("attributes", attributes);
        fix.ok(create).await;
    }
    fix.create_topic("any", 1).await;
    let key: &[(&str, &str)] = &[("__SHARDINGKEY", "o")];
    for (topic, properties, fits) in [
        ("NORMAL", &[][..], true),
        ("NORMAL", key, false),
        ("FIFO", &[], false),
        ("FIFO", key, true),
        ("DELAY", &[], true),
        ("any", &[], true),
        ("any", key, true),
    ] {
        let what = format!("{topic} {properties:?}");
        let (_, first) = fix.send(topic, 0, properties, "native").await;
        let text = properties_text(properties);
        let entry = BatchEntry {
            flag: 0,
            body: b"b",
            properties: text.as_bytes(),
        };
        let mut batch = send(topic, 0, &[], "");
        batch.code = RequestCode::SendBatchMessage.code();
        batch.ext.put("m", true);
        let batch = batch.with_body(encode_batch([entry]).unwrap());
        let plain = send(topic, 0, properties, "gateway");
        for cmd in [plain, batch] {
            let answer = fix.call(cmd.with_ext("gantry", true)).await;
            let wanted = if fits {
                (0, None)
            } else {
                (13, Some("message_type_mismatch"))
            };
            assert_eq!((answer.code, answer.ext.get("reason")), wanted, "{what}");
        }
        let (_, next) = fix.send(topic, 0, properties, "native").await;
        assert_eq!(next - first, if fits { 3 } else { 1 }, "stored: {what}");
    }
}
