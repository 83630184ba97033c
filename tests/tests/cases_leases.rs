//! What others have seen go wrong with leases, told again over REST and WebSocket: last attempts, stale receipts, starts
//! from the latest message.

use std::time::Duration;

use gantry_tests::http::{Rest, text};
use gantry_tests::native::Native;
use gantry_tests::process::Gantry;
use gantry_tests::wait::{USUAL, eventually, within};
use gantry_tests::ws::Socket;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// A native heartbeat.
const HEART_BEAT: i32 = 34;

async fn one(rest: &Rest, group: &str, wait: &str) -> Value {
    let got = rest
        .receive(group, &format!("max=1&wait={wait}"))
        .await
        .expect(200)
        .messages();
    got.into_iter().next().unwrap_or(Value::Null)
}

/// BL-26, apache/rocketmq#2724: after the last attempt the message is among the dead letters at once; the back-off that
/// would have come next is not waited for.
#[test]
fn the_last_nack_makes_a_dead_letter_at_once() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("orders", json!({"queues": 1}))
            .await
            .expect(201);
        let backoff = json!({"kind": "list", "delays": ["1s", "5s", "1h"]});
        let retry = json!({"maxAttempts": 3, "backoff": backoff});
        rest.put_group("g", json!({"retry": retry}))
            .await
            .expect(201);
        rest.subscribe("g", "orders", json!({"initialPosition": "earliest"}))
            .await
            .expect(201);
        rest.send("orders", &json!({"text": "poison"}))
            .await
            .expect(201);
        for attempt in 1..=3 {
            let message = one(&rest, "g", "15s").await;
            assert_eq!(message["attempt"], attempt, "{message}");
            if attempt > 1 {
                assert_eq!(message["lastError"]["code"], "db_timeout", "{message}");
                assert_eq!(message["lastError"]["reason"], "no answer");
            }
            let said = json!({"code": "db_timeout", "reason": "no answer"});
            let receipt = [text(&message, "receipt")];
            let settled = rest.settle("g", "nack", &receipt, said).await.expect(200);
            assert_eq!(
                settled.json()["results"][0]["status"],
                if attempt == 3 {
                    "deadLettered"
                } else {
                    "nacked"
                }
            );
        }
        let letter = eventually(Duration::from_secs(2), "a dead letter", || async {
            let list = rest
                .get("/v1/ns/default/groups/g/dlq/messages")
                .await
                .json();
            list["items"].as_array()?.first().cloned()
        })
        .await;
        assert_eq!(letter["attempts"], 3, "{letter}");
        assert_eq!(letter["code"], "db_timeout", "{letter}");
    });
}

/// BL-47, localstack/localstack#13222, unordered: a receipt that ran out settles nothing of the next holder's; an
/// extension counts from when it is asked for, and the receipt stays good.
#[test]
fn a_stale_receipt_leaves_the_next_holder_alone_and_an_extension_holds() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("orders", json!({"queues": 1}))
            .await
            .expect(201);
        rest.put_group("g", json!({"invisibleFor": "2s"}))
            .await
            .expect(201);
        rest.subscribe("g", "orders", json!({"initialPosition": "earliest"}))
            .await
            .expect(201);
        rest.send("orders", &json!({"text": "stale"}))
            .await
            .expect(201);
        let first = one(&rest, "g", "5s").await;
        let second = one(&rest, "g", "10s").await;
        assert_eq!(
            (&first["attempt"], &second["attempt"]),
            (&json!(1), &json!(2))
        );
        let stale = rest.ack("g", &[text(&first, "receipt")]).await.expect(410);
        assert_eq!(stale.code(), "receipt_gone");
        let receipt = [text(&second, "receipt")];
        let longer = json!({"invisibleFor": "5s"});
        rest.settle("g", "extend", &receipt, longer)
            .await
            .expect(200);
        let extended = Instant::now();
        while extended.elapsed() < Duration::from_secs(4) {
            assert_eq!(one(&rest, "g", "500ms").await, Value::Null, "it is held");
        }
        let acked = rest.ack("g", &[text(&second, "receipt")]).await.expect(200);
        assert_eq!(acked.json()["results"][0]["late"], false);
        assert_eq!(one(&rest, "g", "3s").await, Value::Null);
    });
}

