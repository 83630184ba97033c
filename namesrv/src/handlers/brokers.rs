//! Brokers as operators see them: 106, 901, and their write permission: 205, 327.

use wire::Command;
use wire::headers::register_broker::{
    AddWritePermResponse, MemberGroupRequest, WipeWritePermResponse, WritePermRequest,
};

use super::header;
use crate::bodies;
use crate::dispatch::success;
use crate::error::NamesrvError;
use crate::namesrv::NameServer;

/// GET_BROKER_CLUSTER_INFO 106. Integer keys are bare, whatever the client's version, as Apache's.
pub(crate) fn cluster_info(ns: &NameServer) -> Command {
    let info = bodies::cluster_info(ns.table.read().brokers());
    success().with_body(wire::json::to_vec_apache(&info))
}

/// GET_BROKER_MEMBER_GROUP 901.
pub(crate) fn member_group(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: MemberGroupRequest = header(cmd)?;
    let broker = ns
        .table
        .read()
        .broker(&head.cluster_name, &head.broker_name);
    let body = bodies::member_group(head.cluster_name, head.broker_name, broker);
    Ok(success().with_body(wire::json::to_vec_apache(&body)))
}

/// WIPE_WRITE_PERM_OF_BROKER 205.
pub(crate) fn wipe_write(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: WritePermRequest = header(cmd)?;
    let topics = ns.table.write().wipe_write(&head.broker_name);
    tracing::info!(broker = head.broker_name, topics, "write permission wiped");
    Ok(success().with_header(&WipeWritePermResponse {
        wipe_topic_count: count(topics),
    }))
}

/// ADD_WRITE_PERM_OF_BROKER 327.
pub(crate) fn add_write(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: WritePermRequest = header(cmd)?;
    let topics = ns.table.write().add_write(&head.broker_name);
    tracing::info!(broker = head.broker_name, topics, "write permission added");
    Ok(success().with_header(&AddWritePermResponse {
        add_topic_count: count(topics),
    }))
}

fn count(topics: usize) -> i32 {
    i32::try_from(topics).unwrap_or(i32::MAX)
}
