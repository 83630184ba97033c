//! A broker on a port of its own and the requests that tests of leases send to it.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushConfig, FlushMode, Running, SegmentConfig};
use clock::SystemClock;
use node::{ByteSize, Context, Metrics, Millis};
use remoting::{Client, ClientOptions};
use store::disk::Disk;
use tempfile::TempDir;
use wire::body::gantry::{
    Backoff, GroupLag, GroupSpec, SettleItem, SettleOp, SettleRequest, SettleResponse,
    SettleResult, SubscriptionSpec, TopicSpec,
};
use wire::headers::pop::{
    AckRequest, ChangeInvisibleRequest, NotificationRequest, PopRequest, PopResponse,
};
use wire::headers::send::SendRequest;
use wire::message::properties::Properties;
use wire::message::record::RecordView;
use wire::receipt::{self, Lease, Receipt, RetryFlag};
use wire::{Command, RequestCode, ResponseCode};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A broker over a directory.
pub(crate) struct Bench {
    pub(crate) running: Option<Running>,
    pub(crate) dir: Arc<TempDir>,
    pub(crate) addr: String,
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
}

/// A leased message as the gateway gets it.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) topic: String,
    pub(crate) lease: Lease,
    pub(crate) body: String,
    pub(crate) reconsume_times: i32,
    pub(crate) properties: BTreeMap<String, String>,
}

pub(crate) fn config(data: &Path, flush: FlushMode) -> Config {
    Config {
        data: data.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        flush: FlushConfig {
            mode: flush,
            interval: Millis(50),
        },
        segment: SegmentConfig {
            size: ByteSize::mib(8),
        },
        fast_port: false,
        ..Config::default()
    }
}

pub(crate) async fn open(dir: Arc<TempDir>, flush: FlushMode) -> Bench {
    let config = config(dir.path(), flush);
    open_with(dir, config).await
}

/// A broker with settings of its own.
pub(crate) async fn open_with(dir: Arc<TempDir>, config: Config) -> Bench {
    let context = Context::quiet(Arc::new(SystemClock::new()));
    let running = broker::start(config, &context).await.unwrap();
    let addr = running.addrs.listen.to_string();
    Bench {
        running: Some(running),
        dir,
        addr,
        client: Client::new(ClientOptions::default()),
        metrics: context.metrics,
    }
}

/// A broker on a disk in memory; the directory only gives it a name.
pub(crate) async fn on_disk(disk: Arc<dyn Disk>, flush: FlushMode) -> Bench {
    on_disk_with(disk, flush, |_| {}).await
}

/// The same with settings of its own.
pub(crate) async fn on_disk_with(
    disk: Arc<dyn Disk>,
    flush: FlushMode,
    change: impl FnOnce(&mut Config),
) -> Bench {
    let context = Context::quiet(Arc::new(SystemClock::new()));
    let mut config = Config {
        data: "/data".into(),
        segment: SegmentConfig {
            size: ByteSize::mib(1),
        },
        ..config(Path::new("/data"), flush)
    };
    change(&mut config);
    let running = broker::start_on(config, &context, disk).await.unwrap();
    let addr = running.addrs.listen.to_string();
    Bench {
        running: Some(running),
        dir: Arc::new(TempDir::new().unwrap()),
        addr,
        client: Client::new(ClientOptions::default()),
        metrics: context.metrics,
    }
}

pub(crate) async fn bench() -> Bench {
    open(Arc::new(TempDir::new().unwrap()), FlushMode::Sync).await
}

/// A broker with topic `T` (2 queues) and group `g` subscribed to it from the start.
pub(crate) async fn ready(spec: GroupSpec) -> Bench {
    let bench = bench().await;
    bench.put_topic("T", 2).await;
    bench.put_group("g", &spec).await;
    bench.subscribe("g", "T", "*").await;
    bench
}

pub(crate) fn quick() -> GroupSpec {
    GroupSpec {
        invisible_ms: 1_000,
        initial_position: "earliest".into(),
        max_attempts: 3,
        backoff: Backoff::List {
            delays_ms: vec![200],
        },
        ..GroupSpec::default()
    }
}

