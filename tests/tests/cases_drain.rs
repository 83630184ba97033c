//! A gateway that is told to stop, as a real process: what it still does, what it refuses, and when it is gone.

use std::time::Duration;

use gantry_tests::fleet::Fleet;
use gantry_tests::http::{Rest, text};
use gantry_tests::wait::{BUSY, USUAL, within};
use gantry_tests::ws::Socket;
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

async fn prepare(rest: &Rest) {
    rest.put_topic("t", json!({"queues": 1})).await.expect(201);
    rest.put_group("g", json!({"invisibleFor": "300s"}))
        .await
        .expect(201);
    rest.subscribe("g", "t", json!({"initialPosition": "earliest"}))
        .await
        .expect(201);
}

/// A socket that holds the next message of `g`.
async fn holder(fleet: &Fleet, rest: &Rest) -> (Socket, String) {
    rest.send("t", &json!({"text": "held"})).await.expect(201);
    let (mut socket, _) = Socket::open(fleet.gateways[0].addr("gateway"))
        .await
        .unwrap();
    let subscribe = json!({"op": "subscribe", "sub": "s", "mode": "group", "group": "g", "topic": "t", "credit": 10,
                           "resumeWindow": "1s"});
    let ok = socket.ask(1, subscribe).await.unwrap();
    assert_eq!(ok["op"], "ok", "{ok}");
    let got = socket.messages(Duration::from_secs(5)).await.unwrap();
    assert_eq!(got.len(), 1);
    (socket, text(&got[0], "receipt").to_owned())
}

/// Frames up to the `drain` frame, which must come within half a second.
async fn drained(socket: &mut Socket) -> Value {
    let frame = socket
        .next(Duration::from_millis(500) + BUSY)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(frame["op"], "drain", "{frame}");
    frame
}

/// On SIGTERM: not ready within 100 ms, waiting receives answered within 500 ms, acks and sends served, also on new
/// connections, no new socket and no new message, the socket closed with 1012 once it holds nothing, then the end.
#[test]
fn a_gateway_that_stops_serves_what_is_under_way_and_takes_nothing_new() {
    within(USUAL, async {
        let mut fleet = Fleet::small(2, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest).await;
        rest.send("t", &json!({"text": "over REST"}))
            .await
            .expect(201);
        let taken = rest
            .receive("g", "topic=t&wait=5s&max=1")
            .await
            .expect(200)
            .messages();
        let (mut socket, receipt) = holder(&fleet, &rest).await;
        let waiting = tokio::spawn({
            let rest = rest.clone();
            async move { rest.receive("g", "topic=t&wait=30s").await.expect(200) }
        });
        let fresh = Rest::new(rest.addr());
        fresh.get("/readyz").await.expect(200);
        sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());

        fleet.gateways[0].signal(Signal::TERM).unwrap();
        let told = Instant::now();
        let unready = loop {
            let answer = fresh.get("/readyz").await;
            if answer.status != 200 {
                break answer;
            }
            assert!(
                told.elapsed() < Duration::from_millis(100) + BUSY,
                "still ready"
            );
        };
        assert_eq!((unready.status, unready.code().as_str()), (503, "draining"));
        assert!(unready.header("retry-after").is_some());
        let answer = waiting.await.unwrap();
        assert!(
            told.elapsed() < Duration::from_millis(500) + BUSY,
            "{:?}",
            told.elapsed()
        );
        assert_eq!(
            (answer.messages().len(), answer.header("connection")),
            (0, Some("close"))
        );
        let drain = drained(&mut socket).await;
        assert_eq!(
            (&drain["reconnectWithin"], &drain["reason"]),
            (&json!("5s"), &json!("restart"))
        );
        assert!(text(&drain, "deadline").ends_with('Z'));

        // on a connection that did not exist before
        let late = Rest::new(rest.addr());
        let receipts: Vec<&str> = taken
            .iter()
            .map(|message| text(message, "receipt"))
            .collect();
        late.ack("g", &receipts).await.expect(200);
        late.send("t", &json!({"text": "sent while draining"}))
            .await
            .expect(201);
        let none = late.receive("g", "topic=t&wait=5s").await.expect(200);
        assert_eq!(none.messages().len(), 0, "no new message is given out");
        let upgrade = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "mq.v1.json"),
        ];
        let refused = late
            .call(Method::GET, "/v1/ws", &upgrade, "")
            .await
            .unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (503, "draining"));
        assert!(refused.header("retry-after").is_some());
        assert!(
            fleet.gateways[0].alive(),
            "draining goes on while the socket holds a message"
        );
        assert_eq!(fresh.get("/readyz").await.code(), "draining");

        let acked = socket
            .ask(2, json!({"op": "ack", "sub": "s", "receipts": [receipt]}))
            .await
            .unwrap();
        assert_eq!(acked["op"], "ok", "{acked}");
        let (code, reason) = socket.closed(Duration::from_secs(2)).await.unwrap();
        assert_eq!((code, reason.as_str()), (1012, "restart"));
        let ended = fleet.gateways[0].ended(Duration::from_secs(3)).unwrap();
        assert!(ended.success(), "{ended}");
        let left = fleet
            .rest(1)
            .receive("g", "topic=t&wait=2s")
            .await
            .expect(200)
            .messages();
        assert_eq!(left.len(), 1, "only what was sent while draining is left");
    });
}

/// A client that never settles what it holds is closed after 20 s, its message is visible `resumeWindow` later, and the
/// process is gone within 25 s of the signal. Takes those 20 s.
#[test]
fn a_socket_that_holds_on_does_not_outlast_the_drain() {
    within(USUAL, async {
        let mut fleet = Fleet::small(2, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest).await;
        let (mut socket, _) = holder(&fleet, &rest).await;
        fleet.gateways[0].signal(Signal::TERM).unwrap();
        let told = Instant::now();
        drained(&mut socket).await;
        let (code, _) = socket.closed(Duration::from_secs(22)).await.unwrap();
        let closed = told.elapsed();
        assert_eq!(code, 1012);
        assert!((19..22).contains(&closed.as_secs()), "{closed:?}");
        let again = fleet
            .rest(1)
            .receive("g", "topic=t&wait=4s")
            .await
            .expect(200)
            .messages();
        assert!(told.elapsed() < closed + Duration::from_secs(3));
        assert_eq!((again.len(), &again[0]["attempt"]), (1, &json!(2)));
        let left = Duration::from_secs(25).saturating_sub(told.elapsed());
        let ended = fleet.gateways[0].ended(left).unwrap();
        assert!(ended.success(), "{ended}");
    });
}
