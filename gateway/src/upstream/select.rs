//! Queue choice: by ordering key, else round robin that avoids brokers in trouble.

use super::routes::{Broker, Entry, Route};
use clock::Monotonic;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::tags::java_string_hash;

/// How long a broker that refused or failed is passed over.
const AVOID: Duration = Duration::from_secs(2);

/// Brokers in trouble and until when to pass them over. As many entries as there are brokers.
#[derive(Debug, Default)]
pub(super) struct Selector {
    trouble: RwLock<HashMap<String, Monotonic>>,
}

impl Selector {
    /// A broker failed: pass it over for a while.
    pub(super) fn avoid(&self, broker: &str, now: Monotonic) {
        let mut trouble = self.trouble.write();
        trouble.retain(|_, until| *until > now);
        trouble.insert(broker.to_owned(), now + AVOID);
    }

    /// The next queue in turn on a broker that is not in trouble or silent and was not tried; else on one that was not
    /// tried.
    pub(super) fn next(
        &self,
        entry: &Entry,
        route: &Route,
        tried: &[String],
        is_silent: impl Fn(&str) -> bool,
        now: Monotonic,
    ) -> Option<(Arc<Broker>, i32)> {
        let count = route.writable.len();
        if count == 0 {
            return None;
        }
        let start = entry.turn.fetch_add(1, Ordering::Relaxed);
        let trouble = self.trouble.read();
        let at = |i: usize| &route.writable[(start.wrapping_add(i)) % count];
        let untried = |queue: &&(Arc<Broker>, i32)| !tried.contains(&queue.0.name);
        let calm = |queue: &&(Arc<Broker>, i32)| {
            trouble.get(&queue.0.name).is_none_or(|until| *until <= now)
                && !is_silent(&queue.0.addr)
        };
        let found = (0..count)
            .map(at)
            .find(|q| untried(q) && calm(q))
            .or_else(|| (0..count).map(at).find(untried));
        found.cloned()
    }
}

/// The queue of an ordering key: `abs(hashCode % count)` as RocketMQ's SelectMessageQueueByHash. The queues of brokers
/// that are gone for a while count, so that no key moves; the second part says whether it is one of those.
pub(super) fn by_key(route: &Route, key: &str) -> Option<(Arc<Broker>, i32, bool)> {
    let away = |gone: &super::routes::Gone| gone.writable.max(0);
    let lost: i32 = route.gone.iter().map(away).sum();
    let count = i32::try_from(route.writable.len())
        .ok()
        .map(|n| n.saturating_add(lost))
        .filter(|n| *n > 0)?;
    let index = (java_string_hash(key) % count).unsigned_abs();
    let index = usize::try_from(index).ok()?;
    if lost == 0 {
        let (broker, id) = route.writable.get(index)?;
        return Some((Arc::clone(broker), *id, false));
    }
    let here = route.writable.iter().map(|(b, id)| (b, *id, false));
    let there = route.gone.iter();
    let there = there.flat_map(|gone| (0..away(gone)).map(|id| (&gone.broker, id, true)));
    let mut queues: Vec<(&Arc<Broker>, i32, bool)> = here.chain(there).collect();
    queues.sort_by(|a, b| (&a.0.name, a.1).cmp(&(&b.0.name, b.1)));
    let (broker, id, gone) = queues.get(index)?;
    Some((Arc::clone(broker), *id, *gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        let broker = |name: &str| {
            Arc::new(Broker {
                name: name.into(),
                addr: format!("addr of {name}"),
            })
        };
        let (a, b) = (broker("a"), broker("b"));
        Route {
            writable: vec![(Arc::clone(&a), 0), (a, 1), (Arc::clone(&b), 0), (b, 1)],
            readable: Vec::new(),
            gone: Vec::new(),
        }
    }

    #[test]
    fn one_key_has_one_queue() {
        let route = route();
        for key in ["", "cust-9", "polygenelubricants", "中"] {
            let first = by_key(&route, key).unwrap();
            assert_eq!(by_key(&route, key).unwrap(), first);
        }
        assert!(by_key(&Route::default(), "x").is_none());
    }

    #[test]
    fn a_broker_in_trouble_or_silent_is_passed_over_until_it_is_the_only_one() {
        let (selector, entry, route) = (Selector::default(), Entry::default(), route());
        let next = |tried: &[&str], silent: &str, now| {
            let tried: Vec<String> = tried.iter().map(ToString::to_string).collect();
            let chosen = selector.next(&entry, &route, &tried, |addr| addr == silent, now);
            chosen.map(|(broker, _)| broker.name.clone())
        };
        let now = Monotonic::from_millis(1_000);
        let later = now + Duration::from_secs(3);
        selector.avoid("a", now);
        for _ in 0..8 {
            assert_eq!(next(&[], "", now).unwrap(), "b");
            assert_eq!(next(&[], "addr of b", later).unwrap(), "a");
        }
        assert_eq!(next(&["b"], "", now).unwrap(), "a");
        assert_eq!(next(&["a"], "addr of b", later).unwrap(), "b");
        assert!(next(&["a", "b"], "", now).is_none());
        let names: std::collections::HashSet<_> =
            (0..8).map(|_| next(&[], "", later).unwrap()).collect();
        assert_eq!(names.len(), 2);
    }
}
