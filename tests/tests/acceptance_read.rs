//! Acceptance checks of readers, black box, on two gateways and two brokers.

use std::time::Duration;

use gantry_tests::acceptance::Bench;
use gantry_tests::http::text;
use gantry_tests::wait::{USUAL, within};
use gantry_tests::ws::Socket;
use serde_json::{Value, json};

/// C19: one cursor carried from gateway to gateway.
#[test]
fn a_topic_is_browsed_by_cursors_on_any_gateway() {
    within(USUAL, async {
        let bench = Bench::open().await;
        bench
            .ga
            .put_topic("c19", json!({"queues": 4}))
            .await
            .expect(201);
        bench.ga.put_group("g-c19", json!({})).await.expect(201);
        let from_start = json!({"initialPosition": "earliest"});
        bench
            .ga
            .subscribe("g-c19", "c19", from_start)
            .await
            .expect(201);
        let mut sent = Vec::new();
        for number in 0..5 {
            let answer = bench
                .gb
                .send("c19", &json!({"json": number}))
                .await
                .expect(201);
            sent.push(text(&answer.json(), "messageId").to_owned());
        }
        let lag = async || {
            let lag = bench
                .gb
                .get("/v1/ns/default/groups/g-c19/lag")
                .await
                .expect(200);
            lag.json()["lag"].clone()
        };
        let before = lag().await;
        assert_eq!(before, 5);

        let mut from = "earliest".to_owned();
        let mut seen = Vec::new();
        for (rest, count) in [
            (&bench.ga, 2),
            (&bench.gb, 2),
            (&bench.ga, 1),
            (&bench.gb, 0),
        ] {
            let path = format!("/v1/ns/default/topics/c19/messages?from={from}&limit=2");
            let page = rest.get(&path).await.expect(200).json();
            let items = page["items"].as_array().unwrap();
            assert_eq!(items.len(), count, "{page}");
            for item in items {
                assert!(item.get("receipt").is_none(), "{item}");
                seen.push(text(item, "messageId").to_owned());
            }
            if count == 0 {
                assert_eq!(page["caughtUp"], true);
            }
            from = text(&page, "cursor").to_owned();
        }
        seen.sort();
        sent.sort();
        assert_eq!(seen, sent);
        assert_eq!(lag().await, before);
    });
}

/// C31: a reader's cursor goes on at another gateway.
#[test]
fn a_reader_goes_on_at_another_gateway_without_loss_or_repeat() {
    within(USUAL, async {
        let bench = Bench::open().await;
        // one queue: the order is that of sending
        bench
            .ga
            .put_topic("c31", json!({"queues": 1}))
            .await
            .expect(201);
        let send = async |numbers: std::ops::Range<usize>| {
            for number in numbers {
                bench
                    .ga
                    .send("c31", &json!({"json": number}))
                    .await
                    .expect(201);
            }
        };
        send(0..5).await;
        let (mut socket, cursor) = reader(&bench, 0, "last:3").await;
        let mut place = Place {
            cursor,
            seen: Vec::new(),
        };
        place.read(&mut socket, 3).await;
        assert_eq!(place.seen, [2, 3, 4]);
        send(5..10).await;
        place.read(&mut socket, 8).await;
        assert_eq!(place.seen, (2..10).collect::<Vec<_>>());
        socket.close().await;

        send(10..60).await;
        let (mut socket, _) = reader(&bench, 1, &place.cursor).await;
        send(60..110).await;
        place.read(&mut socket, 108).await;
        assert_eq!(place.seen, (2..110).collect::<Vec<_>>());
        assert_eq!(
            socket.messages(Duration::from_secs(1)).await.unwrap(),
            Vec::<Value>::new()
        );
    });
}

/// What a reader has seen, and where it is.
struct Place {
    cursor: String,
    seen: Vec<u64>,
}

impl Place {
    async fn read(&mut self, socket: &mut Socket, count: usize) {
        while self.seen.len() < count {
            let frame = socket.next(Duration::from_secs(10)).await.unwrap();
            let frame = frame.unwrap_or_else(|| panic!("{} of {count}", self.seen.len()));
            assert_eq!(frame["op"], "messages", "{frame}");
            let items = frame["items"].as_array().unwrap();
            self.seen
                .extend(items.iter().map(|item| item["json"].as_u64().unwrap()));
            self.cursor = text(&frame, "cursor").to_owned();
        }
    }
}

async fn reader(bench: &Bench, gateway: usize, from: &str) -> (Socket, String) {
    let (mut socket, _) = Socket::open(bench.fleet.rest(gateway).addr())
        .await
        .unwrap();
    let subscribe = json!({"op": "subscribe", "sub": "r", "mode": "reader", "topic": "c31", "from": from, "credit": 500});
    let ok = socket.ask(1, subscribe).await.unwrap();
    assert_eq!(ok["op"], "ok", "{ok}");
    (socket, text(&ok, "cursor").to_owned())
}
