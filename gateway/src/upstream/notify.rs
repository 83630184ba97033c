//! Waiting without a lease: one NOTIFICATION per group, topic and broker, shared by all waiters of this gateway.
//!
//! A task per key asks again and again while somebody waits. Each time the broker says that something is deliverable one
//! waiter is woken; if it takes nothing the next answer wakes another, so no message strands.

use super::consumer::Wake;
use super::routes::Broker;
use super::{Scope, Upstream};
use crate::error::{ApiError, Code};
use futures_util::FutureExt;
use futures_util::future::select_all;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use wire::{Command, RequestCode, ResponseCode};

/// One long poll at the broker.
const POLL: Duration = Duration::from_secs(15);
/// How often a route is looked at while one of its brokers is away.
const LOOK: Duration = Duration::from_secs(1);
/// Waiting receives and subscriptions of a gateway together. Receives have a bound of their own in the settings; a
/// subscription that finds no place asks again each second.
const WAITERS_MAX: usize = 200_000;
/// Between two answers "deliverable" of which the first woke somebody.
const PACE_MIN: Duration = Duration::from_millis(1);
/// The same when nobody takes anything.
const PACE_MAX: Duration = Duration::from_millis(100);

type Key = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Notifier {
    channels: Mutex<HashMap<Key, Arc<Channel>>>,
    waiters: AtomicUsize,
}

#[derive(Debug, Default)]
struct Channel {
    notify: Arc<Notify>,
    waiting: AtomicUsize,
    taken: AtomicBool,
}

impl Notifier {
    /// Somebody took messages: the waiting task goes back to its quick pace.
    pub(super) fn taken(&self, group: &str, topic: &str, broker: &str) {
        let channels = self.channels.lock();
        if channels.is_empty() {
            return;
        }
        if let Some(channel) =
            channels.get(&(group.to_owned(), topic.to_owned(), broker.to_owned()))
        {
            channel.taken.store(true, Ordering::Release);
        }
    }

    /// Waiters now, for the metric.
    pub(super) fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }
}

/// One waiter at one channel.
struct Seat {
    channel: Arc<Channel>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.channel.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One waiter of the gateway.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Upstream {
    /// Waits until something may be deliverable to the group, at most until `until`. All waiters of one gateway, group,
    /// topic and broker share one NOTIFICATION. `topic` None = all subscribed topics.
    ///
    /// # Errors
    /// As [`Upstream::pop`], and `too_many_waiters`.
    pub async fn notification(
        &self,
        _scope: &Scope,
        group: &str,
        topic: Option<&str>,
        until: Instant,
    ) -> Result<Wake, ApiError> {
        let before = self.0.notifier.waiters.fetch_add(1, Ordering::AcqRel);
        let _place = Place(&self.0.notifier.waiters);
        if before >= WAITERS_MAX {
            let detail = format!(
                "{WAITERS_MAX} receives and subscriptions wait at this gateway; use another"
            );
            return Err(ApiError::new(Code::TooManyWaiters, detail).with("limit", WAITERS_MAX));
        }
        let detail = self
            .group_for_receive(group, topic, until + Duration::from_secs(1))
            .await?;
        let topics = self.topics_of(&detail, topic);
        let (mut wakes, mut is_away) = (Vec::new(), false);
        let mut seats = Vec::new();
        for topic in &topics {
            // Before the route is read: what changes afterwards is told.
            wakes.push(self.0.routes.changed(topic).notified_owned().boxed());
            if let Some(route) = self.route(topic, until + Duration::from_secs(1)).await? {
                is_away |= !route.gone.is_empty();
                let readable = route.readable.iter();
                seats.extend(readable.map(|broker| self.take_seat(group, topic, broker)));
            }
        }
        if wakes.is_empty() {
            tokio::time::sleep_until(until).await;
            return Ok(Wake::Elapsed);
        }
        let arrivals = seats
            .iter()
            .map(|seat| Arc::clone(&seat.channel.notify).notified_owned().boxed());
        wakes.extend(arrivals);
        let mut woken = select_all(wakes);
        while is_away && Instant::now() + LOOK < until {
            if timeout(LOOK, &mut woken).await.is_ok() {
                return Ok(Wake::Ready);
            }
            for topic in &topics {
                // Refreshes it for all who wait.
                self.route(topic, until).await?;
            }
        }
        match timeout_at(until, woken).await {
            Ok(_) => Ok(Wake::Ready),
            Err(_) => Ok(Wake::Elapsed),
        }
    }

    /// Receives that wait now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.notifier.waiters()
    }

