//! Topic routes: cached, refreshed in the background every 10 s while in use, and at once when an answer says so.

use super::admin::BrokerTopic;
use super::admin::topics::route_of;
use super::{Upstream, mapping};
use crate::error::ApiError;
use arc_swap::ArcSwapOption;
use clock::Monotonic;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::json::{Value, parse};
use wire::{Command, RequestCode, ResponseCode};

const FRESH: Duration = Duration::from_secs(10);
/// The same while a broker with queues of the topic is away: it may be back.
const FRESH_IN_DOUBT: Duration = Duration::from_secs(1);
/// A reader is not served without a broker that left so short a time ago; then it is taken to be gone for good.
const MISSED: Duration = Duration::from_secs(600);
/// A name server may list a topic for so long after its deletion.
const LISTED_LATE: Duration = Duration::from_secs(60);
/// Topics remembered; beyond, the ones without a route go first, then any.
const TOPICS_MAX: usize = 20_000;
/// Bit of `perm` (RocketMQ 5.4.0 PermName).
pub(super) const PERM_READ: i32 = 4;
/// Bit of `perm`.
pub(super) const PERM_WRITE: i32 = 2;

/// A master.
#[derive(Debug, PartialEq, Eq)]
pub struct Broker {
    /// Name.
    pub name: String,
    /// `host:port`.
    pub addr: String,
}

/// Where a topic lives.
#[derive(Debug, Default)]
pub struct Route {
    /// Writable queues, by broker name, then id.
    pub writable: Vec<(Arc<Broker>, i32)>,
    /// Brokers with readable queues, by name.
    pub readable: Vec<Arc<Broker>>,
    /// Brokers that had queues of it and are not registered now: they may come back with what they hold.
    pub gone: Vec<Gone>,
}

/// A broker that left the name servers with queues of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Where it was.
    pub broker: Arc<Broker>,
    /// Its writable queues.
    pub writable: i32,
}

