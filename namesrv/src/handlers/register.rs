//! Brokers come, stay and go: 103, 104, 322, 904.

use std::time::Duration;

use wire::body::register::check_crc32;
use wire::body::{DataVersion, KvTable, RegisterBody};
use wire::headers::register_broker::{
    BrokerHeartbeatRequest, BrokerRequest, COMPLETE, QueryDataVersionResponse,
    RegisterBrokerRequest, RegisterBrokerResponse,
};
use wire::{Command, WireError};

use super::header;
use crate::dispatch::success;
use crate::error::NamesrvError;
use crate::kv_config::ORDER_TOPICS;
use crate::namesrv::NameServer;
use crate::route_table::{BrokerAddr, Queues, Registration, Version};

/// Ext field of a broker in a zone.
const ZONE: &str = "__ZONE_NAME";
/// Longest silence a broker may ask for.
const EXPIRY_MAX: Duration = Duration::from_secs(3600);

/// REGISTER_BROKER 103.
pub(crate) fn register(
    ns: &NameServer,
    cmd: &Command,
    connection: u64,
) -> Result<Command, NamesrvError> {
    let head: RegisterBrokerRequest = header(cmd)?;
    let body = cmd.body.to_bytes();
    check_crc32(head.body_crc32, &body).map_err(|_| NamesrvError::Checksum)?;
    let told = RegisterBody::decode(&body, cmd.version, head.compressed)
        .map_err(|error| unreadable(&error))?;
    let told = told.topic_config_serialize_wrapper;
    let limit = head
        .heartbeat_timeout_ms
        .and_then(|ms| u64::try_from(ms).ok())
        .filter(|ms| *ms > 0);
    let registration = Registration {
        addr: BrokerAddr {
            cluster: head.cluster_name,
            addr: head.broker_addr,
        },
        broker_name: head.broker_name,
        broker_id: head.broker_id,
        ha_addr: head.ha_server_addr,
        zone: cmd.ext.get(ZONE).map(str::to_owned),
        expiry: limit.map(|ms| Duration::from_millis(ms).min(EXPIRY_MAX)),
        acting_master: head.enable_acting_master,
        version: told.data_version.into(),
        topics: told
            .topic_config_table
            .iter()
            .map(|(name, config)| (name.clone(), Queues::from(config)))
            .collect(),
        complete: cmd.ext.bool(COMPLETE),
        connection,
    };
    let known = ns
        .table
        .write()
        .register(&registration, ns.ctx.clock.monotonic());
    let registered = known.map_err(NamesrvError::Refused)?;
    ns.update_sizes();
    tracing::debug!(
        broker = registration.broker_name,
        id = registration.broker_id,
        addr = registration.addr.addr,
        topics = registration.topics.len(),
        "broker registered"
    );
    let answer = success().with_header(&RegisterBrokerResponse {
        ha_server_addr: registered.ha_addr,
        master_addr: registered.master_addr,
    });
    let ordered = ns
        .kv
        .namespace(ORDER_TOPICS)
        .filter(|_| ns.settings.lock().is_on("returnOrderTopicConfigToBroker"));
    Ok(match ordered {
        Some(table) => answer.with_body(wire::json::to_vec(&KvTable { table })),
        None => answer,
    })
}

/// UNREGISTER_BROKER 104.
pub(crate) fn unregister(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: BrokerRequest = header(cmd)?;
    let addr = BrokerAddr {
        cluster: head.cluster_name,
        addr: head.broker_addr,
    };
    ns.table
        .write()
        .unregister(&addr, &head.broker_name, head.broker_id);
    ns.update_sizes();
    tracing::info!(
        broker = head.broker_name,
        id = head.broker_id,
        addr = addr.addr,
        "broker unregistered"
    );
    Ok(success())
}

/// QUERY_DATA_VERSION 322.
pub(crate) fn query_data_version(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: BrokerRequest = header(cmd)?;
    let asked: DataVersion =
        wire::json::from_slice(&cmd.body.to_bytes()).map_err(|error| unreadable(&error))?;
    let addr = BrokerAddr {
        cluster: head.cluster_name,
        addr: head.broker_addr,
    };
    let stored = ns
        .table
        .write()
        .touch_version(&addr, ns.ctx.clock.monotonic());
    let answer = success().with_header(&QueryDataVersionResponse {
        changed: stored != Some(Version::from(asked)),
    });
    Ok(match stored {
        Some(version) => answer.with_body(wire::json::to_vec(&DataVersion::from(version))),
        None => answer,
    })
}

/// BROKER_HEARTBEAT 904.
pub(crate) fn heartbeat(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: BrokerHeartbeatRequest = header(cmd)?;
    let addr = BrokerAddr {
        cluster: head.cluster_name,
        addr: head.broker_addr,
    };
    ns.table.write().heartbeat(&addr, ns.ctx.clock.monotonic());
    Ok(success())
}

fn unreadable(error: &WireError) -> NamesrvError {
    NamesrvError::Body(error.to_string())
}
