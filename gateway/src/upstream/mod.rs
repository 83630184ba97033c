//! Calls to name servers and brokers: the only part of the gateway that speaks remoting.

pub mod admin;
mod brokers;
pub mod consumer;
mod creating;
mod dead_letters;
mod decode;
mod groups;
mod in_flight;
mod inflating;
pub mod mapping;
mod members;
mod notify;
mod peek;
mod presence;
pub mod producer;
mod read;
pub mod routes;
pub mod select;
mod settle;
mod silence;
mod stale;
mod sweep;
mod timing;

pub(crate) use admin::unreached;
pub use admin::{BrokerTopic, Lag, ListedGroup, ListedTopic, Pending, Precondition, queues_in_all};
pub use admin::{default_group, etag, is_of_topic};
pub use consumer::{
    Delivery, Gap, LastError, Lease, PopRequest, Popped, SettleOp, SettleOutcome, SettleStatus,
    Settlement, Wake,
};
pub(crate) use consumer::{Partial, leave_out};
pub use dead_letters::{DeadLetter, DeadPage};
pub(crate) use decode::Content;
pub use in_flight::{Holds, InFlightPage, Released};
pub use members::{Member, MembersPage};
pub use peek::{PeekPage, Peeked};
pub use presence::Presence;
pub use producer::{Draft, Durability, Sent};
pub use read::Record;
pub(crate) use read::{Amount, Page, QueueAt, Times};
pub(crate) use timing::measured;

use crate::error::ApiError;
use crate::receipt::ReceiptKeys;
use clock::Clock;
use remoting::{Client, ClientOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Command;

/// Tenant and namespace of a call. Only `default`/`default` exists so far; its names are bare in the brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope;

/// What an [`Upstream`] is made of.
#[derive(Debug)]
pub struct UpstreamOptions {
    /// Name of this gateway.
    pub gateway: String,
    /// Name servers, `host:port`.
    pub name_servers: Vec<String>,
    /// Whether sends create topics and receives create groups.
    pub auto_create: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Signs the receipts of deliveries.
    pub receipts: Arc<ReceiptKeys>,
    /// Cancelled when draining begins: waits at brokers end.
    pub draining: CancellationToken,
    /// Owns the tasks.
    pub tracker: TaskTracker,
}

/// The cluster as the gateway sees it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    options: UpstreamOptions,
    routes: routes::RouteCache,
    brokers: brokers::BrokerCache,
    groups: groups::GroupCache,
    selector: select::Selector,
    silence: silence::Silence,
    entrances: presence::Entrances,
    notifier: notify::Notifier,
    stale: stale::StaleConfig,
    /// Topics, groups and subscriptions made by being used.
    creating: creating::Creating,
    /// Taken by answers that are inflated.
    inflating: Arc<Semaphore>,
}

impl Upstream {
    /// Nothing is called yet.
    #[must_use]
    pub fn new(options: UpstreamOptions) -> Self {
        Self(Arc::new(Inner {
            client: Client::new(ClientOptions::default()),
            options,
            routes: routes::RouteCache::default(),
            brokers: brokers::BrokerCache::default(),
            groups: groups::GroupCache::default(),
            selector: select::Selector::default(),
            silence: silence::Silence::default(),
            entrances: presence::Entrances::default(),
            notifier: notify::Notifier::default(),
            stale: stale::StaleConfig::default(),
            creating: creating::Creating::default(),
            inflating: Arc::new(Semaphore::new(inflating::AT_A_TIME)),
        }))
    }

    fn now_ms(&self) -> u64 {
        self.0.options.clock.now_ms()
    }

    /// Sends one request to a broker; every local failure becomes the error a client sees.
    async fn call(
        &self,
        addr: &str,
        command: Command,
        deadline: Instant,
    ) -> Result<Command, ApiError> {
        let left = time_left(deadline)?;
        let _call = timing::BrokerCall::begin();
        self.invoke(addr, command, left).await.map_err(|e| {
            if e.kind == remoting::ErrorKind::Connect || e.kind == remoting::ErrorKind::Closed {
                self.suspect_masters();
            }
            mapping::remoting(&e)
        })
    }
}

/// What is left until the deadline.
///
/// # Errors
/// `broker_timeout` when nothing is left.
fn time_left(deadline: Instant) -> Result<Duration, ApiError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(mapping::out_of_time())
    } else {
        Ok(left)
    }
}
