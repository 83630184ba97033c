//! What the REST tests share: a cluster in this process on free ports, and a plain HTTP/1.1 client.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use clock::SystemClock;
use gateway::{Auth, Config};
use node::{AdminListen, ByteSize, Context};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Settings of a gateway on a free loopback port, authentication off.
pub(crate) fn config(dir: &TempDir) -> Config {
    Config {
        listen: loopback(),
        auth: Auth::Off,
        auto_create: true,
        admin_listen: AdminListen::Off,
        public_metrics: true,
        data: dir.path().join("gateway"),
        namesrv: vec!["127.0.0.1:1".into()],
        ..Config::default()
    }
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn broker_config(dir: &TempDir, i: usize, namesrv: &namesrv::Running) -> broker::Config {
    let mut config = broker::Config {
        listen: loopback(),
        admin_listen: AdminListen::Off,
        data: dir.path().join(format!("broker-{i}")),
        namesrv: vec![namesrv.addr().to_string()],
        name: format!("broker-{}", char::from(b'a' + i as u8)),
        ..broker::Config::default()
    };
    config.segment.size = ByteSize::mib(64);
    config
}

/// A gateway without a cluster, or one with a name server and brokers.
pub(crate) struct Cluster {
    pub(crate) gateways: Vec<gateway::Running>,
    pub(crate) brokers: Vec<broker::Running>,
    namesrv: Option<namesrv::Running>,
    context: Context,
    _dir: TempDir,
}

impl Cluster {
    /// A gateway whose name server does not answer.
    pub(crate) async fn alone() -> Self {
        Self::alone_with(|_| {}).await
    }

    pub(crate) async fn alone_with(change: impl Fn(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let mut config = config(&dir);
        change(&mut config);
        let gateways = vec![gateway::start(config, &context).await.unwrap()];
        Self {
            gateways,
            brokers: Vec::new(),
            namesrv: None,
            context,
            _dir: dir,
        }
    }

    /// A name server, so many brokers, so many gateways.
    pub(crate) async fn start(brokers: usize, gateways: usize) -> Self {
        Self::start_with(brokers, gateways, |_| {}).await
    }

    pub(crate) async fn start_with(
        brokers: usize,
        gateways: usize,
        change: impl Fn(&mut Config),
    ) -> Self {
        Self::start_all(brokers, gateways, change, |_| {}).await
    }

    /// As [`Cluster::start_with`], with settings of the brokers too.
    pub(crate) async fn start_all(
        brokers: usize,
        gateways: usize,
        change: impl Fn(&mut Config),
        change_broker: impl Fn(&mut broker::Config),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let names = namesrv::Config {
            listen: loopback(),
            admin_listen: AdminListen::Off,
            ..namesrv::Config::default()
        };
        let namesrv = namesrv::start(names, context.clone()).await.unwrap();
        let mut running = Vec::new();
        for i in 0..brokers {
            let mut config = broker_config(&dir, i, &namesrv);
            change_broker(&mut config);
            running.push(broker::start(config, &context).await.unwrap());
        }
        let mut config = config(&dir);
        config.namesrv = vec![namesrv.addr().to_string()];
        change(&mut config);
        let mut doors = Vec::new();
        for _ in 0..gateways {
            doors.push(gateway::start(config.clone(), &context).await.unwrap());
        }
        let cluster = Self {
            gateways: doors,
            brokers: running,
            namesrv: Some(namesrv),
            context,
            _dir: dir,
        };
        cluster.ready(brokers).await;
        cluster
    }

    /// PUT of what is not there yet.
    pub(crate) async fn make(&self, path: &str, body: &str) {
        let made = self.ns("PUT", path, body).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
    }

    /// Starts broker number `i` again on its data, at the end of the list.
    pub(crate) async fn start_broker(&mut self, i: usize, change: impl Fn(&mut broker::Config)) {
        let mut config = broker_config(&self._dir, i, self.namesrv.as_ref().unwrap());
        change(&mut config);
        self.brokers
            .push(broker::start(config, &self.context).await.unwrap());
    }

    /// Stops the broker at this place of the list.
    pub(crate) async fn stop_broker(&mut self, place: usize) {
        self.brokers.remove(place).stop().await.unwrap();
    }

    /// Waits until the gateway sees every broker.
    pub(crate) async fn ready(&self, brokers: usize) {
        for _ in 0..500 {
            let page = self.call("GET", "/", "").await.text();
            if (0..brokers)
                .all(|i| page.contains(&format!("broker-{}", char::from(b'a' + i as u8))))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("brokers did not register");
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.gateways[0].addr()
    }

    /// One request at the first gateway: method, path, JSON body (empty = none).
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.at(0, method, path, body).await
    }

    pub(crate) async fn at(&self, gateway: usize, method: &str, path: &str, body: &str) -> Answer {
        let headers: &[(&str, &str)] = if body.is_empty() {
            &[]
        } else {
            &[("Content-Type", "application/json")]
        };
        send(
            self.gateways[gateway].addr(),
            method,
            path,
            headers,
            body.as_bytes(),
        )
        .await
    }

    /// A call in the namespace `default`.
    pub(crate) async fn ns(&self, method: &str, path: &str, body: &str) -> Answer {
        self.call(method, &format!("/v1/ns/default{path}"), body)
            .await
    }

    /// A call in the namespace `default` with headers.
    pub(crate) async fn with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        send(
            self.addr(),
            method,
            &format!("/v1/ns/default{path}"),
            headers,
            body,
        )
        .await
    }

    /// Messages of one receive.
    pub(crate) async fn receive(&self, group: &str, query: &str) -> Vec<Value> {
        let answer = self
            .ns("POST", &format!("/groups/{group}/receive?{query}"), "")
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["messages"].as_array().unwrap().clone()
    }

    pub(crate) async fn stop(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
        for broker in self.brokers {
            broker.stop().await.unwrap();
        }
        if let Some(namesrv) = self.namesrv {
            namesrv.stop().await;
        }
        self.context.shutdown.finish(Duration::from_secs(5)).await;
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {}", self.status, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// Checks that it is a problem document with this status and code.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}: {}",
            self.status,
            self.text()
        );
        let body = self.json();
        assert_eq!(
            (self.status, body["code"].as_str()),
            (status, Some(code)),
            "{body}"
        );
        assert_eq!(body["status"], status);
        assert_eq!(body["requestId"].as_str(), self.header("mq-request-id"));
        assert!(body["detail"].as_str().is_some_and(|d| !d.is_empty()));
        assert!(
            body["type"]
                .as_str()
                .is_some_and(|t| t == format!("/errors/{code}"))
        );
        body
    }
}

