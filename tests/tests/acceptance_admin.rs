//! Acceptance checks of topics and groups, black box, on two gateways and two brokers.

use gantry_tests::acceptance::{Bench, problem};
use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::wait::{USUAL, within};
use hyper::Method;
use serde_json::{Value, json};

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
