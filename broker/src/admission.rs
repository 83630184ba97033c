//! Which requests may run on blocking threads: a bound on those that run, on those that wait, and on how long they wait.
//!
//! ```text
//! class    what                                                running        waiting   longest wait
//! create   sends, pulls, heartbeats that make a topic or group limits.create   4,096     3 s
//! read     pulls and pops of messages that left the memory     limits.reads    1,024     5 s
//! admin    administration, lists, statistics                   limits.admin    4,096     5 s
//! ```
//! One class that is full does not hold up another. What finds no place, or waits too long, is answered "busy" (2) with
//! the remarks of RocketMQ 5.4.0's BrokerFastFailure, after which clients try again elsewhere or later.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::broker::Broker;
use crate::config::LimitsConfig;
use crate::error::BrokerError;

/// Largest body of a request that may wait, bytes: what waits takes at most 256 MiB a class.
const WAITING_BODY_MAX_BYTES: usize = 64 * 1024;

/// The classes of one broker.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Requests that make their topic or group first.
    pub(crate) create: Class,
    /// Reads of messages that may be on the disk only.
    pub(crate) read: Class,
    /// Administration.
    pub(crate) admin: Class,
}

impl Admission {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        let class = |running: u32, waiting, longest| Class {
            running: places(running as usize),
            size: Mutex::new(running.max(1) as usize),
            waiting: places(waiting),
            longest: Duration::from_secs(longest),
            refused: Counter::default(),
        };
        Self {
            create: class(limits.create, 4_096, 3),
            read: class(limits.reads, 1_024, 5),
            admin: class(limits.admin, 4_096, 5),
        }
    }

    /// Registers how many each class refused.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let classes = [
            ("create", &self.create),
            ("read", &self.read),
            ("admin", &self.admin),
        ];
        for (name, class) in classes {
            let help = format!("Requests of class {name} refused for overload");
            registry.register(format!("busy_{name}"), help, class.refused.clone());
        }
    }
}

fn places(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)))
}

/// One class of requests.
#[derive(Debug)]
pub(crate) struct Class {
    running: Arc<Semaphore>,
    /// Places in `running`, those that are still to be taken away left out.
    size: Mutex<usize>,
    waiting: Arc<Semaphore>,
    longest: Duration,
    /// Refused, since the start.
    refused: Counter,
}

impl Class {
    /// Changes how many may run. Those that run finish.
    pub(crate) fn resize(&self, wanted: usize, runtime: &Handle) {
        let mut size = self.size.lock();
        match wanted.checked_sub(*size) {
            Some(more) => self.running.add_permits(more),
            None => take(&self.running, size.saturating_sub(wanted), runtime),
        }
        *size = wanted;
    }

    /// A place among those that wait, for work that waits for a client's answer; `None`: counted as refused.
    pub(crate) fn place_to_wait(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.waiting).try_acquire_owned().ok();
        if place.is_none() {
            self.refused.inc();
        }
        place
    }

    /// Calls `work` on a blocking thread once there is a place, or with the refusal. `body_bytes` is what the request
    /// would hold in memory while it waits.
    pub(crate) fn run(
        &self,
        broker: &Arc<Broker>,
        body_bytes: usize,
        work: impl FnOnce(Result<(), BrokerError>) + Send + 'static,
    ) {
        if let Ok(place) = Arc::clone(&self.running).try_acquire_owned() {
            return on_thread(broker, place, work);
        }
        if body_bytes > WAITING_BODY_MAX_BYTES {
            self.refused.inc();
            return work(Err(BrokerError::Overload));
        }
        let Some(waiting) = self.place_to_wait() else {
            return work(Err(BrokerError::Overload));
        };
        let (running, longest) = (Arc::clone(&self.running), self.longest);
        let (refused, owner) = (self.refused.clone(), Arc::clone(broker));
        broker.spawn(async move {
            let place = tokio::select! {
                () = owner.stopping.cancelled() => Err(BrokerError::Stopping),
                place = tokio::time::timeout(longest, running.acquire_owned()) => match place {
                    Ok(Ok(place)) => Ok(place),
                    Ok(Err(_)) => Err(BrokerError::Stopping),
                    Err(_) => {
                        refused.inc();
                        Err(BrokerError::WaitedTooLong(longest))
                    }
                },
            };
            drop(waiting);
            match place {
                Ok(place) => on_thread(&owner, place, work),
                Err(error) => work(Err(error)),
            }
        });
    }
}

/// Takes places away: at once those that are free, the rest as they come back.
fn take(places: &Arc<Semaphore>, fewer: usize, runtime: &Handle) {
    let left = fewer.saturating_sub(places.forget_permits(fewer));
    for _ in 0..left {
        let places = Arc::clone(places);
        runtime.spawn(async move {
            if let Ok(place) = places.acquire_owned().await {
                place.forget();
            }
        });
    }
}

fn on_thread(
    broker: &Arc<Broker>,
    place: OwnedSemaphorePermit,
    work: impl FnOnce(Result<(), BrokerError>) + Send + 'static,
) {
    broker.spawn_blocking(move || {
        work(Ok(()));
        drop(place);
    });
}

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;
