//! The unmodified Java client, and messages that cross between it, curl and WebSocket.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_tests::bulk::{Abilities, number, numbers, ten_thousand};
use gantry_tests::doors::Doors;
use gantry_tests::http::{body_of, text};
use gantry_tests::java::Java;
use gantry_tests::wait::{SLOW, within};
use gantry_tests::ws::Socket;
use hyper::Method;
use serde_json::{Value, json};

struct Run {
    doors: Doors,
    java: Java,
    namesrv: String,
}

fn run<F: Future<Output = ()>>(body: impl FnOnce(Run) -> F) {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let namesrv = doors.namesrv.to_string();
        body(Run {
            doors,
            java,
            namesrv,
        })
        .await;
    });
}

impl Run {
    async fn produce(&self, topic: &str, args: &[&str]) -> Vec<Value> {
        let mut all = vec!["produce", "--namesrv", &self.namesrv, "--topic", topic];
        all.extend(args);
        self.java.lines(&all).await.unwrap()
    }

    async fn consume(&self, topic: &str, group: &str, args: &[&str]) -> Vec<Value> {
        let mut all = vec![
            "consume",
            "--namesrv",
            &self.namesrv,
            "--topic",
            topic,
            "--group",
            group,
        ];
        all.extend(args);
        self.java
            .consumer(&all)
            .await
            .unwrap()
            .rest()
            .await
            .unwrap()
    }
}

#[test]
fn ten_thousand_messages_of_every_send_mode_arrive_once_as_they_were_sent() {
    run(async |run| {
        let can = Abilities {
            tells_places: true,
            lists_properties: true,
        };
        ten_thousand(&run.java, &run.namesrv, &run.doors.name("bulk"), can).await;
    });
}

#[test]
fn ten_thousand_messages_of_client_4_9_8_arrive_once_as_they_were_sent() {
    run(async |run| {
        let can = Abilities {
            tells_places: true,
            lists_properties: true,
        };
        let old = Java::old(run.doors.dir()).unwrap();
        ten_thousand(&old, &run.namesrv, &run.doors.name("bulk"), can).await;
    });
}

/// "Aa" and "BB" have the same Java hash, which is all that a consume queue knows of a tag.
#[test]
fn tag_filter_delivers_the_named_tags_only() {
    run(async |run| {
        let topic = run.doors.name("tags");
        run.produce(
            &topic,
            &["--mode", "async", "--count", "300", "--tags", "Aa,BB,x"],
        )
        .await;
        let seen = run
            .consume(
                &topic,
                &run.doors.name("g"),
                &["--tags", "Aa || x", "--expect", "200", "--settle", "2000"],
            )
            .await;
        let expected: Vec<u64> = (0..300).filter(|n| n % 3 != 1).collect();
        assert_eq!(numbers(&seen), expected);
    });
}

#[test]
fn failed_messages_come_again_with_a_raised_count() {
    run(async |run| {
        let topic = run.doors.name("retry");
        let sent = run.produce(&topic, &["--count", "5", "--keys", "k"]).await;
        let args = [
            "--fail",
            "first",
            "--delay-level",
            "1",
            "--expect",
            "10",
            "--settle",
            "3000",
        ];
        let seen = run.consume(&topic, &run.doors.name("g"), &args).await;
        assert_eq!(seen.len(), 10);
        for line in &sent {
            let n = number(line);
            let mine: Vec<&Value> = seen
                .iter()
                .filter(|delivery| number(delivery) == n)
                .collect();
            let counts: Vec<i64> = mine
                .iter()
                .map(|delivery| delivery["reconsumeTimes"].as_i64().unwrap())
                .collect();
            assert_eq!(counts, [0, 1]);
            for delivery in mine {
                assert_eq!(
                    delivery["topic"],
                    json!(topic),
                    "the client sees the first topic"
                );
                assert_eq!(delivery["body"], line["body"]);
                assert_eq!(delivery["msgId"], line["msgId"]);
                assert_eq!(text(delivery, "keys"), format!("k{n}"));
            }
        }
    });
}

#[test]
fn a_message_that_fails_too_often_goes_to_the_dead_letters() {
    run(async |run| {
        let (topic, group) = (run.doors.name("dead"), run.doors.name("g"));
        let sent = run
            .produce(&topic, &["--count", "3", "--tags", "t", "--keys", "k"])
            .await;
        let args = [
            "--fail",
            "always",
            "--max-reconsume",
            "2",
            "--delay-level",
            "1",
            "--expect",
            "9",
            "--settle",
            "4000",
        ];
        let seen = run.consume(&topic, &group, &args).await;
        let mut counts: Vec<(u64, i64)> = seen
            .iter()
            .map(|line| (number(line), line["reconsumeTimes"].as_i64().unwrap()))
            .collect();
        counts.sort_unstable();
        let expected: Vec<(u64, i64)> = (0..3)
            .flat_map(|n| (0..3).map(move |count| (n, count)))
            .collect();
        assert_eq!(counts, expected, "two retries, no more");

        let dead_topic = format!("%DLQ%{group}");
        let dead = run
            .consume(
                &dead_topic,
                &run.doors.name("undertaker"),
                &["--expect", "3", "--settle", "1500"],
            )
            .await;
        assert_eq!(numbers(&dead), [0, 1, 2]);
        for letter in &dead {
            let n = number(letter);
            let send = sent.iter().find(|line| number(line) == n).unwrap();
            assert_eq!(letter["body"], send["body"]);
            assert_eq!(letter["msgId"], send["msgId"]);
            assert_eq!(text(letter, "tags"), "t");
            assert_eq!(text(&letter["properties"], "RETRY_TOPIC"), topic);
        }
    });
}