impl Route {
    /// Takes in the queues of further brokers.
    fn add(&mut self, more: Route) {
        self.writable.extend(more.writable);
        self.writable
            .sort_by(|a, b| (&a.0.name, a.1).cmp(&(&b.0.name, b.1)));
        self.readable.extend(more.readable);
        self.readable.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Brokers that `before` had queues on and this has not.
    fn missing(&self, before: &Route) -> Vec<Gone> {
        let here = |broker: &Broker| {
            let mut all = self
                .readable
                .iter()
                .chain(self.writable.iter().map(|q| &q.0));
            all.any(|known| known.name == broker.name)
        };
        let left = before.readable.iter().map(|broker| Gone {
            broker: Arc::clone(broker),
            writable: i32::try_from(
                before
                    .writable
                    .iter()
                    .filter(|queue| queue.0.name == broker.name)
                    .count(),
            )
            .unwrap_or(0),
        });
        left.chain(before.gone.iter().cloned())
            .filter(|gone| !here(&gone.broker))
            .collect()
    }
}

/// One topic.
#[derive(Debug, Default)]
pub(super) struct Entry {
    known: ArcSwapOption<(Monotonic, Arc<Route>)>,
    fetching: tokio::sync::Mutex<()>,
    refreshing: AtomicBool,
    /// Told when other brokers can be read than before.
    changed: Arc<Notify>,
    /// When it was last known to exist, monotonic, ns.
    alive: AtomicU64,
    /// The newest version that a master has told.
    version: AtomicU64,
    /// Round robin over the writable queues.
    pub(super) turn: AtomicUsize,
}

impl Entry {
    fn exists(&self, now: Monotonic) {
        self.alive.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    fn alive(&self) -> Monotonic {
        Monotonic::from_nanos(self.alive.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub(super) struct RouteCache {
    topics: RwLock<HashMap<String, Arc<Entry>>>,
    name_server: AtomicUsize,
}

impl RouteCache {
    pub(super) fn next_name_server(&self) -> usize {
        self.name_server.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn entry(&self, topic: &str) -> Arc<Entry> {
        if let Some(entry) = self.topics.read().get(topic) {
            return Arc::clone(entry);
        }
        let mut topics = self.topics.write();
        if topics.len() >= TOPICS_MAX {
            topics.retain(|_, entry| entry.known.load().is_some());
            if topics.len() >= TOPICS_MAX {
                let some = topics.keys().next().cloned();
                some.map(|name| topics.remove(&name));
            }
        }
        Arc::clone(topics.entry(topic.to_owned()).or_default())
    }

    /// Told when other brokers of a topic can be read than before.
    pub(super) fn changed(&self, topic: &str) -> Arc<Notify> {
        Arc::clone(&self.entry(topic).changed)
    }

    /// Whether this entry is the one in use: it was not forgotten meanwhile.
    fn has(&self, topic: &str, entry: &Arc<Entry>) -> bool {
        let topics = self.topics.read();
        topics.get(topic).is_some_and(|now| Arc::ptr_eq(now, entry))
    }

    /// Forgets what is known of a topic by this entry, not by a newer one.
    fn forget_entry(&self, topic: &str, entry: &Arc<Entry>) {
        let mut topics = self.topics.write();
        if topics.get(topic).is_some_and(|now| Arc::ptr_eq(now, entry)) {
            topics.remove(topic);
        }
    }

    /// A master has the topic in this version.
    pub(super) fn saw(&self, topic: &str, version: u64) {
        let entry = self.entry(topic);
        entry.version.fetch_max(version, Ordering::Relaxed);
    }

    /// No master that answers has the topic, and so long `ago` it was deleted in this version: brokers that are away
    /// are not expected to bring it back, unless it was known to exist in a newer version or since.
    pub(super) fn deleted(&self, topic: &str, version: u64, ago: Duration, now: Monotonic) {
        let mut topics = self.topics.write();
        if let Some(entry) = topics.get(topic)
            && entry.version.load(Ordering::Relaxed) < version
            && ago <= now.since(entry.alive()) + LISTED_LATE
        {
            topics.remove(topic);
        }
    }

    /// Forgets a topic (it was deleted).
    pub(super) fn forget(&self, topic: &str) {
        self.topics.write().remove(topic);
    }
}

impl Upstream {
    /// The route of a topic; `None` = no such topic. A route older than 10 s, or 1 s where a broker is away, is used once
    /// more while it is refreshed.
    ///
    /// # Errors
    /// `no_route` when no name server answers and nothing is known.
    pub(super) async fn route(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<Option<Arc<Route>>, ApiError> {
        let entry = self.0.routes.entry(topic);
        if let Some(known) = &*entry.known.load() {
            let fresh = if known.1.gone.is_empty() {
                FRESH
            } else {
                FRESH_IN_DOUBT
            };
            if self.0.options.clock.monotonic().since(known.0) >= fresh {
                self.refresh_meanwhile(topic, &entry);
            }
            return Ok(Some(Arc::clone(&known.1)));
        }
        self.refresh_route(topic, deadline).await
    }

    /// A broker of the route could not be reached: it may be elsewhere now.
    pub(super) fn doubt_route(&self, topic: &str) {
        let entry = self.0.routes.entry(topic);
        let now = self.0.options.clock.monotonic();
        let known = entry.known.load_full();
        if known.is_some_and(|known| now.since(known.0) >= FRESH_IN_DOUBT) {
            self.refresh_meanwhile(topic, &entry);
        }
    }

    /// Refreshes the route in the background, once for all who ask meanwhile.
    fn refresh_meanwhile(&self, topic: &str, entry: &Arc<Entry>) {
        if entry.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (upstream, topic, entry) = (self.clone(), topic.to_owned(), Arc::clone(entry));
        self.0.options.tracker.spawn(async move {
            let deadline = Instant::now() + Duration::from_secs(5);
            if let Err(error) = upstream.refresh_route(&topic, deadline).await {
                tracing::debug!(%error, topic, "route not refreshed");
            }
            entry.refreshing.store(false, Ordering::Release);
        });
    }

    /// The route as the name servers know it now. Callers that meet share one request. Where no name server answers the
    /// last good route stays.
    ///
    /// # Errors
    /// `no_route`.
    pub(super) async fn refresh_route(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<Option<Arc<Route>>, ApiError> {
        let entry = self.0.routes.entry(topic);
        let stamp = |e: &Entry| e.known.load().as_ref().map(|k| k.0);
        let before = stamp(&entry);
        let _one = entry.fetching.lock().await;
        if stamp(&entry) != before {
            return Ok(entry.known.load().as_ref().map(|k| Arc::clone(&k.1)));
        }
        let command = Command::request(RequestCode::GetRouteinfoByTopic)
            .with_ext("topic", topic)
            .with_ext("acceptStandardJsonOnly", true);
        let response = match self.ask_name_server(&command, deadline).await {
            Ok(response) => response,
            Err(error) => {
                return entry
                    .known
                    .load()
                    .as_ref()
                    .map(|k| Some(Arc::clone(&k.1)))
                    .ok_or(error);
            }
        };
        match response.response_code() {
            ResponseCode::Success => {
                let mut route = read(&response);
                self.complete(topic, &entry, &mut route, deadline).await;
                let route = Arc::new(route);
                entry.exists(self.0.options.clock.monotonic());
                self.store_route(&entry, Arc::clone(&route));
                Ok(Some(route))
            }
            // A topic made a moment ago is known to its brokers before the name servers tell it.
            ResponseCode::TopicNotExist => {
                let known = Box::pin(self.route_from_masters(topic, deadline)).await?;
                let exists = known.is_some();
                if exists {
                    entry.exists(self.0.options.clock.monotonic());
                }
                let mut route = known.unwrap_or_default();
                self.complete(topic, &entry, &mut route, deadline).await;
                let exists = exists || !route.readable.is_empty();
                let deleted = !self.0.routes.has(topic, &entry);
                if !exists && (deleted || route.gone.is_empty()) {
                    self.0.routes.forget_entry(topic, &entry);
                    return Ok(None);
                }
                let route = Arc::new(route);
                self.store_route(&entry, Arc::clone(&route));
                Ok(Some(route))
            }
            _ => Err(mapping::answer(&response, mapping::About::Topic(topic))),
        }
    }

    /// A broker that had readable queues of the topic when this gateway last saw them, and that is silent now or left less
    /// than [`MISSED`] ago. `None` = nobody is missing, as far as this gateway knows.
    ///
    /// # Errors
    /// `no_route`.
    pub(crate) async fn missing_holder(
        &self,
        topic: &str,
        silent: &[String],
        deadline: Instant,
    ) -> Result<Option<String>, ApiError> {
        let known = self.0.routes.entry(topic).known.load_full();
        let Some(known) = known else {
            return Ok(None);
        };
        let masters = self.masters(deadline).await?;
        let readable = known.1.readable.iter();
        let mut holders = readable.chain(known.1.gone.iter().map(|gone| &gone.broker));
        let missing = holders.find(|broker| {
            silent.contains(&broker.name)
                || !masters.by_name.contains_key(&broker.name)
                    && self.was_seen_within(&broker.name, MISSED)
        });
        Ok(missing.map(|broker| broker.name.clone()))
    }

    /// Completes a route by the brokers that the route before had and this one has not. A name server may not have heard
    /// of them yet, so those that are registered are asked themselves: who has the topic is in the route, who has not is
    /// left out. Who is silent, or not registered and was within a day, is gone for a while.
    async fn complete(&self, topic: &str, entry: &Entry, route: &mut Route, deadline: Instant) {
        let before = entry.known.load_full();
        let mut gone = before.map_or_else(Vec::new, |before| route.missing(&before.1));
        if !gone.is_empty()
            && let Ok(masters) = self.refresh_masters(deadline).await
        {
            let of_late = self.masters_of_late(&masters);
            gone.retain(|g| of_late.contains(&g.broker.name));
            let listed = |g: &Gone| masters.by_name.contains_key(&g.broker.name);
            if gone.iter().any(listed)
                && let Ok((found, silent)) = Box::pin(self.topic_now(topic, deadline)).await
            {
                let missing = |t: &BrokerTopic| gone.iter().any(|g| g.broker.name == t.broker);
                let there: Vec<_> = found.into_iter().filter(missing).collect();
                gone.retain(|g| !listed(g) || silent.contains(&g.broker.name));
                route.add(route_of(&masters.by_name, &there));
            }
        }
        route.gone = gone;
    }

    fn store_route(&self, entry: &Entry, route: Arc<Route>) {
        let now = self.0.options.clock.monotonic();
        let readable = Arc::clone(&route);
        let before = entry.known.swap(Some(Arc::new((now, route))));
        if before.is_none_or(|before| before.1.readable != readable.readable) {
            entry.changed.notify_waiters();
        }
    }

    /// Remembers a route that was just made, before the name servers tell it.
    pub(super) fn learn_route(&self, topic: &str, mut route: Route) {
        let entry = self.0.routes.entry(topic);
        if let Some(known) = &*entry.known.load() {
            route.gone = route.missing(&known.1);
        }
        entry.exists(self.0.options.clock.monotonic());
        self.store_route(&entry, Arc::new(route));
    }
}

/// RocketMQ TopicRouteData, standard JSON.
fn read(response: &Command) -> Route {
    let mut route = Route::default();
    let Ok(data) = parse(&response.body.to_bytes()) else {
        return route;
    };
    let list = |name: &str| match data.get(name) {
        Some(Value::Array(items)) => items.as_slice(),
        _ => &[],
    };
    let text = |value: &Value, name: &str| match value.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let number = |value: &Value, name: &str| match value.get(name) {
        Some(Value::Number(n) | Value::String(n)) => n.parse::<i32>().unwrap_or(0),
        _ => 0,
    };
    let mut brokers: HashMap<String, Arc<Broker>> = HashMap::new();
    for broker in list("brokerDatas") {
        let addr = broker.get("brokerAddrs").and_then(|addrs| text(addrs, "0"));
        if let (Some(name), Some(addr)) = (text(broker, "brokerName"), addr) {
            brokers.insert(name.clone(), Arc::new(Broker { name, addr }));
        }
    }
    let mut queues: Vec<&Value> = list("queueDatas").iter().collect();
    queues.sort_by_key(|q| text(q, "brokerName"));
    for queue in queues {
        let Some(broker) = text(queue, "brokerName").and_then(|name| brokers.get(&name)) else {
            continue;
        };
        let perm = number(queue, "perm");
        if perm & PERM_WRITE != 0 {
            // A broker never has more; a hostile number must not fill memory.
            let count = number(queue, "writeQueueNums").clamp(0, 65_536);
            route
                .writable
                .extend((0..count).map(|id| (Arc::clone(broker), id)));
        }
        if perm & PERM_READ != 0 && number(queue, "readQueueNums") > 0 {
            route.readable.push(Arc::clone(broker));
        }
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_counts_where_the_topic_was_not_known_to_exist_since() {
        let at = Monotonic::from_millis;
        let left = |version, alive, deleted: u64, ago| {
            let cache = RouteCache::default();
            cache.saw("t", version);
            cache.entry("t").exists(at(alive));
            let ago = Duration::from_millis(ago);
            cache.deleted("t", deleted, ago, at(1_000_000));
            cache.topics.read().contains_key("t")
        };
        assert!(!left(0, 900_000, 2, 99_000), "deleted afterwards");
        assert!(!left(1, 900_000, 2, 160_000), "a name server was late");
        assert!(left(0, 900_000, 2, 160_001), "listed since, so made again");
        assert!(left(3, 900_000, 2, 99_000), "made again in version 3");
    }

    #[test]
    fn queues_are_sorted_by_broker_and_only_masters_count() {
        let body = r#"{"brokerDatas":[
            {"brokerName":"b","brokerAddrs":{"0":"1.1.1.1:2","1":"1.1.1.1:3"}},{"brokerName":"a","brokerAddrs":{"0":"1.1.1.1:1"}},
            {"brokerName":"s","brokerAddrs":{"1":"1.1.1.1:9"}}],
            "queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":2},
            {"brokerName":"a","perm":4,"readQueueNums":1,"writeQueueNums":1},{"brokerName":"s","perm":6,"readQueueNums":1,"writeQueueNums":1}]}"#;
        let route = read(&Command::response(ResponseCode::Success).with_body(body));
        let writable: Vec<_> = route
            .writable
            .iter()
            .map(|(b, id)| (b.name.as_str(), b.addr.as_str(), *id))
            .collect();
        assert_eq!(writable, [("b", "1.1.1.1:2", 0), ("b", "1.1.1.1:2", 1)]);
        let readable: Vec<_> = route.readable.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(readable, ["a", "b"]);
        assert!(
            read(&Command::response(ResponseCode::Success).with_body("{"))
                .writable
                .is_empty()
        );
    }
}
