//! Wakes parked pulls: by arrivals from the store's dispatch thread, by deadlines from one task.

use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;

use crate::broker::Broker;
use crate::handlers::pull;

/// Longest sleep of the deadline task: housekeeping runs at least this often.
const TICK: Duration = Duration::from_secs(1);

/// Called for each new queue entry, on the store's dispatch thread: hands matching requests to the
/// runtime and returns at once.
pub(crate) fn wake_arrival(
    broker: &Arc<Broker>,
    topic: &str,
    queue_id: i32,
    queue_offset: u64,
    tags_code: i64,
) {
    let woken = broker
        .holds
        .arrived(topic, queue_id, queue_offset, tags_code);
    if woken.is_empty() {
        return;
    }
    let owner = broker.clone();
    broker.spawn(async move {
        for held in woken {
            pull::resume(&owner, held);
        }
    });
}

/// Answers requests whose deadline has come, exactly then, and runs the housekeeping of the broker.
/// Ends when the broker stops.
pub(crate) async fn run_deadlines(broker: Arc<Broker>) {
    let mut next_tick = broker.clock.monotonic() + TICK;
    loop {
        let now = broker.clock.monotonic();
        for held in broker.holds.expire(now) {
            pull::resume(&broker, held);
        }
        broker.durability.expire(now);
        if now >= next_tick {
            next_tick = now + TICK;
            broker.housekeep(now);
        }
        let until = broker
            .holds
            .next_deadline()
            .unwrap_or(Monotonic::MAX)
            .min(next_tick);
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = broker.deadline_moved.notified() => {}
            () = tokio::time::sleep(now.until(until)) => {}
        }
    }
}
