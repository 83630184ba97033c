//! Bursts wait their turn instead of being refused; a class that is full says so and holds up no other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod pop_support;
mod support;

use std::sync::Arc;

use broker::{Config, FlushMode};
use node::ByteSize;
use store::disk::sim::SimDisk;
use tokio::task::JoinSet;
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

/// A broker that waits for this disk, with topic `T` and group `g`.
async fn ready(disk: &SimDisk, change: impl FnOnce(&mut Config)) -> Bench {
    let bench = on_disk_with(Arc::new(disk.clone()), FlushMode::Sync, change).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pops_beyond_what_may_wait_for_the_disk_lease_nothing() {
    let disk = SimDisk::new(7);
    let bench = ready(&disk, |config| config.limits.pop_bytes = ByteSize(1)).await;
    bench.send_many("T", 1, 10).await;
    let held = disk.hold_syncs();
    let mut asked = JoinSet::new();
    for _ in 0..10 {
        let (client, addr) = (bench.client.clone(), bench.addr.clone());
        let pop = bench.pop_command("g", "T", 1, 60_000);
        asked.spawn(async move { client.invoke(&addr, pop, support::SOON).await.unwrap() });
    }
    let refused = asked.join_next().await.unwrap().unwrap();
    let said = (refused.code, refused.ext.get("reason"));
    assert_eq!(said, (2, Some("broker_busy")));
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
    let waits = loop {
        let ask = Command::request(RequestCode::GetAllSubscriptiongroupConfig);
        let mut call = Box::pin(bench.call(ask));
        let soon = std::time::Duration::from_millis(500);
        if tokio::time::timeout(soon, &mut call).await.is_err() {
            break call;
        }
    };
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
    let said = (refused.code, refused.ext.get("reason"));
    assert_eq!(said, (2, Some("broker_busy")));
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
