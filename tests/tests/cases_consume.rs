//! What consumers have lost, waited for or stumbled over elsewhere, retold over REST and WebSocket.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use gantry_tests::http::{Rest, text};
use gantry_tests::native::Native;
use gantry_tests::process::Gantry;
use gantry_tests::wait::{SLOW, USUAL, eventually, within};
use gantry_tests::ws::Socket;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// BL-14, apache/rocketmq#7914: popped in batches, half of each acked: what was not comes again, each time with the next
/// attempt, until all is acked.
#[test]
fn half_acked_batches_lose_nothing() {
    const MESSAGES: usize = 20_000;
    within(SLOW, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &["--flush-mode", "async"]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("many", json!({"queues": 8}))
            .await
            .expect(201);
        rest.put_group(
            "g",
            json!({"invisibleFor": "5s", "maxInFlight": 50000, "retry": {"maxAttempts": 100}}),
        )
        .await
        .expect(201);
        rest.subscribe("g", "many", json!({"initialPosition": "earliest"}))
            .await
            .expect(201);

        let numbers: Vec<usize> = (0..MESSAGES).collect();
        let mut sent = HashSet::new();
        for chunk in numbers.chunks(250) {
            let messages: Vec<Value> = chunk.iter().map(|number| json!({"json": number})).collect();
            let batch = json!({"messages": messages});
            let answer = rest
                .post("/v1/ns/default/topics/many/messages/batch", &batch)
                .await
                .expect(200)
                .json();
            sent.extend(
                answer["results"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|result| text(result, "messageId").to_owned()),
            );
        }
        assert_eq!(sent.len(), MESSAGES);

        let consumers = (0..4).map(|worker| half_acking(rest.clone(), worker));
        let mut acked: HashSet<String> = HashSet::new();
        let mut attempts: HashMap<String, Vec<u64>> = HashMap::new();
        for (worker_acked, deliveries) in join_all(consumers).await {
            for id in worker_acked {
                assert!(acked.insert(id.clone()), "{id} was delivered after its ack");
            }
            for (id, attempt) in deliveries {
                attempts.entry(id).or_default().push(attempt);
            }
        }
        let missing = sent.difference(&acked).count();
        assert_eq!((acked.len(), missing), (MESSAGES, 0), "acked and missing");
        for (id, mut seen) in attempts {
            seen.sort_unstable();
            let expected: Vec<u64> = (1..=u64::try_from(seen.len()).unwrap()).collect();
            assert_eq!(seen, expected, "attempts of {id}");
        }
    });
}

/// Receives 32 at a time and acks every other until nothing has come for longer than a lease.
async fn half_acking(rest: Rest, worker: u64) -> (Vec<String>, Vec<(String, u64)>) {
    let mut dice = worker * 1_000_003 + 17;
    let (mut acked, mut deliveries) = (Vec::new(), Vec::new());
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_secs(8) {
        let got = rest
            .receive("g", "topic=many&max=32&wait=1s&bodyFormat=none")
            .await
            .expect(200)
            .messages();
        if got.is_empty() {
            continue;
        }
        last = Instant::now();
        let mut receipts = Vec::new();
        for message in &got {
            let id = text(message, "messageId").to_owned();
            deliveries.push((id.clone(), message["attempt"].as_u64().unwrap()));
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if dice >> 63 == 0 {
                receipts.push(text(message, "receipt"));
                acked.push(id);
            }
        }
        if !receipts.is_empty() {
            let answer = rest.ack("g", &receipts).await.expect(200).json();
            let all = answer["results"].as_array().unwrap();
            assert!(
                all.iter().all(|result| result["status"] == "acked"),
                "{answer}"
            );
        }
    }
    (acked, deliveries)
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with the broker's own date of storing, on the same machine"
)]
fn now_ms() -> u64 {
    u64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap()
}

