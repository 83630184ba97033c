//! A broker on port 0 and a temporary directory, and a client that talks to it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushConfig, FlushMode, Running, SegmentConfig};
use clock::SystemClock;
use node::{ByteSize, Context, Millis};
use remoting::{Client, ClientOptions};
use tempfile::TempDir;
use wire::message::record::RecordView;
use wire::{Command, RequestCode};

/// Longest wait for anything in these tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Settings for a broker in `dir`.
pub(crate) fn config(dir: &Path) -> Config {
    Config {
        data: dir.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        flush: FlushConfig {
            mode: FlushMode::Async,
            interval: Millis(50),
        },
        segment: SegmentConfig {
            size: ByteSize::mib(8),
        },
        ..Config::default()
    }
}

/// A running broker with its directory and a client.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) running: Running,
    pub(crate) client: Client,
    pub(crate) addr: String,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        Self::open(dir, config).await
    }

    pub(crate) async fn open(dir: TempDir, config: Config) -> Self {
        let running = broker::start(config, &Context::quiet(Arc::new(SystemClock::new())))
            .await
            .unwrap();
        let addr = running.addrs().listen.to_string();
        Self {
            dir,
            running,
            client: client(),
            addr,
        }
    }

    /// Stops in order and starts again on the same data.
    pub(crate) async fn restart(self) -> Self {
        let Self { dir, running, .. } = self;
        running.stop().await.unwrap();
        let config = config(dir.path());
        Self::open(dir, config).await
    }

    pub(crate) async fn call(&self, cmd: Command) -> Command {
        self.client.invoke(&self.addr, cmd, SOON).await.unwrap()
    }

    /// Calls and expects success.
    pub(crate) async fn ok(&self, cmd: Command) -> Command {
        let code = cmd.request_code();
        let answer = self.call(cmd).await;
        assert_eq!(
            answer.code, 0,
            "{code}: {:?} {:?}",
            answer.remark, answer.ext
        );
        answer
    }

    pub(crate) async fn create_topic(&self, topic: &str, queues: i32) {
        self.ok(create_topic(topic, queues)).await;
    }

    /// Sends and gives queue and offset.
    pub(crate) async fn send(
        &self,
        topic: &str,
        queue: i32,
        properties: &[(&str, &str)],
        body: &str,
    ) -> (i32, i64) {
        let answer = self.ok(send(topic, queue, properties, body)).await;
        (
            number(&answer, "queueId") as i32,
            number(&answer, "queueOffset"),
        )
    }

    /// Reads everything of a queue from an offset, waiting for at least `count` messages.
    pub(crate) async fn read(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        count: usize,
    ) -> Vec<Message> {
        let mut messages: Vec<Message> = Vec::new();
        let mut offset = from;
        let reading = async {
            while messages.len() < count {
                let answer = self
                    .call(pull("tests", topic, queue, offset, "*", 1_000))
                    .await;
                offset = number(&answer, "nextBeginOffset");
                messages.extend(decode(&answer));
            }
        };
        tokio::time::timeout(SOON, reading).await.unwrap();
        messages
    }
}

pub(crate) fn client() -> Client {
    Client::new(ClientOptions::default())
}

/// A message as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) body: String,
    pub(crate) queue_id: i32,
    pub(crate) queue_offset: i64,
    pub(crate) physical_offset: i64,
    pub(crate) reconsume_times: i32,
    pub(crate) store_ts_ms: i64,
    pub(crate) properties: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.properties
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

pub(crate) fn decode(answer: &Command) -> Vec<Message> {
    let body = answer.body.to_bytes();
    RecordView::each(&body)
        .map(|view| {
            let view = view.unwrap();
            view.check_crc().unwrap();
            Message {
                topic: view.topic.to_owned(),
                body: String::from_utf8_lossy(view.body).into_owned(),
                queue_id: view.queue_id,
                queue_offset: view.queue_offset,
                physical_offset: view.physical_offset,
                reconsume_times: view.reconsume_times,
                store_ts_ms: view.store_ts_ms,
                properties: view
                    .properties()
                    .iter()
                    .map(|(n, v)| (n.to_owned(), v.to_owned()))
                    .collect(),
            }
        })
        .collect()
}

pub(crate) fn number(answer: &Command, field: &str) -> i64 {
    answer
        .ext
        .get(field)
        .unwrap_or_else(|| panic!("no {field} in {answer:?}"))
        .parse()
        .unwrap()
}

pub(crate) fn request(code: RequestCode, fields: &[(&str, &str)]) -> Command {
    let mut cmd = Command::request(code);
    for (name, value) in fields {
        cmd.ext.put(name, *value);
    }
    cmd
}

pub(crate) fn create_topic(topic: &str, queues: i32) -> Command {
    let queues = queues.to_string();
    request(
        RequestCode::UpdateAndCreateTopic,
        &[
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("readQueueNums", &queues),
            ("writeQueueNums", &queues),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("order", "false"),
        ],
    )
}

pub(crate) fn properties_text(properties: &[(&str, &str)]) -> String {
    properties
        .iter()
        .map(|(name, value)| format!("{name}\u{1}{value}\u{2}"))
        .collect()
}

pub(crate) fn send(topic: &str, queue: i32, properties: &[(&str, &str)], body: &str) -> Command {
    let queue = queue.to_string();
    let text = properties_text(properties);
    request(
        RequestCode::SendMessageV2,
        &[
            ("a", "producers"),
            ("b", topic),
            ("c", "TBW102"),
            ("d", "4"),
            ("e", &queue),
            ("f", "0"),
            ("g", "1700000000000"),
            ("h", "0"),
            ("i", &text),
            ("j", "0"),
            ("k", "false"),
            ("m", "false"),
        ],
    )
    .with_body(body.as_bytes().to_vec())
}

/// A pull that brings its own subscription; `wait_ms` 0 does not wait.
pub(crate) fn pull(
    group: &str,
    topic: &str,
    queue: i32,
    offset: i64,
    tags: &str,
    wait_ms: u64,
) -> Command {
    let (queue, offset, wait) = (queue.to_string(), offset.to_string(), wait_ms.to_string());
    let sys_flag = if wait_ms > 0 { "6" } else { "4" };
    request(
        RequestCode::PullMessage,
        &[
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", &queue),
            ("queueOffset", &offset),
            ("maxMsgNums", "32"),
            ("sysFlag", sys_flag),
            ("commitOffset", "0"),
            ("suspendTimeoutMillis", &wait),
            ("subscription", tags),
            ("subVersion", "0"),
            ("expressionType", "TAG"),
        ],
    )
}

/// A heartbeat of one consumer.
pub(crate) fn heartbeat(client_id: &str, group: &str, topic: &str, tags: &str) -> Command {
    let body = format!(
        r#"{{"clientID":"{client_id}","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"{tags}","subVersion":5,"tagsSet":[],"topic":"{topic}"}}],"unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[{{"groupName":"producers"}}],"withoutSub":false}}"#
    );
    Command::request(RequestCode::HeartBeat).with_body(body)
}
