//! What happens to the messages of a socket that ends, in each of the ways it can end: real processes, several gateways.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use gantry_tests::fleet::Fleet;
use gantry_tests::http::{Rest, text};
use gantry_tests::wait::{USUAL, eventually, within};
use gantry_tests::ws::Socket;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const MESSAGES: usize = 5;

/// A group `g` on a topic `t` with this lease time and a number of messages.
async fn prepare(rest: &Rest, invisible_for: &str, messages: usize) {
    rest.put_topic("t", json!({"queues": 4})).await.expect(201);
    rest.put_group("g", json!({"invisibleFor": invisible_for}))
        .await
        .expect(201);
    rest.subscribe("g", "t", json!({"initialPosition": "earliest"}))
        .await
        .expect(201);
    send(rest, 0..messages).await;
}

async fn send(rest: &Rest, numbers: std::ops::Range<usize>) {
    let messages: Vec<Value> = numbers.map(|number| json!({"json": number})).collect();
    rest.post(
        "/v1/ns/default/topics/t/messages/batch",
        &json!({"messages": messages}),
    )
    .await
    .expect(200);
}

/// A socket that subscribes `g` with further fields; its `ok`.
async fn member(gateway: SocketAddr, more: Value) -> (Socket, Value) {
    let (mut socket, _) = Socket::open(gateway).await.unwrap();
    let mut subscribe =
        json!({"op": "subscribe", "sub": "s", "mode": "group", "group": "g", "topic": "t"});
    for (name, value) in more.as_object().unwrap() {
        subscribe[name] = value.clone();
    }
    let ok = socket.ask(1, subscribe).await.unwrap();
    assert_eq!(ok["op"], "ok", "{ok}");
    (socket, ok)
}

/// Messages until `count` have come; panics when that takes longer than `limit`.
async fn take(socket: &mut Socket, count: usize, limit: Duration) -> Vec<Value> {
    let end = Instant::now() + limit;
    let mut all = Vec::new();
    while all.len() < count {
        let left = end.saturating_duration_since(Instant::now());
        let more = socket.messages(left).await.unwrap();
        assert!(
            !more.is_empty(),
            "{} of {count} within {limit:?}",
            all.len()
        );
        all.extend(more);
    }
    all
}

fn ids(messages: &[Value]) -> BTreeSet<&str> {
    messages
        .iter()
        .map(|message| text(message, "messageId"))
        .collect()
}

fn receipts(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| text(message, "receipt"))
        .collect()
}

fn attempts(messages: &[Value]) -> BTreeSet<u64> {
    messages
        .iter()
        .map(|message| message["attempt"].as_u64().unwrap())
        .collect()
}

/// Asserts that these are the same messages, each for the second time.
fn assert_again(first: &[Value], again: &[Value]) {
    assert_eq!(ids(first), ids(again));
    assert_eq!(attempts(again), BTreeSet::from([2]));
}

/// BL-21, nats-io/nats-server#4716: a socket that is closed gives its messages back at once, not after the lease.
#[test]
fn a_clean_close_gives_messages_to_another_member_within_two_seconds() {
    within(USUAL, async {
        let fleet = Fleet::small(2, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest, "300s", MESSAGES).await;
        let (first, second) = (
            fleet.gateways[0].addr("gateway"),
            fleet.gateways[1].addr("gateway"),
        );
        let (mut socket, _) = member(first, json!({"credit": MESSAGES})).await;
        let got = take(&mut socket, MESSAGES, Duration::from_secs(10)).await;
        let (mut other, _) = member(second, json!({"credit": 10})).await;
        assert_eq!(
            other.messages(Duration::from_millis(500)).await.unwrap(),
            Vec::<Value>::new(),
            "in the first one's hands"
        );
        socket.close().await;
        let again = take(&mut other, MESSAGES, Duration::from_secs(2)).await;
        assert_again(&got, &again);
        // so does the end of a subscription alone
        let released = other
            .ask(2, json!({"op": "unsubscribe", "sub": "s"}))
            .await
            .unwrap();
        assert_eq!(released["released"], json!(MESSAGES));
        let third = rest
            .receive("g", "topic=t&wait=2s&max=10")
            .await
            .expect(200);
        assert!(!third.messages().is_empty());
        assert_eq!(attempts(&third.messages()), BTreeSet::from([3]));
    });
}

