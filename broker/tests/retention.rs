//! Deletion of old log files by a running broker: what clients see, and what outlives its file.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program: what is unexpected ends it"
)]

mod pop_support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushMode, RetentionConfig, SegmentConfig};
use clock::SystemClock;
use node::{ByteSize, Context, Millis};
use pop_support::{Bench, Got, config, item, quick};
use remoting::{Client, ClientOptions};
use store::disk::Disk;
use store::disk::sim::SimDisk;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wire::body::gantry::{GroupSpec, SettleItem, SettleOp, SettleStatus};
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

const LONG: Duration = Duration::from_secs(20);

/// Files of 64 KiB, kept for a second.
fn short_lived() -> RetentionConfig {
    RetentionConfig {
        time: Millis(1_000),
        check_interval: Millis(100),
        ..RetentionConfig::default()
    }
}

/// As [`short_lived`], but for an hour until [`expire`]: what a test does first may take its time.
fn kept_for_now() -> RetentionConfig {
    RetentionConfig {
        time: Millis::secs(3_600),
        ..short_lived()
    }
}

/// From now on files are kept for a second.
async fn expire(bench: &Bench) {
    let change = Command::request(RequestCode::UpdateBrokerConfig);
    bench.ok(change.with_body("retention.time=1s\n")).await;
}

async fn start(disk: &SimDisk, retention: RetentionConfig) -> Bench {
    let data = Path::new("/data");
    let config = Config {
        data: data.to_owned(),
        segment: SegmentConfig {
            size: ByteSize(64 << 10),
        },
        retention,
        ..config(data, FlushMode::Sync)
    };
    let context = Context::quiet(Arc::new(SystemClock::new()));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
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

async fn ready(disk: &SimDisk, retention: RetentionConfig, spec: GroupSpec) -> Bench {
    let bench = start(disk, retention).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &spec).await;
    bench.subscribe("g", "T", "*").await;
    bench
}

async fn number(bench: &Bench, code: RequestCode, topic: &str) -> i64 {
    let cmd = Command::request(code)
        .with_ext("topic", topic)
        .with_ext("queueId", 0);
    let answer = bench.ok(cmd).await;
    answer.ext.get("offset").unwrap().parse().unwrap()
}

async fn min(bench: &Bench, topic: &str) -> i64 {
    number(bench, RequestCode::GetMinOffset, topic).await
}

async fn max(bench: &Bench, topic: &str) -> i64 {
    number(bench, RequestCode::GetMaxOffset, topic).await
}

fn pull(topic: &str, offset: i64) -> Command {
    Command::request(RequestCode::PullMessage)
        .with_ext("consumerGroup", "TOOLS_CONSUMER")
        .with_ext("topic", topic)
        .with_ext("queueId", 0)
        .with_ext("queueOffset", offset)
        .with_ext("maxMsgNums", 32)
        .with_ext("sysFlag", 4)
        .with_ext("commitOffset", 0)
        .with_ext("suspendTimeoutMillis", 0)
        .with_ext("subscription", "*")
        .with_ext("subVersion", 0)
        .with_ext("expressionType", "TAG")
}

/// Everything of a queue that can be pulled: offset, reconsume times, properties, body.
async fn all(bench: &Bench, topic: &str) -> Vec<(i64, i32, BTreeMap<String, String>, String)> {
    let mut found = Vec::new();
    let mut at = min(bench, topic).await;
    loop {
        let answer = bench.call(pull(topic, at)).await;
        at = answer.ext.get("nextBeginOffset").unwrap().parse().unwrap();
        match answer.response_code() {
            ResponseCode::Success => {}
            ResponseCode::PullOffsetMoved => continue,
            _ => return found,
        }
        let body = answer.body.to_bytes();
        for view in RecordView::each(&body) {
            let view = view.unwrap();
            let properties = view
                .properties()
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let text = String::from_utf8_lossy(view.body).into_owned();
            found.push((view.queue_offset, view.reconsume_times, properties, text));
        }
    }
}

