//! What the socket tests share: gateways, alone or with a name server and a broker, all in this process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use gateway::Config;
use node::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Settings of a gateway on a free loopback port, authentication off.
pub(crate) fn config() -> Config {
    Config { listen: ([127, 0, 0, 1], 0).into(), auth: gateway::Auth::Off, auto_create: true, ..Config::default() }
}

/// A gateway in this process.
pub(crate) struct Gateway {
    pub addr: SocketAddr,
    draining: tokio_util::sync::CancellationToken,
}
impl Gateway {
    pub(crate) async fn alone(config: Config) -> Self {
        let config = Config { namesrv: vec!["127.0.0.1:1".into()], ..config };
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let state = gateway::AppState::new(config, &context, gateway::receipt::ReceiptKeys::new(&[(1, [7; 32])]));
        let draining = state.draining.clone();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, gateway::app(state)).await.unwrap() });
        Self { addr, draining }
    }
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    /// Status of a request without a body.
    pub(crate) async fn plain(&self, method: &str, path: &str) -> u16 {
        request(self.addr, method, path, "").await.0
    }

    /// A REST call in the namespace `default`; its status and JSON.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, body) = request(self.addr, method, &format!("/v1/ns/default{path}"), &text).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Sends one text message over REST.
    pub(crate) async fn send(&self, topic: &str, text: &str) {
        let (status, answer) = self.call("POST", &format!("/topics/{topic}/messages"), json!({"text": text})).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Messages of one REST receive.
    pub(crate) async fn receive(&self, group: &str, topic: &str, max: u32, wait: &str) -> Vec<Value> {
        let path = format!("/groups/{group}/receive?topic={topic}&max={max}&wait={wait}");
        let (status, answer) = self.call("POST", &path, Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        answer["messages"].as_array().unwrap().clone()
    }

    /// Messages of the group that are not settled.
    pub(crate) async fn lag(&self, group: &str) -> u64 {
        let (status, answer) = self.call("GET", &format!("/groups/{group}/lag"), Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        let queues = answer["queues"].as_array().or(answer["items"].as_array()).unwrap();
        let of = |queue: &Value, name: &str| queue[name].as_u64().unwrap_or_else(|| panic!("{name} in {queue}"));
        queues.iter().map(|queue| of(queue, "ready") + of(queue, "inFlight") + of(queue, "retrying")).sum()
    }

    /// Waits until nothing of the group is unsettled.
    pub(crate) async fn settled(&self, group: &str) {
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let lag = self.lag(group).await;
            if lag == 0 {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "lag of {group} is still {lag}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { unchunk(body) } else { body.to_owned() })
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}
