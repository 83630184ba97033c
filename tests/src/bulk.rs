//! Ten thousand messages through a foreign client: each id once, bodies and properties as sent, the order of each queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::http::text;
use crate::java::Java;

/// What a client cannot do or does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// The answer to a send names the queue.
    pub tells_places: bool,
    /// Deliveries list all properties; else those asked for.
    pub lists_properties: bool,
}

/// How many, and in which way: mode, number of the first, count.
const PARTS: [(&str, &str, &str); 4] = [
    ("sync", "0", "1200"),
    ("async", "2000", "7000"),
    ("batch", "10000", "1600"),
    ("oneway", "20000", "200"),
];

/// The number that a program gave a message.
pub fn number(line: &Value) -> u64 {
    line["n"]
        .as_u64()
        .or_else(|| line["properties"]["n"].as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("no number in {line}"))
}

/// The numbers in order.
pub fn numbers(lines: &[Value]) -> Vec<u64> {
    let mut all: Vec<u64> = lines.iter().map(number).collect();
    all.sort_unstable();
    all
}

async fn produce(client: &Java, namesrv: &str, topic: &str) -> Vec<Value> {
    let mut sent = Vec::new();
    for (mode, first, count) in PARTS {
        let args = [
            "produce",
            "--namesrv",
            namesrv,
            "--topic",
            topic,
            "--mode",
            mode,
            "--first",
            first,
            "--count",
            count,
            "--size",
            "300",
            "--tags",
            "red,green",
            "--keys",
            "k-",
            "--prop",
            "colour=grün ✓",
            "--prop",
            "spaced= a  b ",
        ];
        sent.extend(client.lines(&args).await.unwrap());
    }
    sent
}

async fn consume(
    client: &Java,
    namesrv: &str,
    topic: &str,
    group: &str,
    orderly: &str,
) -> Vec<Value> {
    let args = [
        "consume",
        "--namesrv",
        namesrv,
        "--topic",
        topic,
        "--group",
        group,
        "--expect",
        "10000",
        "--timeout",
        "90",
        "--settle",
        "1500",
        "--orderly",
        orderly,
    ];
    let mut args = args.to_vec();
    args.extend(["--names", "colour,spaced"]);
    client.consumer(&args).await.unwrap().rest().await.unwrap()
}

/// Sends ten thousand in every mode and reads them by a concurrent and by an orderly group.
///
/// # Panics
/// When anything is lost, doubled, changed or out of order.
pub async fn ten_thousand(client: &Java, namesrv: &str, topic: &str, can: Abilities) {
    let sent = produce(client, namesrv, topic).await;
    assert_eq!(sent.len(), 10_000);
    let (concurrent, orderly) = (format!("{topic}-c"), format!("{topic}-o"));
    let (seen, in_order) = tokio::join!(
        consume(client, namesrv, topic, &concurrent, "false"),
        consume(client, namesrv, topic, &orderly, "true"),
    );
    for deliveries in [&seen, &in_order] {
        each_once(&sent, deliveries);
        same_as_sent(&sent, deliveries, can);
    }
    queues_in_order(&in_order);
}

fn each_once(sent: &[Value], seen: &[Value]) {
    let mut times: BTreeMap<u64, i32> = sent.iter().map(|line| (number(line), 0)).collect();
    let known: BTreeSet<u64> = times.keys().copied().collect();
    assert_eq!(known.len(), sent.len(), "each number sent once");
    for delivery in seen {
        *times.entry(number(delivery)).or_insert(0) += 1;
    }
    times.retain(|n, count| *count != 1 || !known.contains(n));
    let wrong = times.len();
    let some: Vec<(u64, i32)> = times.into_iter().take(10).collect();
    assert_eq!(wrong, 0, "not delivered once, number and times: {some:?}");
}

/// Each delivery against its send.
fn same_as_sent(sent: &[Value], seen: &[Value], can: Abilities) {
    let sent: HashMap<u64, &Value> = sent.iter().map(|line| (number(line), line)).collect();
    let mut places = BTreeMap::new();
    for delivery in seen {
        let n = number(delivery);
        let send = sent[&n];
        assert_eq!(delivery["body"], send["body"], "body of {n}");
        let tag = if n.is_multiple_of(2) { "red" } else { "green" };
        assert_eq!(text(delivery, "tags"), tag);
        assert_eq!(text(delivery, "keys").trim_end(), format!("k-{n}"));
        assert_eq!(text(&delivery["properties"], "colour"), "grün ✓");
        assert_eq!(text(&delivery["properties"], "spaced"), " a  b ");
        assert_eq!(delivery["reconsumeTimes"], 0);
        // a one-way send has no answer to compare with
        if send["status"].is_string() {
            assert_eq!(text(send, "status"), "SEND_OK");
            if send["msgId"].is_string() {
                assert_eq!(delivery["msgId"], send["msgId"], "id of {n}");
            }
            assert_eq!(delivery["offset"], send["offset"], "offset of {n}");
            if can.tells_places {
                assert_eq!(delivery["queue"], send["queue"], "queue of {n}");
            }
        }
        if can.lists_properties {
            let unique = &delivery["properties"]["UNIQ_KEY"];
            // the Go client gives the messages of a batch none
            if unique.is_string() {
                assert_eq!(unique, &delivery["msgId"], "unique key of {n}");
            }
        }
        let place = (delivery["queue"].as_i64(), delivery["offset"].as_i64());
        assert_eq!(places.insert(place, n), None, "two messages at {place:?}");
    }
}

/// The deliveries of an orderly consumer: every queue from its first message on, without a gap or a step back.
fn queues_in_order(deliveries: &[Value]) {
    let mut next: BTreeMap<i64, i64> = BTreeMap::new();
    for delivery in deliveries {
        let queue = delivery["queue"].as_i64().expect("a queue id");
        let expected = next.entry(queue).or_insert(0);
        assert_eq!(
            delivery["offset"].as_i64(),
            Some(*expected),
            "queue {queue}"
        );
        *expected += 1;
    }
    assert!(next.len() > 1, "one queue only: {next:?}");
}
