//! One group, a push consumer of the unmodified Java client and REST: whichever comes second is refused, and takes over at
//! the committed offset, waiting retries included, once the first has gone. Both directions, about 20 s each.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_tests::fleet::{Fleet, Metadata, Shape};
use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::java::{Consumer, Java};
use gantry_tests::native::Native;
use gantry_tests::wait::{SLOW, eventually, within};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long the brokers of these tests remember a lease member.
const SILENCE: &str = "3s";
/// Codes of RocketMQ's protocol.
const GET_CONSUMER_LIST_BY_GROUP: i32 = 38;
const QUERY_CONSUMER_OFFSET: i32 = 14;

struct Run {
    fleet: Fleet,
    rest: Rest,
    java: Java,
}

impl Run {
    async fn start() -> Run {
        let shape = Shape {
            brokers: 1,
            gateways: 1,
            metadata: Metadata::Sqlite,
            broker_args: vec!["--members-lease-silence", SILENCE],
            gateway_args: Vec::new(),
            ..Shape::default()
        };
        let fleet = Fleet::start(&shape).unwrap();
        fleet.ready().await;
        let rest = fleet.rest(0);
        rest.put_topic("orders", json!({"queues": 2}))
            .await
            .expect(201);
        rest.put_group("g", json!({"invisibleFor": "20s"}))
            .await
            .expect(201);
        rest.subscribe("g", "orders", json!({"initialPosition": "earliest"}))
            .await
            .expect(201);
        let java = Java::new(fleet.dir()).unwrap();
        Run { fleet, rest, java }
    }

    async fn send(&self, numbers: std::ops::Range<u64>) {
        for n in numbers {
            let message = json!({"json": {"n": n}, "properties": {"n": n.to_string()}});
            self.rest.send("orders", &message).await.expect(201);
        }
    }

    async fn consumer(&self, args: &[&str]) -> Consumer {
        let namesrv = self.fleet.names();
        let mut all = vec![
            "consume",
            "--namesrv",
            &namesrv,
            "--topic",
            "orders",
            "--group",
            "g",
        ];
        all.extend(args);
        self.java.consumer(&all).await.unwrap()
    }

    async fn receive(&self, query: &str) -> Answer {
        self.rest.receive("g", query).await
    }

    /// Receives until `count` messages are there and, for a second, no more.
    async fn receive_all(&self, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        let end = Instant::now() + Duration::from_secs(30);
        while all.len() < count && Instant::now() < end {
            all.extend(self.receive("max=64&wait=5s").await.expect(200).messages());
        }
        all.extend(self.receive("max=64&wait=1s").await.expect(200).messages());
        all
    }

    async fn native(&self) -> Native {
        Native::connect(self.fleet.brokers[0].addr("broker"))
            .await
            .unwrap()
    }

    /// The group's committed offsets in a topic, summed over `queues` queues.
    async fn committed(&self, topic: &str, queues: i32) -> i64 {
        let native = self.native().await;
        let mut sum = 0;
        for queue in 0..queues {
            let ext = json!({"consumerGroup": "g", "topic": topic, "queueId": queue.to_string()});
            let answer = native.call(QUERY_CONSUMER_OFFSET, ext, b"").await.unwrap();
            sum += answer.number("offset").unwrap();
        }
        sum
    }

    /// Whether the broker lists consumers that pull.
    async fn has_pullers(&self) -> bool {
        let ext = json!({"consumerGroup": "g"});
        let native = self.native().await;
        let answer = native
            .call(GET_CONSUMER_LIST_BY_GROUP, ext, b"")
            .await
            .unwrap();
        answer.expect(0).is_ok()
    }
}

/// Refused since members of the other kind live, naming one that contains `member`.
fn refused(answer: Answer, member: &str) {
    let answer = answer.expect(409);
    assert_eq!(answer.code(), "group_mode_conflict");
    let members = answer.json()["members"].to_string();
    assert!(members.contains(member), "{members} does not name {member}");
}

/// Message number and delivery of what REST received.
fn leased(messages: &[Value]) -> BTreeMap<u64, u64> {
    let mut seen = BTreeMap::new();
    for message in messages {
        let n = message["json"]["n"].as_u64().unwrap();
        assert_eq!(text(message, "topic"), "orders", "{message}");
        let before = seen.insert(n, message["attempt"].as_u64().unwrap());
        assert_eq!(before, None, "{n} came twice");
    }
    seen
}

