//! Acceptance checks of topics and groups, black box, on two gateways and two brokers.

use std::time::Duration;

use gantry_tests::acceptance::{Bench, problem};
use gantry_tests::fleet::{Fleet, Shape};
use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::wait::{SLOW, USUAL, within};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

async fn with(
    rest: &Rest,
    method: Method,
    path: &str,
    header: (&str, &str),
    body: &Value,
) -> Answer {
    let headers = [("content-type", "application/json"), header];
    rest.call(method, path, &headers, body.to_string())
        .await
        .unwrap()
}

/// C21, without a master that is down.
#[test]
fn a_topic_is_made_once_changed_by_version_and_deleted_when_drained() {
    within(USUAL, async {
        let bench = Bench::open().await;
        let path = "/v1/ns/default/topics/c21";
        let fresh = ("if-none-match", "*");
        let made = with(&bench.ga, Method::PUT, path, fresh, &json!({"queues": 4}))
            .await
            .expect(201);
        let old = made.header("etag").unwrap().to_owned();
        let again = with(&bench.gb, Method::PUT, path, fresh, &json!({"queues": 4})).await;
        problem(&again, 412, "topic_exists");

        let changed = with(
            &bench.gb,
            Method::PATCH,
            path,
            ("if-match", &old),
            &json!({"queues": 6}),
        )
        .await;
        let changed = changed.expect(200);
        let new = changed.header("etag").unwrap();
        assert_ne!(new, old);
        let stale = with(
            &bench.ga,
            Method::PATCH,
            path,
            ("if-match", &old),
            &json!({"queues": 8}),
        )
        .await;
        problem(&stale, 412, "version_mismatch");
        let seen = bench.ga.get(path).await.expect(200);
        assert_eq!(
            (&seen.json()["queues"], seen.header("etag")),
            (&json!(6), Some(new))
        );
        let other = with(
            &bench.ga,
            Method::PATCH,
            path,
            ("if-match", new),
            &json!({"type": "ordered"}),
        )
        .await;
        problem(&other, 409, "immutable_field");

        bench.gb.put_group("g-c21", json!({})).await.expect(201);
        let from_start = json!({"initialPosition": "earliest"});
        bench
            .ga
            .subscribe("g-c21", "c21", from_start)
            .await
            .expect(201);
        bench
            .gb
            .send("c21", &json!({"text": "x"}))
            .await
            .expect(201);
        let refused = problem(&bench.ga.delete(path).await, 409, "topic_not_drained");
        assert_eq!(
            (
                text(&refused["groups"][0], "name"),
                &refused["groups"][0]["lag"]
            ),
            ("g-c21", &json!(1))
        );
        bench
            .gb
            .delete(&format!("{path}?force=true"))
            .await
            .expect(204);
        problem(&bench.ga.get(path).await, 404, "topic_not_found");
    });
}

/// C21, its last part: a group that is changed while a master is down is not served by the old settings when it is back.
#[test]
fn a_master_that_was_down_follows_what_was_changed_meanwhile() {
    within(SLOW, async {
        let mut fleet = Fleet::start(&Shape::default()).unwrap();
        fleet.ready().await;
        let (ga, gb) = (fleet.rest(0), fleet.rest(1));
        ga.put_topic("c21", json!({"queues": 4})).await.expect(201);
        let settings = |paused: bool| json!({"initialPosition": "earliest", "paused": paused});
        let made = ga.put_group("g", settings(false)).await.expect(201);
        assert!(made.json().get("pending").is_none(), "{}", made.json());
        ga.subscribe("g", "c21", json!({})).await.expect(201);
        for (number, broker) in ["broker-a", "broker-b"].iter().enumerate() {
            let message = json!({"json": number, "queue": {"broker": broker, "id": 0}});
            gb.send("c21", &message).await.expect(201);
        }

        fleet.brokers[1].kill9().unwrap();
        let put = ga.put_group("g", settings(true)).await.expect(200);
        assert_eq!(put.json()["pending"], json!(["broker-b"]));
        fleet.brokers[1].start_again().unwrap();
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            for rest in [&ga, &gb] {
                let got = rest.receive("g", "wait=0s").await.expect(200);
                assert_eq!(
                    got.messages(),
                    Vec::<Value>::new(),
                    "delivered although paused"
                );
            }
        }
        ga.put_group("g", settings(false)).await.expect(200);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let got = gb
                .receive("g", "wait=10s&max=10")
                .await
                .expect(200)
                .messages();
            assert!(!got.is_empty(), "{seen:?}");
            seen.extend(got.iter().map(|message| message["json"].as_i64()));
        }
        seen.sort();
        assert_eq!(seen, [Some(0), Some(1)]);
    });
}
