//! Bursts wait their turn instead of being refused; a class that is full says so and holds up no other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod pop_support;
mod support;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushMode};
use node::ByteSize;
use store::disk::sim::SimDisk;
use tokio::task::{JoinHandle, JoinSet};
use wire::body::gantry::{SettleItem, SettleOp, SettleRequest};
use wire::{Command, RequestCode};

use pop_support::{Bench, got, item, on_disk_with, quick};
use support::Fixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_administrative_requests_waits_its_turn() {
    let fixture = Fixture::start_with(|config| config.limits.admin = 1).await;
    let mut asked = JoinSet::new();
    for _ in 0..300 {
        let (client, addr) = (fixture.client.clone(), fixture.addr.clone());
        asked.spawn(async move {
            let ask = Command::request(RequestCode::GetAllSubscriptiongroupConfig);
            client.invoke(&addr, ask, support::SOON).await.unwrap().code
        });
    }
    let refused: Vec<i32> = asked
        .join_all()
        .await
        .into_iter()
        .filter(|&code| code != 0)
        .collect();
    assert!(refused.is_empty(), "{} refused: {refused:?}", refused.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_sends_to_new_topics_waits_its_turn() {
    let fixture = Fixture::start_with(|config| config.limits.create = 1).await;
    let mut asked = JoinSet::new();
    for n in 0..30 {
        let (client, addr) = (fixture.client.clone(), fixture.addr.clone());
        asked.spawn(async move {
            let send = support::send(&format!("new-{n}"), 0, &[], "x");
            client
                .invoke(&addr, send, support::SOON)
                .await
                .unwrap()
                .code
        });
    }
    let refused = asked
        .join_all()
        .await
        .into_iter()
        .filter(|&c| c != 0)
        .count();
    assert_eq!(refused, 0);
}

const OVERLOAD: &str = "[OVERLOAD]system busy, start flow control for a while";
/// More than what may wait its turn.
const LARGE_BYTES: usize = 65 * 1024;

/// Refused as busy, in these words.
fn assert_busy(answer: &Command, remark: &str) {
    let reason = answer.ext.get("reason");
    assert_eq!(
        (answer.code, reason),
        (2, Some("broker_busy")),
        "{answer:?}"
    );
    assert_eq!(answer.remark.as_deref(), Some(remark));
}

/// A broker that waits for this disk, with topic `T` and group `g`.
async fn ready(disk: &SimDisk, change: impl FnOnce(&mut Config)) -> Bench {
    ready_with(disk, FlushMode::Sync, change).await
}

async fn ready_with(disk: &SimDisk, flush: FlushMode, change: impl FnOnce(&mut Config)) -> Bench {
    let bench = on_disk_with(Arc::new(disk.clone()), flush, change).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &quick()).await;
    bench.put_group("pulling", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pops_beyond_what_may_wait_for_the_disk_lease_nothing() {
    let disk = SimDisk::new(7);
    let bench = ready(&disk, |config| config.limits.pop_bytes = ByteSize(1)).await;
    bench.send_many("T", 1, 10).await;
    assert_reads(&bench, 0, 0).await;
    let held = disk.hold_syncs();
    let mut asked = JoinSet::new();
    for _ in 0..10 {
        let (client, addr) = (bench.client.clone(), bench.addr.clone());
        let pop = bench.pop_command("g", "T", 1, 60_000);
        asked.spawn(async move { client.invoke(&addr, pop, support::SOON).await.unwrap() });
    }
    let refused = asked.join_next().await.unwrap().unwrap();
    let remark = format!("{OVERLOAD}: too many leased messages wait for the disk");
    assert_busy(&refused, &remark);
    assert_reads(&bench, 0, 0).await;
    drop(held);
    let answers = asked.join_all().await;
    let leased = answers.iter().filter(|answer| answer.code == 0);
    let mut seen: Vec<_> = leased.flat_map(|answer| got("g", "T", answer)).collect();
    assert!((1..10).contains(&seen.len()), "{}", seen.len());
    seen.extend(bench.pop("g", "T", 10, 60_000).await);
    let mut bodies: Vec<_> = seen.into_iter().map(|got| got.body).collect();
    bodies.sort();
    assert_eq!(bodies, (0..10).map(|n| format!("m{n}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_its_turn_when_the_broker_stops_hears_that() {
    let disk = SimDisk::new(7);
    let mut bench = ready(&disk, |config| config.limits.admin = 1).await;
    let running = bench.running.take().unwrap();
    let held = disk.hold_syncs();
    // It waits for the disk at the only place.
    let put = Command::request(RequestCode::PutTopic)
        .with_ext("topic", "U")
        .with_body("{}");
    let (client, addr) = (bench.client.clone(), bench.addr.clone());
    let puts = tokio::spawn(async move { client.invoke(&addr, put, support::SOON).await });
    let is_at_the_disk = || {
        let files = disk.files().into_iter();
        let mut tables = files.filter(|(path, _)| path.to_string_lossy().contains("topics.json"));
        tables.any(|(_, text)| text.windows(3).any(|name| name == b"\"U\""))
    };
    while !is_at_the_disk() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let ask = Command::request(RequestCode::GetAllSubscriptiongroupConfig);
    let mut waits = std::pin::pin!(bench.call(ask));
    // What comes on one connection is looked at in order: once this is answered, the other one is in line.
    let look = Command::request(RequestCode::GetMinOffset)
        .with_ext("topic", "T")
        .with_ext("queueId", 0);
    tokio::select! {
        biased;
        answer = &mut waits => panic!("it does not wait: {:?}", answer.remark),
        _ = bench.ok(look) => {}
    }
    let stops = tokio::spawn(running.stop());
    let answer = waits.await;
    let reason = answer.ext.get("reason");
    assert_eq!(reason, Some("broker_unavailable"), "{:?}", answer.remark);
    drop(held);
    stops.await.unwrap().unwrap();
    assert_eq!(puts.await.unwrap().unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_settlements_than_may_wait_for_the_disk_are_told_so() {
    let disk = SimDisk::new(7);
    let bench = ready(&disk, |config| config.limits.acks = 1).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 60_000).await.remove(0);
    let settle = |items: Vec<SettleItem>| {
        Command::request(RequestCode::Settle)
            .with_ext("group", "g")
            .with_body(wire::json::to_vec(&SettleRequest { items }))
    };
    let held = disk.hold_syncs();
    let ack = settle(vec![item(&got, SettleOp::Ack)]);
    let (client, addr) = (bench.client.clone(), bench.addr.clone());
    let waits =
        tokio::spawn(async move { client.invoke(&addr, ack, support::SOON).await.unwrap() });
    let refused = async {
        loop {
            let answer = bench.call(settle(Vec::new())).await;
            if answer.code != 0 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(support::SOON, refused).await.unwrap();
    let remark = format!("{OVERLOAD}: too many settlements wait for the disk");
    assert_busy(&refused, &remark);
    // On one connection a send is looked at before the settlement behind it.
    let mut send = std::pin::pin!(bench.call(support::send("T", 0, &[], "x")));
    tokio::select! {
        biased;
        answer = &mut send => panic!("sends have a bound of their own: {:?}", answer.remark),
        answer = bench.call(settle(Vec::new())) => assert_eq!(answer.code, 2),
    }
    drop(held);
    assert_eq!(waits.await.unwrap().code, 0, "what waited is settled");
    assert_eq!(send.await.code, 0);
    bench.ok(settle(Vec::new())).await;
}

/// Asks in a task of its own, over a connection of its own.
fn ask(bench: &Bench, cmd: Command) -> JoinHandle<Command> {
    let (client, addr) = (support::client(), bench.addr.clone());
    tokio::spawn(async move { client.invoke(&addr, cmd, support::SOON).await.unwrap() })
}

/// Whether a number of the running broker is as wanted.
async fn is(bench: &Bench, name: &str, wanted: &str) -> bool {
    let ask = Command::request(RequestCode::GetBrokerRuntimeInfo);
    let answer = bench.ok(ask).await.body.to_bytes();
    let info: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_slice(&answer).unwrap();
    info["table"][name] == wanted
}

/// Waits until a number of the running broker is as wanted.
async fn until(bench: &Bench, name: &str, wanted: &str) {
    let look = async {
        while !is(bench, name, wanted).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(support::SOON, look).await;
    assert!(waited.is_ok(), "{name} does not become {wanted}");
}

/// Reads, which waits for nothing: from the start there is a message, at the end there is none.
async fn assert_reads(bench: &Bench, offset: i64, code: i32) {
    let pull = support::pull("pulling", "T", 0, offset, "*", 0);
    assert_eq!(bench.call(pull).await.code, code);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_beyond_what_may_wait_for_the_disk_are_refused() {
    let disk = SimDisk::new(7);
    let bench = ready(&disk, |config| config.limits.sends = 1).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 60_000).await.remove(0);
    assert_reads(&bench, 0, 0).await;
    let held = disk.hold_syncs();
    let waits = ask(&bench, support::send("T", 0, &[], "first"));
    until(&bench, "sendThreadPoolQueueSize", "1").await;
    let refused = bench.call(support::send("T", 0, &[], "second")).await;
    assert_busy(
        &refused,
        &format!("{OVERLOAD}: too many sends wait for the disk"),
    );
    assert_eq!(refused.ext.get("MSG_REGION"), Some("DefaultRegion"));
    let settle = SettleRequest {
        items: vec![item(&got, SettleOp::Ack)],
    };
    let ack = ask(
        &bench,
        Command::request(RequestCode::Settle)
            .with_ext("group", "g")
            .with_body(wire::json::to_vec(&settle)),
    );
    until(&bench, "ackThreadPoolQueueSize", "1").await;
    assert_reads(&bench, 0, 0).await;
    drop(held);
    assert_eq!(waits.await.unwrap().code, 0);
    assert_eq!(ack.await.unwrap().code, 0);
    let next = bench.ok(support::send("T", 0, &[], "third")).await;
    assert_eq!(
        support::number(&next, "queueOffset"),
        2,
        "the second is not stored"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_and_notifications_beyond_what_may_wait_for_messages_are_answered_at_once() {
    let disk = SimDisk::new(7);
    let bench = ready(&disk, |config| config.limits.long_polls = 1).await;
    let pull = |offset| support::pull("pulling", "T", 0, offset, "*", 20_000);
    for offset in 0..2 {
        let waits = ask(&bench, pull(offset));
        until(&bench, "longPolls", "1").await;
        let refused = bench.call(pull(offset)).await;
        assert_busy(
            &refused,
            &format!("{OVERLOAD}: too many requests wait for messages"),
        );
        assert_reads(&bench, offset, 19).await;
        bench.ok(support::send("T", 0, &[], "x")).await;
        assert_eq!(waits.await.unwrap().code, 0, "it got the message");
    }
    bench.pop("g", "T", 2, 60_000).await;
    let notify = support::request(
        RequestCode::Notification,
        &[
            ("consumerGroup", "g"),
            ("topic", "T"),
            ("queueId", "-1"),
            ("pollTime", "20000"),
            ("bornTime", "0"),
            ("gantry", "true"),
        ],
    );
    for _ in 0..2 {
        let waits = ask(&bench, notify.clone());
        until_polling(&bench).await;
        let full = bench.ok(notify.clone()).await;
        let said = (full.ext.get("hasMsg"), full.ext.get("pollingFull"));
        assert_eq!(said, (Some("false"), Some("true")));
        bench.ok(support::send("T", 0, &[], "x")).await;
        let heard = waits.await.unwrap();
        assert_eq!(heard.ext.get("hasMsg"), Some("true"));
        assert_eq!(bench.pop("g", "T", 1, 60_000).await.len(), 1);
    }
}

/// Waits until a request waits for a message of `T` for group `g`.
async fn until_polling(bench: &Bench) {
    let fields = [("consumerGroup", "g"), ("topic", "T"), ("queueId", "-1")];
    let look = async {
        loop {
            let ask = support::request(RequestCode::PollingInfo, &fields);
            if support::number(&bench.ok(ask).await, "pollingNum") == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::SOON, look).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administration_that_finds_no_place_waits_5_s_and_is_refused() {
    let disk = SimDisk::new(7);
    let change = |config: &mut Config| config.limits.admin = 1;
    let bench = ready_with(&disk, FlushMode::Async, change).await;
    bench.send("T", 0, "m", "a").await;
    assert_reads(&bench, 0, 0).await;
    let put = |body: Vec<u8>| {
        Command::request(RequestCode::PutTopic)
            .with_ext("topic", "U")
            .with_body(body)
    };
    let list = || Command::request(RequestCode::GetAllSubscriptiongroupConfig);
    let held = disk.hold_syncs();
    // On one connection they are looked at one after the other.
    let mut waits = pin!(bench.call(put(b"{}".to_vec())));
    let large = async {
        loop {
            // Until then what came before has the place still.
            let answer = bench.call(put(vec![b' '; LARGE_BYTES])).await;
            if answer.code == 2 {
                return answer;
            }
        }
    };
    let refused = tokio::select! {
        biased;
        early = &mut waits => panic!("it waits for the disk: {early:?}"),
        refused = large => refused,
    };
    assert_busy(&refused, OVERLOAD);
    let late = ask(&bench, list());
    bench.ok(support::send("T", 0, &[], "x")).await;
    assert_reads(&bench, 0, 0).await;
    assert_eq!(bench.pop("g", "T", 1, 60_000).await.len(), 1);
    assert_busy(
        &late.await.unwrap(),
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5000ms",
    );
    drop(held);
    assert_eq!(waits.await.code, 0);
    bench.ok(list()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_find_no_place_to_make_their_topic_wait_3_s_and_are_refused() {
    let disk = SimDisk::new(7);
    let change = |config: &mut Config| config.limits.create = 1;
    let bench = ready_with(&disk, FlushMode::Async, change).await;
    bench.send("T", 0, "m", "a").await;
    assert_reads(&bench, 0, 0).await;
    let held = disk.hold_syncs();
    let mut waits = pin!(bench.call(support::send("new-1", 0, &[], "x")));
    let large = support::send("new-2", 0, &[], &"x".repeat(LARGE_BYTES));
    let refused = tokio::select! {
        biased;
        early = &mut waits => panic!("it waits for the disk: {early:?}"),
        refused = bench.call(large) => refused,
    };
    assert_busy(&refused, OVERLOAD);
    let late = ask(&bench, support::send("new-3", 0, &[], "x"));
    let beat = ask(&bench, support::heartbeat("c", "new-group", "T", "*"));
    bench.ok(support::send("T", 0, &[], "x")).await;
    assert_reads(&bench, 0, 0).await;
    let list = Command::request(RequestCode::GetAllSubscriptiongroupConfig);
    bench.ok(list).await;
    for late in [late, beat] {
        assert_busy(
            &late.await.unwrap(),
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 3000ms",
        );
    }
    drop(held);
    assert_eq!(waits.await.code, 0);
    bench.ok(support::send("new-3", 0, &[], "x")).await;
}

/// An append that needs the next log file, and waits for the disk to have it, keeps all others waiting: after a second
/// of that sends are refused rather than put in line behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sends_are_refused_while_an_append_waits_for_the_disk() {
    let disk = SimDisk::new(7);
    let bench = ready_with(&disk, FlushMode::Async, |_| {}).await;
    bench.send("T", 0, "m", "a").await;
    assert_reads(&bench, 0, 0).await;
    let held = disk.hold_syncs();
    // There is a file of 1 MiB, perhaps one more that was made ready; the next is waited for.
    let body = "x".repeat(400 << 10);
    let mut sent: Vec<JoinHandle<Command>> = Vec::new();
    let fill = async {
        while !is(&bench, "pageCacheLockTimeMills", "1000").await {
            if sent.last().is_none_or(JoinHandle::is_finished) {
                sent.push(ask(&bench, support::send("T", 0, &[], &body)));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::SOON, fill).await.unwrap();
    let refused = bench.call(support::send("T", 0, &[], "refused")).await;
    assert_busy(&refused, &format!("{OVERLOAD}: the disk is slow"));
    assert_reads(&bench, 0, 0).await;
    drop(held);
    assert_eq!(
        sent.pop().unwrap().await.unwrap().code,
        0,
        "what waited is stored"
    );
    until(&bench, "pageCacheLockTimeMills", "0").await;
    bench.ok(support::send("T", 0, &[], "taken")).await;
}
