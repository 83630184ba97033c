//! What holds for every request: problem documents, limits, who may ask, headers; no cluster is needed for any of it.

mod support;

use std::time::Duration;
use support::{Cluster, Connection, http2, send, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MESSAGES: &str = "/v1/ns/default/topics/t/messages";

#[tokio::test]
async fn every_refusal_is_a_problem_document() {
    let cluster = Cluster::alone().await;
    let addr = cluster.addr();
    let big = "x".repeat(33 * 1024);
    type Case<'a> = (
        &'a str,
        &'a str,
        &'a [(&'a str, &'a str)],
        &'a str,
        u16,
        &'a str,
    );
    let cases: &[Case<'_>] = &[
        ("GET", "/nowhere", &[], "", 404, "route_not_found"),
        (
            "GET",
            "/v1/ns/default/topics/t/",
            &[],
            "",
            404,
            "route_not_found",
        ),
        ("PATCH", MESSAGES, &[], "", 405, "method_not_allowed"),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Accept", "text/html")],
            "",
            406,
            "not_acceptable",
        ),
        ("POST", MESSAGES, &[], "{}", 415, "unsupported_media_type"),
        (
            "POST",
            "/v1/ns/default/topics/t/raw",
            &[("Content-Encoding", "gzip")],
            "x",
            415,
            "unsupported_media_type",
        ),
        (
            "POST",
            MESSAGES,
            &[("Content-Type", "application/x-www-form-urlencoded")],
            "{}",
            415,
            "unsupported_media_type",
        ),
        (
            "POST",
            MESSAGES,
            &[("Content-Type", "application/json; charset=latin1")],
            "{}",
            415,
            "unsupported_media_type",
        ),
        (
            "POST",
            MESSAGES,
            &[("Content-Type", "application/cloudevents+json")],
            "{}",
            501,
            "not_implemented",
        ),
        ("GET", "/v1/ws", &[], "", 426, "upgrade_required"),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("X-Big", &big)],
            "",
            431,
            "headers_too_large",
        ),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Host", "localhost"), ("Host", "127.0.0.1")],
            "",
            400,
            "invalid_field",
        ),
        (
            "GET",
            "/v1/ns/default/topics?type=garbage",
            &[],
            "",
            400,
            "invalid_field",
        ),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Expect", "a miracle")],
            "",
            417,
            "expectation_failed",
        ),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Mq-Tenant", "other")],
            "",
            403,
            "tenant_switch_forbidden",
        ),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Mq-Timeout", "10")],
            "",
            400,
            "invalid_duration",
        ),
        (
            "GET",
            "/v1/ns/default/topics",
            &[("Mq-Timeout", "91s")],
            "",
            400,
            "invalid_field",
        ),
        (
            "GET",
            "/v1/ns/other/topics",
            &[],
            "",
            404,
            "namespace_not_found",
        ),
        ("GET", "/v1/ns/OTHER/topics", &[], "", 400, "invalid_name"),
        (
            "GET",
            "/v1/ns/default/topics?limit=0",
            &[],
            "",
            400,
            "invalid_field",
        ),
        (
            "GET",
            "/v1/ns/default/topics?limt=1",
            &[],
            "",
            400,
            "unknown_field",
        ),
        (
            "GET",
            "/v1/ns/default/topics?pageToken=x",
            &[],
            "",
            400,
            "page_token_invalid",
        ),
        (
            "GET",
            "/v1/ns/default/topics/%ff",
            &[],
            "",
            400,
            "invalid_name",
        ),
        ("GET", "/v1/whoami", &[], "", 501, "not_implemented"),
        (
            "GET",
            "/v1/ns/default/topics/t/messages/01H",
            &[],
            "",
            501,
            "not_implemented",
        ),
        (
            "POST",
            "/v1/ns/default/groups/g/seek",
            &[],
            "{}",
            501,
            "not_implemented",
        ),
    ];
    for (method, path, headers, body, status, code) in cases {
        let answer = send(addr, method, path, headers, body.as_bytes()).await;
        let problem = answer.problem(*status, code);
        assert_eq!(
            problem["instance"],
            path.split('?').next().unwrap(),
            "{path}"
        );
        assert!(
            answer
                .header("mq-gateway")
                .is_some_and(|g| g.starts_with("gw-"))
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(answer.body.ends_with(b"\n"));
        assert_eq!(
            problem.get("outcome").is_some(),
            *method != "GET",
            "{problem}"
        );
    }
    let allow = send(addr, "PATCH", MESSAGES, &[], b"").await;
    assert!(
        allow
            .header("allow")
            .is_some_and(|a| a.contains("POST") && a.contains("GET"))
    );
    let page = send(addr, "GET", "/errors/topic_not_found", &[], b"").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    cluster.stop().await;
}