/// A request over HTTP/2, whose answer may have a body of `window` bytes until more is granted; the open socket.
pub(crate) async fn http2(addr: SocketAddr, window: u8, method: &str, path: &str) -> TcpStream {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let method = if method == "POST" { 0x83 } else { 0x82 };
    let head = [
        vec![method, 0x86, 0x04],
        text(path),
        vec![0x01],
        text(&addr.to_string()),
    ];
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[0, 4, 0, 0, 0, window]), // SETTINGS: the window of a stream
        frame(1, 5, 1, &head.concat()),           // HEADERS, the whole request
    ];
    socket.write_all(&request.concat()).await.unwrap();
    socket
}

/// A connection that serves several requests.
pub(crate) struct Connection {
    stream: TcpStream,
    addr: SocketAddr,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(addr).await.unwrap(),
            addr,
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {}\r\n", self.addr));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !headers
            .iter()
            .any(|(n, _)| n.eq_ignore_ascii_case("transfer-encoding"))
        {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        self.write(&[head.as_bytes(), body].concat()).await;
        self.answer(method == "HEAD").await
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self, no_body: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            assert!(
                self.more().await,
                "connection ended: {}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let head = String::from_utf8(self.buffer[..end].to_vec()).unwrap();
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|l| l.split_once(": ").unwrap_or((l, "")))
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .collect();
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        let length: usize = answer
            .header("content-length")
            .and_then(|l| l.parse().ok())
            .unwrap_or(0);
        if !no_body {
            while self.buffer.len() < length {
                assert!(self.more().await, "body ended early");
            }
            answer.body = self.buffer.drain(..length).collect();
        }
        answer
    }

    /// Whether the peer closes without another byte.
    pub(crate) async fn closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    async fn more(&mut self) -> bool {
        let mut chunk = vec![0; 64 * 1024];
        match tokio::time::timeout(Duration::from_secs(30), self.stream.read(&mut chunk))
            .await
            .unwrap()
        {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                true
            }
        }
    }
}

/// One request on a connection of its own.
pub(crate) async fn send(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    Connection::open(addr)
        .await
        .send(method, path, headers, body)
        .await
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}
