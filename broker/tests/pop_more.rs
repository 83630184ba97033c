//! Leases per member, peeks, losses by retention, seeks over waiting retries, reads of old messages.
#![allow(clippy::unwrap_used, reason = "a test")]

mod pop_support;

use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushMode, LimitsConfig, SegmentConfig};
use clock::SystemClock;
use node::ByteSize;
use pop_support::{Bench, TIMEOUT, config, item, open_with, quick, ready};
use store::disk::RealDisk;
use store::{Store, StoreOptions};
use tempfile::TempDir;
use tokio::time::Instant;
use wire::body::gantry::{GroupSpec, SettleItem, SettleOp};
use wire::headers::pop::{PeekRequest, PollingInfoRequest, PollingInfoResponse};
use wire::message::record::RecordView;
use wire::receipt::{Gap, parse_gaps, parse_peeked};
use wire::{Command, RequestCode, ResponseCode};

fn limited(bench: &Bench, member: &str, limit: u32, max: i32) -> Command {
    let mut cmd = bench.pop_command("g", "T", max, 20_000);
    cmd.ext.put("member", member);
    cmd.ext.put("memberLimit", limit);
    cmd
}

fn bodies(answer: &Command) -> Vec<String> {
    let body = answer.body.to_bytes();
    RecordView::each(&body)
        .map(|view| String::from_utf8(view.unwrap().body.to_vec()).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_holds_no_more_leases_than_its_limit_in_all_queues() {
    let bench = ready(quick()).await;
    bench.send_many("T", 2, 10).await;
    let first = pop_support::got("g", "T", &bench.ok(limited(&bench, "a", 3, 8)).await);
    assert_eq!(first.len(), 3);
    let full = bench.call(limited(&bench, "a", 3, 8)).await;
    assert_eq!(full.response_code(), ResponseCode::PollingTimeout);
    assert_eq!(full.ext.get("memberFull"), Some("true"));
    let other = pop_support::got("g", "T", &bench.ok(limited(&bench, "b", 3, 2)).await);
    assert_eq!(other.len(), 2, "another member has its own");
    bench.ack("g", &first[0]).await;
    let one = pop_support::got("g", "T", &bench.ok(limited(&bench, "a", 3, 8)).await);
    assert_eq!(one.len(), 1, "an ended lease makes room");

    // b adopts what a holds: it counts for b from then on, also after a restart.
    let adopt = SettleItem {
        member: Some("b".into()),
        invisible_ms: Some(20_000),
        ..item(&first[1], SettleOp::Extend)
    };
    bench.settle("g", vec![adopt]).await;
    let bench = bench.restart().await;
    let full = bench.call(limited(&bench, "b", 3, 8)).await;
    assert_eq!(full.ext.get("memberFull"), Some("true"));
    let one = pop_support::got("g", "T", &bench.ok(limited(&bench, "a", 3, 8)).await);
    assert_eq!(one.len(), 1);
    let after_kill = bench.after_a_kill().await;
    let full = after_kill.call(limited(&after_kill, "a", 3, 8)).await;
    assert_eq!(
        full.ext.get("memberFull"),
        Some("true"),
        "known from the log"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_message_of_an_answer_may_exceed_the_bytes_asked_for() {
    let bench = ready(quick()).await;
    let body = "x".repeat(1_000);
    for queue_id in [0, 0, 1, 1] {
        bench.send("T", queue_id, &body, "a").await;
    }
    let pop = |bytes: i64| {
        let pop = bench.pop_command("g", "T", 8, 60_000);
        bench.ok(pop.with_ext("maxBytes", bytes))
    };
    // The second message of a queue does not fit, and no more does the first of the other.
    for (bytes, count) in [(1, 1), (2_000, 1), (20_000, 2)] {
        let got = pop_support::got("g", "T", &pop(bytes).await);
        assert_eq!(got.len(), count, "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_at_its_limit_wakes_when_a_lease_of_its_member_ends() {
    let bench = ready(quick()).await;
    bench.send_many("T", 2, 2).await;
    let held = pop_support::got("g", "T", &bench.ok(limited(&bench, "a", 1, 8)).await);
    let notify = Command::request(RequestCode::Notification)
        .with_ext("consumerGroup", "g")
        .with_ext("topic", "T")
        .with_ext("queueId", -1)
        .with_ext("pollTime", 10_000)
        .with_ext("gantry", "1")
        .with_ext("member", "a")
        .with_ext("memberLimit", 1);
    let started = tokio::time::Instant::now();
    let ack = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bench.ack("g", &held[0]).await
    };
    let wait = async {
        let answer = bench.ok(notify).await;
        (answer, started.elapsed())
    };
    let ((answer, took), _) = tokio::join!(wait, ack);
    assert!(answer.ext.bool("hasMsg"));
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(3),
        "{took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_waiter_wakes_when_a_dead_letter_makes_room() {
    let spec = GroupSpec {
        max_in_flight: 1,
        max_attempts: 1,
        ..quick()
    };
    let bench = ready(spec).await;
    bench.send_many("T", 1, 2).await;
    assert_eq!(bench.pop("g", "T", 1, 500).await.len(), 1);
    let started = tokio::time::Instant::now();
    let answer = bench.native_pop("g", "T", 1, 20_000, 10_000).await;
    assert_eq!(answer.response_code(), ResponseCode::Success);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_shows_what_comes_next_and_changes_nothing() {
    let bench = ready(quick()).await;
    bench.subscribe("g", "T", "a").await;
    for (body, tag) in [("one", "a"), ("other", "b"), ("two", "a"), ("three", "a")] {
        bench.send("T", 0, body, tag).await;
    }
    let got = bench.pop("g", "T", 1, 20_000).await;
    let nack = SettleItem {
        delay_ms: Some(0),
        ..item(&got[0], SettleOp::Nack)
    };
    bench.settle("g", vec![nack]).await;
    let peek = |gantry: bool, max: i32| {
        let header = PeekRequest {
            consumer_group: "g".into(),
            topic: "T".into(),
            queue_id: -1,
            max_msg_nums: max,
            gantry: gantry.then_some(true),
            max_bytes: None,
        };
        Command::request(RequestCode::PeekMessage).with_header(&header)
    };
    let until = tokio::time::Instant::now() + TIMEOUT;
    let answer = loop {
        let answer = bench.call(peek(true, 500)).await;
        if bodies(&answer).len() == 3 {
            break answer;
        }
        assert!(tokio::time::Instant::now() < until, "{:?}", bodies(&answer));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(bodies(&answer), ["two", "three", "one"]);
    let entries = parse_peeked(answer.ext.get("entries").unwrap()).unwrap();
    let attempts: Vec<u32> = entries.iter().map(|entry| entry.attempt).collect();
    assert_eq!(attempts, [1, 1, 2]);
    assert_eq!(entries[2].retry.topic("g", "T"), "%RETRY%g+T");
    // A RocketMQ client: the form of a pop, unfiltered, no receipts.
    let native = bench.call(peek(false, 2)).await;
    assert_eq!(
        (native.response_code(), bodies(&native)),
        (
            ResponseCode::Success,
            vec!["other".to_owned(), "two".to_owned()]
        )
    );
    assert_eq!(
        (native.ext.get("popTime"), native.ext.get("restNum")),
        (Some("0"), Some("2"))
    );
    assert!(!native.ext.contains("startOffsetInfo") && !native.ext.contains("entries"));
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let more = bench.pop_within("g", "T", 8, 20_000, TIMEOUT).await;
        assert!(!more.is_empty());
        taken.extend(more);
    }
    let mut attempts: Vec<u32> = taken.iter().map(|got| got.lease.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 1, 2], "no attempt was counted");
    let nothing = bench.call(peek(false, 2)).await;
    assert_eq!(nothing.response_code(), ResponseCode::PullNotFound);
}

/// BL-04: a consumer that comes back after its messages were deleted is told, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_messages_that_retention_deleted_are_reported_once() {
    let dir = Arc::new(TempDir::new().unwrap());
    let settings = |dir: &TempDir| Config {
        segment: SegmentConfig {
            size: ByteSize(64 << 10),
        },
        ..config(dir.path(), FlushMode::Sync)
    };
    let mut bench = open_with(dir.clone(), settings(&dir)).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    let body = "x".repeat(1_000);
    for index in 0..100 {
        bench.send("T", 0, &format!("{index} {body}"), "a").await;
    }
    let first = bench.pop("g", "T", 1, 20_000).await;
    bench.ack("g", &first[0]).await;
    bench.stop().await;
    let data = dir.path().to_owned();
    let left = tokio::task::spawn_blocking(move || {
        let mut options = StoreOptions::new(&data);
        options.segment_size = 64 << 10;
        let clock = Arc::new(SystemClock::new());
        let (store, _) = Store::open(options, Arc::new(RealDisk), clock).unwrap();
        // Not before all of it is on the disk, queues included.
        let until = tokio::time::Instant::now() + TIMEOUT;
        while store.clean_expired(i64::MAX).unwrap().files == 0 {
            assert!(tokio::time::Instant::now() < until, "nothing is deleted");
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = store.queue("T", 0).min.get();
        store.close().unwrap();
        left
    })
    .await
    .unwrap();
    assert!(left > 1, "{left}");
    let bench = open_with(dir.clone(), settings(&dir)).await;
    // The form of RocketMQ cannot tell of it, so it does not take it from who can.
    let native = bench.native_pop("g", "T", 1, 20_000, 0).await;
    assert_eq!(native.response_code(), ResponseCode::PollingTimeout);
    let told = bench.call(bench.pop_command("g", "T", 1, 20_000)).await;
    let lost = Gap {
        queue_id: 0,
        from: 1,
        to: i64::try_from(left).unwrap(),
    };
    assert_eq!(
        parse_gaps(told.ext.get("gap").unwrap_or_default()).unwrap(),
        [lost]
    );
    let again = bench.call(bench.pop_command("g", "T", 1, 20_000)).await;
    assert_eq!(again.ext.get("gap"), None);
    assert_eq!(
        bench.metric("gantry_broker_lost_unread_messages_total"),
        left - 1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_voids_the_waiting_retries_of_the_queues_it_moves() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "moved", "a").await;
    bench.send("T", 1, "kept", "a").await;
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(bench.pop_within("g", "T", 8, 20_000, TIMEOUT).await);
    }
    let nacks = got.iter().map(|got| SettleItem {
        delay_ms: Some(0),
        ..item(got, SettleOp::Nack)
    });
    bench.settle("g", nacks.collect()).await;
    let until = tokio::time::Instant::now() + TIMEOUT;
    while bench.stored("%RETRY%g+T", 0).await.len() < 2 {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seek = Command::request(RequestCode::InvokeBrokerToResetOffset)
        .with_ext("group", "g")
        .with_ext("topic", "T")
        .with_ext("queueId", 0)
        .with_ext("offset", 1)
        .with_ext("timestamp", 0)
        .with_ext("isForce", true);
    bench.ok(seek).await;
    let bench = bench.restart().await;
    let left = bench.pop_within("g", "T", 8, 20_000, TIMEOUT).await;
    let left: Vec<&str> = left.iter().map(|got| got.body.as_str()).collect();
    assert_eq!(left, ["kept"]);
    assert!(bench.pop("g", "T", 8, 20_000).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pops_and_notifications_of_old_messages_read_on_threads_of_their_own() {
    let dir = Arc::new(TempDir::new().unwrap());
    let settings = Config {
        limits: LimitsConfig {
            hot: ByteSize(1 << 10),
            ..LimitsConfig::default()
        },
        ..config(dir.path(), FlushMode::Sync)
    };
    let bench = open_with(dir, settings).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    let cold = || bench.metric("gantry_broker_cold_reads_total");
    bench.send("T", 0, "fresh", "a").await;
    assert_eq!(bench.pop("g", "T", 1, 20_000).await.len(), 1);
    assert_eq!(cold(), 0, "what was just sent is read at once");
    bench.send("T", 0, "old", "a").await;
    bench.send("U", 0, &"x".repeat(4 << 10), "a").await;
    assert!(bench.notify("g", "T", 0).await);
    assert_eq!(cold(), 1);
    let got = bench.pop("g", "T", 1, 20_000).await;
    assert_eq!((got.len(), cold()), (1, 2));
    assert_eq!(got[0].body, "old");
}

/// A client that is notified may never pop. The next in line hears of its message a moment later, and the one after it a
/// moment after that: as long as the message is there, but not all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_nobody_pops_is_announced_to_one_waiting_client_after_the_other() {
    const MOMENT: Duration = Duration::from_millis(100);
    let bench = Arc::new(ready(quick()).await);
    let start = Instant::now();
    let mut waiting = Vec::new();
    for line in 1..=3 {
        let own = Arc::clone(&bench);
        waiting.push(tokio::spawn(async move {
            let hears = own.notify("g", "T", 10_000).await;
            (hears, start.elapsed())
        }));
        until_in_line(&bench, line).await;
    }
    let sent = start.elapsed();
    bench.send("T", 0, "m", "a").await;
    for place in 0..3 {
        let (hears, at) = waiting.remove(0).await.unwrap();
        assert!(hears, "{place} waited in vain");
        assert!(at >= sent + MOMENT * place, "{place}: {:?}", at - sent);
    }
    // Once it is popped nobody is told any more.
    assert_eq!(bench.pop("g", "T", 1, 20_000).await.len(), 1);
    assert!(!bench.notify("g", "T", 300).await);
}

/// Waits until so many requests wait for a message of `T` for group `g`.
async fn until_in_line(bench: &Bench, wanted: i32) {
    let ask = PollingInfoRequest {
        consumer_group: "g".into(),
        topic: "T".into(),
        queue_id: -1,
    };
    let look = async {
        loop {
            let ask = Command::request(RequestCode::PollingInfo).with_header(&ask);
            let answer: PollingInfoResponse = bench.ok(ask).await.header().unwrap();
            if answer.polling_num == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.unwrap();
}
