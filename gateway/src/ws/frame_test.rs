//! Client frames: what is read, and which answer each fault gets.

use openapi::ws::RequestId;

use super::frame::{BodyFormat, Op, SettleKind, requests};

/// What a frame came to: each object's op or fault code, or the reason for closing.
fn read(text: &str) -> Vec<String> {
    requests(text)
        .map(|object| match object {
            Ok(request) => match request.op {
                Ok(op) => format!("{op:?}")
                    .chars()
                    .take_while(char::is_ascii_alphanumeric)
                    .collect(),
                Err(fault) => fault.code.to_owned(),
            },
            Err(malformed) => format!("close: {}", malformed.0),
        })
        .collect()
}

fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(read(text), *expected, "{text}");
    }
}

#[test]
fn objects_are_read_one_by_one_until_one_is_malformed() {
    check(&[
        (r#"{"op":"ping"}"#, &["Ping"]),
        ("{\"op\":\"ping\"}\n", &["Ping"]),
        ("{\"op\":\"ping\"}\n{\"op\":\"pong\"}", &["Ping", "Pong"]),
        (
            "{\n \"op\":\n\"ping\"\n}\r\n{\"op\":\"pong\"}",
            &["Ping", "Pong"],
        ),
        ("{\"op\":\"ping\"}\n{\"op\"", &["Ping", "close: not JSON"]),
        (
            "{\"op\":\"ping\"} {\"op\":\"ping\"}",
            &["Ping", "close: objects are separated by a line feed"],
        ),
        (
            "{\"op\":\"ping\"}{\"op\":\"ping\"}",
            &["Ping", "close: objects are separated by a line feed"],
        ),
        ("", &["close: an empty text frame"]),
        ("\n\n", &["close: an empty text frame"]),
        ("7", &["close: not a JSON object"]),
        ("[]", &["close: not a JSON object"]),
        ("null", &["close: not a JSON object"]),
        ("{", &["close: not JSON"]),
        ("{\"op\":\"ping\",}", &["close: not JSON"]),
        ("{'op':'ping'}", &["close: not JSON"]),
        ("\u{feff}{\"op\":\"ping\"}", &["close: not JSON"]),
        ("{\"op\":\"pi\u{0}ng\"}", &["close: not JSON"]),
        ("{\"op\":NaN}", &["close: not JSON"]),
    ]);
}

#[test]
fn faults_have_their_code() {
    let long = "x".repeat(65);
    let sub_too_long = format!(r#"{{"op":"unsubscribe","sub":"{long}"}}"#);
    let id_too_long = format!(r#"{{"op":"ping","id":"{}"}}"#, "x".repeat(33));
    let deep = format!(
        r#"{{"op":"ping","t":{}1{}}}"#,
        "[".repeat(70),
        "]".repeat(70)
    );
    let many = format!(
        r#"{{"op":"ack","sub":"s","receipts":[{}]}}"#,
        vec!["\"r\""; 257].join(",")
    );
    check(&[
        ("{}", &["unknown_op"]),
        (r#"{"op":null}"#, &["unknown_op"]),
        (r#"{"op":7}"#, &["unknown_op"]),
        (r#"{"op":"fly"}"#, &["unknown_op"]),
        (r#"{"op":"Ping"}"#, &["unknown_op"]),
        (r#"{"op":"auth","ticket":"mqt_1"}"#, &["not_implemented"]),
        (r#"{"op":"ping","x":1}"#, &["unknown_field"]),
        (r#"{"op":"ping","t":1,"t":2}"#, &["invalid_json"]),
        (r#"{"op":"ping","\ud800":2}"#, &["invalid_json"]),
        (r#"{"op":"ping","t":{}}"#, &["invalid_field"]),
        (&deep, &["invalid_json"]),
        (r#"{"op":"ping","id":-1}"#, &["invalid_field"]),
        (r#"{"op":"ping","id":4294967296}"#, &["invalid_field"]),
        (r#"{"op":"ping","id":1.0}"#, &["invalid_field"]),
        (r#"{"op":"ping","id":true}"#, &["invalid_field"]),
        (r#"{"op":"ping","id":"\ud800"}"#, &["invalid_field"]),
        (&id_too_long, &["invalid_field"]),
        (&sub_too_long, &["invalid_field"]),
        (r#"{"op":"credit","sub":"s"}"#, &["invalid_field"]),
        (
            r#"{"op":"credit","sub":"s","messages":-1}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"credit","sub":"s","messages":"1"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"credit","sub":"s","messages":1e3}"#,
            &["invalid_field"],
        ),
        (r#"{"op":"credit","messages":1}"#, &["invalid_field"]),
        (
            r#"{"op":"subscribe","sub":"s","group":"g"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"reader","topic":"t","sql":"a > 1"}"#,
            &["not_implemented"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"reader","topic":"t","onSlow":"wait"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"reader"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"events","topics":["jobs"]}"#,
            &["not_implemented"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"","mode":"group","group":"g"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","invisibleFor":30}"#,
            &["invalid_duration"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","invisibleFor":"999ms"}"#,
            &["invalid_invisible_for"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","invisibleFor":"13h"}"#,
            &["invalid_invisible_for"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","linger":"201ms"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","resumeWindow":"61s"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","maxInFlight":0}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","maxInFlight":1001}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","bodyFormat":"raw"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","resume":[]}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","resume":{"receipt":[]}}"#,
            &["unknown_field"],
        ),
        (
            r#"{"op":"subscribe","sub":"s","mode":"group","group":"g","resume":{"receipts":[1]}}"#,
            &["invalid_field"],
        ),
        (r#"{"op":"ack","sub":"s"}"#, &["invalid_field"]),
        (r#"{"op":"ack","receipts":["r"]}"#, &["invalid_field"]),
        (r#"{"op":"ack","sub":"s","receipts":[]}"#, &["batch_empty"]),
        (&many, &["batch_too_large"]),
        (
            r#"{"op":"ack","sub":"s","receipts":"r"}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"ack","sub":"s","receipts":["r"],"items":[{"receipt":"r"}]}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"ack","sub":"s","receipts":["r"],"delay":"1s"}"#,
            &["unknown_field"],
        ),
        (
            r#"{"op":"nack","sub":"s","items":[{"receipt":"r"}],"delay":"1s"}"#,
            &["unknown_field"],
        ),
        (
            r#"{"op":"nack","sub":"s","items":[{"delay":"1s"}]}"#,
            &["invalid_field"],
        ),
        (
            r#"{"op":"nack","sub":"s","items":[{"receipt":"r","invisibleFor":"1s"}]}"#,
            &["unknown_field"],
        ),
        (
            r#"{"op":"nack","sub":"s","receipts":["r"],"delay":"1x"}"#,
            &["invalid_duration"],
        ),
        (
            r#"{"op":"extend","sub":"s","receipts":["r"],"invisibleFor":"13h"}"#,
            &["invalid_invisible_for"],
        ),
        (r#"{"op":"publish","topic":"t"}"#, &["invalid_field"]),
        (
            r#"{"op":"publish","topic":"t","message":[]}"#,
            &["invalid_field"],
        ),
        (r#"{"op":"publish","message":{}}"#, &["invalid_field"]),
    ]);
}

#[test]
fn a_fault_keeps_id_and_sub_so_that_the_answer_can_name_them() {
    let request = requests(r#"{"op":"fly","id":"a","sub":"s"}"#)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (request.id, request.sub.as_deref()),
        (Some(RequestId::Text("a".into())), Some("s"))
    );
    let request = requests(r#"{"op":"fly","id":4294967295}"#)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(request.id, Some(RequestId::Number(u32::MAX)));
}

#[test]
fn subscribe_has_its_defaults_and_null_is_absent() {
    let text = r#"{"op":"subscribe","id":1,"sub":"s","mode":"group","group":"g","topic":null,"resume":{"receipts":[ ]}}"#;
    let request = requests(text).next().unwrap().unwrap();
    let Ok(Op::Subscribe(spec)) = request.op else {
        panic!("no subscribe")
    };
    assert_eq!(
        (
            spec.ns.as_str(),
            spec.topic,
            spec.credit,
            spec.max_in_flight
        ),
        ("default", None, 0, 64)
    );
    assert_eq!(
        (spec.invisible_ms, spec.auto_extend, spec.max_processing_ms),
        (None, true, 900_000)
    );
    assert_eq!(
        (spec.linger_ms, spec.resume_window_ms, spec.body_format),
        (5, 5_000, BodyFormat::Auto)
    );
    assert!(spec.resume.is_empty());
}

#[test]
fn shared_fields_go_to_every_receipt_and_items_have_their_own() {
    let text = r#"{"op":"nack","sub":"s","receipts":["a","b"],"delay":"5s","code":"E","reason":"x","deadLetter":true}"#;
    let Ok(Op::Settle { kind, items, .. }) = requests(text).next().unwrap().unwrap().op else {
        panic!("no nack")
    };
    assert_eq!((kind, items.len()), (SettleKind::Nack, 2));
    assert!(items.iter().all(|item| item.delay_ms == Some(5_000)
        && item.code.as_deref() == Some("E")
        && item.dead_letter));
    let text = r#"{"op":"extend","sub":"s","items":[{"receipt":"a","invisibleFor":"2m"},{"receipt":"b"}]}"#;
    let Ok(Op::Settle { items, .. }) = requests(text).next().unwrap().unwrap().op else {
        panic!("no extend")
    };
    assert_eq!(
        [items[0].invisible_ms, items[1].invisible_ms],
        [Some(120_000), None]
    );
}

#[test]
fn a_message_may_be_deeper_than_a_frame_and_its_ordering_key_is_seen() {
    let text = format!(
        r#"{{"op":"publish","topic":"t","message":{{"orderingKey":"k","json":{}1{}}}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    let Ok(Op::Publish(publish)) = requests(&text).next().unwrap().unwrap().op else {
        panic!("no publish")
    };
    assert_eq!(publish.ordering_key.as_deref(), Some("k"));
    assert!(publish.message.get().contains("[[[["));
}

#[test]
fn a_hostile_frame_is_read_in_linear_time() {
    let keys: Vec<String> = (0..60_000).map(|n| format!("\"k{n}\":1")).collect();
    assert_eq!(
        read(&format!("{{\"op\":\"ping\",{}}}", keys.join(","))),
        ["unknown_field"]
    );
    assert_eq!(read(&"{}\n".repeat(10_000)).len(), 10_000);
    assert_eq!(read(&"[".repeat(1_000_000)), ["close: not JSON"]);
    assert_eq!(
        read(&format!("{{\"op\":{}", "[".repeat(1_000_000))),
        ["close: not JSON"]
    );
}
