//! Crashes of the store on a simulated disk, over seeds, and failures of every single call.
//!
//! `GANTRY_CRASH_SEEDS=1000` runs that many seeds; otherwise as many as fit ten seconds.
//! `GANTRY_CRASH_SEED=7` runs one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: what is unexpected ends it"
)]

#[allow(unreachable_pub, reason = "a module of this program")]
mod crash_world;

use clock::{Clock, Monotonic, SystemClock};
use crash_world::{Plan, World};
use std::time::Duration;
use store::FlushPolicy;
use store::disk::sim::Failing;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_flushed_is_lost_over_seeds() {
    let clock = SystemClock::new();
    let end = clock.monotonic() + Duration::from_secs(10);
    let (from, to, until) = match (number("GANTRY_CRASH_SEED"), number("GANTRY_CRASH_SEEDS")) {
        (Some(seed), _) => (seed, seed + 1, Monotonic::MAX),
        (None, Some(seeds)) => (0, seeds, Monotonic::MAX),
        (None, None) => (0, u64::MAX, end),
    };
    let mut run = 0;
    for seed in from..to {
        if clock.monotonic() > until {
            break;
        }
        let result = World::new(seed, Plan::seeded(seed)).run();
        assert!(result.is_ok(), "GANTRY_CRASH_SEED={seed}: {result:?}");
        run += 1;
    }
    println!("{run} seeds");
    assert!(run > 0);
}

#[test]
fn an_answer_before_the_sync_is_caught() {
    let caught = (0..50).find(|seed| {
        let mut plan = Plan::seeded(*seed);
        plan.lie_about_flush = true;
        let result = World::new(*seed, plan).run();
        result.is_err_and(|what| what.contains("flushed to"))
    });
    assert!(
        caught.is_some(),
        "the checker does not see a store that lies about syncs"
    );
}

/// Runs a fixed history with the k-th call failing, for every k, and then recovers.
fn fail_each_call(flush: FlushPolicy, failing: impl Fn(u64) -> Failing) {
    for k in 1..10_000 {
        let mut plan = Plan::seeded(k);
        plan.flush = flush;
        plan.segment_size = 4096;
        let mut world = World::new(k, plan);
        world.disk().fail(failing(k));
        let completed = world.live_through_errors();
        let calls = world.disk().calls();
        world.disk().fail(Failing::None);
        let result = world.crash_and_check();
        assert!(result.is_ok(), "call {k}: {result:?}");
        if completed && calls < k {
            println!("{calls} calls");
            return;
        }
    }
    panic!("the history never completed");
}

#[test]
fn a_failure_of_any_single_call_loses_nothing_flushed() {
    fail_each_call(FlushPolicy::Sync, Failing::Once);
    fail_each_call(FlushPolicy::ASYNC_DEFAULT, Failing::Once);
}

#[test]
fn a_stop_at_any_single_call_loses_nothing_flushed() {
    fail_each_call(FlushPolicy::Sync, Failing::From);
    fail_each_call(FlushPolicy::ASYNC_DEFAULT, Failing::From);
}