/// BL-21: a socket that is reset has `resumeWindow` (5 s) to come back; then its messages are anybody's.
#[test]
fn a_reset_gives_messages_to_another_member_after_the_resume_window() {
    within(USUAL, async {
        let fleet = Fleet::small(2, &[]).await;
        prepare(&fleet.rest(0), "300s", MESSAGES).await;
        let (first, second) = (
            fleet.gateways[0].addr("gateway"),
            fleet.gateways[1].addr("gateway"),
        );
        let (mut socket, _) = member(first, json!({"credit": MESSAGES})).await;
        let got = take(&mut socket, MESSAGES, Duration::from_secs(10)).await;
        let (mut other, _) = member(second, json!({"credit": 10})).await;
        socket.reset().unwrap();
        let closed = Instant::now();
        assert_eq!(
            other.messages(Duration::from_millis(4_500)).await.unwrap(),
            Vec::<Value>::new(),
            "it may still come back"
        );
        let again = take(&mut other, MESSAGES, Duration::from_millis(2_500)).await;
        assert!(closed.elapsed() < Duration::from_secs(7));
        assert_again(&got, &again);
    });
}

/// Within `resumeWindow` the client goes on through any gateway: what it resumes is delivered to nobody else, and what
/// was settled meanwhile over REST is gone.
#[test]
fn a_client_that_comes_back_in_time_goes_on_with_its_messages() {
    within(USUAL, async {
        let fleet = Fleet::small(2, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest, "300s", MESSAGES).await;
        let (first, second) = (
            fleet.gateways[0].addr("gateway"),
            fleet.gateways[1].addr("gateway"),
        );
        let (mut socket, _) =
            member(first, json!({"credit": MESSAGES, "resumeWindow": "2s"})).await;
        let got = take(&mut socket, MESSAGES, Duration::from_secs(10)).await;
        let held = receipts(&got);
        let (mut other, _) = member(second, json!({"credit": 10})).await;
        socket.reset().unwrap();
        rest.ack("g", &held[..1]).await.expect(200);
        let (mut back, ok) =
            member(second, json!({"credit": 0, "resume": {"receipts": held}})).await;
        assert_eq!(
            (&ok["adopted"], &ok["gone"]),
            (&json!(held[1..]), &json!(held[..1]))
        );
        assert_eq!(
            other.messages(Duration::from_secs(4)).await.unwrap(),
            Vec::<Value>::new(),
            "nothing is redelivered"
        );
        let acked = back
            .ask(2, json!({"op": "ack", "sub": "s", "receipts": held[1..]}))
            .await
            .unwrap();
        assert_eq!(acked["op"], "ok", "{acked}");
        let lag = || async {
            let lag = rest
                .get("/v1/ns/default/groups/g/lag")
                .await
                .expect(200)
                .json();
            let open = |queue: &Value| {
                ["ready", "inFlight", "retrying"]
                    .iter()
                    .map(|name| queue[name].as_u64().unwrap())
                    .sum::<u64>()
            };
            let queues = lag["queues"].as_array().unwrap();
            (queues.iter().map(open).sum::<u64>() == 0).then_some(())
        };
        eventually(Duration::from_secs(5), "lag 0", lag).await;
    });
}

/// BL-21: where the gateway itself dies nobody can shorten a lease; it runs to its end and not longer.
#[test]
fn a_killed_gateway_holds_messages_until_the_lease_ends_and_no_longer() {
    within(USUAL, async {
        let mut fleet = Fleet::small(2, &[]).await;
        prepare(&fleet.rest(0), "10s", MESSAGES).await;
        let (first, second) = (
            fleet.gateways[0].addr("gateway"),
            fleet.gateways[1].addr("gateway"),
        );
        let asked = Instant::now();
        let (mut socket, _) = member(first, json!({"credit": MESSAGES})).await;
        let got = take(&mut socket, MESSAGES, Duration::from_secs(3)).await;
        let (mut other, _) = member(second, json!({"credit": 10})).await;
        sleep(Duration::from_secs(1)).await;
        fleet.gateways[0].kill9().unwrap();
        let early = other.messages(Duration::from_secs(9).saturating_sub(asked.elapsed()));
        assert_eq!(early.await.unwrap(), Vec::<Value>::new());
        let again = take(&mut other, MESSAGES, Duration::from_secs(5)).await;
        assert!(
            asked.elapsed() < Duration::from_secs(13),
            "{:?}",
            asked.elapsed()
        );
        assert_again(&got, &again);
    });
}
