//! Codes 203, 204, 328 and 900008: who is connected.

use std::collections::BTreeMap;
use std::sync::Arc;

use remoting::Connection;
use serde::Serialize;
use serde_json::Value;
use wire::Command;
use wire::body::members::GroupMembers;

use super::json_answer;
use crate::broker::Broker;
use crate::clients::Member;
use crate::error::BrokerError;
use crate::names;

/// Most members of one answer to 900008.
const MEMBERS_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionInfo {
    client_addr: String,
    client_id: String,
    language: &'static str,
    version: i32,
}

impl From<&Member> for ConnectionInfo {
    fn from(member: &Member) -> Self {
        Self {
            client_addr: member.conn.peer().to_string(),
            client_id: member.client_id.to_string(),
            language: member.language.name(),
            version: member.version,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsumerConnection {
    connection_set: Vec<ConnectionInfo>,
    consume_from_where: String,
    consume_type: String,
    message_model: String,
    subscription_table: BTreeMap<String, Value>,
}

/// Code 203.
pub(crate) fn consumers(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let view = broker
        .consumers
        .view(&group)
        .ok_or_else(|| BrokerError::NotOnline(names::shorten(&group)))?;
    Ok(json_answer(&ConsumerConnection {
        connection_set: view.members.iter().map(ConnectionInfo::from).collect(),
        consume_from_where: view.consume_from_where,
        consume_type: view.consume_type,
        message_model: view.message_model,
        subscription_table: view
            .subscriptions
            .iter()
            .map(|(topic, s)| (topic.clone(), s.to_json()))
            .collect(),
    }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProducerConnection {
    connection_set: Vec<ConnectionInfo>,
}

/// Code 204.
pub(crate) fn producers(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("producerGroup")?;
    let members = broker.producers.members(&group);
    if members.is_empty() {
        return Err(BrokerError::Absent(format!(
            "the producer group[{}] not exist",
            names::shorten(&group)
        )));
    }
    Ok(json_answer(&ProducerConnection {
        connection_set: members.iter().map(ConnectionInfo::from).collect(),
    }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProducerInfo {
    client_id: String,
    language: &'static str,
    last_update_timestamp: u64,
    #[serde(rename = "remoteIP")]
    remote_ip: String,
    version: i32,
}

#[derive(Debug, Serialize)]
struct ProducerTable {
    data: BTreeMap<String, Vec<ProducerInfo>>,
}

/// Code 328.
pub(crate) fn all_producers(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let info = |member: &Member| ProducerInfo {
        client_id: member.client_id.to_string(),
        language: member.language.name(),
        last_update_timestamp: member.seen_ms,
        remote_ip: format!("/{}", member.conn.peer()),
        version: member.version,
    };
    let data = broker
        .producers
        .all()
        .into_iter()
        .map(|(group, members)| (group, members.iter().map(info).collect()))
        .collect();
    Ok(json_answer(&ProducerTable { data }))
}

/// Code 900008.
pub(crate) fn members(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let after: Option<String> = cmd.ext.optional("after")?;
    let limit: Option<u32> = cmd.ext.optional("limit")?;
    if !broker.groups.contains(&group) {
        return Err(BrokerError::NoGroup(names::shorten(&group)));
    }
    let limit = limit.map_or(MEMBERS_MAX, |limit| {
        usize::try_from(limit).unwrap_or(MEMBERS_MAX)
    });
    let after = after.unwrap_or_default();
    let members = broker.group_members(&group, &after, limit.min(MEMBERS_MAX));
    Ok(json_answer(&GroupMembers { members }))
}