    fn take_seat(&self, group: &str, topic: &str, broker: &Arc<Broker>) -> Seat {
        let key = (group.to_owned(), topic.to_owned(), broker.name.clone());
        let mut channels = self.0.notifier.channels.lock();
        if let Some(channel) = channels.get(&key) {
            channel.waiting.fetch_add(1, Ordering::AcqRel);
            return Seat {
                channel: Arc::clone(channel),
            };
        }
        let channel = Arc::new(Channel::default());
        channel.waiting.store(1, Ordering::Release);
        channels.insert(key.clone(), Arc::clone(&channel));
        drop(channels);
        let task = watch(self.clone(), key, Arc::clone(&channel), Arc::clone(broker));
        self.0.options.tracker.spawn(task);
        Seat { channel }
    }
}

/// Asks one broker while somebody waits.
async fn watch(upstream: Upstream, key: Key, channel: Arc<Channel>, broker: Arc<Broker>) {
    let mut pace = PACE_MIN;
    loop {
        {
            let mut channels = upstream.0.notifier.channels.lock();
            if channel.waiting.load(Ordering::Acquire) == 0 {
                channels.remove(&key);
                return;
            }
        }
        let answer = tokio::select! {
            answer = ask(&upstream, &key, &broker) => answer,
            () = upstream.0.options.draining.cancelled() => {
                upstream.0.notifier.channels.lock().remove(&key);
                channel.notify.notify_waiters();
                return;
            }
        };
        match answer {
            Answer::Deliverable => {
                channel.notify.notify_one();
                pace = if channel.taken.swap(false, Ordering::AcqRel) {
                    PACE_MIN
                } else {
                    (pace * 2).min(PACE_MAX)
                };
                tokio::time::sleep(pace).await;
            }
            Answer::Nothing => {
                channel.taken.store(false, Ordering::Release);
                pace = PACE_MIN;
            }
            Answer::Failed => {
                // Whoever waits sweeps again and learns of the broker's trouble, or of its new address.
                tokio::time::sleep(Duration::from_millis(300)).await;
                channel.notify.notify_waiters();
                tokio::time::sleep(Duration::from_millis(200)).await;
                if upstream
                    .refresh_route(&key.1, Instant::now() + Duration::from_secs(3))
                    .await
                    .is_err()
                {
                    tracing::debug!(topic = key.1, "route not refreshed");
                }
            }
        }
    }
}

enum Answer {
    Deliverable,
    Nothing,
    Failed,
}

async fn ask(upstream: &Upstream, key: &Key, broker: &Broker) -> Answer {
    let mut command = Command::request(RequestCode::Notification);
    let ext = &mut command.ext;
    ext.put("consumerGroup", &key.0);
    ext.put("topic", &key.1);
    ext.put("queueId", "-1");
    ext.put(
        "pollTime",
        u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX),
    );
    ext.put("bornTime", upstream.now_ms());
    ext.put("gantry", "1");
    let known = upstream.0.groups.known(&key.0);
    if known > 0 {
        ext.put("groupVersion", known);
    }
    match upstream
        .invoke(&broker.addr, command, POLL + Duration::from_secs(5))
        .await
    {
        Ok(response) if response.response_code() == ResponseCode::Success => {
            upstream.learn_version(&response, &key.0, known);
            if response.ext.bool("pollingFull") {
                Answer::Failed
            } else if response.ext.bool("hasMsg") {
                Answer::Deliverable
            } else {
                Answer::Nothing
            }
        }
        Ok(response) if response.response_code() == ResponseCode::PollingTimeout => Answer::Nothing,
        Ok(_) | Err(_) => Answer::Failed,
    }
}
