//! A burst of administrative requests waits its turn instead of being refused.
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
