//! Junk on every port: a clear error or a closed connection, never a panic, never a process that serves no more.

use std::net::SocketAddr;
use std::time::Duration;

use gantry_tests::http::Rest;
use gantry_tests::native::{Native, frame};
use gantry_tests::process::Gantry;
use gantry_tests::wait::{SLOW, USUAL, eventually, within};
use hyper::Method;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }
}

/// Writes bytes and reads until the peer closes or half a second has passed without an answer.
async fn poke(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let _written = timeout(Duration::from_secs(5), stream.write_all(bytes)).await;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(500), stream.read(&mut part)).await
    {
        answer.extend_from_slice(&part[..read]);
    }
    answer
}

async fn still_serves(gantry: &mut Gantry) {
    assert!(
        gantry.alive(),
        "the process has ended:\n{}",
        gantry.logged()
    );
    let logged = gantry.logged();
    assert!(!logged.contains("panicked"), "{logged}");
    let rest = Rest::new(gantry.addr("gateway"));
    rest.send("alive", &json!({"text": "x"})).await.expect(201);
    let client = Native::connect(gantry.addr("broker")).await.unwrap();
    client
        .send("alive", 0, b"x", &[])
        .await
        .unwrap()
        .expect(0)
        .unwrap();
    let route = Native::connect(gantry.addr("namesrv")).await.unwrap();
    route
        .call(105, json!({"topic": "alive"}), b"")
        .await
        .unwrap()
        .expect(0)
        .unwrap();
}

fn broken_frames() -> Vec<Vec<u8>> {
    let header =
        br#"{"code":310,"extFields":{},"flag":0,"language":"JAVA","opaque":1,"version":493}"#;
    let with_lengths = |total: i32, header_length: i32, rest: &[u8]| {
        let mut bytes = total.to_be_bytes().to_vec();
        bytes.extend(header_length.to_be_bytes());
        bytes.extend(rest);
        bytes
    };
    let length = i32::try_from(header.len()).unwrap();
    let mut dice = Dice(0x5EED);
    let mut all = vec![
        with_lengths(0, 0, b""),
        with_lengths(-1, 0, header),
        with_lengths(i32::MAX, length, header),
        with_lengths(16_777_217, length, header),
        with_lengths(length + 4, length + 1, header),
        with_lengths(length + 4, -1, header),
        with_lengths(length + 4, 0x00FF_FFFF, header),
        // serialization type 7, then a binary header that is cut
        with_lengths(length + 4, (7 << 24) | length, header),
        with_lengths(8, (1 << 24) | 4, &[0, 1, 2, 3]),
        with_lengths(length + 4, length, &header[..20]),
        with_lengths(14, 10, b"{\"code\":tr"),
        with_lengths(6, 2, b"{}"),
        with_lengths(6, 2, b"[]"),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 3],
        vec![0xFF; 100_000],
    ];
    for _ in 0..30 {
        let length = 1 + dice.roll(300);
        all.push(
            (0..length)
                .map(|_| u8::try_from(dice.roll(256)).unwrap())
                .collect(),
        );
    }
    all
}

#[test]
fn junk_bytes_close_the_connection_and_nothing_else() {
    within(SLOW, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let doors = ["namesrv", "broker", "gateway"].map(|role| gantry.addr(role));
        for bytes in broken_frames() {
            let pokes = doors.map(|door| {
                let bytes = bytes.clone();
                async move { poke(door, &bytes).await }
            });
            futures_util::future::join_all(pokes).await;
        }
        still_serves(&mut gantry).await;
    });
}

const CODES: [i32; 62] = [
    10, 11, 12, 13, 14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42,
    43, 45, 61, 100, 101, 103, 104, 105, 106, 200, 201, 202, 203, 204, 206, 207, 208, 215, 216,
    222, 300, 310, 317, 320, 343, 351, 352, 400, 200_050, 200_051, 200_053, 200_054, 200_151,
    900_001, 900_003, 900_005, 900_010, -7,
];

const FIELDS: [&str; 44] = [
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "consumerGroup",
    "subscription",
    "sysFlag",
    "commitOffset",
    "subVersion",
    "suspendTimeoutMillis",
    "timestamp",
    "offset",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "k",
    "m",
    "group",
    "msgId",
    "delayLevel",
    "originTopic",
    "invisibleTime",
    "pollTime",
    "bornTime",
    "initMode",
    "extraInfo",
    "brokerName",
    "brokerAddr",
    "clusterName",
    "brokerId",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "gantry",
    "expect",
    "version",
    "maxBytes",
];