/// BL-17, apache/rocketmq#4909, #334, #9083: a group that starts at the latest message gets nothing that was there before,
/// however young the topic, and everything after the answer; also where the broker was restarted, after the group was made
/// or before.
#[test]
fn a_group_that_starts_at_the_latest_message_gets_only_what_follows() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("young", json!({"queues": 2}))
            .await
            .expect(201);
        for n in 0..3 {
            rest.send("young", &json!({"json": n})).await.expect(201);
        }
        for group in ["rest", "ws", "late"] {
            rest.put_group(group, json!({"initialPosition": "latest"}))
                .await
                .expect(201);
            rest.subscribe(group, "young", json!({})).await.expect(201);
        }
        rest.send("young", &json!({"json": "new"}))
            .await
            .expect(201);
        assert_eq!(one(&rest, "rest", "5s").await["json"], "new");
        assert_eq!(one(&rest, "rest", "500ms").await, Value::Null);
        let (mut socket, _) = Socket::open(rest.addr()).await.unwrap();
        assert_eq!(
            socket.subscribe("ws", "young", 10).await.unwrap()["op"],
            "ok"
        );
        let got = socket.messages(Duration::from_secs(5)).await.unwrap();
        assert_eq!(got.len(), 1, "{got:?}");
        assert_eq!(got[0]["json"], "new");
        socket.close().await;

        gantry.stop().unwrap();
        gantry.start_again().unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        assert_eq!(one(&rest, "late", "10s").await["json"], "new");
        assert_eq!(one(&rest, "late", "500ms").await, Value::Null);

        rest.put_group("after", json!({"initialPosition": "latest"}))
            .await
            .expect(201);
        rest.subscribe("after", "young", json!({}))
            .await
            .expect(201);
        assert_eq!(one(&rest, "after", "0s").await, Value::Null);
        for n in 10..14 {
            rest.send("young", &json!({"json": n})).await.expect(201);
        }
        let mut got = Vec::new();
        for _ in 10..14 {
            got.push(one(&rest, "after", "5s").await["json"].as_i64());
        }
        got.sort_unstable();
        assert_eq!(got, [10, 11, 12, 13].map(Some));
        assert_eq!(one(&rest, "after", "500ms").await, Value::Null);
    });
}

/// A socket hears at its subscribe, not at its first message, that consumers that pull have the group.
#[test]
fn a_subscribe_is_refused_while_a_consumer_that_pulls_lives() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        rest.put_topic("orders", json!({"queues": 1}))
            .await
            .expect(201);
        rest.put_group("g", json!({})).await.expect(201);
        rest.subscribe("g", "orders", json!({})).await.expect(201);
        let native = Native::connect(gantry.addr("broker")).await.unwrap();
        let beat = json!({"clientID": "puller@9", "producerDataSet": [], "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [],
        }]});
        let beat = beat.to_string();
        let said = native
            .call(HEART_BEAT, json!({}), beat.as_bytes())
            .await
            .unwrap();
        said.expect(0).unwrap();
        let refused = rest.receive("g", "wait=0s").await.expect(409);
        assert_eq!(refused.code(), "group_mode_conflict");
        assert_eq!(refused.json()["members"], json!(["puller@9"]));
        let (mut socket, _) = Socket::open(rest.addr()).await.unwrap();
        let answer = socket.subscribe("g", "orders", 0).await.unwrap();
        assert_eq!(answer["code"], "group_mode_conflict", "{answer}");
        drop(native);
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let answer = socket.subscribe("g", "orders", 0).await.unwrap();
            if answer["op"] == "ok" {
                break;
            }
            assert!(Instant::now() < until, "{answer}");
            sleep(Duration::from_millis(20)).await;
        }

        // And the other way round: the open subscription keeps the group without taking anything.
        let native = Native::connect(gantry.addr("broker")).await.unwrap();
        let refused = native
            .call(HEART_BEAT, json!({}), beat.as_bytes())
            .await
            .unwrap();
        refused.expect(16).unwrap();
    });
}
