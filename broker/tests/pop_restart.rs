//! Leases over restarts: in order, and as a kill -9 leaves them.

mod pop_support;

use std::collections::BTreeSet;
use std::time::Duration;

use pop_support::{item, quick, ready};
use wire::body::gantry::{GroupSpec, SettleItem, SettleOp, SettleStatus};

const SECOND: Duration = Duration::from_secs(1);

async fn drain(bench: &pop_support::Bench, wait: Duration) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let got = bench.pop_within("g", "T", 32, 60_000, wait).await;
        if got.is_empty() {
            return bodies;
        }
        bench
            .settle(
                "g",
                got.iter().map(|got| item(got, SettleOp::Ack)).collect(),
            )
            .await;
        bodies.extend(got.into_iter().map(|got| got.body));
    }
}

/// An answered ack is on the log: not one acked message comes back, every other one does, and receipts stay good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_keeps_acks_leases_and_receipts() {
    let bench = ready(GroupSpec {
        max_attempts: 16,
        ..quick()
    })
    .await;
    bench.send_many("T", 2, 40).await;
    let short = bench.pop("g", "T", 10, 2_000).await;
    let long = bench.pop("g", "T", 10, 60_000).await;
    let acked: BTreeSet<String> = short
        .iter()
        .chain(&long)
        .step_by(2)
        .map(|got| got.body.clone())
        .collect();
    let items = short
        .iter()
        .chain(&long)
        .step_by(2)
        .map(|got| item(got, SettleOp::Ack))
        .collect();
    assert!(
        bench
            .settle("g", items)
            .await
            .iter()
            .all(|result| result.status == SettleStatus::Acked)
    );
    let killed = bench.after_a_kill().await;
    let repeated = killed.ack("g", &short[0]).await;
    assert_eq!(
        (repeated.status, repeated.already),
        (SettleStatus::Acked, true)
    );
    let held = long.iter().find(|got| !acked.contains(&got.body)).unwrap();
    assert_eq!(killed.ack("g", held).await.status, SettleStatus::Acked);
    let mut rest: Vec<String> = drain(&killed, 4 * SECOND).await;
    rest.sort();
    let held_long: BTreeSet<&String> = long.iter().map(|got| &got.body).collect();
    let expected: BTreeSet<String> = (0..40)
        .map(|index| format!("m{index}"))
        .filter(|body| !acked.contains(body) && !held_long.contains(body))
        .collect();
    assert_eq!(rest.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(rest.len(), expected.len(), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_order_keeps_leases_nacks_and_positions() {
    let bench = ready(quick()).await;
    bench.send_many("T", 1, 4).await;
    let got = bench.pop("g", "T", 3, 60_000).await;
    bench.ack("g", &got[0]).await;
    let nack = SettleItem {
        delay_ms: Some(1_500),
        code: Some("E".into()),
        ..item(&got[1], SettleOp::Nack)
    };
    bench.settle("g", vec![nack]).await;
    let bench = bench.restart().await;
    assert_eq!(bench.ack("g", &got[1]).await.status, SettleStatus::Gone);
    let fresh = bench.pop("g", "T", 8, 60_000).await;
    assert_eq!(
        fresh
            .iter()
            .map(|got| got.body.as_str())
            .collect::<Vec<_>>(),
        ["m3"]
    );
    let retried = bench.pop_within("g", "T", 8, 60_000, 4 * SECOND).await;
    assert_eq!(
        (
            retried[0].body.as_str(),
            retried[0].lease.attempt,
            retried[0].properties["__ERR_CODE"].as_str()
        ),
        ("m1", 2, "E")
    );
    assert_eq!(
        bench.ack("g", &got[2]).await.status,
        SettleStatus::Acked,
        "the lease outlived the restart"
    );
    assert!(
        fresh[0].lease.lease_id >> 48 > got[0].lease.lease_id >> 48,
        "a new epoch in new leases"
    );
}

/// A subscription from `latest` is a position on the log: it holds over a kill before anything was popped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_position_of_a_subscription_survives_a_kill() {
    let bench = ready(quick()).await;
    bench.send_many("T", 2, 6).await;
    bench
        .put_group(
            "late",
            &GroupSpec {
                initial_position: "latest".into(),
                ..quick()
            },
        )
        .await;
    bench.subscribe("late", "T", "*").await;
    bench.send("T", 0, "new", "a").await;
    let killed = bench.after_a_kill().await;
    let got = killed.pop("late", "T", 32, 60_000).await;
    assert_eq!(
        got.iter().map(|got| got.body.as_str()).collect::<Vec<_>>(),
        ["new"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_group_leaves_nothing_to_its_namesake() {
    let bench = ready(quick()).await;
    bench.send_many("T", 1, 3).await;
    let got = bench.pop("g", "T", 2, 60_000).await;
    let delete = wire::Command::request(wire::RequestCode::DeleteSubscriptiongroup)
        .with_ext("groupName", "g")
        .with_ext("cleanOffset", true);
    bench.ok(delete).await;
    bench.put_group("g", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    let killed = bench.after_a_kill().await;
    assert_eq!(killed.ack("g", &got[0]).await.status, SettleStatus::Gone);
    assert_eq!(
        killed.pop("g", "T", 8, 60_000).await.len(),
        3,
        "from the start again"
    );
}

/// Kills at many moments of a busy group: what was answered as acked never comes again, the rest always does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_many_moments_lose_and_repeat_nothing_that_was_answered() {
    let bench = ready(GroupSpec {
        max_attempts: 100,
        ..quick()
    })
    .await;
    bench.send_many("T", 2, 120).await;
    let mut acked: BTreeSet<String> = BTreeSet::new();
    for round in 0..3 {
        for _ in 0..4 {
            let got = bench.pop("g", "T", 5, 1_000).await;
            for (index, got) in got.iter().enumerate() {
                if (index + round) % 2 == 0
                    && bench.ack("g", got).await.status == SettleStatus::Acked
                {
                    assert!(acked.insert(got.body.clone()), "{} acked twice", got.body);
                }
            }
        }
        let killed = bench.after_a_kill().await;
        let rest = drain(&killed, 2_500 * Duration::from_millis(1)).await;
        let distinct: BTreeSet<String> = rest.iter().cloned().collect();
        assert_eq!(rest.len(), distinct.len(), "round {round}: each once");
        assert!(
            acked.is_disjoint(&distinct),
            "round {round}: an acked message came again"
        );
        assert_eq!(
            acked.len() + distinct.len(),
            120,
            "round {round}: something is missing"
        );
    }
}
