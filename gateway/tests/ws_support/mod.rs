//! What the socket tests share: gateways, alone or with a name server and a broker, all in this process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod client;
pub(crate) mod group;

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
    let listen = ([127, 0, 0, 1], 0).into();
    let admin_listen = node::AdminListen::Off;
    Config {
        listen,
        admin_listen,
        auth: gateway::Auth::Off,
        auto_create: true,
        ..Config::default()
    }
}

/// A gateway in this process.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    running: gateway::Running,
    config: Config,
    dir: Arc<TempDir>,
}

impl Gateway {
    /// With no broker to talk to.
    pub(crate) async fn alone(config: Config) -> Self {
        Self::start(Config {
            namesrv: vec!["127.0.0.1:1".into()],
            ..config
        })
        .await
    }

    pub(crate) async fn start(config: Config) -> Self {
        Self::with_store(config, Arc::new(tempfile::tempdir().unwrap())).await
    }

    async fn with_store(mut config: Config, dir: Arc<TempDir>) -> Self {
        config.data = dir.path().to_owned();
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let running = gateway::start(config.clone(), &context).await.unwrap();
        Self {
            addr: running.addr(),
            running,
            config,
            dir,
        }
    }

    /// Another gateway of the same cluster, on the same metadata store.
    pub(crate) async fn twin(&self) -> Self {
        Self::with_store(self.config.clone(), Arc::clone(&self.dir)).await
    }

    /// What SIGTERM begins.
    pub(crate) fn drain(&self) {
        self.running.state().draining.cancel();
    }

    /// What its parts share.
    pub(crate) fn state(&self) -> &gateway::AppState {
        self.running.state()
    }

    /// Status of a request without a body.
    pub(crate) async fn plain(&self, method: &str, path: &str) -> u16 {
        request(self.addr, method, path, "").await.0
    }

    /// A REST call in the namespace `default`; its status and JSON.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, body) =
            request(self.addr, method, &format!("/v1/ns/default{path}"), &text).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Sends one text message over REST.
    pub(crate) async fn send(&self, topic: &str, text: &str) {
        let (status, answer) = self
            .call(
                "POST",
                &format!("/topics/{topic}/messages"),
                json!({"text": text}),
            )
            .await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Messages of one REST receive.
    pub(crate) async fn receive(
        &self,
        group: &str,
        topic: &str,
        max: u32,
        wait: &str,
    ) -> Vec<Value> {
        let path = format!("/groups/{group}/receive?topic={topic}&max={max}&wait={wait}");
        let (status, answer) = self.call("POST", &path, Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        answer["messages"].as_array().unwrap().clone()
    }

    /// Messages of the group that are not settled.
    pub(crate) async fn lag(&self, group: &str) -> u64 {
        let (status, answer) = self
            .call("GET", &format!("/groups/{group}/lag"), Value::Null)
            .await;
        assert_eq!(status, 200, "{answer}");
        let queues = answer["queues"]
            .as_array()
            .or(answer["items"].as_array())
            .unwrap();
        let of = |queue: &Value, name: &str| {
            queue[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name} in {queue}"))
        };
        queues
            .iter()
            .map(|queue| of(queue, "ready") + of(queue, "inFlight") + of(queue, "retrying"))
            .sum()
    }

    /// Waits until nothing of the group is unsettled.
    pub(crate) async fn settled(&self, group: &str) {
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let lag = self.lag(group).await;
            if lag == 0 {
                return;
            }
            assert!(
                tokio::time::Instant::now() < end,
                "lag of {group} is still {lag}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A name server, a broker and a gateway.
pub(crate) struct Cluster {
    pub(crate) gateway: Gateway,
    namesrv: namesrv::Running,
    running: broker::Running,
    data: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let data = tempfile::tempdir().unwrap();
        let context = || Context::quiet(Arc::new(SystemClock::new()));
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let names = namesrv::Config {
            listen: loopback,
            admin_listen: node::AdminListen::Off,
            ..namesrv::Config::default()
        };
        let namesrv = namesrv::start(names, context()).await.unwrap();
        let mut settings = broker::Config {
            listen: loopback,
            data: data.path().to_owned(),
            namesrv: vec![namesrv.addr().to_string()],
            fast_port: false,
            admin_listen: node::AdminListen::Off,
            ..broker::Config::default()
        };
        settings.segment.size = node::ByteSize::mib(16);
        settings.flush.mode = broker::FlushMode::Async;
        let running = broker::start(settings, &context()).await.unwrap();
        let gateway = Gateway::start(Config {
            namesrv: vec![namesrv.addr().to_string()],
            ..config
        })
        .await;
        let cluster = Self {
            gateway,
            namesrv,
            running,
            data,
        };
        cluster.registered().await;
        cluster
    }

    /// Waits until the gateway finds the broker.
    async fn registered(&self) {
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        let upstream = &self.gateway.running.state().upstream;
        while upstream
            .cluster(end)
            .await
            .map_or(true, |brokers| brokers.is_empty())
        {
            assert!(
                tokio::time::Instant::now() < end,
                "the broker is not registered"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let kind = if body.is_empty() {
        ""
    } else {
        "Content-Type: application/json\r\n"
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap();
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    (
        status,
        if chunked {
            unchunk(body)
        } else {
            body.to_owned()
        },
    )
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