fn receipts(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| text(message, "receipt"))
        .collect()
}

#[test]
fn curl_takes_over_from_java_with_the_retries_that_wait() {
    within(SLOW, async {
        let run = Run::start().await;
        run.send(0..10).await;
        // Each message fails once and is to come again five seconds later; the consumer does not live to see it.
        let consumer = run
            .consumer(&[
                "--expect",
                "10",
                "--fail",
                "always",
                "--delay-level",
                "2",
                "--settle",
                "2000",
            ])
            .await;
        refused(run.receive("max=1&wait=0s").await, "@");
        let rest = consumer.rest();
        tokio::pin!(rest);
        let deliveries = loop {
            tokio::select! {
                deliveries = &mut rest => break deliveries.unwrap(),
                () = sleep(Duration::from_millis(300)) => {
                    // While it lives, each call is refused; and no refused call gets in its way.
                    let answer = run.receive("max=1&wait=0s").await;
                    if answer.status != 409 {
                        assert_eq!(answer.messages(), Vec::<Value>::new());
                    }
                }
            }
        };
        assert_eq!(deliveries.len(), 10, "the push consumer saw each once");
        run.send(10..13).await;
        let got = run.receive_all(13).await;
        let expected: BTreeMap<u64, u64> = (0..10)
            .map(|n| (n, 2))
            .chain((10..13).map(|n| (n, 1)))
            .collect();
        assert_eq!(leased(&got), expected);
        run.rest.ack("g", &receipts(&got)).await.expect(200);
        assert_eq!(run.committed("orders", 2).await, 13);
        assert_eq!(run.committed("%RETRY%g", 1).await, 10);
    });
}

#[test]
fn java_takes_over_from_curl_with_the_retries_that_wait() {
    within(SLOW, async {
        let run = Run::start().await;
        run.send(0..15).await;
        let got = run.receive_all(15).await;
        assert_eq!(leased(&got).len(), 15);
        // 0–4 done, 5–9 given back and waiting, 10–14 held until their lease ends.
        let all = receipts(&got);
        let (acked, nacked, kept) = (&all[..5], &all[5..10], &all[10..]);
        let longer = || json!({"invisibleFor": "9s"});
        run.rest.ack("g", acked).await.expect(200);
        let settled = run.rest.settle("g", "nack", nacked, json!({"delay": "0s"}));
        settled.await.expect(200);
        let settled = run.rest.settle("g", "extend", kept, longer());
        settled.await.expect(200);

        let consumer = run
            .consumer(&["--expect", "13", "--settle", "2000", "--timeout", "60"])
            .await;
        for _ in 0..6 {
            assert!(!run.has_pullers().await, "the push consumer is not let in");
            let settled = run.rest.settle("g", "extend", &kept[..1], longer());
            settled.await.expect(200);
            sleep(Duration::from_millis(500)).await;
        }
        run.send(15..18).await;
        eventually(
            Duration::from_secs(20),
            "the push consumer gets in",
            async || run.has_pullers().await.then_some(()),
        )
        .await;
        refused(run.receive("max=1&wait=0s").await, "@");

        let mut seen = BTreeMap::new();
        for delivery in consumer.rest().await.unwrap() {
            let n: u64 = text(&delivery["properties"], "n").parse().unwrap();
            assert_eq!(text(&delivery, "topic"), "orders");
            let before = seen.insert(n, delivery["reconsumeTimes"].as_u64().unwrap());
            assert_eq!(before, None, "{n} came twice");
        }
        let number = |message: &Value| message["json"]["n"].as_u64().unwrap();
        let expected: BTreeMap<u64, u64> = got[5..]
            .iter()
            .map(|message| (number(message), 1))
            .chain((15..18).map(|n| (n, 0)))
            .collect();
        assert_eq!(seen, expected);
        eventually(
            Duration::from_secs(10),
            "its progress is written",
            async || {
                let done = run.committed("orders", 2).await == 18
                    && run.committed("%RETRY%g", 1).await == 10;
                done.then_some(())
            },
        )
        .await;
        assert_eq!(
            run.receive_all(0).await,
            Vec::<Value>::new(),
            "nothing is left over"
        );
    });
}
