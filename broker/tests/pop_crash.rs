//! Leases over kills and power cuts on a simulated disk, over seeds.
//!
//! `GANTRY_CRASH_SEEDS=200` runs that many seeds; otherwise as many as fit eight seconds.

mod pop_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use broker::FlushMode;
use pop_support::{Bench, Got, item, on_disk, quick};
use store::disk::sim::{Rng, SimDisk};
use tokio::time::Instant;
use wire::body::gantry::{GroupSpec, SettleItem, SettleOp, SettleStatus};
use wire::{Command, RequestCode};

const TIME: Duration = Duration::from_secs(8);

/// What clients were told.
#[derive(Default)]
struct Told {
    sent: BTreeSet<String>,
    acked: BTreeSet<String>,
    /// Asked to be acked when the broker was gone: either is fine.
    unknown: BTreeSet<String>,
}

async fn work(bench: &Bench, rng: &mut Rng, told: &mut Told, held: &mut Vec<Got>, steps: u64) {
    for _ in 0..steps {
        match rng.below(6) {
            0 | 1 => {
                let body = format!("m{}", told.sent.len());
                bench.send("T", rng.below(2) as i32, &body, "a").await;
                told.sent.insert(body);
            }
            2 => held.extend(bench.pop("g", "T", 4, 400).await),
            _ if held.is_empty() => {}
            3 | 4 => {
                let at = rng.below(held.len() as u64) as usize;
                let got = held.swap_remove(at);
                if bench.ack("g", &got).await.status == SettleStatus::Acked {
                    told.acked.insert(got.body);
                }
            }
            _ => {
                let at = rng.below(held.len() as u64) as usize;
                let got = held.swap_remove(at);
                let op = if rng.one_in(2) {
                    SettleOp::Nack
                } else {
                    SettleOp::Suspend
                };
                bench
                    .settle(
                        "g",
                        vec![SettleItem {
                            delay_ms: Some(100),
                            ..item(&got, op)
                        }],
                    )
                    .await;
            }
        }
    }
}

/// Everything the group still gets, each acked as it comes: deliveries per body.
async fn drain(bench: &Bench) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    loop {
        let got = bench
            .pop_within("g", "T", 32, 60_000, Duration::from_millis(1_200))
            .await;
        if got.is_empty() {
            return seen;
        }
        bench
            .settle(
                "g",
                got.iter().map(|got| item(got, SettleOp::Ack)).collect(),
            )
            .await;
        for got in got {
            *seen.entry(got.body).or_default() += 1;
        }
    }
}

async fn one_seed(seed: u64, flush: FlushMode, cut: bool) {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new(seed);
    let bench = on_disk(Arc::new(disk.clone()), flush).await;
    bench.put_topic("T", 2).await;
    bench
        .put_group(
            "g",
            &GroupSpec {
                max_attempts: 100,
                ..quick()
            },
        )
        .await;
    bench.subscribe("g", "T", "*").await;
    let (mut told, mut held) = (Told::default(), Vec::new());
    let steps = 20 + rng.below(60);
    work(&bench, &mut rng, &mut told, &mut held, steps).await;
    // The last ack and the crash race: its answer does not come, so it may hold or not.
    let late = held.pop();
    if let Some(got) = &late {
        told.unknown.insert(got.body.clone());
    }
    let ask = async {
        if let Some(got) = &late {
            bench.ack("g", got).await;
        }
    };
    let pause = Duration::from_micros(rng.below(800));
    let crash = async {
        tokio::time::sleep(pause).await;
        if cut { disk.crash() } else { disk.kill() }
    };
    let ((), after) = tokio::join!(ask, crash);
    drop(bench);
    let bench = on_disk(Arc::new(after), flush).await;
    let seen = drain(&bench).await;
    let context = format!("seed {seed}, {flush:?}, power cut {cut}");
    for body in &told.acked {
        assert!(
            !seen.contains_key(body),
            "{context}: {body} was acked and came again"
        );
    }
    for body in told
        .sent
        .iter()
        .filter(|body| !told.acked.contains(*body) && !told.unknown.contains(*body))
    {
        assert!(seen.contains_key(body), "{context}: {body} is lost");
    }
    if !cut {
        assert!(
            seen.values().all(|times| *times == 1),
            "{context}: doubled: {seen:?}"
        );
    }
}

/// Seeds at a time: most of a run is waiting for leases to run out.
const AT_ONCE: u64 = 12;

async fn over_seeds(flush: FlushMode, cut: bool) {
    let seeds = std::env::var("GANTRY_CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let began = Instant::now();
    let mut from = 1;
    while from <= seeds.unwrap_or(u64::MAX) && (seeds.is_some() || began.elapsed() < TIME) {
        let mut batch = tokio::task::JoinSet::new();
        for seed in from..(from + AT_ONCE).min(seeds.unwrap_or(u64::MAX - 1) + 1) {
            batch.spawn(one_seed(seed, flush, cut));
        }
        batch.join_all().await;
        from += AT_ONCE;
    }
    assert!(from > AT_ONCE, "no seed was run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing_and_repeat_nothing_acked_under_either_flush() {
    for flush in [FlushMode::Sync, FlushMode::Async] {
        over_seeds(flush, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_undo_no_answered_ack_and_lose_no_message_under_sync_flush() {
    over_seeds(FlushMode::Sync, true).await;
}

/// No lease is handed out that is not on the disk: a power cut could give its messages to a second member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_disk_does_not_confirm_is_not_handed_out() {
    for (flush, handed_out) in [(FlushMode::Sync, false), (FlushMode::Async, true)] {
        let disk = SimDisk::new(7);
        let bench = on_disk(Arc::new(disk.clone()), flush).await;
        bench.put_topic("T", 1).await;
        bench.put_group("g", &quick()).await;
        bench.subscribe("g", "T", "*").await;
        bench.send("T", 0, "first", "a").await;
        bench.send("T", 0, "second", "a").await;
        let first = bench
            .pop_within("g", "T", 1, 60_000, Duration::from_secs(20))
            .await;
        assert_eq!(first[0].body, "first");
        // So that no periodic sync fails before the pop: that would end the broker.
        let change = Command::request(RequestCode::UpdateBrokerConfig);
        bench.ok(change.with_body("flush.interval=10s\n")).await;
        disk.fail_syncs(true);
        let answer = bench.call(bench.pop_command("g", "T", 1, 60_000)).await;
        let body = answer.body.to_bytes();
        assert_eq!(
            !body.is_empty(),
            handed_out,
            "{flush:?} {:?}",
            answer.remark
        );
    }
}
