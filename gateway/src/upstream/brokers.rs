//! The brokers of the cluster (GET_BROKER_CLUSTER_INFO): name, master address.

use super::{Upstream, mapping};
use crate::error::{ApiError, Code};
use arc_swap::ArcSwapOption;
use clock::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use wire::json::{Value, parse};
use wire::{Command, RequestCode, ResponseCode};

const FRESH: Duration = Duration::from_secs(10);
/// The same while a master is missing or did not answer: it may be back, or another one may have taken its place.
const FRESH_IN_DOUBT: Duration = Duration::from_millis(250);
/// How long a master that is not listed any more is expected back.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// Masters by name, in order.
#[derive(Debug, Default)]
pub(super) struct Masters {
    pub(super) by_name: Arc<BTreeMap<String, String>>,
    /// Names of clusters: each is also the name of a system topic.
    pub(super) clusters: BTreeSet<String>,
    /// One that was listed within 24 h is not.
    missing: bool,
}

#[derive(Debug, Default)]
pub(super) struct BrokerCache {
    current: ArcSwapOption<(Monotonic, Arc<Masters>)>,
    fetching: tokio::sync::Mutex<()>,
    /// When each master was last listed.
    seen: parking_lot::Mutex<BTreeMap<String, Monotonic>>,
    /// A listed master could not be reached since the last answer of a name server.
    suspect: AtomicBool,
}

impl Upstream {
    /// Masters, at most 10 s old, or 250 ms where one is missing or did not answer; the last good answer where no name
    /// server can be reached.
    ///
    /// # Errors
    /// `no_route` when nothing was ever known.
    pub(super) async fn masters(&self, deadline: Instant) -> Result<Arc<Masters>, ApiError> {
        let now = self.0.options.clock.monotonic();
        let cached = self.0.brokers.current.load_full();
        if let Some(known) = &cached
            && now.since(known.0) < self.masters_hold_for(&known.1)
            && !known.1.by_name.is_empty()
        {
            return Ok(Arc::clone(&known.1));
        }
        self.refresh_masters(deadline)
            .await
            .or_else(|error| cached.map(|known| Arc::clone(&known.1)).ok_or(error))
    }

    fn masters_hold_for(&self, known: &Masters) -> Duration {
        if known.missing || self.0.brokers.suspect.load(Ordering::Relaxed) {
            FRESH_IN_DOUBT
        } else {
            FRESH
        }
    }

    /// A listed master could not be reached.
    pub(super) fn suspect_masters(&self) {
        self.0.brokers.suspect.store(true, Ordering::Relaxed);
    }

    /// Masters as the name servers know them now.
    ///
    /// # Errors
    /// `no_route`.
    pub(super) async fn refresh_masters(
        &self,
        deadline: Instant,
    ) -> Result<Arc<Masters>, ApiError> {
        let before = self.0.brokers.current.load_full();
        let _one = self.0.brokers.fetching.lock().await;
        let after = self.0.brokers.current.load_full();
        if let Some(known) = &after
            && before.is_none_or(|b| b.0 != known.0)
        {
            return Ok(Arc::clone(&known.1));
        }
        let response = self
            .ask_name_server(
                &Command::request(RequestCode::GetBrokerClusterInfo),
                deadline,
            )
            .await?;
        if response.response_code() != ResponseCode::Success {
            return Err(ApiError::new(
                Code::NoRoute,
                "the name server does not know the cluster",
            ));
        }
        let mut masters = read(&response);
        self.0.brokers.suspect.store(false, Ordering::Relaxed);
        let now = self.0.options.clock.monotonic();
        let mut seen = self.0.brokers.seen.lock();
        seen.extend(masters.by_name.keys().map(|name| (name.clone(), now)));
        seen.retain(|_, at| now.since(*at) < REMEMBERED);
        masters.missing = seen.keys().any(|name| !masters.by_name.contains_key(name));
        drop(seen);
        let masters = Arc::new(masters);
        self.0
            .brokers
            .current
            .store(Some(Arc::new((now, Arc::clone(&masters)))));
        Ok(masters)
    }

    /// Masters by name: `host:port`.
    ///
    /// # Errors
    /// `no_route`.
    pub(crate) async fn master_addresses(
        &self,
        deadline: Instant,
    ) -> Result<Arc<BTreeMap<String, String>>, ApiError> {
        let masters = self.masters(deadline).await?;
        Ok(Arc::clone(&masters.by_name))
    }

    /// Names of the masters that are registered, and of those that were within 24 h: they may come back, and have to
    /// hear of what is written meanwhile.
    pub(super) fn masters_of_late(&self, now: &Masters) -> BTreeSet<String> {
        let seen = self.0.brokers.seen.lock();
        seen.keys().chain(now.by_name.keys()).cloned().collect()
    }

    /// Whether the name servers listed this master so short a time ago.
    pub(super) fn was_seen_within(&self, broker: &str, span: Duration) -> bool {
        let now = self.0.options.clock.monotonic();
        let seen = self.0.brokers.seen.lock();
        seen.get(broker).is_some_and(|at| now.since(*at) < span)
    }

    /// The address of a broker's master.
    pub(super) async fn master(&self, broker: &str, deadline: Instant) -> Option<String> {
        if let Ok(masters) = self.masters(deadline).await
            && let Some(addr) = masters.by_name.get(broker)
        {
            return Some(addr.clone());
        }
        self.refresh_masters(deadline)
            .await
            .ok()?
            .by_name
            .get(broker)
            .cloned()
    }

    /// Asks the name servers in turn until one answers, those known not to answer last.
    pub(super) async fn ask_name_server(
        &self,
        command: &Command,
        deadline: Instant,
    ) -> Result<Command, ApiError> {
        const PATIENCE: Duration = Duration::from_secs(3);
        let servers = &self.0.options.name_servers;
        let first = self.0.routes.next_name_server();
        let mut order: Vec<&String> = (0..servers.len())
            .map(|i| &servers[(first.wrapping_add(i)) % servers.len()])
            .collect();
        order.sort_by_key(|server| self.is_silent(server));
        for server in order {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .min(PATIENCE);
            if left.is_zero() {
                return Err(mapping::out_of_time());
            }
            match self.invoke(server, command.clone(), left).await {
                Ok(response) => return Ok(response),
                Err(error) => tracing::debug!(%error, "name server did not answer"),
            }
        }
        Err(ApiError::new(
            Code::NoRoute,
            "no name server can be reached",
        ))
    }
}

fn read(response: &Command) -> Masters {
    let mut masters = Masters::default();
    let Ok(info) = parse(&response.body.to_bytes()) else {
        return masters;
    };
    if let Some(Value::Object(table)) = info.get("brokerAddrTable") {
        let listed = table.iter().filter_map(|(name, broker)| {
            match broker.get("brokerAddrs").and_then(|addrs| addrs.get("0")) {
                Some(Value::String(addr)) => Some((name.clone(), addr.clone())),
                _ => None,
            }
        });
        masters.by_name = Arc::new(listed.collect());
    }
    if let Some(Value::Object(table)) = info.get("clusterAddrTable") {
        masters.clusters = table.iter().map(|(name, _)| name.clone()).collect();
    }
    masters
}