impl Bench {
    /// The value of a metric of the broker, 0 where it is not there.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub(crate) async fn call(&self, cmd: Command) -> Command {
        self.client.invoke(&self.addr, cmd, TIMEOUT).await.unwrap()
    }

    pub(crate) async fn ok(&self, cmd: Command) -> Command {
        let answer = self.call(cmd).await;
        assert_eq!(
            answer.response_code(),
            ResponseCode::Success,
            "{:?} {:?}",
            answer.remark,
            answer.ext
        );
        answer
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }

    /// Stops in order and starts again over the same directory.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop().await;
        open(self.dir.clone(), FlushMode::Sync).await
    }

    /// What a kill -9 at this moment leaves: the files as they are, the log copied last, in a directory of its own, and a
    /// broker started over them. The old one lives on.
    pub(crate) async fn after_a_kill(&self) -> Self {
        let copy = Arc::new(TempDir::new().unwrap());
        let (from, to) = (self.dir.path().to_owned(), copy.path().to_owned());
        tokio::task::spawn_blocking(move || {
            copy_tree(&from, &to, &|path| !path.ends_with("commitlog"));
            copy_tree(&from.join("commitlog"), &to.join("commitlog"), &|_| true);
        })
        .await
        .unwrap();
        open(copy, FlushMode::Sync).await
    }

    pub(crate) async fn put_topic(&self, topic: &str, queues: i32) {
        let spec = TopicSpec {
            read_queues: queues,
            write_queues: queues,
            ..TopicSpec::default()
        };
        self.ok(Command::request(RequestCode::PutTopic)
            .with_ext("topic", topic)
            .with_body(wire::json::to_vec(&spec)))
            .await;
    }

    pub(crate) async fn put_group(&self, group: &str, spec: &GroupSpec) {
        self.ok(Command::request(RequestCode::PutGroup)
            .with_ext("group", group)
            .with_body(wire::json::to_vec(spec)))
            .await;
    }

    pub(crate) async fn subscribe(&self, group: &str, topic: &str, expression: &str) {
        let kind = if expression == "*" { "all" } else { "tag" };
        let spec = SubscriptionSpec {
            topic: topic.into(),
            kind: kind.into(),
            expression: expression.into(),
            ..SubscriptionSpec::default()
        };
        let cmd = Command::request(RequestCode::PutSubscription)
            .with_ext("group", group)
            .with_ext("topic", topic);
        self.ok(cmd.with_body(wire::json::to_vec(&spec))).await;
    }

    pub(crate) async fn send(&self, topic: &str, queue_id: i32, body: &str, tag: &str) {
        let mut properties = Properties::new();
        properties.set("TAGS", tag);
        properties.set("UNIQ_KEY", format!("id-{body}"));
        let header = SendRequest {
            producer_group: "p".into(),
            topic: topic.into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 4,
            queue_id,
            properties: Some(properties.encode()),
            ..SendRequest::default()
        };
        let answer = self
            .ok(Command::request(RequestCode::SendMessageV2)
                .with_header(&header)
                .with_body(body.to_owned()))
            .await;
        let offset = answer.ext.get("queueOffset").unwrap().parse().unwrap();
        self.until_poppable(topic, queue_id, offset).await;
    }

    /// An answered send enters its queue a moment later; on a loaded machine a pop may be faster.
    async fn until_poppable(&self, topic: &str, queue_id: i32, offset: i64) {
        let until = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let cmd = Command::request(RequestCode::GetMaxOffset)
                .with_ext("topic", topic)
                .with_ext("queueId", queue_id);
            let end: i64 = self
                .ok(cmd)
                .await
                .ext
                .get("offset")
                .unwrap()
                .parse()
                .unwrap();
            if end > offset {
                return;
            }
            assert!(
                tokio::time::Instant::now() < until,
                "{topic} {queue_id}: {end}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn send_many(&self, topic: &str, queues: i32, count: usize) {
        for index in 0..count {
            self.send(topic, (index as i32) % queues, &format!("m{index}"), "a")
                .await;
        }
    }

    /// Messages with empty-looking bodies in client batches of 500.
    pub(crate) async fn send_batch(&self, topic: &str, queue_id: i32, count: usize, tag: &str) {
        let mut properties = Properties::new();
        properties.set("TAGS", tag);
        let properties = properties.encode();
        let mut entry = Vec::new();
        let size = 4 + 4 + 4 + 4 + 4 + 1 + 2 + properties.len();
        entry.extend_from_slice(&(size as i32).to_be_bytes());
        entry.extend_from_slice(&[0; 12]);
        entry.extend_from_slice(&1i32.to_be_bytes());
        entry.push(b'x');
        entry.extend_from_slice(&(properties.len() as i16).to_be_bytes());
        entry.extend_from_slice(properties.as_bytes());
        let header = SendRequest {
            producer_group: "p".into(),
            topic: topic.into(),
            default_topic: "TBW102".into(),
            queue_id,
            batch: true,
            ..SendRequest::default()
        };
        for _ in 0..count / 500 {
            let cmd = Command::request(RequestCode::SendBatchMessage).with_header(&header);
            self.ok(cmd.with_body(entry.repeat(500))).await;
        }
    }

    pub(crate) fn pop_command(
        &self,
        group: &str,
        topic: &str,
        max: i32,
        invisible_ms: i64,
    ) -> Command {
        let header = PopRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: -1,
            max_msg_nums: max,
            invisible_ms,
            gantry: Some(true),
            member: Some("m".into()),
            ..PopRequest::default()
        };
        Command::request(RequestCode::PopMessage).with_header(&header)
    }

    pub(crate) async fn pop(
        &self,
        group: &str,
        topic: &str,
        max: i32,
        invisible_ms: i64,
    ) -> Vec<Got> {
        let answer = self
            .call(self.pop_command(group, topic, max, invisible_ms))
            .await;
        if answer.response_code() == ResponseCode::PollingTimeout {
            return Vec::new();
        }
        assert_eq!(
            answer.response_code(),
            ResponseCode::Success,
            "{:?}",
            answer.remark
        );
        got(group, topic, &answer)
    }

    /// Pops until something comes or `wait` is over.
    pub(crate) async fn pop_within(
        &self,
        group: &str,
        topic: &str,
        max: i32,
        invisible_ms: i64,
        wait: Duration,
    ) -> Vec<Got> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let got = self.pop(group, topic, max, invisible_ms).await;
            if !got.is_empty() || tokio::time::Instant::now() >= until {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn settle(&self, group: &str, items: Vec<SettleItem>) -> Vec<SettleResult> {
        let body = wire::json::to_vec(&SettleRequest { items });
        let answer = self
            .ok(Command::request(RequestCode::Settle)
                .with_ext("group", group)
                .with_body(body))
            .await;
        wire::json::from_slice::<SettleResponse>(&answer.body.to_bytes())
            .unwrap()
            .results
    }

    pub(crate) async fn ack(&self, group: &str, got: &Got) -> SettleResult {
        self.settle(group, vec![item(got, SettleOp::Ack)])
            .await
            .remove(0)
    }

    pub(crate) async fn lag(&self, group: &str) -> GroupLag {
        let answer = self
            .ok(Command::request(RequestCode::GroupLag).with_ext("group", group))
            .await;
        wire::json::from_slice(&answer.body.to_bytes()).unwrap()
    }

    pub(crate) async fn notify(&self, group: &str, topic: &str, poll_ms: i64) -> bool {
        let header = NotificationRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: -1,
            poll_ms,
            gantry: Some(true),
            ..NotificationRequest::default()
        };
        let answer = self
            .ok(Command::request(RequestCode::Notification).with_header(&header))
            .await;
        answer.ext.bool("hasMsg")
    }

    /// A pop as a RocketMQ client sends it.
    pub(crate) async fn native_pop(
        &self,
        group: &str,
        topic: &str,
        max: i32,
        invisible_ms: i64,
        poll_ms: i64,
    ) -> Command {
        let header = PopRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: -1,
            max_msg_nums: max,
            invisible_ms,
            poll_ms,
            born_time_ms: i64::try_from(clock::Clock::now_ms(&SystemClock::new())).unwrap(),
            exp_type: Some("TAG".into()),
            exp: Some("*".into()),
            order: Some(false),
            ..PopRequest::default()
        };
        self.call(Command::request(RequestCode::PopMessage).with_header(&header))
            .await
    }

    pub(crate) async fn native_ack(&self, group: &str, topic: &str, receipt: &Receipt) -> Command {
        let header = AckRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: receipt.queue_id,
            extra_info: receipt.encode(),
            queue_offset: receipt.queue_offset.unwrap(),
        };
        self.call(Command::request(RequestCode::AckMessage).with_header(&header))
            .await
    }

    pub(crate) async fn native_change(
        &self,
        group: &str,
        topic: &str,
        receipt: &Receipt,
        invisible_ms: i64,
    ) -> Command {
        let header = ChangeInvisibleRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: receipt.queue_id,
            extra_info: receipt.encode(),
            queue_offset: receipt.queue_offset.unwrap(),
            invisible_ms,
        };
        self.call(Command::request(RequestCode::ChangeMessageInvisibletime).with_header(&header))
            .await
    }

    /// All stored messages of one queue, by a pull without a group's progress.
    pub(crate) async fn stored(
        &self,
        topic: &str,
        queue_id: i32,
    ) -> Vec<(i32, BTreeMap<String, String>, String)> {
        let cmd = Command::request(RequestCode::PullMessage)
            .with_ext("consumerGroup", "TOOLS_CONSUMER")
            .with_ext("topic", topic)
            .with_ext("queueId", queue_id)
            .with_ext("queueOffset", 0)
            .with_ext("maxMsgNums", 32)
            .with_ext("sysFlag", 4)
            .with_ext("commitOffset", 0)
            .with_ext("suspendTimeoutMillis", 0)
            .with_ext("subscription", "*")
            .with_ext("subVersion", 0)
            .with_ext("expressionType", "TAG");
        let body = self.call(cmd).await.body.to_bytes();
        RecordView::each(&body)
            .map(|view| view.unwrap())
            .map(|view| (view.reconsume_times, properties(&view), text(view.body)))
            .collect()
    }
}

