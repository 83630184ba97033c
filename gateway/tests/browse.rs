//! Browsing a topic without a group, by cursors, over several gateways and brokers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Answer, Cluster, text};

async fn browse(cluster: &Cluster, gateway: usize, query: &str) -> Value {
    let answer = get(cluster, gateway, query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

async fn get(cluster: &Cluster, gateway: usize, query: &str) -> Answer {
    cluster
        .at(
            gateway,
            "GET",
            &format!("/v1/ns/default/topics/t/messages?{query}"),
            "",
        )
        .await
}

fn texts(page: &Value) -> Vec<String> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| text(m, "text").to_owned())
        .collect()
}

async fn send(cluster: &Cluster, name: &str, tag: &str) -> Value {
    let body = format!(r#"{{"text":"{name}","tag":"{tag}"}}"#);
    let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
    assert_eq!(sent.status, 201, "{}", sent.text());
    // Two messages of one millisecond are told apart by their queue alone.
    tokio::time::sleep(Duration::from_millis(2)).await;
    sent.json()
}

/// m0 … m4 in a topic over all brokers.
async fn five(brokers: usize, gateways: usize) -> Cluster {
    let cluster = Cluster::start(brokers, gateways).await;
    let made = cluster
        .ns("PUT", "/topics/t", r#"{"type":"mixed","queues":4}"#)
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    for i in 0..5 {
        send(
            &cluster,
            &format!("m{i}"),
            if i % 2 == 0 { "even" } else { "odd" },
        )
        .await;
    }
    readable(&cluster, 5).await;
    cluster
}

/// Waits until so many messages can be read: they are dispatched after their 201.
async fn readable(cluster: &Cluster, count: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    while texts(&browse(cluster, 0, "limit=500").await).len() < count {
        assert!(Instant::now() < end);
    }
}

/// C19: pages of two through five messages, alternately on two gateways.
#[tokio::test]
async fn a_cursor_goes_on_at_any_gateway() {
    let cluster = five(2, 2).await;
    let lag = async || {
        let answer = cluster.ns("GET", "/groups/g/lag", "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["queues"].clone()
    };
    cluster
        .receive("g", "topic=t&max=1&wait=1s&invisibleFor=1h")
        .await;
    let before = lag().await;
    let first = browse(&cluster, 0, "from=earliest&limit=2").await;
    let second = browse(
        &cluster,
        1,
        &format!("from={}&limit=2", text(&first, "cursor")),
    )
    .await;
    let third = browse(
        &cluster,
        0,
        &format!("from={}&limit=2", text(&second, "cursor")),
    )
    .await;
    assert_eq!(texts(&first), ["m0", "m1"]);
    assert_eq!(texts(&second), ["m2", "m3"]);
    assert_eq!(texts(&third), ["m4"]);
    assert_eq!(
        [&first, &second, &third].map(|p| (p["caughtUp"].as_bool(), p["scanned"].as_u64())),
        [
            (Some(false), Some(2)),
            (Some(false), Some(2)),
            (Some(true), Some(1))
        ]
    );
    let end = browse(&cluster, 1, &format!("from={}", text(&third, "cursor"))).await;
    assert_eq!(
        (
            texts(&end).len(),
            end["caughtUp"].as_bool(),
            end["gap"].clone()
        ),
        (0, Some(true), Value::Null)
    );
    assert_eq!(lag().await, before, "reading changes nothing for the group");
    let item = &first["items"][0];
    assert!(item.get("receipt").is_none() && item.get("attempt").is_none());
    assert_eq!(
        (
            text(item, "topic"),
            item["size"].as_u64(),
            text(item, "tag")
        ),
        ("t", Some(2), "even")
    );
    cluster.stop().await;
}

#[tokio::test]
async fn places_and_ranges() {
    let cluster = five(2, 1).await;
    let all = browse(&cluster, 0, "").await;
    assert_eq!(texts(&all), ["m0", "m1", "m2", "m3", "m4"]);
    let at = |i: usize| text(&all["items"][i], "storedAt").to_owned();
    for (query, want) in [
        ("from=last:2".to_owned(), vec!["m3", "m4"]),
        (
            "from=last:99".to_owned(),
            vec!["m0", "m1", "m2", "m3", "m4"],
        ),
        ("from=last:2&tag=even".to_owned(), vec!["m2", "m4"]),
        ("from=latest".to_owned(), vec![]),
        (format!("from={}", at(2)), vec!["m2", "m3", "m4"]),
        (format!("from={}&to={}", at(1), at(3)), vec!["m1", "m2"]),
        (
            "from=2001-01-01T00:00:00Z".to_owned(),
            vec!["m0", "m1", "m2", "m3", "m4"],
        ),
        ("from=2999-01-01T00:00:00Z".to_owned(), vec![]),
        ("tag=odd".to_owned(), vec!["m1", "m3"]),
        (
            "tag=odd||even".to_owned(),
            vec!["m0", "m1", "m2", "m3", "m4"],
        ),
        ("tag=none".to_owned(), vec![]),
        ("order=desc".to_owned(), vec!["m4", "m3", "m2", "m1", "m0"]),
        ("order=desc&from=last:3".to_owned(), vec!["m4", "m3", "m2"]),
        (
            format!("order=desc&from={}&to={}", at(1), at(3)),
            vec!["m2", "m1"],
        ),
        ("order=desc&from=latest&limit=1".to_owned(), vec!["m4"]),
        ("order=desc&tag=odd".to_owned(), vec!["m3", "m1"]),
    ] {
        assert_eq!(texts(&browse(&cluster, 0, &query).await), want, "{query}");
    }
    let queue = &all["items"][1]["queue"];
    let one = browse(
        &cluster,
        0,
        &format!("queue={}:{}", text(queue, "broker"), queue["id"]),
    )
    .await;
    assert!(
        one["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|m| m["queue"] == *queue)
    );
    assert!(texts(&one).contains(&"m1".to_owned()));
    // The other queues keep their place.
    let rest = browse(&cluster, 0, &format!("from={}", text(&one, "cursor"))).await;
    assert_eq!(texts(&rest).len() + texts(&one).len(), 5);
    cluster.stop().await;
}

#[tokio::test]
async fn newest_first_goes_on_downwards_to_where_it_was_to_end() {
    let cluster = five(1, 2).await;
    let all = browse(&cluster, 0, "").await;
    let floor = text(&all["items"][1], "storedAt");
    for from in ["last:4", "earliest", floor] {
        let mut page = browse(&cluster, 0, &format!("order=desc&limit=2&from={from}")).await;
        let mut seen = texts(&page);
        for turn in 1..9 {
            // What comes meanwhile is above the place.
            send(&cluster, "later", "even").await;
            if page["caughtUp"] == true {
                break;
            }
            page = browse(
                &cluster,
                turn % 2,
                &format!("order=desc&limit=2&from={}", text(&page, "cursor")),
            )
            .await;
            seen.extend(texts(&page));
        }
        seen.retain(|t| t != "later");
        let want = if from == "earliest" {
            vec!["m4", "m3", "m2", "m1", "m0"]
        } else {
            vec!["m4", "m3", "m2", "m1"]
        };
        assert_eq!(seen, want, "{from}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_search_is_bounded_and_goes_on() {
    let cluster = five(2, 1).await;
    let mut query = "from=earliest&tag=none&scanLimit=2".to_owned();
    let mut scanned = 0;
    for turn in 0..9 {
        let page = browse(&cluster, 0, &query).await;
        assert!(texts(&page).is_empty());
        let now = page["scanned"].as_u64().unwrap();
        scanned += now;
        if page["caughtUp"] == true {
            assert!(turn > 1, "two at a time need three turns");
            break;
        }
        assert!((1..=2).contains(&now), "{now}");
        query = format!("from={}&tag=none&scanLimit=2", text(&page, "cursor"));
    }
    assert_eq!(scanned, 5);
    // Without a filter the limit holds too.
    let page = browse(&cluster, 0, "scanLimit=3").await;
    assert_eq!(
        (texts(&page).len(), page["caughtUp"].as_bool()),
        (3, Some(false))
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_wait_ends_with_the_first_message_of_any_queue() {
    let cluster = five(2, 2).await;
    let start = Instant::now();
    let none = browse(&cluster, 0, "from=latest&wait=300ms").await;
    assert!(texts(&none).is_empty() && none["caughtUp"] == true);
    let took = start.elapsed();
    assert!(
        (Duration::from_millis(280)..Duration::from_secs(15)).contains(&took),
        "{took:?}"
    );
    let mut query = format!("from={}&wait=20s&tag=wanted", text(&none, "cursor"));
    for round in 0..6 {
        let waiting = browse(&cluster, round % 2, &query);
        let sending = async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            send(&cluster, "noise", "noise").await;
            send(&cluster, &format!("w{round}"), "wanted").await;
        };
        let start = Instant::now();
        let (page, ()) = tokio::join!(waiting, sending);
        assert_eq!(texts(&page), [format!("w{round}")]);
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{:?}",
            start.elapsed()
        );
        query = format!("from={}&wait=20s&tag=wanted", text(&page, "cursor"));
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_topic_made_anew_ends_its_cursors() {
    let cluster = five(1, 1).await;
    let page = browse(&cluster, 0, "limit=2").await;
    let cursor = text(&page, "cursor").to_owned();
    let other = cluster.ns("PUT", "/topics/u", "{}").await;
    assert_eq!(other.status, 201);
    let foreign = cluster
        .ns("GET", &format!("/topics/u/messages?from={cursor}"), "")
        .await;
    foreign.problem(400, "invalid_cursor");
    let deleted = cluster.ns("DELETE", "/topics/t?force=true", "").await;
    assert_eq!(deleted.status, 204);
    get(&cluster, 0, &format!("from={cursor}"))
        .await
        .problem(404, "topic_not_found");
    assert_eq!(cluster.ns("PUT", "/topics/t", "{}").await.status, 201);
    get(&cluster, 0, &format!("from={cursor}"))
        .await
        .problem(410, "cursor_expired");
    get(&cluster, 0, &format!("to={cursor}"))
        .await
        .problem(410, "cursor_expired");
    let page = browse(&cluster, 0, "").await;
    assert!(texts(&page).is_empty() && page["caughtUp"] == true);
    cluster.stop().await;
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let cluster = five(1, 1).await;
    let page = browse(&cluster, 0, "limit=1").await;
    let cursor = text(&page, "cursor").to_owned();
    let mut changed = cursor.clone();
    let last = changed.pop();
    changed.push(if last == Some('A') { 'B' } else { 'A' });
    for (query, status, code) in [
        ("from=yesterday".to_owned(), 400, "invalid_time"),
        ("from=last:0".to_owned(), 400, "invalid_field"),
        ("from=last:x".to_owned(), 400, "invalid_field"),
        ("from=last:10001".to_owned(), 400, "invalid_field"),
        ("from=mqc_abc".to_owned(), 400, "invalid_cursor"),
        (format!("from={changed}"), 400, "invalid_cursor"),
        (format!("to={changed}"), 400, "invalid_cursor"),
        ("to=earliest".to_owned(), 400, "invalid_time"),
        ("queue=3".to_owned(), 400, "invalid_field"),
        ("queue=broker-a:99".to_owned(), 400, "invalid_field"),
        ("tag=".to_owned(), 400, "invalid_tag"),
        ("limit=501".to_owned(), 400, "invalid_field"),
        ("scanLimit=0".to_owned(), 400, "invalid_field"),
        ("wait=61s".to_owned(), 400, "invalid_wait"),
        ("wait=5".to_owned(), 400, "invalid_duration"),
        ("order=up".to_owned(), 400, "invalid_field"),
        ("bodyFormat=raw".to_owned(), 400, "invalid_field"),
        ("strict=yes".to_owned(), 400, "invalid_field"),
        ("form=earliest".to_owned(), 400, "unknown_field"),
        ("sql=a".to_owned(), 501, "not_implemented"),
        ("key=a".to_owned(), 501, "not_implemented"),
    ] {
        get(&cluster, 0, &query).await.problem(status, code);
    }
    let system = cluster
        .ns("GET", "/topics/SCHEDULE_TOPIC_XXXX/messages", "")
        .await;
    assert_eq!(system.status, 404, "{}", system.text());
    cluster.stop().await;
}

#[tokio::test]
async fn a_broker_that_is_down_is_not_left_out() {
    let mut cluster = five(2, 1).await;
    let page = browse(&cluster, 0, "limit=1").await;
    let cursor = text(&page, "cursor").to_owned();
    cluster.brokers.pop().unwrap().stop().await.unwrap();
    get(&cluster, 0, &format!("from={cursor}"))
        .await
        .problem(503, "broker_unavailable");
    cluster.stop().await;
}

#[tokio::test]
async fn large_bodies_stop_an_answer_early() {
    let cluster = five(1, 1).await;
    let big = "x".repeat(3 << 20);
    for _ in 0..2 {
        send(&cluster, &big, "big").await;
    }
    // Both are readable once one answer does not hold them.
    let end = Instant::now() + Duration::from_secs(10);
    while browse(&cluster, 0, "tag=big").await["caughtUp"] == true {
        assert!(Instant::now() < end);
    }
    let page = browse(&cluster, 0, "tag=big").await;
    assert_eq!(
        (texts(&page).len(), page["caughtUp"].as_bool()),
        (1, Some(false))
    );
    let page = browse(
        &cluster,
        0,
        &format!("tag=big&from={}", text(&page, "cursor")),
    )
    .await;
    assert_eq!(
        (texts(&page).len(), page["caughtUp"].as_bool()),
        (1, Some(true))
    );
    let page = browse(&cluster, 0, "order=desc&limit=1&bodyFormat=none").await;
    assert_eq!(page["items"][0]["size"].as_u64(), Some(3 << 20));
    assert!(page["items"][0].get("text").is_none());
    cluster.stop().await;
}

/// Log files of 64 KiB that are kept for a second.
async fn short_lived() -> Cluster {
    let cluster = Cluster::start_all(
        1,
        1,
        |_| {},
        |broker| {
            broker.segment.size = node::ByteSize(64 << 10);
            broker.retention.time = node::Millis(1_000);
            broker.retention.check_interval = node::Millis(100);
            // Age alone decides here, however full the disk of the machine is.
            (
                broker.retention.clean_percent,
                broker.retention.refuse_percent,
            ) = (100, 100);
        },
    )
    .await;
    let made = cluster.ns("PUT", "/topics/t", r#"{"queues":2}"#).await;
    assert_eq!(made.status, 201, "{}", made.text());
    cluster
}

#[tokio::test]
async fn what_retention_deleted_is_a_gap_or_ends_a_strict_read() {
    let cluster = short_lived().await;
    let start = browse(&cluster, 0, "").await;
    let large = "x".repeat(8 << 10);
    for _ in 0..40 {
        send(&cluster, &large, "big").await;
    }
    let cursor = text(&start, "cursor");
    let end = Instant::now() + Duration::from_secs(15);
    let strict = format!("from={cursor}&limit=1&strict=true");
    while get(&cluster, 0, &strict).await.status == 200 {
        assert!(Instant::now() < end, "nothing is deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    get(&cluster, 0, &strict)
        .await
        .problem(410, "cursor_expired");
    let (mut from, mut found, mut skipped) = (cursor.to_owned(), 0, 0);
    loop {
        let page = browse(&cluster, 0, &format!("from={from}&limit=3")).await;
        found += texts(&page).len();
        if !page["gap"].is_null() {
            assert_eq!(page["gap"]["reason"], "retention");
            skipped += page["gap"]["skipped"].as_u64().unwrap();
        }
        from = text(&page, "cursor").to_owned();
        if page["caughtUp"] == true {
            break;
        }
    }
    assert!(skipped > 0);
    assert_eq!(
        found as u64 + skipped,
        40,
        "each message is given or counted"
    );
    cluster.stop().await;
}

/// A group is told of a loss once: its receive does not go on to wait for a message, and lose what it was told.
#[tokio::test]
async fn a_receive_that_finds_a_loss_and_no_message_answers_at_once() {
    let cluster = short_lived().await;
    let start = text(&browse(&cluster, 0, "").await, "cursor").to_owned();
    cluster.make("/groups/g", "{}").await;
    let small = r#"{"filter":{"kind":"tag","expression":"small"},"initialPosition":"earliest"}"#;
    cluster.make("/groups/g/subscriptions/t", small).await;
    let large = "x".repeat(8 << 10);
    for _ in 0..40 {
        send(&cluster, &large, "big").await;
    }
    let end = Instant::now() + Duration::from_secs(15);
    let strict = format!("from={start}&limit=1&strict=true");
    while get(&cluster, 0, &strict).await.status == 200 {
        assert!(Instant::now() < end, "nothing is deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    let answer = cluster
        .ns("POST", "/groups/g/receive?topic=t&wait=20s", "")
        .await;
    let took = began.elapsed();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["messages"], Value::Array(Vec::new()));
    assert_eq!(answer["gap"][0]["reason"], "retention", "{answer}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    cluster.stop().await;
}
