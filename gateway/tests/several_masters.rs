//! Several masters: who was not reached catches up, nothing happens under an old configuration, nothing comes back.
#![allow(clippy::unwrap_used, clippy::string_slice, reason = "a test")]

mod support;

use remoting::{Client, ClientOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use support::{Cluster, text};
use tokio::time::Instant;
use wire::{Command, RequestCode};

const SOON: Duration = Duration::from_secs(10);

/// One request to the broker at this place of the list, past the gateway.
async fn ask(cluster: &Cluster, place: usize, cmd: Command) -> Command {
    let client = Client::new(ClientOptions::default());
    let addr = cluster.brokers[place].addrs().listen.to_string();
    client.invoke(&addr, cmd, SOON).await.unwrap()
}

async fn group_at(cluster: &Cluster, place: usize, group: &str) -> Option<Value> {
    let cmd = Command::request(RequestCode::GetGroup).with_ext("group", group);
    let answer = ask(cluster, place, cmd).await;
    (answer.code == 0).then(|| serde_json::from_slice(&answer.body.to_bytes()).unwrap())
}

async fn topic_at(cluster: &Cluster, place: usize, topic: &str) -> Option<Value> {
    let cmd = Command::request(RequestCode::GetTopic).with_ext("topic", topic);
    let answer = ask(cluster, place, cmd).await;
    (answer.code == 0).then(|| serde_json::from_slice(&answer.body.to_bytes()).unwrap())
}

/// C21: a group, a topic and a subscription written while one of two masters is down.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_down_has_the_new_configuration_before_it_delivers() {
    let mut cluster = Cluster::start(2, 2).await;
    let made = cluster.ns("PUT", "/topics/t", r#"{"queues":5}"#).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(made.json()["pending"].is_null(), "{}", made.text());
    for (group, attempts) in [("g", 9), ("old", 9)] {
        let body =
            format!(r#"{{"retry":{{"maxAttempts":{attempts}}},"initialPosition":"earliest"}}"#);
        let path = format!("/groups/{group}");
        assert_eq!(cluster.ns("PUT", &path, &body).await.status, 201);
    }
    let subscribed = cluster.ns("PUT", "/groups/g/subscriptions/t", "{}").await;
    assert_eq!(subscribed.status, 201, "{}", subscribed.text());
    cluster.make("/topics/empty", "{}").await;
    cluster.make("/groups/g/subscriptions/empty", "{}").await;
    assert_eq!(topic_at(&cluster, 0, "t").await.unwrap()["writeQueues"], 3);
    assert_eq!(topic_at(&cluster, 1, "t").await.unwrap()["writeQueues"], 2);
    for i in 0..10 {
        let body = format!(r#"{{"json":{i}}}"#);
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201);
    }
    cluster.stop_broker(1).await;

    let changes = [
        ("PATCH", "/groups/g", r#"{"retry":{"maxAttempts":3}}"#, 200),
        ("PUT", "/groups/new", r#"{"maxInFlight":7}"#, 201),
        (
            "PUT",
            "/groups/new/subscriptions/t",
            r#"{"initialPosition":"latest"}"#,
            201,
        ),
        ("PATCH", "/topics/t", r#"{"description":"five"}"#, 200),
        ("DELETE", "/groups/old?force=true", "", 200),
    ];
    for path in ["/groups/old", "/topics/empty"] {
        let refused = cluster.ns("DELETE", path, "").await;
        let problem = refused.problem(503, "broker_unavailable");
        assert!(
            text(&problem, "detail").starts_with("broker-b cannot be asked"),
            "{problem}"
        );
    }
    for (method, path, body, status) in changes {
        let answer = cluster.ns(method, path, body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.json()["pending"], json!(["broker-b"]), "{path}");
    }
    let topic = cluster.ns("GET", "/topics/t", "").await.json();
    assert_eq!(topic["queues"], 5, "those of the master that is down count");
    // A gateway that never saw the other master names it too: the brokers know it.
    let other = cluster.at(
        1,
        "PATCH",
        "/v1/ns/default/groups/g",
        r#"{"maxInFlight":9}"#,
    );
    assert_eq!(other.await.json()["pending"], json!(["broker-b"]));

    cluster.start_broker(1, |_| {}).await;
    let group = group_at(&cluster, 1, "g").await.unwrap();
    assert_eq!(group["spec"]["maxAttempts"], 3, "{group}");
    assert_eq!(
        group["version"],
        group_at(&cluster, 0, "g").await.unwrap()["version"]
    );
    assert_eq!(
        group_at(&cluster, 1, "new").await.unwrap()["spec"]["maxInFlight"],
        7
    );
    assert!(group_at(&cluster, 1, "old").await.is_none());
    cluster.ready(2).await;
    // The whole topic is written again, and its route read.
    let again = cluster
        .ns("PATCH", "/topics/t", r#"{"description":"all"}"#)
        .await;
    assert_eq!(
        (again.status, &again.json()["pending"]),
        (200, &Value::Null)
    );
    let mut taken = BTreeSet::new();
    let end = Instant::now() + SOON;
    while taken.len() < 10 && Instant::now() < end {
        for message in cluster.receive("g", "wait=1s").await {
            assert_eq!(message["maxAttempts"], 3, "{message}");
            taken.insert(text(&message, "messageId").to_owned());
        }
    }
    assert_eq!(taken.len(), 10);
    assert!(
        cluster.receive("new", "wait=0s").await.is_empty(),
        "what was there before the subscription was made, on the master that was down too"
    );
    let again = cluster
        .ns("PATCH", "/groups/g", r#"{"maxInFlight":11}"#)
        .await;
    assert_eq!(
        (again.status, &again.json()["pending"]),
        (200, &Value::Null)
    );
    assert_eq!(cluster.ns("GET", "/groups/old", "").await.status, 404);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_does_not_come_back_with_a_master_that_was_down() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":4}"#).await;
    cluster.ns("PUT", "/groups/g", "{}").await;
    cluster
        .ns("POST", "/topics/t/messages", r#"{"json":1}"#)
        .await;
    cluster.stop_broker(1).await;
    for path in ["/topics/t?force=true", "/groups/g?force=true"] {
        let answer = cluster.ns("DELETE", path, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json(), json!({"pending": ["broker-b"]}));
    }
    // Made again meanwhile: it is newer than the deletion, and the old queues stay away.
    let made = cluster.ns("PUT", "/groups/g", r#"{"maxInFlight":3}"#).await;
    assert_eq!(made.status, 201, "{}", made.text());
    cluster
        .start_broker(1, |config| config.level_interval = node::Millis::secs(1))
        .await;
    cluster.ready(2).await;
    assert!(topic_at(&cluster, 1, "t").await.is_none());
    // Both ask each other every second: another round would bring it back by now.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(topic_at(&cluster, 0, "t").await.is_none());
    assert_eq!(cluster.ns("GET", "/topics/t", "").await.status, 404);
    for place in [0, 1] {
        let group = group_at(&cluster, place, "g").await.unwrap();
        assert_eq!(group["spec"]["maxInFlight"], 3);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_master_reached_is_503() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/groups/g", "{}").await;
    cluster.stop_broker(1).await;
    cluster.stop_broker(0).await;
    let write = cluster.ns("PUT", "/groups/g", r#"{"maxInFlight":3}"#).await;
    let problem = write.problem(503, "broker_unavailable");
    assert_eq!(problem["outcome"], "notApplied");
    let write = cluster.ns("PUT", "/topics/u", "{}").await;
    write.problem(503, "broker_unavailable");
    cluster.stop().await;
}

async fn put_past_the_gateway(cluster: &Cluster, place: usize, group: &str, in_flight: u32) {
    let body = format!("{{\"maxInFlight\":{in_flight}}}");
    let cmd = Command::request(RequestCode::PutGroup).with_ext("group", group);
    assert_eq!(ask(cluster, place, cmd.with_body(body)).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_an_older_version_gives_nothing_is_named_and_catches_up() {
    let cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":4}"#).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    put_past_the_gateway(&cluster, 0, "g", 5).await;
    // The gateway learns of it.
    assert_eq!(
        cluster.ns("GET", "/groups/g", "").await.json()["maxInFlight"],
        5
    );
    let answer = cluster.ns("POST", "/groups/g/receive?wait=0s", "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let expected = json!([{"broker": "broker-b", "reason": "stale_config"}]);
    assert_eq!(answer.json()["partial"], expected);
    let metrics = cluster.call("GET", "/metrics", "").await.text();
    let counted = "gantry_gateway_stale_config_total{broker=\"broker-b\"}";
    assert!(metrics.contains(counted), "{metrics}");
    let end = Instant::now() + SOON;
    loop {
        let answer = cluster.ns("POST", "/groups/g/receive?wait=0s", "").await;
        if answer.json()["partial"].is_null() {
            break;
        }
        assert!(Instant::now() < end, "{}", answer.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        group_at(&cluster, 1, "g").await.unwrap()["spec"]["maxInFlight"],
        5
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_brokers_with_an_older_version_left_is_503() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":4}"#).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    put_past_the_gateway(&cluster, 0, "g", 5).await;
    assert_eq!(
        cluster.ns("GET", "/groups/g", "").await.json()["maxInFlight"],
        5
    );
    cluster.stop_broker(0).await;
    let answer = cluster.ns("POST", "/groups/g/receive?wait=0s", "").await;
    answer.problem(503, "broker_unavailable");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writers_that_meet_with_one_entity_tag_one_wins_at_all_masters() {
    let cluster = Cluster::start(2, 2).await;
    cluster.ns("PUT", "/groups/g", "{}").await;
    for round in 0..3 {
        let tag = cluster.ns("GET", "/groups/g", "").await;
        let tag = tag.header("etag").unwrap().to_owned();
        let writes = (0..8).map(|i| {
            let addr = cluster.gateways[i % 2].addr();
            let (tag, body) = (
                tag.clone(),
                format!(r#"{{"maxInFlight":{}}}"#, 100 * round + i + 1),
            );
            async move {
                let headers = [
                    ("If-Match", tag.as_str()),
                    ("Content-Type", "application/json"),
                ];
                let path = "/v1/ns/default/groups/g";
                support::send(addr, "PATCH", path, &headers, body.as_bytes()).await
            }
        });
        let answers = futures_util::future::join_all(writes).await;
        let won: Vec<&support::Answer> = answers.iter().filter(|a| a.status == 200).collect();
        assert_eq!(
            won.len(),
            1,
            "{:?}",
            answers.iter().map(|a| a.status).collect::<Vec<_>>()
        );
        for lost in answers.iter().filter(|a| a.status != 200) {
            lost.problem(412, "version_mismatch");
        }
        let value = &won[0].json()["maxInFlight"];
        for place in [0, 1] {
            let group = group_at(&cluster, place, "g").await.unwrap();
            assert_eq!(&group["spec"]["maxInFlight"], value);
        }
    }
    // Without a tag everyone gets a version, one after the other.
    let writes = (0..4).map(|i| {
        let path = format!("/topics/t{}", i / 2);
        let cluster = &cluster;
        async move { cluster.ns("PUT", &path, r#"{"queues":2}"#).await.status }
    });
    let statuses = futures_util::future::join_all(writes).await;
    assert!(
        statuses.iter().all(|s| matches!(s, 200 | 201)),
        "{statuses:?}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_hold_for_topics_groups_and_subscriptions() {
    let cluster = Cluster::start(2, 1).await;
    let typed = ("Content-Type", "application/json");
    cluster.ns("PUT", "/topics/base", r#"{"queues":2}"#).await;
    let cases = [
        ("/topics/x", r#"{"queues":2}"#, "topic_exists"),
        ("/groups/x", "{}", "group_exists"),
        ("/groups/x/subscriptions/base", "{}", "version_mismatch"),
    ];
    for (path, body, exists) in cases {
        let only_new = [("If-None-Match", "*"), typed];
        let first = cluster.with("PUT", path, &only_new, body.as_bytes()).await;
        assert_eq!(first.status, 201, "{path}: {}", first.text());
        let old = first.header("etag").unwrap().to_owned();
        assert_eq!(first.json()["etag"], old.as_str());
        let again = cluster.with("PUT", path, &only_new, body.as_bytes()).await;
        assert_eq!(again.problem(412, exists)["etag"], old.as_str());
        let changed = if path.ends_with("base") {
            r#"{"filter":{"kind":"tag","expression":"a"}}"#
        } else {
            r#"{"description":"new"}"#
        };
        let changed = if path == "/groups/x" {
            r#"{"maxInFlight":5}"#
        } else {
            changed
        };
        let matching = [("If-Match", old.as_str()), typed];
        let second = cluster
            .with("PUT", path, &matching, changed.as_bytes())
            .await;
        assert_eq!(second.status, 200, "{path}: {}", second.text());
        let new = second.header("etag").unwrap().to_owned();
        assert_ne!(new, old);
        let stale = cluster.with("PUT", path, &matching, body.as_bytes()).await;
        assert_eq!(stale.problem(412, "version_mismatch")["etag"], new.as_str());
        let stale = cluster
            .with("DELETE", path, &[("If-Match", &old)], b"")
            .await;
        stale.problem(412, "version_mismatch");
        let read = cluster.ns("GET", path, "").await;
        assert_eq!(read.header("etag"), Some(new.as_str()), "{path}");
    }
    for (path, ..) in cases.iter().rev() {
        let tag = cluster
            .ns("GET", path, "")
            .await
            .header("etag")
            .unwrap()
            .to_owned();
        let gone = cluster
            .with("DELETE", path, &[("If-Match", &tag)], b"")
            .await;
        assert_eq!(gone.status, 204, "{path}: {}", gone.text());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_over_all_masters_come_in_pages_without_repeats() {
    let cluster = Cluster::start(2, 1).await;
    for i in 0..7 {
        let (topic, group) = (format!("/topics/t{i}"), format!("/groups/g{i}"));
        // One queue each: the topics lie on different masters.
        assert_eq!(
            cluster.ns("PUT", &topic, r#"{"queues":1}"#).await.status,
            201
        );
        assert_eq!(cluster.ns("PUT", &group, "{}").await.status, 201);
    }
    for kind in ["topics", "groups"] {
        let (mut names, mut token, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let more = token.map(|t| format!("&pageToken={t}")).unwrap_or_default();
            let page = cluster
                .ns("GET", &format!("/{kind}?limit=3{more}"), "")
                .await
                .json();
            let items = page["items"].as_array().unwrap().clone();
            names.extend(items.iter().map(|item| text(item, "name").to_owned()));
            pages += 1;
            match page["nextPageToken"].as_str() {
                Some(next) => token = Some(next.to_owned()),
                None => break,
            }
        }
        let letter = &kind[..1];
        let expected: Vec<String> = (0..7).map(|i| format!("{letter}{i}")).collect();
        assert_eq!((names, pages), (expected, 3));
        let page = cluster
            .ns("GET", &format!("/{kind}?limit=3"), "")
            .await
            .json();
        let token = text(&page, "nextPageToken").to_owned();
        let last = if token.ends_with('A') { "B" } else { "A" };
        for position in [0, token.len() / 2] {
            let mut bad = token.clone();
            bad.replace_range(
                position..=position,
                if &bad[position..=position] == last {
                    "C"
                } else {
                    last
                },
            );
            let path = format!("/{kind}?limit=3&pageToken={bad}");
            cluster
                .ns("GET", &path, "")
                .await
                .problem(400, "page_token_invalid");
        }
        let path = format!("/{kind}?prefix=z&pageToken={token}");
        cluster
            .ns("GET", &path, "")
            .await
            .problem(400, "page_token_mismatch");
    }
    cluster.stop().await;
}

/// C12: a receive that waits is woken by a message on either master, within 300 ms of its 201.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_is_woken_from_any_master() {
    let cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":2}"#).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    let mut slowest = Duration::ZERO;
    for round in 0..50 {
        let receive = cluster.receive("g", "topic=t&wait=20s&max=1");
        let broker = ["broker-a", "broker-b"][round % 2];
        let body = format!(r#"{{"json":{round},"queue":{{"broker":"{broker}","id":0}}}}"#);
        let send = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
            assert_eq!(sent.status, 201, "{}", sent.text());
            assert_eq!(sent.json()["queue"]["broker"], broker);
            Instant::now()
        };
        let timed = async { (receive.await, Instant::now()) };
        let ((messages, arrived), stored) = tokio::join!(timed, send);
        assert_eq!(messages[0]["json"], round, "round {round}");
        slowest = slowest.max(arrived.saturating_duration_since(stored));
        let path = format!("/groups/g/ack?receipt={}", text(&messages[0], "receipt"));
        assert_eq!(cluster.ns("POST", &path, "").await.status, 200);
    }
    // That it is within 300 ms the acceptance checks show; a waiter that is not woken waits 20 s.
    assert!(slowest <= Duration::from_secs(3), "{slowest:?}");
    cluster.stop().await;
}

/// Only the first message of an answer may exceed the bytes asked for, whichever broker has the next one.
#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_receive_hold_over_all_brokers() {
    let cluster = Cluster::start(2, 1).await;
    cluster.ns("PUT", "/topics/t", r#"{"queues":2}"#).await;
    cluster.receive("g", "topic=t&wait=0s").await;
    let pad = "x".repeat(1_000);
    for number in 0..6 {
        let broker = ["broker-a", "broker-b"][number % 2];
        let body = format!(r#"{{"text":"{pad}","queue":{{"broker":"{broker}","id":0}}}}"#);
        let sent = cluster.ns("POST", "/topics/t/messages", &body).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    for (bytes, count, more) in [(10, 1, true), (2_500, 2, true), (20_000, 3, false)] {
        let path = format!("/groups/g/receive?topic=t&wait=5s&max=10&maxBytes={bytes}");
        let answer = cluster.ns("POST", &path, "").await.json();
        let messages = answer["messages"].as_array().unwrap();
        assert_eq!(
            (messages.len(), &answer["more"]),
            (count, &more.into()),
            "{bytes}"
        );
    }
    cluster.stop().await;
}

/// A broker that leaves the name servers takes its queues out of the routes. What is missing then is said, not left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_left_is_named_and_its_keys_wait_for_it() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":4}"#).await;
    let from = r#"{"initialPosition":"earliest"}"#;
    cluster.make("/groups/g/subscriptions/t", from).await;
    let send = |key: usize| format!(r#"{{"json":{key},"orderingKey":"k{key}"}}"#);
    let mut homes = Vec::new();
    for key in 0..8 {
        let sent = cluster.ns("POST", "/topics/t/messages", &send(key)).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
        homes.push(text(&sent.json()["queue"], "broker").to_owned());
    }
    let there = homes.iter().position(|home| home == "broker-b").unwrap();
    let here = homes.iter().position(|home| home == "broker-a").unwrap();
    cluster.stop_broker(1).await;

    let missing = json!([{"broker": "broker-b", "reason": "unreachable"}]);
    let until = Instant::now() + Duration::from_secs(15);
    // Before the route is read again the broker is in it and cannot be asked; afterwards it is not in it.
    while Instant::now() < until {
        let got = cluster.ns("POST", "/groups/g/receive?wait=0s", "").await;
        assert_eq!((got.status, &got.json()["partial"]), (200, &missing));
        let raw = cluster
            .ns(
                "POST",
                "/groups/g/receive?wait=0s&bodyFormat=raw&invisibleFor=1s",
                "",
            )
            .await;
        assert_eq!(raw.header("mq-partial"), Some("broker-b"));
        let seen = cluster.ns("GET", "/groups/g/peek", "").await;
        assert_eq!((seen.status, &seen.json()["partial"]), (200, &missing));
        let page = cluster.ns("GET", "/topics/t/messages", "").await;
        page.problem(503, "broker_unavailable");
        let kept = cluster.ns("POST", "/topics/t/messages", &send(there)).await;
        kept.problem(503, "broker_unavailable");
        let sent = cluster.ns("POST", "/topics/t/messages", &send(here)).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
        assert_eq!(text(&sent.json()["queue"], "broker"), "broker-a");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    cluster.start_broker(1, |_| {}).await;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let got = cluster.ns("POST", "/groups/g/receive?wait=0s", "").await;
        let sent = cluster.ns("POST", "/topics/t/messages", &send(there)).await;
        if got.json()["partial"].is_null() && sent.status == 201 {
            assert_eq!(text(&sent.json()["queue"], "broker"), "broker-b");
            break;
        }
        assert!(Instant::now() < until, "{} {}", got.text(), sent.text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.stop().await;
}

/// A topic whose only broker left exists still: it is not told to be absent and not made anew elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_broker_left_is_not_taken_for_absent() {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.make("/topics/t", r#"{"queues":1}"#).await;
    let from = r#"{"initialPosition":"earliest"}"#;
    cluster.make("/groups/g/subscriptions/t", from).await;
    let sent = cluster
        .ns("POST", "/topics/t/messages", r#"{"json":1}"#)
        .await;
    let home = text(&sent.json()["queue"], "broker").to_owned();
    let place = usize::from(home == "broker-b");
    cluster.stop_broker(place).await;
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        for (method, path, body) in [
            ("GET", "/topics/t", ""),
            ("GET", "/topics/t/messages", ""),
            ("POST", "/topics/t/messages", r#"{"json":2}"#),
            ("POST", "/groups/g/receive?wait=0s", ""),
            ("GET", "/groups/g/peek", ""),
        ] {
            let answer = cluster.ns(method, path, body).await;
            assert_eq!(answer.status, 503, "{method} {path}: {}", answer.text());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cluster.stop().await;
}