pub(crate) fn item(got: &Got, op: SettleOp) -> SettleItem {
    SettleItem {
        topic: got.topic.clone(),
        queue_id: got.lease.queue_id,
        queue_offset: got.lease.queue_offset,
        lease_id: got.lease.lease_id,
        op,
        ..SettleItem::default()
    }
}

/// Messages of an answer in Gantry's form.
pub(crate) fn got(group: &str, topic: &str, answer: &Command) -> Vec<Got> {
    let header: PopResponse = answer.header().unwrap();
    let leases = receipt::parse_leases(&header.leases.unwrap()).unwrap();
    let body = answer.body.to_bytes();
    let views: Vec<RecordView<'_>> = RecordView::each(&body).map(|view| view.unwrap()).collect();
    assert_eq!(views.len(), leases.len());
    let one = |(view, lease): (&RecordView<'_>, Lease)| Got {
        topic: lease.retry.topic(group, topic),
        lease,
        body: text(view.body),
        reconsume_times: view.reconsume_times,
        properties: properties(view),
    };
    views.iter().zip(leases).map(one).collect()
}

/// Receipts of an answer in the form of RocketMQ, as its Java client makes them, with the messages' bodies.
pub(crate) fn native_receipts(answer: &Command) -> Vec<(Receipt, String)> {
    let header: PopResponse = answer.header().unwrap();
    let starts = receipt::parse_start_offsets(&header.start_offset_info.unwrap()).unwrap();
    let offsets = receipt::parse_message_offsets(&header.msg_offset_info.unwrap()).unwrap();
    let body = answer.body.to_bytes();
    let mut receipts = Vec::new();
    for view in RecordView::each(&body).map(|view| view.unwrap()) {
        if let Some(text_of) = view.property("POP_CK") {
            receipts.push((Receipt::parse(text_of).unwrap(), text(view.body)));
            continue;
        }
        let start = starts
            .iter()
            .find(|start| start.queue_id == view.queue_id && start.retry == RetryFlag::Normal)
            .unwrap();
        let listed = offsets
            .iter()
            .find(|entry| entry.queue_id == view.queue_id && entry.retry == RetryFlag::Normal)
            .unwrap();
        assert!(listed.offsets.contains(&view.queue_offset));
        let receipt = Receipt {
            start_offset: start.start_offset,
            pop_time_ms: header.pop_time_ms,
            invisible_ms: header.invisible_ms,
            revive_queue_id: header.revive_queue_id,
            retry: RetryFlag::Normal,
            broker_name: "broker-a".into(),
            queue_id: view.queue_id,
            queue_offset: Some(view.queue_offset),
        };
        receipts.push((receipt, text(view.body)));
    }
    receipts
}

fn properties(view: &RecordView<'_>) -> BTreeMap<String, String> {
    view.properties()
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn text(body: &[u8]) -> String {
    String::from_utf8(body.to_vec()).unwrap()
}

#[allow(
    clippy::disallowed_methods,
    reason = "a copy of a directory for a test"
)]
fn copy_tree(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if !wanted(&entry.path()) {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target, wanted);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
