//! Codes 200, 201, 207 and 352: consumer groups as native administrators see them.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;

use super::{json_answer, json_body, success};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::group::{ATTRIBUTE_SPEC, ATTRIBUTE_SUBSCRIPTIONS, GroupConfig};
use crate::names;
use crate::table::{ATTRIBUTE_VERSION, Batch};

/// Code 200. Gantry's own attributes of an existing group are kept; its version moves on.
pub(crate) fn update(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let config: GroupConfig = json_body(cmd)?;
    check(&config)?;
    let change = |batch: &mut Batch<'_, _>| apply(batch, config);
    broker.groups.batch(broker.now_ms(), change)?;
    broker.save_groups()?;
    Ok(success())
}

/// Whether there may be such a group.
///
/// # Errors
/// A bad name.
pub(crate) fn check(config: &GroupConfig) -> Result<(), BrokerError> {
    names::check_group(&config.group_name).map_err(BrokerError::Invalid)
}

/// Puts the group into the table of the batch. Writing the table is the caller's. Attributes are changes of
/// those it has: `+name`, `-name`, or a name.
///
/// # Errors
/// The table is full.
pub(crate) fn apply(
    batch: &mut Batch<'_, GroupConfig>,
    mut config: GroupConfig,
) -> Result<(), BrokerError> {
    let group = config.group_name.clone();
    let change = batch
        .modify(&group, |known| {
            let mut attributes = known
                .map(|known| known.attributes.clone())
                .unwrap_or_default();
            for (name, value) in std::mem::take(&mut config.attributes) {
                match (name.strip_prefix('+'), name.strip_prefix('-')) {
                    (Some(name), _) => attributes.insert(name.to_owned(), value),
                    (_, Some(name)) => attributes.remove(name),
                    _ => attributes.insert(name, value),
                };
            }
            config.attributes = attributes;
            if let Some(known) = known {
                for name in [ATTRIBUTE_SPEC, ATTRIBUTE_SUBSCRIPTIONS, ATTRIBUTE_VERSION] {
                    match known.attributes.get(name) {
                        Some(value) => config.attributes.insert(name.to_owned(), value.clone()),
                        None => config.attributes.remove(name),
                    };
                }
            }
            Some(config)
        })
        .ok_or(BrokerError::Full("group"))?;
    if change.changed {
        tracing::info!(group = %group, "group set");
    }
    Ok(())
}

/// Code 207. Removes the group with its leases; its offsets where the caller asks for that.
pub(crate) fn delete(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("groupName")?;
    // 4.9.8 names the field differently.
    let clean = cmd.ext.bool("cleanOffset") || cmd.ext.bool("removeOffset");
    if names::is_system_group(&group) {
        return Err(BrokerError::Forbidden(format!(
            "the group [{}] belongs to the system",
            names::shorten(&group)
        )));
    }
    let removed = broker.groups.remove(&group, broker.now_ms(), clean);
    broker.save_groups()?;
    if removed {
        tracing::info!(group = %names::shorten(&group), "group deleted");
    }
    clear(broker, &group, clean)?;
    Ok(success())
}

/// Removes what hangs on a group that is gone: its leases, and its offsets where `clean` says so.
///
/// # Errors
/// A table cannot be written.
pub(crate) fn clear(broker: &Arc<Broker>, group: &str, clean: bool) -> Result<(), BrokerError> {
    if broker.modes.remove_group(group) {
        broker.save_modes()?;
    }
    broker.group_removed(group)?;
    broker.stats.forget_group(group);
    if clean {
        broker.offsets.remove_group(group);
        broker.save_offsets()?;
    }
    Ok(())
}

/// Code 201. Always the whole table: pages are for tables larger than a frame.
pub(crate) fn all(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let mut response = success().with_body(broker.groups.to_answer());
    response.ext.put(
        "totalGroupNum",
        u64::try_from(broker.groups.len()).unwrap_or(u64::MAX),
    );
    Ok(response)
}

/// Code 352. Creates the group where that is allowed.
pub(crate) fn get(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    Ok(json_answer(broker.ensure_group(&group)?.as_ref()))
}