#[tokio::test]
async fn long_heads_have_a_problem_document_even_where_the_library_refuses_them() {
    let cluster = Cluster::alone().await;
    let long = format!("/v1/ns/default/topics?prefix={}", "x".repeat(17 * 1024));
    send(cluster.addr(), "GET", &long, &[], b"")
        .await
        .problem(414, "uri_too_long");
    let longer = format!("/v1/ns/default/topics?prefix={}", "x".repeat(80 * 1024));
    send(cluster.addr(), "GET", &longer, &[], b"")
        .await
        .problem(414, "uri_too_long");
    let huge = "x".repeat(200 * 1024);
    send(cluster.addr(), "GET", "/healthz", &[("X-Huge", &huge)], b"")
        .await
        .problem(431, "headers_too_large");
    let many: Vec<(String, &str)> = (0..600).map(|n| (format!("x-{n}"), "1")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    send(cluster.addr(), "GET", "/healthz", &many, b"")
        .await
        .problem(431, "headers_too_large");
    for (length, status) in [
        ("18446744073709551615", 413),
        ("99999999999999999999999999", 400),
    ] {
        let mut endless = Connection::open(cluster.addr()).await;
        let head = format!(
            "POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        );
        endless.write(head.as_bytes()).await;
        let answer = endless.answer(false).await;
        assert_eq!(answer.status, status, "{length}");
    }
    let mut broken = Connection::open(cluster.addr()).await;
    broken.write(b"GET / HTTP/1.1\r\nbad header\r\n\r\n").await;
    assert_eq!(broken.answer(false).await.status, 400);
    cluster.stop().await;
}

#[tokio::test]
async fn bodies_within_the_request_limit_leave_the_connection_open_and_larger_ones_end_it() {
    let cluster = Cluster::alone().await;
    let json = &[("Content-Type", "application/json")];
    let mut connection = Connection::open(cluster.addr()).await;
    let over = format!(r#"{{"text":"{}"}}"#, "x".repeat(4 * 1024 * 1024 + 1));
    let answer = connection
        .send("POST", MESSAGES, json, over.as_bytes())
        .await
        .problem(413, "message_too_large");
    assert_eq!(
        (answer["limit"].as_u64(), answer["actual"].as_u64()),
        (Some(4_194_304), Some(4_194_305))
    );
    assert_eq!(answer["outcome"], "notApplied");
    assert_eq!(
        connection.send("GET", "/healthz", &[], b"").await.text(),
        "ok\n"
    );
    // A body that is refused before it is read is read all the same.
    let answer = connection
        .send(
            "POST",
            MESSAGES,
            &[("Host", "example.com")],
            over.as_bytes(),
        )
        .await;
    answer.problem(403, "forbidden");
    assert_eq!(
        connection.send("GET", "/healthz", &[], b"").await.text(),
        "ok\n"
    );

    let mut connection = Connection::open(cluster.addr()).await;
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8388609\r\n\r\n"
    );
    connection.write(head.as_bytes()).await;
    let answer = connection.answer(false).await;
    assert_eq!(
        answer.problem(413, "request_too_large")["limit"],
        8 * 1024 * 1024
    );
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(connection.closed().await);

    let mut connection = Connection::open(cluster.addr()).await;
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    connection.write(head.as_bytes()).await;
    let chunk = [b"100000\r\n".as_slice(), &[b'x'; 1 << 20], b"\r\n"].concat();
    for _ in 0..9 {
        connection.write(&chunk).await;
    }
    connection
        .answer(false)
        .await
        .problem(413, "request_too_large");
    cluster.stop().await;
}

#[tokio::test]
async fn without_authentication_only_loopback_without_a_proxy_is_served() {
    let cluster = Cluster::alone_with(|c| c.allow_origin = "http://localhost:5173".into()).await;
    let addr = cluster.addr();
    send(addr, "GET", "/", &[("Host", "example.com")], b"")
        .await
        .problem(403, "forbidden");
    for name in ["Forwarded", "X-Forwarded-For", "Via"] {
        let answer = send(addr, "GET", "/healthz", &[(name, "1.1 x")], b"").await;
        assert!(
            text(&answer.problem(403, "forbidden"), "detail")
                .to_lowercase()
                .contains(&name.to_lowercase())
        );
    }
    let evil = send(
        addr,
        "POST",
        MESSAGES,
        &[
            ("Origin", "https://evil.example"),
            ("Content-Type", "application/json"),
        ],
        b"{\"json\":1}",
    )
    .await;
    evil.problem(403, "origin_not_allowed");
    assert_eq!(evil.header("access-control-allow-origin"), None);
    let listed = send(
        addr,
        "GET",
        "/healthz",
        &[("Origin", "http://localhost:5173")],
        b"",
    )
    .await;
    assert_eq!(
        listed.header("access-control-allow-origin"),
        Some("http://localhost:5173")
    );
    assert!(
        listed
            .header("access-control-expose-headers")
            .unwrap()
            .contains("Mq-Receipt")
    );
    assert_eq!(listed.header("vary"), Some("Origin"));
    let own = format!("http://localhost:{}", addr.port());
    assert_eq!(
        send(addr, "GET", "/healthz", &[("Origin", &own)], b"")
            .await
            .status,
        200
    );

    let ask = [
        ("Origin", "http://localhost:5173"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type"),
    ];
    let preflight = send(addr, "OPTIONS", MESSAGES, &ask, b"").await;
    assert_eq!(
        (preflight.status, preflight.header("access-control-max-age")),
        (204, Some("7200"))
    );
    assert_eq!(
        preflight.header("access-control-allow-headers"),
        Some("content-type")
    );
    let foreign = send(
        addr,
        "OPTIONS",
        MESSAGES,
        &[("Origin", "https://evil.example")],
        b"",
    )
    .await;
    assert_eq!(
        (foreign.status, foreign.header("vary")),
        (204, Some("Origin"))
    );
    assert_eq!(foreign.header("access-control-allow-origin"), None);
    assert_eq!(foreign.header("access-control-allow-methods"), None);
    let nowhere = send(addr, "OPTIONS", "/v1/nowhere", &ask, b"").await;
    assert_eq!(
        (
            nowhere.status,
            nowhere.header("access-control-allow-origin")
        ),
        (204, preflight.header("access-control-allow-origin"))
    );
    assert!(preflight.header("access-control-allow-origin").is_some());
    cluster.stop().await;
}

#[tokio::test]
async fn head_is_get_without_a_body_and_health_answers() {
    let cluster = Cluster::alone().await;
    let mut connection = Connection::open(cluster.addr()).await;
    for path in ["/healthz", "/", "/docs", "/nowhere"] {
        let get = connection.send("GET", path, &[], b"").await;
        let head = connection.send("HEAD", path, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
    }
    connection
        .send("GET", "/readyz", &[], b"")
        .await
        .problem(503, "no_route");
    let metrics = connection.send("GET", "/metrics", &[], b"").await;
    assert!(
        metrics
            .text()
            .contains("gantry_gateway_http_requests_total"),
        "{}",
        metrics.text()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn json_is_read_strictly() {
    let cluster = Cluster::alone().await;
    let deep = |n: usize| format!("{{\"json\":{}{}}}", "[".repeat(n), "]".repeat(n));
    let cases: &[(&str, &str, Option<&str>)] = &[
        (r#"{"json":1,"text":"x"}"#, "body_ambiguous", None),
        (r#"{"tag":"x"}"#, "body_required", None),
        (r#"{"json":1,"tagg":"x"}"#, "unknown_field", Some("/tagg")),
        (r#"{"json":1,"json":2}"#, "invalid_json", Some("/json")),
        (r#"{"text":"\ud800"}"#, "invalid_json", None),
        ("\u{feff}{\"json\":1}", "invalid_json", None),
        ("{", "invalid_json", None),
        (" ", "invalid_json", None),
        ("[1]", "invalid_field", Some("")),
        (r#"{"json":1,"tag":1}"#, "invalid_tag", Some("/tag")),
        (&deep(128), "invalid_json", None),
        (&deep(1_000_000), "invalid_json", None),
    ];
    for (body, code, pointer) in cases {
        let problem = cluster
            .call("POST", MESSAGES, body)
            .await
            .problem(400, code);
        assert_eq!(problem["outcome"], "notApplied");
        if let Some(pointer) = pointer {
            assert_eq!(problem["errors"][0]["pointer"], *pointer, "{problem}");
        }
    }
    cluster
        .call("POST", MESSAGES, "")
        .await
        .problem(400, "invalid_json");
    // Deep enough to be taken: refused only because no broker is there.
    cluster
        .call("POST", MESSAGES, &deep(127))
        .await
        .problem(503, "no_route");
    cluster.stop().await;
}

#[tokio::test]
async fn no_broker_is_503_within_the_time_asked_for() {
    let cluster = Cluster::alone().await;
    let begin = tokio::time::Instant::now();
    let headers = &[("Content-Type", "application/json"), ("Mq-Timeout", "2s")];
    let answer = send(cluster.addr(), "POST", MESSAGES, headers, b"{\"json\":1}").await;
    let problem = answer.problem(503, "no_route");
    assert_eq!(
        (problem["retryable"].as_bool(), problem["outcome"].as_str()),
        (Some(true), Some("notApplied"))
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(begin.elapsed() < Duration::from_secs(2));
    cluster.stop().await;
}

/// Names with NUL, line feed, slash and percent (rabbitmq/rabbitmq-management#351, #140; BL-45).
#[tokio::test]
async fn odd_names_are_refused() {
    let cluster = Cluster::alone().await;
    let long = "a".repeat(256);
    for name in [
        "a%00b",
        "a%0A",
        "a%2Fb",
        "%2E%2E",
        "%E4%B8%AD%E6%96%87",
        &long,
        "%25RETRY%25x",
        "-a",
        "%20",
    ] {
        let path = format!("/v1/ns/default/topics/{name}");
        cluster
            .call("PUT", &path, "{}")
            .await
            .problem(400, "invalid_name");
        cluster
            .call("POST", &format!("{path}/messages"), r#"{"json":1}"#)
            .await
            .problem(400, "invalid_name");
        cluster
            .call("PUT", &format!("/v1/ns/default/groups/{name}"), "{}")
            .await
            .problem(400, "invalid_name");
        cluster
            .call(
                "POST",
                &format!("/v1/ns/default/groups/g/receive?topic={name}"),
                "",
            )
            .await
            .problem(400, "invalid_name");
    }
    cluster
        .call("PUT", "/v1/ns/default/topics/a/b", "{}")
        .await
        .problem(404, "route_not_found");
    for name in ["TBW102", "RMQ_SYS_X", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"] {
        cluster
            .call("PUT", &format!("/v1/ns/default/topics/{name}"), "{}")
            .await
            .problem(403, "system_resource");
        cluster
            .call(
                "POST",
                &format!("/v1/ns/default/topics/{name}/messages"),
                r#"{"json":1}"#,
            )
            .await
            .problem(403, "system_resource");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn receive_parameters_have_their_own_codes() {
    let cluster = Cluster::alone().await;
    for (query, code, limit) in [
        ("wait=61s", "invalid_wait", Some("\"60s\"")),
        ("wait=5", "invalid_duration", None),
        ("max=257", "invalid_max", Some("256")),
        ("max=0", "invalid_max", None),
        ("max=x", "invalid_max", None),
        ("bodyFormat=raw&max=2", "invalid_max", Some("1")),
        ("bodyFormat=xml", "invalid_field", None),
        ("invisibleFor=999ms", "invalid_invisible_for", None),
        ("invisibleFor=13h", "invalid_invisible_for", None),
        ("autoAck=yes", "invalid_field", None),
        ("maxx=1", "unknown_field", None),
    ] {
        let problem = cluster
            .call(
                "POST",
                &format!("/v1/ns/default/groups/g/receive?{query}"),
                "",
            )
            .await
            .problem(400, code);
        if let Some(limit) = limit {
            let shown = if limit == "\"60s\"" { "\"1m\"" } else { limit };
            assert_eq!(problem["limit"].to_string(), shown, "{query}");
        }
    }
    cluster
        .call("POST", "/v1/ns/default/groups/g/receive?attemptId=x", "")
        .await
        .problem(501, "not_implemented");
    cluster
        .call("POST", "/v1/ns/default/groups/g/receive", "{}")
        .await
        .problem(400, "invalid_field");
    cluster.stop().await;
}

/// Receipts that are none: random text, two megabytes of it (redpanda-data/redpanda#5843; BL-43).
#[tokio::test]
async fn what_is_no_receipt_is_refused() {
    let cluster = Cluster::alone().await;
    let huge = "x".repeat(2 * 1024 * 1024);
    for receipt in ["", "x", "mqr_", "mqr_AAAA", "mqr_\u{1F600}", &huge] {
        let body = serde_json::json!({ "receipts": [receipt] }).to_string();
        for action in ["ack", "nack", "extend"] {
            let problem = cluster
                .call("POST", &format!("/v1/ns/default/groups/g/{action}"), &body)
                .await
                .problem(400, "receipt_invalid");
            assert_eq!(problem["results"][0]["status"], "invalid");
        }
    }
    for (action, body, status, code) in [
        ("ack", r#"{"receipts":[]}"#, 400, "batch_empty"),
        ("ack", "{}", 400, "invalid_field"),
        (
            "ack",
            r#"{"receipts":["a"],"items":[{"receipt":"a"}]}"#,
            400,
            "invalid_field",
        ),
        (
            "ack",
            r#"{"receipts":["a"],"delay":"1s"}"#,
            400,
            "unknown_field",
        ),
        ("ack", r#"{"receipts":[1]}"#, 400, "invalid_field"),
        (
            "nack",
            r#"{"receipts":["a"],"delay":5}"#,
            400,
            "invalid_duration",
        ),
        (
            "nack",
            r#"{"items":[{"receipt":"a"}],"delay":"5s"}"#,
            400,
            "invalid_field",
        ),
        (
            "nack",
            r#"{"items":[{"delay":"5s"}]}"#,
            400,
            "invalid_field",
        ),
        (
            "nack",
            r#"{"receipts":["a"],"deadLetter":true,"delay":"5s"}"#,
            400,
            "invalid_field",
        ),
        (
            "extend",
            r#"{"receipts":["a"],"invisibleFor":"13h"}"#,
            400,
            "invalid_invisible_for",
        ),
        ("ack", "", 400, "invalid_json"),
    ] {
        cluster
            .call("POST", &format!("/v1/ns/default/groups/g/{action}"), body)
            .await
            .problem(status, code);
    }
    let many = serde_json::json!({ "receipts": vec!["a"; 257] }).to_string();
    let problem = cluster
        .call("POST", "/v1/ns/default/groups/g/ack", &many)
        .await
        .problem(413, "batch_too_large");
    assert_eq!(
        (problem["limit"].as_u64(), problem["actual"].as_u64()),
        (Some(256), Some(257))
    );
    cluster.stop().await;
}

/// Also the first letters of a method, and of what HTTP/2 begins with. A connection that has begun HTTP/2 and asks for
/// nothing hears no HTTP/1.1.
#[tokio::test]
async fn a_head_that_never_ends_is_answered_408() {
    let cluster = Cluster::alone().await;
    let begin = tokio::time::Instant::now();
    let mut halves = Vec::new();
    for half in [
        b"GET /healthz HTTP/1.1\r\nHost: local".as_slice(),
        b"P",
        b"PRI * HT",
    ] {
        let mut connection = Connection::open(cluster.addr()).await;
        connection.write(half).await;
        halves.push(connection);
    }
    let mut http2 = tokio::net::TcpStream::connect(cluster.addr())
        .await
        .unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
    http2.write_all(&preface).await.unwrap();
    for mut connection in halves {
        connection
            .answer(false)
            .await
            .problem(408, "request_timeout");
        assert!(connection.closed().await);
    }
    let mut heard = Vec::new();
    http2.read_to_end(&mut heard).await.unwrap();
    assert!((9..13).contains(&begin.elapsed().as_secs()));
    let text = String::from_utf8_lossy(&heard);
    assert!(!text.contains("HTTP/1.1"), "{text}");
    assert!(heard.len() >= settings.len(), "{heard:?}");
    cluster.stop().await;
}

/// A client that never ends its request is cut off while draining, so that the stop is still in order.
#[tokio::test]
async fn a_request_that_never_ends_does_not_outlast_the_stop() {
    let cluster = Cluster::alone().await;
    let addr = cluster.addr();
    let mut half = Connection::open(addr).await;
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    half.write(head.as_bytes()).await;
    send(addr, "GET", "/healthz", &[], b"").await;
    // In real time: a paused clock would jump while the thread of the metadata store works.
    let began = tokio::time::Instant::now();
    cluster.stop().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert!(half.closed().await);
}

/// A stream without window stops no write of the socket; its client is given 30 s all the same, also where it takes the
/// first byte and no more.
#[tokio::test]
async fn an_http2_client_that_grants_no_window_is_cut_off() {
    let cluster = Cluster::alone().await;
    for window in [0, 1] {
        let mut socket = http2(cluster.addr(), window, "GET", "/docs").await;
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).await.unwrap();
        let took = began.elapsed();
        tokio::time::resume();
        // SETTINGS, its acknowledgement and the head of the answer, and of DATA what the window allows.
        assert!(heard.len() > 40 && heard.len() < 1_000, "{}", heard.len());
        assert!(
            (30..42).contains(&took.as_secs()),
            "window {window}: {took:?}"
        );
    }
    cluster.stop().await;
}

/// HEAD says what GET says, its length too, and no body follows.
#[tokio::test]
async fn a_head_has_the_length_of_the_get() {
    let cluster = Cluster::start(1, 1).await;
    cluster.make("/topics/t", "{}").await;
    for path in [
        "/healthz",
        "/openapi.json",
        "/v1/ns/default/topics/t",
        "/v1/ns/default/topics",
        "/v1/ns/default/topics/none",
        "/v1/ns/default/topics/t/messages",
        "/v1/nowhere",
    ] {
        let get = cluster.call("GET", path, "").await;
        assert!(!get.body.is_empty(), "{path}");
        let mut connection = Connection::open(cluster.addr()).await;
        let head = connection.send("HEAD", path, &[], b"").await;
        let said = |answer: &support::Answer| {
            let header = |name| answer.header(name).map(str::to_owned);
            let (length, kind) = (header("content-length"), header("content-type"));
            (answer.status, length, kind, header("etag"))
        };
        assert_eq!(said(&head), said(&get), "{path}");
        let next = connection.send("GET", "/healthz", &[], b"").await;
        assert_eq!(next.status, 200, "{path}: a body followed");
    }
    cluster.stop().await;
}
