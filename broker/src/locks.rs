//! Queue locks of orderly native consumers: one holder per group and queue, for 60 s unless renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;

/// A lock that is not renewed for this long is free (RocketMQ 5.4.0 `RebalanceLockManager`).
pub(crate) const LOCK_LIFE: Duration = Duration::from_secs(60);
/// Most locks in all; beyond it nothing new is locked.
const LOCKS_MAX: usize = 500_000;

/// One queue, by the name the client uses for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueName {
    /// Topic.
    pub(crate) topic: String,
    /// Broker name, as the client says it.
    pub(crate) broker: String,
    /// Queue id.
    pub(crate) queue_id: i32,
}

#[derive(Debug)]
struct Lock {
    holder: Arc<str>,
    at: Monotonic,
}

#[derive(Debug, Default)]
struct Inner {
    groups: HashMap<String, HashMap<QueueName, Lock>>,
    count: usize,
}

/// All locks of this broker. Renewing is idempotent; only the holder unlocks.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    inner: Mutex<Inner>,
}

impl LockTable {
    /// Tries to lock or renew each queue; the ones that are now held by the client.
    pub(crate) fn lock(
        &self,
        group: &str,
        client: &str,
        queues: &[QueueName],
        now: Monotonic,
    ) -> Vec<QueueName> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let locks = inner.groups.entry(group.to_owned()).or_default();
        let holder: Arc<str> = Arc::from(client);
        let mut granted = Vec::new();
        for queue in queues {
            match locks.get_mut(queue) {
                Some(lock) if &*lock.holder == client => lock.at = now,
                Some(lock) if now.since(lock.at) > LOCK_LIFE => {
                    *lock = Lock {
                        holder: holder.clone(),
                        at: now,
                    }
                }
                Some(_) => continue,
                None if inner.count >= LOCKS_MAX => continue,
                None => {
                    locks.insert(
                        queue.clone(),
                        Lock {
                            holder: holder.clone(),
                            at: now,
                        },
                    );
                    inner.count += 1;
                }
            }
            granted.push(queue.clone());
        }
        if locks.is_empty() {
            inner.groups.remove(group);
        }
        granted
    }

    /// Frees the queues that the client holds.
    pub(crate) fn unlock(&self, group: &str, client: &str, queues: &[QueueName]) {
        self.retain(group, |queue, lock| {
            &*lock.holder != client || !queues.contains(queue)
        });
    }

    /// Frees everything the client holds in the group: it has left.
    pub(crate) fn release(&self, group: &str, client: &str) {
        self.retain(group, |_, lock| &*lock.holder != client);
    }

    fn retain(&self, group: &str, keep: impl Fn(&QueueName, &Lock) -> bool) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if let Some(locks) = inner.groups.get_mut(group) {
            let before = locks.len();
            locks.retain(|queue, lock| keep(queue, lock));
            inner.count -= before - locks.len();
            if locks.is_empty() {
                inner.groups.remove(group);
            }
        }
    }

    /// Drops locks that ran out.
    pub(crate) fn expire(&self, now: Monotonic) {
        let groups: Vec<String> = self.inner.lock().groups.keys().cloned().collect();
        for group in groups {
            self.retain(&group, |_, lock| now.since(lock.at) <= LOCK_LIFE);
        }
    }

    /// Whether the group holds any live lock: its members consume in order.
    pub(crate) fn is_orderly(&self, group: &str, now: Monotonic) -> bool {
        self.inner
            .lock()
            .groups
            .get(group)
            .is_some_and(|locks| locks.values().any(|lock| now.since(lock.at) <= LOCK_LIFE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: i32) -> QueueName {
        QueueName {
            topic: "t".to_owned(),
            broker: "b".to_owned(),
            queue_id: id,
        }
    }

    #[test]
    fn one_client_holds_a_queue_until_it_lets_go_or_falls_silent() {
        let table = LockTable::default();
        let start = Monotonic::ZERO;
        assert_eq!(table.lock("g", "a", &[queue(0), queue(1)], start).len(), 2);
        assert!(table.lock("g", "b", &[queue(0)], start).is_empty());
        assert_eq!(table.lock("other", "b", &[queue(0)], start).len(), 1);
        table.unlock("g", "b", &[queue(0)]);
        assert!(table.lock("g", "b", &[queue(0)], start).is_empty());
        table.unlock("g", "a", &[queue(0)]);
        assert_eq!(table.lock("g", "b", &[queue(0)], start), [queue(0)]);
        let later = start + LOCK_LIFE + Duration::from_millis(1);
        assert_eq!(table.lock("g", "b", &[queue(1)], later), [queue(1)]);
        table.release("g", "b");
        assert!(!table.is_orderly("g", later));
    }
}
