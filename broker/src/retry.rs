//! What becomes of a message that a native consumer gives back: another delivery, or a dead letter.

use std::sync::Arc;

use wire::message::properties::{Properties, names as property};
use wire::version;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::handlers::send_request::SendRequest;
use crate::names;

/// Where a message goes instead of its retry topic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    /// The group's dead-letter topic, created.
    pub(crate) topic: String,
}

/// For a send to `%RETRY%group`: `Some` when its deliveries are used up. Creates the group and the
/// dead-letter topic as needed.
///
/// # Errors
/// The group does not exist and may not be created; the topic cannot be.
pub(crate) fn redirect(
    broker: &Arc<Broker>,
    request: &SendRequest<'_>,
    client_version: i32,
) -> Result<Option<DeadLetter>, BrokerError> {
    let Some(group) = request.topic.strip_prefix(names::RETRY_PREFIX) else {
        return Ok(None);
    };
    let config = broker.ensure_group(group)?;
    let max = request
        .max_reconsume_times
        .filter(|_| client_version >= version::V3_4_9)
        .unwrap_or(config.retry_max_times);
    let gave_up = broker.locks.is_orderly(group, broker.clock.monotonic());
    if request.reconsume_times <= max && !gave_up {
        return Ok(None);
    }
    let topic = broker.ensure_dlq_topic(group)?;
    Ok(Some(DeadLetter {
        topic: topic.topic_name.clone(),
    }))
}

/// Whether a message that was given back is dead (RocketMQ 5.4.0 `consumerSendMsgBack`).
pub(crate) fn is_exhausted(reconsume_times: i32, max: i32, delay_level: i32) -> bool {
    reconsume_times >= max || delay_level < 0
}

/// The delay level of the next delivery: the consumer's, or one that grows with the attempts.
pub(crate) fn next_level(delay_level: i32, reconsume_times: i32) -> i32 {
    if delay_level == 0 {
        reconsume_times.saturating_add(3)
    } else {
        delay_level
    }
}

/// Sets one property in encoded text.
pub(crate) fn set_property(text: &mut String, name: &str, value: &str) {
    let mut properties = Properties::parse(text);
    properties.set(name, value);
    *text = properties.encode();
}

/// The properties of a message that is stored again for its group.
pub(crate) fn carry_properties(
    mut properties: Properties,
    topic: &str,
    origin_id: &str,
) -> Properties {
    if properties.get(property::RETRY_TOPIC).is_none() {
        properties.set(property::RETRY_TOPIC, topic);
    }
    properties.set(property::WAIT, "false");
    if properties.get(property::ORIGIN_MESSAGE_ID).is_none() {
        properties.set(property::ORIGIN_MESSAGE_ID, origin_id);
    }
    // What describes the earlier parking, lease or delay is over.
    for name in [
        property::REAL_TOPIC,
        property::REAL_QID,
        property::DELAY,
        property::LEASE,
        crate::delay::DELAYED_FROM,
        crate::carry::CARRIED,
    ] {
        properties.remove(name);
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_grows_from_ten_seconds_and_may_be_chosen() {
        assert_eq!(next_level(0, 0), 3);
        assert_eq!(next_level(0, 15), 18);
        assert_eq!(next_level(5, 15), 5);
    }

    #[test]
    fn a_message_is_dead_at_its_limit_or_on_demand() {
        assert!(!is_exhausted(15, 16, 0));
        assert!(is_exhausted(16, 16, 0));
        assert!(is_exhausted(0, 16, -1));
        assert!(is_exhausted(0, -1, 0));
    }

    #[test]
    fn the_first_topic_and_id_survive_every_round() {
        let first = carry_properties(Properties::new(), "orders", "ID1");
        assert_eq!(first.get(property::RETRY_TOPIC), Some("orders"));
        let second = carry_properties(first, "%RETRY%g", "ID2");
        assert_eq!(second.get(property::RETRY_TOPIC), Some("orders"));
        assert_eq!(second.get(property::ORIGIN_MESSAGE_ID), Some("ID1"));
    }
}
