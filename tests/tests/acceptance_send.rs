//! Acceptance checks of sending, black box, on two gateways and two brokers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_tests::acceptance::{Bench, problem};
use gantry_tests::http::text;
use gantry_tests::wait::{USUAL, within};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// C01, but for the look-up by `Location`.
#[test]
fn a_send_is_answered_with_where_it_lies() {
    within(USUAL, async {
        let bench = Bench::open().await;
        let answer = bench
            .ga
            .send("c01", &json!({"json": {"a": 1}}))
            .await
            .expect(201);
        let sent = answer.json();
        assert_eq!(text(&sent, "messageId").len(), 26);
        assert_eq!(text(&sent, "topic"), "c01");
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
                "/v1/ns/default/topics/c01/messages/{}",
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
        let bench = Bench::open().await;
        let both = bench.ga.send("c02", &json!({"json": 1, "text": "x"})).await;
        let none = bench.ga.send("c02", &json!({"tag": "x"})).await;
        let unknown = bench
            .ga
            .send("c02", &json!({"text": "x", "tagg": "y"}))
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
        let bench = Bench::open().await;
        let bytes: Vec<u8> = (0..256u32)
            .map(|n| u8::try_from((n * 167 + 13) % 256).unwrap())
            .collect();
        for form in ["json", "raw"] {
            let headers = [
                ("content-type", "application/x-thing"),
                ("mq-tag", "x"),
                ("mq-prop-region", "eu"),
            ];
            let path = "/v1/ns/default/topics/c03/raw";
            bench
                .ga
                .call(Method::POST, path, &headers, bytes.clone())
                .await
                .unwrap()
                .expect(201);
            if form == "json" {
                let got = bench
                    .ga
                    .receive("g-c03", "topic=c03")
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
                    .ga
                    .ack("g-c03", &[text(&got[0], "receipt")])
                    .await
                    .expect(200);
            } else {
                let got = bench
                    .ga
                    .receive("g-c03", "topic=c03&bodyFormat=raw")
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
                let path = format!("/v1/ns/default/groups/g-c03/ack?receipt={receipt}");
                bench.ga.must(Method::POST, &path, "").await.expect(200);
            }
        }
        let empty = bench
            .ga
            .receive("g-c03", "topic=c03&bodyFormat=raw&wait=0s")
            .await
            .expect(204);
        assert!(empty.body.is_empty());
    });
}

/// C04.
#[test]
fn one_item_too_large_does_not_spoil_the_batch() {
    within(USUAL, async {
        let bench = Bench::open().await;
        let large = "x".repeat(5 * 1024 * 1024);
        let batch = json!({"messages": [{"text": "first"}, {"text": large}, {"text": "third"}]});
        let answer = bench
            .ga
            .post("/v1/ns/default/topics/c04/messages/batch", &batch)
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
                .ga
                .receive("g-c04", "topic=c04&max=10&wait=0s")
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

/// C05: what is refused as too large is read to its end, so that the connection serves the next request.
#[test]
fn a_body_that_is_too_large_leaves_the_connection_usable() {
    within(USUAL, async {
        let bench = Bench::open().await;
        let mut stream = TcpStream::connect(bench.ga.addr()).await.unwrap();
        let length = 4 * 1024 * 1024 + 1;
        let head = format!(
            "POST /v1/ns/default/topics/c05/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; length]).await.unwrap();
        let (status, body) = answer(&mut stream).await;
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, text(&body, "code")), (413, "message_too_large"));
        assert_eq!(
            (&body["limit"], text(&body, "outcome")),
            (&json!(4_194_304), "notApplied")
        );

        let fits = length - 1;
        let head = format!(
            "POST /v1/ns/default/topics/c05/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: {fits}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; fits]).await.unwrap();
        let (status, body) = answer(&mut stream).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
    });
}

/// One answer with a Content-Length off a connection that stays open.
async fn answer(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "closed");
    };
    let head = String::from_utf8(bytes[..end].to_vec())
        .unwrap()
        .to_lowercase();
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .and_then(|text| text.parse().ok())
        .unwrap();
    while bytes.len() < end + length {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "closed");
    }
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    (status.unwrap(), bytes.split_off(end))
}
