//! What is refused, what is kept, and that nothing panics or recurses.

use super::*;
use proptest::prelude::*;

fn code(text: &str) -> &'static str {
    match document(text.as_bytes()) {
        Ok(_) => "ok",
        Err(e) => e.code().as_str(),
    }
}

#[test]
fn grammar_faults_are_invalid_json() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "01",
        "1.",
        "-",
        "+1",
        ".5",
        "1e",
        "nul",
        "tru",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"a\nb\"",
        "1 2",
        "[}",
        "{]",
        "NaN",
        "Infinity",
        "/*x*/1",
        "\u{feff}{}",
        "{,}",
        "[,]",
        "{\"a\":1 \"b\":2}",
    ] {
        assert_eq!(code(text), "invalid_json", "{text:?}");
    }
    for text in [
        "{}",
        "[]",
        " {\"a\" : [ ] } ",
        "0",
        "-0",
        "1e5",
        "-1.5E-7",
        "\"\\ud800\"",
        "[{}]",
        "[[],{}]",
        "{\"a\":{},\"b\":[]}",
    ] {
        assert_eq!(code(text), "ok", "{text:?}");
    }
    assert!(document(b"\"\xff\"").is_err());
}

#[test]
fn depth_is_64_in_the_envelope_and_127_in_a_json_value() {
    let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert_eq!(code(&nest(64)), "ok");
    assert_eq!(code(&nest(65)), "invalid_json");
    assert_eq!(code(&format!("{{\"json\":{}}}", nest(127))), "ok");
    assert_eq!(code(&format!("{{\"json\":{}}}", nest(128))), "invalid_json");
    assert_eq!(code(&format!("{{\"text\":{}}}", nest(64))), "invalid_json");
    assert_eq!(
        code(&format!("{{\"json\":1,\"text\":{}}}", nest(64))),
        "invalid_json"
    );
    assert_eq!(
        code(&format!("{{\"messages\":[{{\"json\":{}}}]}}", nest(127))),
        "ok"
    );
    assert_eq!(
        code(&format!("{{\"messages\":[{{\"json\":{}}}]}}", nest(128))),
        "invalid_json"
    );
    assert_eq!(code(&nest(5_000_000)), "invalid_json");
}

#[test]
fn unknown_and_repeated_names_are_refused_with_a_pointer() {
    let raw = document(br#"{"tagg":1,"tag":"x","a/b":2}"#).unwrap();
    let error = Object::open(raw, "", &["tag", "json"]).unwrap_err();
    assert_eq!(error.code(), Code::UnknownField);
    let pointers: Vec<_> = error
        .fault()
        .errors
        .iter()
        .map(|e| e.pointer.as_str())
        .collect();
    assert_eq!(pointers, ["/tagg", "/a~1b"]);
    let raw = document(br#"{"tag":"x","t\u0061g":"y"}"#).unwrap();
    assert_eq!(
        Object::open(raw, "", &["tag"]).unwrap_err().code(),
        Code::InvalidJson
    );
}

#[test]
fn a_json_value_keeps_its_bytes() {
    let raw = document(b"{ \"json\" : { \"b\":1.50, \"a\" : 1e3,\"a\":\"\\ud800\" } }").unwrap();
    let object = Object::open(raw, "", &["json"]).unwrap();
    assert_eq!(
        object.get("json").unwrap().text(),
        "{ \"b\":1.50, \"a\" : 1e3,\"a\":\"\\ud800\" }"
    );
}

#[test]
fn strings_decode_and_lone_surrogates_do_not() {
    let text = |t: &str| {
        document(t.as_bytes())
            .unwrap()
            .as_string()
            .map(|s| s.unwrap().into_owned())
    };
    assert_eq!(
        text(r#""a\u00e9\n\/\ud83d\ude00""#).unwrap(),
        "a\u{e9}\n/\u{1F600}"
    );
    for bad in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\ud800x""#,
    ] {
        assert_eq!(text(bad).unwrap_err().code(), Code::InvalidJson);
    }
}

#[test]
fn whole_numbers_in_any_spelling() {
    let int = |t: &str| document(t.as_bytes()).unwrap().as_integer();
    assert_eq!(int("32"), Some(32));
    assert_eq!(int("32.0"), Some(32));
    assert_eq!(int("1e3"), Some(1000));
    assert_eq!(int("1.5"), None);
    assert_eq!(int("1e99"), None);
    assert_eq!(int("9223372036854775807"), None);
    assert_eq!(int("\"1\""), None);
}

proptest! {
    #[test]
    fn agrees_with_serde_json(text in "[\\[\\]{}\",:0-9eE.+\\-truefalsn \\\\u/]{0,40}") {
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        let ours = is_json(text.as_bytes());
        // serde_json refuses lone surrogates and numbers beyond f64 in values; the grammar allows both.
        if theirs.is_ok() { prop_assert!(ours, "{text}"); }
        if ours && !text.contains("\\u") && !text.contains(['e', 'E']) { prop_assert!(theirs.is_ok(), "{text}"); }
    }

    #[test]
    fn written_strings_read_back(text in any::<String>()) {
        let mut out = Vec::new();
        write_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
        let back = document(&out).unwrap().as_string().unwrap().unwrap().into_owned();
        prop_assert_eq!(back, text);
    }

    #[test]
    fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        std::hint::black_box((document(&bytes).is_ok(), is_json(&bytes)));
    }
}
