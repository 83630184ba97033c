//! What the rest of the broker asks of the lease engine, in one place.

use std::sync::Arc;

use wire::body::gantry::{GroupLag, SubscriptionSpec};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::pop;
use crate::topic::TopicConfig;

impl Broker {
    /// Moves the group in one queue: leases there are void, delivery continues at `offset`. Durable when it returns.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn set_position(
        self: &Arc<Self>,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Result<(), BrokerError> {
        pop::set_position(self, group, topic, queue_id, offset)
    }

    /// A topic is gone with its queues.
    ///
    /// # Errors
    /// The engine's snapshot cannot be written.
    pub(crate) fn topic_removed(self: &Arc<Self>, topic: &str) -> Result<(), BrokerError> {
        pop::forget(self, None, Some(topic))
    }

    /// A group is gone, and with it the retries of its leases.
    ///
    /// # Errors
    /// The engine's snapshot cannot be written.
    pub(crate) fn group_removed(self: &Arc<Self>, group: &str) -> Result<(), BrokerError> {
        let topics = self.topics.all().1;
        for name in topics.iter().map(|topic| &topic.topic_name) {
            if pop::is_retry_of(group, name) {
                crate::handlers::topic::remove(self, name)?;
            }
        }
        self.forget_members(group);
        pop::forget(self, Some(group), None)
    }

    /// A group gave up a topic; its progress is kept for when it comes back.
    pub(crate) fn subscription_removed(self: &Arc<Self>, group: &str, topic: &str) {
        pop::release_waiting(self, group, topic);
    }

    /// A group's settings or subscriptions changed: waiting pops look again.
    pub(crate) fn group_changed(self: &Arc<Self>, group: &str) {
        pop::group_changed(self, group);
    }

    /// Fixes where a group starts in each queue of a topic it has not read before: `latest`,
    /// `earliest`, or a time in ms. A queue with progress keeps it. Durable when it returns.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn fix_start(
        self: &Arc<Self>,
        group: &str,
        topic: &TopicConfig,
        position: &str,
    ) -> Result<(), BrokerError> {
        let start = pop::Start::parse(position)
            .ok_or_else(|| BrokerError::Invalid("initialPosition is no time".to_owned()))?;
        pop::start_at(self, group, &topic.topic_name, start)
    }

    /// Leases that a member of the group holds.
    pub(crate) fn held_by(&self, group: &str, member: &str) -> u64 {
        self.pop.held_by(group, member)
    }

    /// How far the group is in everything it subscribes to.
    pub(crate) fn group_lag(&self, group: &str, subscriptions: &[SubscriptionSpec]) -> GroupLag {
        let queues: Vec<_> = subscriptions
            .iter()
            .flat_map(|subscription| pop::lag(self, group, &subscription.topic))
            .collect();
        let dead = self.store.queue(&names::dlq_topic(group), 0);
        let now = self.clock.monotonic();
        let rates = subscriptions
            .iter()
            .map(|subscription| self.stats.got_rate(group, &subscription.topic, now));
        GroupLag {
            queues,
            dlq_open: dead.max.since(dead.min),
            rate_out: rates.sum(),
        }
    }
}
