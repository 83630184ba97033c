//! Code 33: one message by its position in the log.

use std::sync::Arc;

use remoting::Connection;
use store::PhysicalOffset;
use wire::Command;

use super::success;
use crate::broker::Broker;
use crate::error::BrokerError;

/// Answers the record at `offset`, if one begins there.
pub(crate) fn by_offset(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let offset: i64 = cmd.ext.required("offset")?;
    let absent = || BrokerError::Absent(format!("can not find message by the offset, {offset}"));
    let at = PhysicalOffset::from_wire(offset).ok_or_else(absent)?;
    let record = broker.store.record_at(at)?.ok_or_else(absent)?;
    Ok(success().with_body(record))
}
