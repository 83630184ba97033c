//! Acceptance checks of the public API, black box, on one gateway and one broker with sync flush.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::process::Gantry;
use gantry_tests::wait::{SLOW, USUAL, within};
use gantry_tests::ws::Socket;
use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

struct Bench {
    rest: Rest,
    _gantry: Gantry,
    _dir: TempDir,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let gantry = Gantry::up(dir.path(), &["--flush-mode", "sync"]).unwrap();
    Bench {
        rest: Rest::new(gantry.addr("gateway")),
        _gantry: gantry,
        _dir: dir,
    }
}

#[track_caller]
fn problem(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!(
        (answer.status, text(&body, "code")),
        (status, code),
        "{body}"
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(body["status"], status);
    assert!(
        !text(&body, "requestId").is_empty() && !text(&body, "detail").is_empty(),
        "{body}"
    );
    body
}

/// C01, but for the look-up by `Location`.
#[test]
fn a_send_is_answered_with_where_it_lies() {
    within(USUAL, async {
        let bench = bench();
        let answer = bench
            .rest
            .send("orders", &json!({"json": {"a": 1}}))
            .await
            .expect(201);
        let sent = answer.json();
        assert_eq!(text(&sent, "messageId").len(), 26);
        assert_eq!(text(&sent, "topic"), "orders");
        assert!(
            sent["queue"]["broker"].is_string() && sent["queue"]["id"].is_u64(),
            "{sent}"
        );
        assert!(sent["offset"].as_i64().unwrap() >= 0);
        assert_eq!(sent["duplicate"], false);
        assert_eq!(text(&sent, "durability"), "flushed");
        assert_eq!(answer.header("mq-request-id").unwrap().len(), 26);
        let location = answer.header("location").unwrap();
        assert!(
            location.ends_with(&format!(
                "/v1/ns/default/topics/orders/messages/{}",
                text(&sent, "messageId")
            )),
            "{location}"
        );
    });
}

/// C02.
#[test]
fn a_wrong_send_is_refused_by_name() {
    within(USUAL, async {
        let bench = bench();
        let both = bench
            .rest
            .send("orders", &json!({"json": 1, "text": "x"}))
            .await;
        let none = bench.rest.send("orders", &json!({"tag": "x"})).await;
        let unknown = bench
            .rest
            .send("orders", &json!({"text": "x", "tagg": "y"}))
            .await;
        for (answer, code) in [
            (&both, "body_ambiguous"),
            (&none, "body_required"),
            (&unknown, "unknown_field"),
        ] {
            assert_eq!(problem(answer, 400, code)["outcome"], "notApplied");
        }
        assert_eq!(unknown.json()["errors"][0]["pointer"], "/tagg");
    });
}

/// C03, but for `/messages/{id}/body`.
#[test]
fn raw_bytes_come_back_as_they_were_sent() {
    within(USUAL, async {
        let bench = bench();
        let bytes: Vec<u8> = (0..256u32)
            .map(|n| u8::try_from((n * 167 + 13) % 256).unwrap())
            .collect();
        for form in ["json", "raw"] {
            let headers = [
                ("content-type", "application/x-thing"),
                ("mq-tag", "x"),
                ("mq-prop-region", "eu"),
            ];
            let path = "/v1/ns/default/topics/files/raw";
            bench
                .rest
                .call(Method::POST, path, &headers, bytes.clone())
                .await
                .unwrap()
                .expect(201);
            if form == "json" {
                let got = bench
                    .rest
                    .receive("g", "topic=files")
                    .await
                    .expect(200)
                    .messages();
                assert_eq!(got.len(), 1);
                assert_eq!(STANDARD.decode(text(&got[0], "base64")).unwrap(), bytes);
                assert_eq!(
                    (text(&got[0], "tag"), text(&got[0], "contentType")),
                    ("x", "application/x-thing")
                );
                assert_eq!(got[0]["properties"], json!({"region": "eu"}));
                bench
                    .rest
                    .ack("g", &[text(&got[0], "receipt")])
                    .await
                    .expect(200);
            } else {
                let got = bench
                    .rest
                    .receive("g", "topic=files&bodyFormat=raw")
                    .await
                    .expect(200);
                assert_eq!(got.body, bytes);
                assert_eq!(got.header("content-type"), Some("application/x-thing"));
                assert_eq!(got.header("content-security-policy"), Some("sandbox"));
                assert_eq!(got.header("mq-attempt"), Some("1"));
                assert_eq!(
                    (got.header("mq-tag"), got.header("mq-prop-region")),
                    (Some("x"), Some("eu"))
                );
                let receipt = got.header("mq-receipt").unwrap();
                assert!(receipt.starts_with("mqr_"));
                let path = format!("/v1/ns/default/groups/g/ack?receipt={receipt}");
                bench.rest.must(Method::POST, &path, "").await.expect(200);
            }
        }
        let empty = bench
            .rest
            .receive("g", "topic=files&bodyFormat=raw&wait=0s")
            .await
            .expect(204);
        assert!(empty.body.is_empty());
    });
}

/// C04.
#[test]
fn one_item_too_large_does_not_spoil_the_batch() {
    within(USUAL, async {
        let bench = bench();
        let large = "x".repeat(5 * 1024 * 1024);
        let batch = json!({"messages": [{"text": "first"}, {"text": large}, {"text": "third"}]});
        let answer = bench
            .rest
            .post("/v1/ns/default/topics/orders/messages/batch", &batch)
            .await
            .expect(207);
        let answer = answer.json();
        let statuses: Vec<i64> = (0..3)
            .map(|index| answer["results"][index]["status"].as_i64().unwrap())
            .collect();
        assert_eq!(statuses, [201, 413, 201]);
        assert_eq!(answer["results"][1]["code"], "message_too_large");
        assert_eq!(
            (&answer["succeeded"], &answer["failed"]),
            (&json!(2), &json!(1))
        );

        let mut texts = Vec::new();
        loop {
            let got = bench
                .rest
                .receive("g", "topic=orders&max=10&wait=0s")
                .await
                .expect(200)
                .messages();
            if got.is_empty() {
                break;
            }
            texts.extend(got.iter().map(|message| text(message, "text").to_owned()));
        }
        texts.sort();
        assert_eq!(texts, ["first", "third"]);
    });
}

/// C11.
#[test]
fn an_empty_receive_takes_as_long_as_asked() {
    within(USUAL, async {
        let bench = bench();
        bench.rest.put_topic("orders", json!({})).await.expect(201);
        bench.rest.put_group("g", json!({})).await.expect(201);
        bench
            .rest
            .subscribe("g", "orders", json!({"filter": {"kind": "all"}}))
            .await
            .expect(201);
        // the first call may have to learn the route
        bench.rest.receive("g", "wait=0s").await.expect(200);

        let timed = async |query: &str| {
            let start = Instant::now();
            let answer = bench.rest.receive("g", query).await.expect(200);
            assert_eq!(answer.messages(), Vec::<Value>::new());
            (start.elapsed(), answer.json())
        };
        let (took, _) = timed("wait=0s").await;
        assert!(took <= Duration::from_millis(100), "{took:?}");
        let (took, _) = timed("wait=2s").await;
        assert!(
            (Duration::from_millis(1900)..=Duration::from_millis(2400)).contains(&took),
            "{took:?}"
        );
        problem(
            &bench.rest.receive("g", "wait=61s").await,
            400,
            "invalid_wait",
        );
        problem(
            &bench.rest.receive("g", "max=257").await,
            400,
            "invalid_max",
        );

        bench
            .rest
            .send("orders", &json!({"text": "held back"}))
            .await
            .expect(201);
        bench
            .rest
            .put_group("g", json!({"paused": true}))
            .await
            .expect(200);
        let (took, answer) = timed("wait=1s").await;
        assert_eq!(answer["paused"], true);
        assert!(
            (Duration::from_millis(900)..=Duration::from_millis(1400)).contains(&took),
            "{took:?}"
        );
    });
}

/// C12, on one broker.
#[test]
fn a_waiting_receive_gets_what_is_sent_at_once() {
    within(USUAL, async {
        let bench = bench();
        bench
            .rest
            .receive("g", "topic=orders&wait=0s")
            .await
            .expect(200);
        for round in 0..50 {
            let rest = bench.rest.clone();
            let waiting = tokio::spawn(async move {
                let got = rest.receive("g", "topic=orders&wait=20s").await;
                (Instant::now(), got)
            });
            sleep(Duration::from_millis(30)).await;
            let sent = bench
                .rest
                .send("orders", &json!({"text": format!("{round}")}))
                .await
                .expect(201);
            let answered = Instant::now();
            let (arrived, got) = waiting.await.unwrap();
            let got = got.expect(200).messages();
            assert_eq!(got.len(), 1, "round {round}");
            assert_eq!(got[0]["messageId"], sent.json()["messageId"]);
            let late = arrived.saturating_duration_since(answered);
            assert!(
                late <= Duration::from_millis(300),
                "round {round}: {late:?} after its 201"
            );
            bench
                .rest
                .ack("g", &[text(&got[0], "receipt")])
                .await
                .expect(200);
        }
    });
}

/// C13, on one gateway.
#[test]
fn an_unsettled_message_comes_again_and_a_settled_one_does_not() {
    within(USUAL, async {
        let bench = bench();
        bench
            .rest
            .send("orders", &json!({"text": "x"}))
            .await
            .expect(201);
        let first = bench
            .rest
            .receive("g", "topic=orders&invisibleFor=2s")
            .await
            .expect(200)
            .messages()
            .remove(0);
        let start = Instant::now();
        let second = bench
            .rest
            .receive("g", "topic=orders&wait=10s")
            .await
            .expect(200)
            .messages()
            .remove(0);
        let took = start.elapsed();
        assert!(
            (Duration::from_millis(1900)..=Duration::from_secs(4)).contains(&took),
            "{took:?}"
        );
        assert_eq!(second["messageId"], first["messageId"]);
        assert_eq!(
            (&first["attempt"], &second["attempt"]),
            (&json!(1), &json!(2))
        );
        assert_ne!(second["receipt"], first["receipt"]);
        for same in ["topic", "queue", "offset", "storedAt", "firstDeliveredAt"] {
            assert_eq!(
                second[same], first[same],
                "{same} is that of the first store and delivery"
            );
        }

        let path = format!(
            "/v1/ns/default/groups/g/ack?receipt={}",
            text(&second, "receipt")
        );
        let ack = bench
            .rest
            .must(Method::POST, &path, "")
            .await
            .expect(200)
            .json();
        assert_eq!(ack["results"][0]["status"], "acked");
        let repeated = bench
            .rest
            .must(Method::POST, &path, "")
            .await
            .expect(200)
            .json();
        assert_eq!(
            (
                &repeated["results"][0]["status"],
                &repeated["results"][0]["already"]
            ),
            (&json!("acked"), &json!(true))
        );
        problem(
            &bench.rest.ack("g", &[text(&first, "receipt")]).await,
            410,
            "receipt_gone",
        );
        let seen = bench
            .rest
            .receive("g", "topic=orders&wait=10s")
            .await
            .expect(200)
            .messages();
        assert_eq!(seen, Vec::<Value>::new());
    });
}

/// C14.
#[test]
fn an_extended_lease_holds_with_the_same_receipt() {
    within(USUAL, async {
        let bench = bench();
        bench
            .rest
            .send("orders", &json!({"text": "x"}))
            .await
            .expect(201);
        let got = bench
            .rest
            .receive("g", "topic=orders&invisibleFor=2s")
            .await
            .expect(200)
            .messages()
            .remove(0);
        let start = Instant::now();
        sleep(Duration::from_secs(1)).await;
        let receipt = text(&got, "receipt");
        let extended = bench
            .rest
            .settle("g", "extend", &[receipt], json!({"invisibleFor": "10s"}))
            .await
            .expect(200)
            .json();
        assert_eq!(
            (
                &extended["results"][0]["status"],
                &extended["results"][0]["receipt"]
            ),
            (&json!("extended"), &json!(receipt))
        );
        let left = Duration::from_secs(5).saturating_sub(start.elapsed());
        let seen = bench
            .rest
            .receive("g", &format!("topic=orders&wait={}ms", left.as_millis()))
            .await
            .expect(200)
            .messages();
        assert_eq!(seen, Vec::<Value>::new(), "redelivered although extended");
        let ack = bench.rest.ack("g", &[receipt]).await.expect(200).json();
        assert_eq!(ack["results"][0]["status"], "acked");
    });
}

/// C28, but for the ticket.
#[test]
fn a_socket_gets_what_its_credit_allows_and_stays_open_without_answering() {
    within(SLOW, async {
        let bench = bench();
        for number in 0..5 {
            bench
                .rest
                .send("orders", &json!({"json": number}))
                .await
                .expect(201);
        }
        let start = Instant::now();
        let (mut socket, welcome) = Socket::open(bench.rest.addr()).await.unwrap();
        assert!(
            start.elapsed() <= Duration::from_millis(500),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(welcome["heartbeat"], "25s");

        assert_eq!(
            socket.subscribe("g", "orders", 2).await.unwrap()["op"],
            "ok"
        );
        let mut seen = Vec::new();
        let mut credit = Value::Null;
        while let Some(frame) = socket.next(Duration::from_secs(1)).await.unwrap() {
            assert_eq!(frame["op"], "messages", "{frame}");
            seen.extend(frame["items"].as_array().unwrap().clone());
            credit = frame["credit"].clone();
        }
        assert_eq!((seen.len(), &credit), (2, &json!(0)));
        socket
            .send(&json!({"op": "credit", "sub": "s", "messages": 1}))
            .await
            .unwrap();
        seen.extend(socket.messages(Duration::from_secs(5)).await.unwrap());
        assert_eq!(seen.len(), 3);
        let receipts: Vec<&Value> = seen.iter().map(|message| &message["receipt"]).collect();
        let ack = socket
            .ask(2, json!({"op": "ack", "sub": "s", "receipts": receipts}))
            .await
            .unwrap();
        assert_eq!(ack["op"], "ok", "{ack}");

        // nothing is said for a minute but what the protocol's own pongs say
        let idle = socket.next(Duration::from_secs(61)).await.unwrap();
        assert_eq!(idle, None);
        socket.send(&json!({"op": "ping", "t": 7})).await.unwrap();
        let pong = socket.next(Duration::from_secs(5)).await.unwrap().unwrap();
        assert_eq!((&pong["op"], &pong["t"]), (&json!("pong"), &json!(7)));
    });
}
