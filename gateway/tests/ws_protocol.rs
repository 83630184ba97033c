//! The socket protocol where no broker is needed: handshake, bad frames, limits, heartbeat, drain.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod ws_support;

use std::time::Duration;

use futures_util::SinkExt;
use gateway::memory::Whose;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use ws_support::client::{Got, connect, open};
use ws_support::{Gateway, config};

const OFFER: (&str, &str) = ("sec-websocket-protocol", "mq.v1.json");

#[tokio::test]
async fn welcome_comes_first_and_tells_the_limits() {
    let gateway = Gateway::alone(config()).await;
    let mut socket = connect(gateway.addr, &[OFFER]).await.unwrap();
    let Got::Frame(welcome) = socket.next(Duration::from_millis(500)).await else {
        panic!("no welcome within 500 ms")
    };
    assert_eq!(
        (&welcome["op"], &welcome["heartbeat"], &welcome["auth"]),
        (&json!("welcome"), &json!("25s"), &Value::Null)
    );
    assert_eq!(
        welcome["limits"],
        json!({"maxFrame": 1_048_576, "maxSubscriptions": 100, "maxInFlight": 1000})
    );
    assert_eq!(welcome["session"].as_str().unwrap().len(), 26);
    assert!(welcome["gateway"].is_string() && welcome["time"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn the_handshake_needs_a_known_subprotocol() {
    let gateway = Gateway::alone(config()).await;
    for (offer, status) in [
        (None, 400),
        (Some("mq.v2.json"), 400),
        (Some("mq.v1.bin"), 400),
    ] {
        let headers: Vec<(&str, &str)> = offer
            .map(|offer| ("sec-websocket-protocol", offer))
            .into_iter()
            .collect();
        assert_eq!(
            connect(gateway.addr, &headers).await.err(),
            Some(status),
            "{offer:?}"
        );
    }
    for offer in [
        "mq.v1.json",
        "mq.v1.bin, mq.v1.json",
        "mq.v1.json, mq.ticket.abc",
    ] {
        assert!(
            connect(gateway.addr, &[("sec-websocket-protocol", offer)])
                .await
                .is_ok(),
            "{offer}"
        );
    }
}

#[tokio::test]
async fn a_plain_request_is_told_to_upgrade() {
    let gateway = Gateway::alone(config()).await;
    assert_eq!(gateway.plain("GET", "/v1/ws").await, 426);
    assert_eq!(gateway.plain("POST", "/v1/ws").await, 405);
}

#[tokio::test]
async fn each_bad_frame_has_its_answer_and_the_socket_goes_on() {
    let gateway = Gateway::alone(config()).await;
    let mut socket = open(gateway.addr).await;
    for (text, code) in [
        (r#"{"op":"fly","id":7}"#, "unknown_op"),
        (r#"{"id":7}"#, "unknown_op"),
        (r#"{"op":"ping","id":7,"x":1}"#, "unknown_field"),
        (r#"{"op":"ping","id":7,"t":1,"t":2}"#, "invalid_json"),
        (
            r#"{"op":"ack","id":7,"sub":"nobody","receipts":["r"]}"#,
            "unknown_sub",
        ),
        (
            r#"{"op":"credit","id":7,"sub":"nobody","messages":1}"#,
            "unknown_sub",
        ),
        (
            r#"{"op":"unsubscribe","id":7,"sub":"nobody"}"#,
            "unknown_sub",
        ),
        (
            r#"{"op":"auth","id":7,"ticket":"mqt_x"}"#,
            "not_implemented",
        ),
        (
            r#"{"op":"subscribe","id":7,"sub":"s","mode":"events","topics":["jobs"]}"#,
            "not_implemented",
        ),
        (
            r#"{"op":"subscribe","id":7,"sub":"s","mode":"group","group":"g","credit":10001}"#,
            "credit_overflow",
        ),
        (
            r#"{"op":"subscribe","id":7,"sub":"s","mode":"group","group":"bad name","topic":"t"}"#,
            "invalid_name",
        ),
        (
            r#"{"op":"publish","id":7,"topic":"bad name","message":{"text":"x"}}"#,
            "invalid_name",
        ),
        (
            r#"{"op":"publish","id":7,"topic":"t","message":{}}"#,
            "body_required",
        ),
        (
            r#"{"op":"publish","id":7,"topic":"t","message":{"text":"x","json":1}}"#,
            "body_ambiguous",
        ),
        (
            r#"{"op":"publish","id":7,"topic":"t","message":{"txt":"x"}}"#,
            "unknown_field",
        ),
    ] {
        socket.raw(text).await;
        let answer = socket.frame().await;
        assert_eq!(
            (&answer["op"], &answer["code"], &answer["id"]),
            (&json!("error"), &json!(code), &json!(7)),
            "{text}: {answer}"
        );
        assert!(!answer["detail"].as_str().unwrap().is_empty());
    }
    socket.raw(r#"{"op":"ping","id":4294967296}"#).await;
    let answer = socket.frame().await;
    assert_eq!(
        (&answer["code"], &answer["id"]),
        (&json!("invalid_field"), &Value::Null)
    );
    socket.say(json!({"op": "ping", "t": 12})).await;
    assert_eq!(socket.frame().await, json!({"op": "pong", "t": 12}));
}

#[tokio::test]
async fn what_is_no_protocol_closes_with_4500() {
    let gateway = Gateway::alone(config()).await;
    for text in [
        "",
        "x",
        "7",
        "[]",
        "null",
        "{",
        "{\"op\":\"ping\"}{\"op\":\"ping\"}",
        "\u{0}",
        "{\"op\":\"ping\"}\n,",
    ] {
        let mut socket = open(gateway.addr).await;
        socket.raw(text).await;
        assert_eq!(socket.closed().await, 4500, "{text:?}");
    }
    let mut socket = open(gateway.addr).await;
    socket
        .stream
        .send(Message::binary(vec![0, 1, 2]))
        .await
        .unwrap();
    assert_eq!(socket.closed().await, 4500, "binary on mq.v1.json");
    let mut socket = open(gateway.addr).await;
    socket.raw("{}\n".repeat(1_001)).await;
    assert_eq!(socket.closed().await, 4500, "too many objects");
}

#[tokio::test]
async fn objects_before_a_malformed_one_are_answered() {
    let gateway = Gateway::alone(config()).await;
    let mut socket = open(gateway.addr).await;
    socket
        .raw("{\"op\":\"ping\",\"t\":1}\n{\"op\":\"ping\",\"t\":2}\nnonsense")
        .await;
    assert_eq!(socket.frame().await["t"], 1);
    assert_eq!(socket.frame().await["t"], 2);
    assert_eq!(socket.closed().await, 4500);
}

#[tokio::test]
async fn a_frame_over_the_limit_closes_with_1009() {
    let gateway = Gateway::alone(config()).await;
    let mut socket = open(gateway.addr).await;
    let padding = " ".repeat(1_048_576 - 13);
    socket.raw(format!("{{\"op\":\"ping\"}}{padding}")).await;
    assert_eq!(socket.frame().await["op"], "pong", "exactly the limit");
    for size in [1_048_577, 8 * 1_048_576] {
        let mut socket = open(gateway.addr).await;
        socket.raw(" ".repeat(size)).await;
        assert_eq!(socket.closed().await, 1009, "{size}");
    }
}

/// What sockets send in is counted with the bodies of requests: where there is no room it waits, heartbeat or not.
#[tokio::test]
async fn a_frame_waits_for_the_memory_it_needs() {
    let mut config = config();
    config.ws.idle = node::Millis(200);
    config.ws.grace = node::Millis(200);
    let gateway = Gateway::alone(config).await;
    let bodies = &gateway.state().bodies;
    let mut socket = open(gateway.addr).await;
    let all = bodies.take(Whose::Socket("all"), usize::MAX).await;
    socket.say(json!({"op": "ping", "id": 1})).await;
    assert_eq!(socket.next(Duration::from_secs(1)).await, Got::Nothing);
    drop(all);
    assert_eq!(socket.frame().await["op"], "pong");
    assert_eq!(bodies.used(), 0);
}

#[tokio::test]
async fn junk_bytes_after_the_handshake_end_the_socket_only() {
    use tokio::io::AsyncWriteExt;
    let gateway = Gateway::alone(config()).await;
    for junk in [
        &[0xFF; 64][..],
        &[0x81, 0x05, b'h', b'e', b'l', b'l', b'o'],
        &[0x83, 0x80, 0, 0, 0, 0],
        &[0x81, 0x82, 0, 0, 0, 0, 0xC3, 0x28],
    ] {
        let mut socket = open(gateway.addr).await;
        socket.stream.get_mut().write_all(junk).await.unwrap();
        assert!([4500, 1006].contains(&socket.closed().await), "{junk:?}");
    }
    let mut socket = open(gateway.addr).await;
    assert_eq!(socket.ask(1, json!({"op": "ping"})).await["op"], "pong");
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_closed_and_one_that_does_stays() {
    let mut config = config();
    config.ws.idle = node::Millis(300);
    config.ws.grace = node::Millis(300);
    let gateway = Gateway::alone(config).await;
    // Reading answers protocol pings, as a browser does by itself; no JSON is ever sent.
    let mut alive = open(gateway.addr).await;
    assert_eq!(alive.next(Duration::from_secs(3)).await, Got::Nothing);
    assert_eq!(alive.ask(1, json!({"op": "ping"})).await["op"], "pong");
    let mut dead = open(gateway.addr).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(dead.closed().await, 4000);
}

/// The limit of the configuration holds for a message in a frame too.
#[tokio::test]
async fn a_published_message_is_no_larger_than_a_sent_one() {
    let mut config = config();
    config.message_max = node::ByteSize(100);
    let gateway = Gateway::alone(config).await;
    let mut socket = open(gateway.addr).await;
    let message = json!({"text": "x".repeat(101)});
    let publish = json!({"op": "publish", "topic": "t", "message": message});
    let answer = socket.ask(1, publish).await;
    assert_eq!(answer["code"], "message_too_large", "{answer}");
}

/// Takes a whole frame of the server off the front of what was read: its first byte and its payload.
fn take_frame(read: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (start, length) = match *read.get(1)? {
        126 => (
            4,
            usize::from(u16::from_be_bytes([*read.get(2)?, *read.get(3)?])),
        ),
        length => (2, usize::from(length)),
    };
    let frame: Vec<u8> = read.drain(..read.get(..start + length)?.len()).collect();
    Some((frame[0], frame[start..].to_vec()))
}

/// Reads until `take` finds what it looks for.
async fn read_until<T>(
    tcp: &mut TcpStream,
    read: &mut Vec<u8>,
    take: impl Fn(&mut Vec<u8>) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = take(read) {
            return found;
        }
        let count = tcp.read_buf(read).await.unwrap();
        assert_ne!(count, 0, "ended without a close frame");
    }
}

/// With each ping of the protocol comes a `ping` frame; any frame from the client, not only a pong, keeps the socket; a
/// client that only takes is closed.
#[tokio::test]
async fn a_ping_comes_with_its_frame_and_any_frame_answers_it() {
    let mut config = config();
    config.ws.idle = node::Millis(100);
    config.ws.grace = node::Millis(1_500);
    // No more pings fit in before a client that says nothing is given up.
    const UNANSWERED_MAX: usize = 15;
    let gateway = Gateway::alone(config).await;
    for answers in [20, 0] {
        let mut tcp = TcpStream::connect(gateway.addr).await.unwrap();
        let hello = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mq.v1.json\r\n\r\n",
            gateway.addr
        );
        tcp.write_all(hello.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        read_until(&mut tcp, &mut read, |read| {
            let end = read.windows(4).position(|part| part == b"\r\n\r\n")?;
            drop(read.drain(..end + 4));
            Some(())
        })
        .await;
        let (kind, welcome) = read_until(&mut tcp, &mut read, take_frame).await;
        assert!(kind == 0x81 && welcome.starts_with(b"{\"op\":\"welcome\""));
        let mut beats = 0;
        let code = loop {
            let (kind, payload) = read_until(&mut tcp, &mut read, take_frame).await;
            if kind == 0x88 {
                break u16::from_be_bytes([payload[0], payload[1]]);
            }
            assert_eq!((kind, payload.len()), (0x89, 0), "a ping of the protocol");
            let (kind, payload) = read_until(&mut tcp, &mut read, take_frame).await;
            assert_eq!(kind, 0x81, "a text frame");
            assert!(payload.starts_with(b"{\"op\":\"ping\",\"t\":"));
            beats += 1;
            if beats <= answers {
                // Masked with zeros: an empty pong frame of the other kind, a text.
                tcp.write_all(b"\x81\x8d\0\0\0\0{\"op\":\"pong\"}")
                    .await
                    .unwrap();
            }
        };
        assert_eq!(code, 4000);
        let unanswered = beats - answers;
        assert!(
            (1..=UNANSWERED_MAX).contains(&unanswered),
            "{beats} after {answers} answers"
        );
    }
}

#[tokio::test]
async fn sockets_are_bounded_and_a_closed_one_makes_room() {
    let mut config = config();
    config.ws.sockets = 2;
    let gateway = Gateway::alone(config).await;
    let (first, _second) = (open(gateway.addr).await, open(gateway.addr).await);
    assert_eq!(connect(gateway.addr, &[OFFER]).await.err(), Some(503));
    first.close().await;
    let end = tokio::time::Instant::now() + Duration::from_secs(5);
    while connect(gateway.addr, &[OFFER]).await.is_err() {
        assert!(
            tokio::time::Instant::now() < end,
            "the place is not given back"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn draining_tells_every_socket_closes_idle_ones_and_refuses_new_ones() {
    let gateway = Gateway::alone(config()).await;
    let mut socket = open(gateway.addr).await;
    gateway.drain();
    let drain = socket.frame().await;
    assert_eq!(
        (&drain["op"], &drain["reconnectWithin"], &drain["reason"]),
        (&json!("drain"), &json!("5s"), &json!("restart"))
    );
    assert_eq!(socket.closed().await, 1012);
    assert_eq!(connect(gateway.addr, &[OFFER]).await.err(), Some(503));
}

#[tokio::test]
async fn a_peer_that_asks_and_never_reads_is_held_back() {
    let mut config = config();
    config.ws.idle = node::Millis(1_000);
    config.ws.grace = node::Millis(1_000);
    let gateway = Gateway::alone(config).await;
    let mut socket = open(gateway.addr).await;
    let flood = "{\"op\":\"fly\",\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}\n".repeat(900);
    let flooded = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            if socket
                .stream
                .send(Message::text(flood.clone()))
                .await
                .is_err()
            {
                return;
            }
        }
    });
    // The gateway stops reading, the socket's buffers fill up, and it is closed as a slow consumer in the end.
    flooded.await.expect("closed");
}

/// A page of another origin gets no socket, nor does anybody who comes through a proxy or by a foreign name.
#[tokio::test]
async fn foreign_origins_hosts_and_proxies_are_refused_before_the_upgrade() {
    let mut config = config();
    config.allow_origin = "http://127.0.0.1:5173".into();
    let gateway = Gateway::alone(config).await;
    let own = format!("http://{}", gateway.addr);
    let localhost = format!("http://localhost:{}", gateway.addr.port());
    for origin in [own.as_str(), &localhost, "http://127.0.0.1:5173"] {
        let socket = connect(gateway.addr, &[OFFER, ("origin", origin)]).await;
        assert!(socket.is_ok(), "{origin}");
    }
    for (name, value) in [
        ("origin", "http://127.0.0.1:5174"),
        ("origin", "http://localhost:5173"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("via", "1.1 proxy"),
    ] {
        let refused = connect(gateway.addr, &[OFFER, (name, value)]).await.err();
        assert_eq!(refused, Some(403), "{name}: {value}");
    }
}