fn nasty(dice: &mut Dice) -> Value {
    let long = "z".repeat(40_000);
    let texts = [
        "2147483648",
        "-2147483649",
        "9223372036854775808",
        "-1",
        "0",
        "1e3",
        "1.5",
        "NaN",
        "text",
        "",
        " 1",
        "%RETRY%",
        "alive",
        "TBW102",
        "\u{0}\u{1}\u{2}",
        "../../etc",
        "0 0 0 0 0 0 0 0",
        "1 2 3",
        "中文",
        "true",
        &long,
    ];
    match dice.roll(12) {
        0 => Value::Null,
        1 => json!({"nested": [1, 2]}),
        2 => json!(i64::MAX),
        _ => json!(dice.pick(&texts)),
    }
}

/// Requests of every kind with fields that are missing, of the wrong type or out of range.
#[test]
fn absurd_requests_are_answered_or_refused() {
    within(SLOW, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let mut dice = Dice(0xBAD_F00D);
        let bodies: [&[u8]; 8] = [
            b"",
            b"{",
            b"{}",
            b"[]",
            b"null",
            &[0xFF; 64],
            br#"{"items":[{"op":"ack","queueId":99999999999}]}"#,
            &[0; 200],
        ];
        for door in ["broker", "namesrv"].map(|role| gantry.addr(role)) {
            for _ in 0..60 {
                let mut stream = TcpStream::connect(door).await.unwrap();
                for _ in 0..25 {
                    let mut ext = Map::new();
                    for _ in 0..dice.roll(16) {
                        let value = nasty(&mut dice);
                        ext.insert((*dice.pick(&FIELDS)).to_owned(), value);
                    }
                    let flag = i32::try_from(dice.roll(4)).unwrap();
                    let bytes = frame(
                        *dice.pick(&CODES),
                        1,
                        flag,
                        Value::Object(ext),
                        bodies[dice.roll(bodies.len())],
                    )
                    .unwrap();
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                let mut part = [0; 4096];
                let _any = timeout(Duration::from_millis(50), stream.read(&mut part)).await;
            }
        }
        still_serves(&mut gantry).await;
    });
}

/// Connections that say nothing, or half of something, hold up nobody.
#[test]
fn silent_and_dripping_connections_hold_up_nobody() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let mut held = Vec::new();
        for role in ["namesrv", "broker", "gateway"] {
            for index in 0..200 {
                let mut stream = TcpStream::connect(gantry.addr(role)).await.unwrap();
                if index % 2 == 0 {
                    let half = if role == "gateway" {
                        &b"POST /v1/ns/default/topics/t/mess"[..]
                    } else {
                        &[0, 0, 1][..]
                    };
                    stream.write_all(half).await.unwrap();
                }
                held.push(stream);
            }
        }
        still_serves(&mut gantry).await;
        drop(held);
    });
}