/// Bytes that are neither UTF-8 nor JSON.
fn odd_bytes() -> Vec<u8> {
    (0..=255).chain([0, 0xFF, b'\n', b'"', 0]).collect()
}

#[test]
fn java_to_curl_and_websocket_keeps_every_byte() {
    run(async |run| {
        let (Some(rest), Some(gateway)) = (run.doors.rest(), run.doors.gateway()) else {
            return;
        };
        let body = STANDARD.encode(odd_bytes());
        let args = [
            "--body",
            &body,
            "--tags",
            "paint",
            "--keys",
            "k",
            "--prop",
            "region=eu",
        ];
        let sent = run.produce("crossing", &args).await;

        let curl = rest
            .receive("by-curl", "topic=crossing&wait=5s")
            .await
            .expect(200)
            .messages();
        let (mut socket, _) = Socket::open(gateway).await.unwrap();
        assert_eq!(
            socket.subscribe("by-ws", "crossing", 5).await.unwrap()["op"],
            "ok"
        );
        let ws = socket.messages(Duration::from_secs(5)).await.unwrap();
        for (door, messages) in [("curl", &curl), ("ws", &ws)] {
            assert_eq!(messages.len(), 1, "{door}");
            let message = &messages[0];
            assert_eq!(body_of(message), odd_bytes(), "{door}");
            assert_eq!(message["messageId"], sent[0]["msgId"], "{door}");
            assert_eq!(text(message, "tag"), "paint", "{door}");
            assert_eq!(message["keys"], json!(["k0"]), "{door}");
            assert_eq!(
                message["properties"],
                json!({"n": "0", "region": "eu"}),
                "{door}"
            );
            assert_eq!(
                (&message["queue"]["id"], &message["offset"]),
                (&sent[0]["queue"], &sent[0]["offset"]),
                "{door}"
            );
        }
        rest.ack("by-curl", &[text(&curl[0], "receipt")])
            .await
            .expect(200);
        let ack = socket
            .ask(
                2,
                json!({"op": "ack", "sub": "s", "receipts": [ws[0]["receipt"]]}),
            )
            .await
            .unwrap();
        assert_eq!(ack["results"][0]["status"], "acked");
    });
}

#[test]
fn curl_and_websocket_to_java_keeps_every_byte() {
    run(async |run| {
        let (Some(rest), Some(gateway)) = (run.doors.rest(), run.doors.gateway()) else {
            return;
        };
        let headers = [
            ("content-type", "image/png"),
            ("mq-tag", "paint"),
            ("mq-keys", "k1,k2"),
            ("mq-prop-n", "0"),
            ("mq-prop-region", "eu"),
        ];
        let raw = rest
            .call(
                Method::POST,
                "/v1/ns/default/topics/crossing/raw",
                &headers,
                odd_bytes(),
            )
            .await
            .unwrap()
            .expect(201)
            .json();
        let spaced =
            r#"{"json": {"a" :1.00, "big": 12345678901234567890}, "properties": {"n": "1"}}"#;
        let path = "/v1/ns/default/topics/crossing/messages";
        let json_kept = rest
            .must(Method::POST, path, spaced)
            .await
            .expect(201)
            .json();
        let (mut socket, _) = Socket::open(gateway).await.unwrap();
        let message = json!({"text": "grün ✓", "properties": {"n": "2"}, "tag": "paint"});
        let publish = socket
            .ask(
                1,
                json!({"op": "publish", "topic": "crossing", "message": message}),
            )
            .await
            .unwrap();
        assert_eq!(publish["op"], "ok", "{publish}");

        let mut seen = run.consume("crossing", "java", &["--expect", "3"]).await;
        seen.sort_by_key(number);
        assert_eq!(seen.len(), 3);
        let expected = [
            odd_bytes(),
            br#"{"a" :1.00, "big": 12345678901234567890}"#.to_vec(),
            "grün ✓".into(),
        ];
        for ((delivery, bytes), answer) in
            seen.iter().zip(expected).zip([&raw, &json_kept, &publish])
        {
            assert_eq!(STANDARD.decode(text(delivery, "body")).unwrap(), bytes);
            assert_eq!(delivery["msgId"], answer["messageId"]);
            assert_eq!(
                (&delivery["queue"], &delivery["offset"]),
                (&answer["queue"]["id"], &answer["offset"])
            );
        }
        assert_eq!(
            (text(&seen[0], "tags"), text(&seen[0], "keys")),
            ("paint", "k1 k2")
        );
        assert_eq!(text(&seen[0]["properties"], "region"), "eu");
        assert_eq!(text(&seen[2], "tags"), "paint");
    });
}