/// Milliseconds of the day of an RFC 3339 time in UTC with milliseconds: enough for a difference of seconds.
fn day_ms(rfc3339: &str) -> u64 {
    let part = |from: usize, to: usize| rfc3339[from..to].parse::<u64>().unwrap();
    ((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1000 + part(20, 23)
}

/// How long ago a message was stored.
fn age(message: &Value) -> Duration {
    const DAY: u64 = 86_400_000;
    Duration::from_millis((now_ms() % DAY + DAY - day_ms(text(message, "storedAt"))) % DAY)
}

/// CPU seconds of a process so far.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// BL-36, apache/rocketmq#8472: one message in a thousand matches; it comes at once, and the group does not fall behind
/// what it will never be given.
#[test]
fn a_rare_tag_in_heavy_traffic_comes_at_once() {
    const SECONDS: u64 = 8;
    within(SLOW, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &["--flush-mode", "async"]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("traffic", json!({"queues": 4}))
            .await
            .expect(201);
        for group in ["poll", "ws"] {
            rest.put_group(group, json!({})).await.expect(201);
            rest.subscribe(
                group,
                "traffic",
                json!({"filter": {"kind": "tag", "expression": "rare"}}),
            )
            .await
            .expect(201);
        }
        let poller = tokio::spawn(poll_rare(
            rest.clone(),
            usize::try_from(SECONDS * 5).unwrap(),
        ));
        let socket = tokio::spawn(watch_rare(
            rest.clone(),
            usize::try_from(SECONDS * 5).unwrap(),
        ));

        // 100 batches of 50 a second; the last message of every 20th batch matches
        let client = Native::connect(gantry.addr("broker")).await.unwrap();
        let started = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for batch in 0..SECONDS * 100 {
            ticks.tick().await;
            let rare = batch % 20 == 19;
            let messages: Vec<_> = (0..50)
                .map(|index| {
                    (
                        vec![b'x'; 200],
                        vec![(
                            "TAGS",
                            if rare && index == 49 {
                                "rare"
                            } else {
                                "common"
                            },
                        )],
                    )
                })
                .collect();
            let queue = i32::try_from(batch % 4).unwrap();
            client
                .send_batch("traffic", queue, &messages)
                .await
                .unwrap()
                .expect(0)
                .unwrap();
        }
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(SECONDS * 3 / 2),
            "the load itself took {took:?}"
        );

        for (door, ages) in [
            ("poll", poller.await.unwrap()),
            ("ws", socket.await.unwrap()),
        ] {
            let mut ages = ages;
            ages.sort_unstable();
            println!(
                "{door}: {} matching, slowest {:?}",
                ages.len(),
                ages.last().unwrap()
            );
            let p99 = ages[ages.len() * 99 / 100 - 1];
            assert!(p99 < Duration::from_millis(500), "{door}: p99 {p99:?}");
        }
        for group in ["poll", "ws"] {
            eventually(
                Duration::from_secs(5),
                "the position passes what does not match",
                async || {
                    let lag = rest
                        .get(&format!("/v1/ns/default/groups/{group}/lag"))
                        .await
                        .expect(200)
                        .json();
                    (behind(&lag) == 0).then_some(())
                },
            )
            .await;
        }
        let before = cpu_seconds(gantry.pid());
        let waiting = tokio::spawn({
            let rest = rest.clone();
            async move { rest.receive("poll", "topic=traffic&wait=3s").await }
        });
        sleep(Duration::from_secs(3)).await;
        let spent = cpu_seconds(gantry.pid()) - before;
        waiting.await.unwrap().expect(200);
        assert!(spent < 0.6, "{spent} CPU seconds in 3 s of waiting");
    });
}

async fn poll_rare(rest: Rest, expect: usize) -> Vec<Duration> {
    let mut ages = Vec::new();
    while ages.len() < expect {
        let got = rest
            .receive("poll", "topic=traffic&wait=10s")
            .await
            .expect(200)
            .messages();
        assert!(
            !got.is_empty(),
            "poll waited 10 s after {} of {expect}",
            ages.len()
        );
        for message in &got {
            ages.push(age(message));
            assert_eq!(text(message, "tag"), "rare");
            rest.ack("poll", &[text(message, "receipt")])
                .await
                .expect(200);
        }
    }
    ages
}

async fn watch_rare(rest: Rest, expect: usize) -> Vec<Duration> {
    let (mut socket, _) = Socket::open(rest.addr()).await.unwrap();
    assert_eq!(
        socket.subscribe("ws", "traffic", 100).await.unwrap()["op"],
        "ok"
    );
    let mut ages = Vec::new();
    while ages.len() < expect {
        let got = socket.messages(Duration::from_secs(10)).await.unwrap();
        assert!(
            !got.is_empty(),
            "the socket waited 10 s after {} of {expect}",
            ages.len()
        );
        for message in &got {
            ages.push(age(message));
            assert_eq!(text(message, "tag"), "rare");
            let ack = json!({"op": "ack", "sub": "s", "receipts": [message["receipt"]]});
            socket.send(&ack).await.unwrap();
            socket
                .send(&json!({"op": "credit", "sub": "s", "messages": 1}))
                .await
                .unwrap();
        }
    }
    ages
}

