//! A broker that takes requests and does not answer, as a stopped process or one that hangs on its disk: nobody waits for
//! it while another broker can serve.

use std::time::Duration;

use gantry_tests::fleet::{Fleet, Metadata, Shape, broker_name};
use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::wait::{BUSY, USUAL, eventually, within};
use gantry_tests::ws::Socket;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

/// How long a gateway waits for a broker while another has answered, and what the rest may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Messages of `t` on each of two brokers, which the group `g` has not read.
async fn prepare(rest: &Rest, each: usize) {
    rest.put_topic("t", json!({"queues": 4})).await.expect(201);
    rest.put_group("g", json!({"invisibleFor": "300s"}))
        .await
        .expect(201);
    rest.subscribe("g", "t", json!({"initialPosition": "earliest"}))
        .await
        .expect(201);
    for n in 0..2 {
        for i in 0..each {
            let queue = json!({"broker": broker_name(n), "id": 0});
            let message = json!({"json": i, "queue": queue});
            rest.send("t", &message).await.expect(201);
        }
    }
}

/// The answer, which must come in time.
async fn soon(what: &str, call: impl Future<Output = Answer>) -> Answer {
    let begun = Instant::now();
    let answer = call.await;
    let took = begun.elapsed();
    assert!(took < PATIENCE + BUSY, "{what} took {took:?}");
    answer
}

fn partial(answer: &Answer) -> Value {
    answer.json()["partial"].clone()
}

#[test]
fn nobody_waits_for_a_stopped_broker_while_another_can_serve() {
    within(USUAL, async {
        let shape = Shape {
            metadata: Metadata::Sqlite,
            ..Shape::default()
        };
        let fleet = Fleet::start(&shape).unwrap();
        fleet.ready().await;
        let (rest, other) = (fleet.rest(0), fleet.rest(1));
        prepare(&rest, 6).await;
        let (here, gone) = (broker_name(0), broker_name(1));
        fleet.brokers[1].signal(Signal::STOP).unwrap();
        let without = json!([{"broker": gone, "reason": "unreachable"}]);

        let mut took = 0;
        while took < 6 {
            let query = "topic=t&wait=0s&max=1";
            let answer = soon("a receive", rest.receive("g", query))
                .await
                .expect(200);
            let messages = answer.messages();
            assert_eq!(messages.len(), 1, "{:?}", answer.body);
            assert_eq!(messages[0]["queue"]["broker"], *here);
            rest.ack("g", &[text(&messages[0], "receipt")])
                .await
                .expect(200);
            took += 1;
        }
        let nothing = soon(
            "an empty receive",
            rest.receive("g", "topic=t&wait=1s&max=1"),
        );
        let nothing = nothing.await.expect(200);
        assert_eq!(
            (nothing.messages().len(), partial(&nothing)),
            (0, without.clone())
        );

        // Everything else that asks all brokers knows by now.
        let begun = Instant::now();
        for path in ["peek", "members", "inflight"] {
            let path = format!("/v1/ns/default/groups/g/{path}");
            let answer = rest.get(&path).await.expect(200);
            assert_eq!(partial(&answer), without, "{path}");
        }
        // The other gateway goes on with what it knows of the group.
        other.receive("g", "topic=t&wait=0s").await.expect(200);
        let spec = json!({"invisibleFor": "200s", "retry": {"maxAttempts": 3}});
        let put = rest.put_group("g", spec).await.expect(200);
        assert_eq!(put.json()["pending"], json!([gone]));
        let later = json!({"initialPosition": "latest"});
        let put = rest.subscribe("g", "t", later).await.expect(200);
        assert_eq!(put.json()["pending"], json!([gone]));
        for i in 0..8 {
            let sent = rest.send("t", &json!({"json": i})).await.expect(201);
            assert_eq!(sent.json()["queue"]["broker"], *here);
        }
        let (mut socket, _) = Socket::open(fleet.gateways[0].addr("gateway"))
            .await
            .unwrap();
        let subscribe = json!({"op": "subscribe", "sub": "s", "mode": "group", "group": "g", "topic": "t", "credit": 100});
        let ok = socket.ask(1, subscribe).await.unwrap();
        assert_eq!(ok["op"], "ok", "{ok}");
        let got = socket.messages(Duration::from_secs(5)).await.unwrap();
        assert!(!got.is_empty());
        let all = begun.elapsed();
        assert!(all < PATIENCE + BUSY, "{all:?}");
        socket.close().await;

        // It goes on where it was, under the new configuration only. What it leased for receives that were over is given
        // back, the attempt not counted.
        fleet.brokers[1].signal(Signal::CONT).unwrap();
        let mut back = Vec::new();
        while back.len() < 6 {
            let answer = other.receive("g", "topic=t&wait=10s").await.expect(200);
            let messages = answer.messages();
            assert!(!messages.is_empty(), "{} of 6 came", back.len());
            back.extend(
                messages
                    .into_iter()
                    .filter(|m| m["queue"]["broker"] == *gone),
            );
        }
        let mut bodies: Vec<_> = back.iter().map(|m| m["json"].as_u64().unwrap()).collect();
        bodies.sort_unstable();
        assert_eq!(bodies, [0, 1, 2, 3, 4, 5]);
        let new = |m: &Value| m["attempt"] == 1 && m["maxAttempts"] == 3;
        assert!(back.iter().all(new), "{back:?}");
        eventually(BUSY, "the broker is asked again", || async {
            let answer = rest.receive("g", "topic=t&wait=0s").await.expect(200);
            partial(&answer).is_null().then_some(())
        })
        .await;
    });
}