/// Waits until everything that is in the log now has been deleted.
async fn until_deleted(bench: &Bench) {
    let until = Instant::now() + LONG;
    bench.send("T", 0, "the last one", "a").await;
    let end = max(bench, "T").await;
    while min(bench, "T").await < end {
        assert!(Instant::now() < until, "nothing is deleted");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn one(bench: &Bench, invisible_ms: i64) -> Got {
    let got = bench.pop_within("g", "T", 1, invisible_ms, LONG).await;
    got.into_iter().next().expect("a message")
}

fn nack(got: &Got, delay_ms: u64) -> SettleItem {
    SettleItem {
        delay_ms: Some(delay_ms),
        ..item(got, SettleOp::Nack)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_messages_go_and_who_asks_for_them_is_told_where_to_go_on() {
    let disk = SimDisk::new(1);
    let bench = ready(&disk, short_lived(), quick()).await;
    for number in 0..60 {
        bench
            .send("T", 0, &format!("{number}:{}", "x".repeat(3_000)), "a")
            .await;
    }
    until_deleted(&bench).await;
    let end = max(&bench, "T").await;
    let answer = bench.call(pull("T", 3)).await;
    assert_eq!(answer.response_code(), ResponseCode::PullOffsetMoved);
    assert_eq!(answer.ext.get("nextBeginOffset"), Some(&*end.to_string()));
    assert_eq!(answer.ext.get("minOffset"), Some(&*end.to_string()));
    // The queue goes on where it was, also after a kill.
    bench.send("T", 0, "young", "a").await;
    let after = disk.kill();
    drop(bench);
    let keeping = RetentionConfig::default();
    let bench = start(&after, keeping).await;
    assert_eq!(max(&bench, "T").await, end + 1);
    let left = all(&bench, "T").await;
    assert!(
        left.iter()
            .any(|(offset, _, _, body)| (*offset, &**body) == (end, "young"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_the_file_of_its_message() {
    let bench = ready(&SimDisk::new(2), kept_for_now(), quick()).await;
    bench.send("T", 0, "acked", "a").await;
    bench.send("T", 0, "nacked", "a").await;
    bench.send("T", 0, "forgotten", "a").await;
    let (acked, nacked) = (one(&bench, 60_000).await, one(&bench, 60_000).await);
    let forgotten = one(&bench, 6_000).await;
    bench.settle("g", vec![nack(&nacked, 6_000)]).await;
    expire(&bench).await;
    until_deleted(&bench).await;
    assert_eq!(bench.ack("g", &acked).await.status, SettleStatus::Acked);
    // Neither the backoff nor the lease is cut short, and both come back whole.
    let mut back = BTreeMap::new();
    while back.len() < 2 {
        let got = one(&bench, 30_000).await;
        assert_eq!(
            (got.lease.attempt, got.reconsume_times),
            (2, 1),
            "{}",
            got.body
        );
        assert_eq!(got.properties["UNIQ_KEY"], format!("id-{}", got.body));
        assert_eq!(bench.ack("g", &got).await.status, SettleStatus::Acked);
        assert!(back.insert(got.body.clone(), got).is_none(), "twice");
    }
    assert_eq!(back.keys().collect::<Vec<_>>(), ["forgotten", "nacked"]);
    let origin = &back["forgotten"].properties["__ORIGIN"];
    assert!(
        origin.starts_with(&format!("0 {} ", forgotten.lease.queue_offset)),
        "{origin}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_retries_and_dead_letters_outlive_their_file_once() {
    let disk = SimDisk::new(3);
    let bench = ready(&disk, kept_for_now(), quick()).await;
    bench.send("T", 0, "dead", "a").await;
    let got = one(&bench, 30_000).await;
    bench.settle("g", vec![item(&got, SettleOp::Dead)]).await;
    bench.send("T", 0, "again", "a").await;
    let got = one(&bench, 30_000).await;
    bench.settle("g", vec![nack(&got, 0)]).await;
    let until = Instant::now() + LONG;
    while max(&bench, "%RETRY%g+T").await == 0 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20)).await;
    }
    let first = all(&bench, "%RETRY%g+T").await;
    expire(&bench).await;
    until_deleted(&bench).await;
    until_deleted(&bench).await;
    let retries = all(&bench, "%RETRY%g+T").await;
    assert_eq!(retries.len(), 1, "{retries:?}");
    assert!(retries[0].0 > first[0].0, "put again behind");
    assert_eq!((retries[0].1, &retries[0].3), (1, &"again".to_owned()));
    for name in ["UNIQ_KEY", "__ORIGIN", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC"] {
        assert_eq!(retries[0].2.get(name), first[0].2.get(name), "{name}");
    }
    let dead = all(&bench, "%DLQ%g").await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0].3, "dead");

    let after = disk.kill();
    drop(bench);
    let bench = start(&after, short_lived()).await;
    let got = one(&bench, 30_000).await;
    assert_eq!((got.lease.attempt, &*got.body), (2, "again"));
    assert_eq!(bench.ack("g", &got).await.status, SettleStatus::Acked);
    let again = bench
        .pop_within("g", "T", 1, 1_000, Duration::from_millis(300))
        .await;
    assert!(again.is_empty(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_older_than_its_group_keeps_them_goes_with_its_file() {
    let spec = GroupSpec {
        dead_letter_retention_ms: 1,
        ..quick()
    };
    let bench = ready(&SimDisk::new(9), kept_for_now(), spec).await;
    bench.send("T", 0, "dead", "a").await;
    let got = one(&bench, 30_000).await;
    bench.settle("g", vec![item(&got, SettleOp::Dead)]).await;
    let until = Instant::now() + LONG;
    while max(&bench, "%DLQ%g").await < 1 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20)).await;
    }
    expire(&bench).await;
    until_deleted(&bench).await;
    until_deleted(&bench).await;
    let left = all(&bench, "%DLQ%g").await;
    assert!(left.is_empty(), "{left:?}");
}

/// The kill falls between the copies and the deletion: the file of the round is written, its end is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_putting_again_and_deleting_doubles_and_loses_nothing() {
    let disk = SimDisk::new(4);
    // Nothing is deleted until all is there.
    let bench = ready(&disk, RetentionConfig::default(), quick()).await;
    for (name, op) in [("dead", SettleOp::Dead), ("retry", SettleOp::Nack)] {
        let mut items = Vec::new();
        for number in 0..8 {
            bench.send("T", 0, &format!("{name}{number}"), "a").await;
            let got = one(&bench, 30_000).await;
            items.push(SettleItem {
                delay_ms: (op == SettleOp::Nack).then_some(0),
                ..item(&got, op)
            });
        }
        bench.settle("g", items).await;
    }
    for number in 0..4 {
        bench.send("T", 0, &format!("held{number}"), "a").await;
    }
    let until = Instant::now() + LONG;
    while max(&bench, "%RETRY%g+T").await < 8 || max(&bench, "%DLQ%g").await < 8 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20)).await;
    }
    // Held over the deletion; the pops may give out some of the retries instead.
    for _ in 0..4 {
        one(&bench, 8_000).await;
    }
    sleep(Duration::from_millis(1_100)).await;
    let full = disk.kill();
    drop(bench);

    let mut between = 0;
    let bench = start(&full, short_lived()).await;
    let mut kills = Vec::new();
    let begun = |disk: &SimDisk| {
        let text = store::config_file::read(disk, "/data/config/carry.json".as_ref()).unwrap();
        text.is_some_and(|text| {
            !String::from_utf8(text)
                .unwrap()
                .contains("\"begunAt\":null")
        })
    };
    let until = Instant::now() + LONG;
    while kills.len() < 6 && min(&bench, "T").await < 20 && Instant::now() < until {
        let at_once = full.kill();
        if begun(&at_once) {
            kills.push(at_once);
        }
    }
    drop(bench);
    assert!(!kills.is_empty(), "no kill fell into the round");
    for killed in kills {
        between += usize::from(killed.files().iter().any(|(path, content)| {
            path.starts_with("/data/commitlog") && content.windows(9).any(|at| at == b"__CARRIED")
        }));
        let bench = start(&killed, short_lived()).await;
        let mut seen = BTreeMap::new();
        let until = Instant::now() + LONG;
        while seen.len() < 12 {
            assert!(Instant::now() < until, "only {seen:?}");
            for got in bench
                .pop_within("g", "T", 8, 30_000, Duration::from_secs(1))
                .await
            {
                assert_eq!(bench.ack("g", &got).await.status, SettleStatus::Acked);
                let body = got.body.clone();
                assert!(
                    seen.insert(body, got.lease.attempt).is_none(),
                    "{} twice",
                    got.body
                );
            }
        }
        let more = bench
            .pop_within("g", "T", 8, 1_000, Duration::from_millis(300))
            .await;
        assert!(more.is_empty(), "{more:?}");
        let mut dead: Vec<String> = all(&bench, "%DLQ%g")
            .await
            .into_iter()
            .map(|d| d.3)
            .collect();
        dead.sort();
        let expected: Vec<String> = (0..8).map(|number| format!("dead{number}")).collect();
        assert_eq!(dead, expected);
    }
    assert!(between > 0, "no kill came after a copy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_message_outlives_its_file_and_is_on_time() {
    let bench = ready(&SimDisk::new(5), short_lived(), quick()).await;
    let began = Instant::now();
    // Level 2: 5 s.
    let answer = bench
        .ok(Command::request(RequestCode::SendMessage)
            .with_ext("producerGroup", "p")
            .with_ext("topic", "T")
            .with_ext("defaultTopic", "TBW102")
            .with_ext("defaultTopicQueueNums", 1)
            .with_ext("queueId", 0)
            .with_ext("sysFlag", 0)
            .with_ext("bornTimestamp", 1)
            .with_ext("flag", 0)
            .with_ext("properties", "DELAY\u{1}2\u{2}UNIQ_KEY\u{1}later\u{2}")
            .with_ext("reconsumeTimes", 0)
            .with_body("later"))
        .await;
    assert!(answer.ext.get("msgId").is_some());
    bench.send("T", 0, "now", "a").await;
    let now = one(&bench, 60_000).await;
    assert_eq!(now.body, "now");
    bench.ack("g", &now).await;
    let got = one(&bench, 60_000).await;
    let after = began.elapsed();
    assert_eq!(got.body, "later");
    assert!(after >= Duration::from_millis(4_990), "{after:?} is early");
    assert!(after < Duration::from_millis(7_500), "{after:?} is late");
    assert_eq!(got.properties["DELAY"], "2");
    assert!(got.properties.keys().all(|name| name != "__DUE"));
    bench.ack("g", &got).await;
    let more = bench
        .pop_within("g", "T", 1, 1_000, Duration::from_millis(500))
        .await;
    assert!(more.is_empty(), "{more:?}");
    assert!(
        max(&bench, "SCHEDULE_TOPIC_XXXX").await > 0,
        "it never moved to level 1"
    );
}

/// BL-04 (apache/rocketmq#4549) and BL-03 (alibaba/rocketmq#331, apache/rocketmq#2398): a full disk first costs the
/// oldest files, if that helps, then refuses sends, and takes them again when there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_the_oldest_files_then_refuses_and_recovers() {
    let disk = SimDisk::new(6);
    let retention = RetentionConfig {
        check_interval: Millis(100),
        ..RetentionConfig::default()
    };
    let bench = ready(&disk, retention, quick()).await;
    for number in 0..200 {
        bench
            .send("T", 0, &format!("{number}:{}", "x".repeat(3_000)), "a")
            .await;
    }
    assert_eq!(min(&bench, "T").await, 0);
    // 88 percent: the log can give enough.
    disk.set_capacity(disk.used() * 100 / 88);
    let until = Instant::now() + LONG;
    while min(&bench, "T").await == 0 {
        assert!(Instant::now() < until, "nothing is deleted");
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(500)).await;
    assert!(min(&bench, "T").await < 100, "not more than needed");
    bench.send("T", 0, "there is space", "a").await;

    // 97 percent, and the log is the least of it: nothing goes, sends are refused.
    let kept = min(&bench, "T").await;
    let ballast = disk.open("/ballast".as_ref(), true).unwrap();
    let big = vec![1; 16 << 20];
    disk.set_capacity(u64::MAX);
    ballast.write_at(0, &big).unwrap();
    disk.set_capacity(disk.used() * 100 / 97);
    let until = Instant::now() + LONG;
    let refused = loop {
        let answer = bench.call(send_plain("x")).await;
        if answer.response_code() != ResponseCode::Success {
            break answer;
        }
        assert!(Instant::now() < until, "sends are taken on a full disk");
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(refused.response_code(), ResponseCode::ServiceNotAvailable);
    assert_eq!(refused.ext.get("reason"), Some("storage_full"));
    assert_eq!(
        min(&bench, "T").await,
        kept,
        "deleting the log would not help"
    );
    // Consumers go on.
    let got = one(&bench, 30_000).await;
    assert_eq!(bench.ack("g", &got).await.status, SettleStatus::Acked);

    disk.remove_file("/ballast".as_ref()).unwrap();
    disk.set_capacity(u64::MAX);
    let until = Instant::now() + LONG;
    while bench.call(send_plain("x")).await.response_code() != ResponseCode::Success {
        assert!(Instant::now() < until, "sends stay refused");
        sleep(Duration::from_millis(20)).await;
    }
}

fn send_plain(key: &str) -> Command {
    Command::request(RequestCode::SendMessage)
        .with_ext("producerGroup", "p")
        .with_ext("topic", "T")
        .with_ext("defaultTopic", "TBW102")
        .with_ext("defaultTopicQueueNums", 1)
        .with_ext("queueId", 0)
        .with_ext("sysFlag", 0)
        .with_ext("bornTimestamp", 1)
        .with_ext("flag", 0)
        .with_ext("properties", format!("KEYS\u{1}{key}\u{2}"))
        .with_ext("reconsumeTimes", 0)
        .with_body("plain")
}

/// A broker with this many unread retries in log files that may go, and the end of the topic they came from.
async fn with_retries(count: usize) -> (Bench, i64) {
    let bench = ready(&SimDisk::new(8), kept_for_now(), quick()).await;
    for number in 0..count {
        bench.send("T", 0, &format!("{number}"), "a").await;
    }
    let mut held = Vec::new();
    while held.len() < count {
        held.extend(bench.pop_within("g", "T", 32, 30_000, LONG).await);
    }
    bench
        .settle("g", held.iter().map(|got| nack(got, 0)).collect())
        .await;
    let until = Instant::now() + LONG;
    while max(&bench, "%RETRY%g+T").await < count as i64 {
        assert!(Instant::now() < until, "not all are put back");
        sleep(Duration::from_millis(20)).await;
    }
    // Until the files are older than they are kept.
    sleep(Duration::from_millis(1_100)).await;
    let end = max(&bench, "T").await;
    expire(&bench).await;
    (bench, end)
}

/// One round on request, unless another takes long.
async fn ask(bench: &Bench) {
    let cmd = Command::request(RequestCode::DeleteExpiredCommitlog);
    let answer = bench.call(cmd).await;
    assert!([0, 2].contains(&answer.code), "{:?}", answer.remark);
}

/// The periodic round and those that administrators ask for at the same moment, of a queue that is put again in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rounds_at_once_put_every_unread_retry_again_once() {
    const COUNT: usize = 150;
    let (bench, end) = with_retries(COUNT).await;
    let until = Instant::now() + LONG;
    while min(&bench, "T").await < end {
        assert!(Instant::now() < until, "nothing is deleted");
        tokio::join!(ask(&bench), ask(&bench), ask(&bench), ask(&bench));
    }
    let retries = all(&bench, "%RETRY%g+T").await;
    let bodies: BTreeSet<&str> = retries.iter().map(|retry| &*retry.3).collect();
    assert_eq!((retries.len(), bodies.len()), (COUNT, COUNT));
    let mut seen = BTreeSet::new();
    while seen.len() < COUNT {
        for got in bench.pop_within("g", "T", 32, 30_000, LONG).await {
            assert!(seen.insert(got.body.clone()), "{} twice", got.body);
        }
    }
}
