//! Code 353: an administrator takes a group's right to read a topic away, gives it back, or asks.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::GroupForbidden;

use super::json_answer;
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;

/// Answers what holds after the change; without `readable` nothing changes.
pub(crate) fn update(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let topic: String = cmd.ext.required("topic")?;
    if cmd.ext.get("readable").is_some_and(|text| !text.is_empty()) {
        let readable = cmd.ext.bool("readable");
        names::check_group(&group).map_err(BrokerError::Invalid)?;
        names::check_topic(&topic).map_err(BrokerError::Invalid)?;
        let now_ms = broker.now_ms();
        let changed = broker
            .groups
            .set_forbidden(&group, &topic, !readable, now_ms)?;
        broker.save_groups()?;
        if changed {
            tracing::info!(group, topic, readable, "right to read changed");
        }
    }
    let readable = !broker.groups.is_forbidden(&group, &topic);
    Ok(json_answer(&GroupForbidden {
        group,
        readable,
        topic,
    }))
}
