//! The bodies that only this crate reads, for the fuzz targets.

use serde::de::DeserializeOwned;

use super::{assignment, heartbeat, lists, lock, topic};
use crate::group::GroupConfig;
use crate::pop;

/// A JSON body in all the shapes that requests have, and the attributes of a topic.
pub(crate) fn read_body(bytes: &[u8]) {
    json::<heartbeat::HeartbeatBody>(bytes);
    json::<heartbeat::CheckBody>(bytes);
    json::<lock::LockBody>(bytes);
    json::<assignment::AssignmentBody>(bytes);
    json::<assignment::SetModeBody>(bytes);
    json::<lists::Topics>(bytes);
    json::<lists::Groups>(bytes);
    json::<GroupConfig>(bytes);
    pop::read_batch_ack(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(topic::parse_attributes(text));
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) {
    drop(wire::json::from_slice::<T>(bytes));
}