/// Refusals of the REST door name the field and keep to the problem form, and nothing is stored by them.
#[test]
fn wrong_rest_requests_are_problems_and_store_nothing() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        let messages = "/v1/ns/default/topics/strict/messages";
        let deep = format!("{{\"text\":{}1{}}}", "[".repeat(100), "]".repeat(100));
        let cases: [(Method, &str, String, u16, &str); 24] = [
            (Method::POST, messages, "".into(), 400, "invalid_json"),
            (Method::POST, messages, "{".into(), 400, "invalid_json"),
            (Method::POST, messages, "[]".into(), 400, "invalid_field"),
            (Method::POST, messages, "null".into(), 400, "invalid_field"),
            (
                Method::POST,
                messages,
                r#"{"text":"a","text":"b"}"#.into(),
                400,
                "invalid_json",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":5}"#.into(),
                400,
                "invalid_field",
            ),
            (
                Method::POST,
                messages,
                r#"{"base64":"!!"}"#.into(),
                400,
                "invalid_field",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"\ud800"}"#.into(),
                400,
                "invalid_json",
            ),
            (Method::POST, messages, deep, 400, "invalid_json"),
            (
                Method::POST,
                messages,
                r#"{"text":"x","tag":"a|b"}"#.into(),
                400,
                "invalid_tag",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"x","keys":["a b"]}"#.into(),
                400,
                "invalid_key",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"x","properties":{"TAGS":"y"}}"#.into(),
                400,
                "reserved_property",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"x","properties":{"__x":"y"}}"#.into(),
                400,
                "reserved_property",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"x","properties":{"9":"y"}}"#.into(),
                400,
                "invalid_field",
            ),
            (
                Method::POST,
                messages,
                r#"{"text":"x","durability":"eventually"}"#.into(),
                400,
                "invalid_field",
            ),
            (
                Method::POST,
                "/v1/ns/default/topics/strict/messages?mod=oneway",
                r#"{"text":"x"}"#.into(),
                400,
                "unknown_field",
            ),
            (
                Method::POST,
                "/v1/ns/default/topics/strict/messages/batch",
                r#"{"messages":[]}"#.into(),
                400,
                "batch_empty",
            ),
            (
                Method::POST,
                "/v1/ns/default/groups/g/receive?wait=20",
                "".into(),
                400,
                "invalid_duration",
            ),
            (
                Method::POST,
                "/v1/ns/default/groups/g/receive?invisibleFor=13h",
                "".into(),
                400,
                "invalid_invisible_for",
            ),
            (
                Method::POST,
                "/v1/ns/default/groups/g/receive?max=0",
                "".into(),
                400,
                "invalid_max",
            ),
            (
                Method::POST,
                "/v1/ns/default/groups/g/ack",
                r#"{"receipts":[]}"#.into(),
                400,
                "batch_empty",
            ),
            (
                Method::GET,
                "/v1/nowhere",
                "".into(),
                404,
                "route_not_found",
            ),
            (
                Method::PATCH,
                messages,
                "{}".into(),
                405,
                "method_not_allowed",
            ),
            (
                Method::POST,
                "/v1/ns/Bad_NS/topics/strict/messages",
                r#"{"text":"x"}"#.into(),
                400,
                "invalid_name",
            ),
        ];
        let mut wrong = Vec::new();
        for (method, path, body, status, code) in cases {
            let shown = format!("{method} {path} {body:.60}");
            let answer = rest.must(method, path, body).await;
            let problem = answer.header("content-type") == Some("application/problem+json");
            if (answer.status, answer.code().as_str(), problem) != (status, code, true) {
                wrong.push(format!(
                    "{shown}: expected {status} {code}, saw {} {:?}",
                    answer.status, answer.body
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let stored = rest
            .receive("reader", "topic=strict&wait=0s")
            .await
            .expect(200);
        assert!(stored.messages().is_empty(), "{:?}", stored.body);

        let large = rest
            .call(
                Method::POST,
                messages,
                &[("content-type", "text/plain")],
                r#"{"text":"x"}"#,
            )
            .await
            .unwrap();
        assert_eq!(
            (large.status, large.code().as_str()),
            (415, "unsupported_media_type")
        );
        let body = json!({"text": "x".repeat(4 << 20), "tag": "t"}).to_string();
        rest.must(Method::POST, messages, body).await.expect(201);
        let body = json!({"text": "x".repeat((4 << 20) + 1)}).to_string();
        assert_eq!(
            rest.must(Method::POST, messages, body)
                .await
                .expect(413)
                .code(),
            "message_too_large"
        );
        still_serves(&mut gantry).await;
    });
}

/// With authentication off, a request that may have come through a proxy or from a foreign page is refused.
#[test]
fn loopback_rules_hold() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &["--allow-origin", "http://localhost:3000"]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        let port = rest.addr().port();
        let with = async |name: &str, value: &str| {
            rest.call(Method::GET, "/v1/ns/default/topics", &[(name, value)], "")
                .await
                .unwrap()
        };
        for (name, value) in [
            ("host", "evil.example"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("via", "1.1 proxy"),
        ] {
            let answer = with(name, value).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "forbidden"),
                "{name}: {value}"
            );
        }
        let foreign = with("origin", "http://evil.example").await;
        assert_eq!(
            (foreign.status, foreign.code().as_str()),
            (403, "origin_not_allowed")
        );
        let allowed = with("origin", "http://localhost:3000").await.expect(200);
        assert_eq!(
            allowed.header("access-control-allow-origin"),
            Some("http://localhost:3000")
        );
        with("host", &format!("localhost:{port}")).await.expect(200);
        eventually(Duration::from_secs(5), "health", async || {
            (rest.get("/healthz").await.status == 200).then_some(())
        })
        .await;
    });
}