/// Sum of what a group has before it on all queues of a lag answer.
fn behind(lag: &Value) -> i64 {
    match lag {
        Value::Object(fields) => match (fields.get("maxOffset"), fields.get("nextDeliver")) {
            (Some(max), Some(next)) => max.as_i64().unwrap() - next.as_i64().unwrap(),
            _ => fields.values().map(behind).sum(),
        },
        Value::Array(items) => items.iter().map(behind).sum(),
        _ => 0,
    }
}

/// BL-41, strimzi/strimzi-kafka-bridge#373: one body that is no JSON among nine that are.
#[test]
fn a_body_that_is_no_json_does_not_block_the_others() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("mixed", json!({"queues": 1}))
            .await
            .expect(201);
        let client = Native::connect(gantry.addr("broker")).await.unwrap();
        for number in 0..10 {
            if number == 4 {
                client
                    .send("mixed", 0, &[0xFF, 0xFF, 0xFF], &[])
                    .await
                    .unwrap()
                    .expect(0)
                    .unwrap();
            } else {
                rest.send("mixed", &json!({"json": {"n": number}}))
                    .await
                    .expect(201);
            }
        }
        let got = rest
            .receive("g", "topic=mixed&max=10")
            .await
            .expect(200)
            .messages();
        assert_eq!(got.len(), 10);
        for (number, message) in got.iter().enumerate() {
            if number == 4 {
                assert_eq!(message["base64"], "////");
                assert!(
                    message.get("json").is_none() && message.get("text").is_none(),
                    "{message}"
                );
            } else {
                assert_eq!(message["json"], json!({"n": number}));
            }
            let ack = rest
                .ack("g", &[text(message, "receipt")])
                .await
                .expect(200)
                .json();
            assert_eq!(ack["results"][0]["status"], "acked");
        }
    });
}

/// BL-48, apache/pulsar#14242: a batch sent by a native client, acked one by one over WebSocket, out of order and over
/// four connections.
#[test]
fn a_native_batch_is_acked_message_by_message_over_websocket() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        let client = Native::connect(gantry.addr("broker")).await.unwrap();
        client.put_topic("batched", 2).await.unwrap();
        let batch: Vec<_> = (0..50)
            .map(|number| (format!("{number}").into_bytes(), vec![("KEYS", "k")]))
            .collect();
        client
            .send_batch("batched", 1, &batch)
            .await
            .unwrap()
            .expect(0)
            .unwrap();

        let mut seen: HashSet<String> = HashSet::new();
        for connection in 0..4 {
            let (mut socket, _) = Socket::open(rest.addr()).await.unwrap();
            let want = if connection < 3 { 13 } else { 50 - 39 };
            assert_eq!(
                socket.subscribe("g", "batched", want).await.unwrap()["op"],
                "ok"
            );
            let mut got = Vec::new();
            while got.len() < usize::try_from(want).unwrap() {
                let more = socket.messages(Duration::from_secs(5)).await.unwrap();
                assert!(
                    !more.is_empty(),
                    "only {} of {want} on connection {connection}",
                    got.len()
                );
                got.extend(more);
            }
            for (id, message) in (10..).zip(got.iter().rev()) {
                assert_eq!(message["attempt"], 1, "{message}");
                assert!(
                    seen.insert(
                        text(message, "messageId").to_owned()
                            + text(message, "base64")
                            + text(message, "text")
                    ),
                    "{message}"
                );
                let ack = socket
                    .ask(
                        id,
                        json!({"op": "ack", "sub": "s", "receipts": [message["receipt"]]}),
                    )
                    .await
                    .unwrap();
                assert_eq!(ack["results"][0]["status"], "acked", "{ack}");
            }
            socket.close().await;
        }
        assert_eq!(seen.len(), 50);
        let again = rest
            .receive("g", "topic=batched&wait=3s")
            .await
            .expect(200)
            .messages();
        assert_eq!(again, Vec::<Value>::new(), "redelivered");
        let lag = rest
            .get("/v1/ns/default/groups/g/lag")
            .await
            .expect(200)
            .json();
        assert_eq!(behind(&lag), 0, "{lag}");
        assert!(!lag.to_string().contains(r#""inFlight":1"#), "{lag}");
    });
}
