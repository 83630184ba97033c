//! Bursts wait their turn instead of being refused; a class that is full says so and holds up no other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use tokio::task::JoinSet;
use wire::{Command, RequestCode};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_settlements_than_may_wait_for_the_disk_are_told_so() {
    let fixture = Fixture::start_with(|config| config.limits.acks = 0).await;
    let settle = Command::request(RequestCode::Settle)
        .with_ext("group", "g")
        .with_body(br#"{"items":[]}"#.to_vec());
    let answer = fixture
        .client
        .invoke(&fixture.addr, settle, support::SOON)
        .await
        .unwrap();
    assert_eq!(
        (answer.code, answer.ext.get("reason")),
        (2, Some("broker_busy"))
    );
    let send = support::send("other", 0, &[], "x");
    let sent = fixture
        .client
        .invoke(&fixture.addr, send, support::SOON)
        .await;
    assert_eq!(sent.unwrap().code, 0, "sends have a bound of their own");
}
