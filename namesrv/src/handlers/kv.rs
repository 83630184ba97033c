//! The key-value table: 100, 101, 102, 219.

use wire::Command;
use wire::body::KvTable;
use wire::headers::kv::{GetKvResponse, KvListRequest, KvRequest, PutKvRequest};

use super::header;
use crate::dispatch::{Reply, success};
use crate::error::NamesrvError;
use crate::namesrv::NameServer;

/// PUT_KV_CONFIG 100. Without a value nothing changes, as with Apache's.
pub(crate) fn put(ns: &NameServer, cmd: &Command) -> Result<Reply, NamesrvError> {
    let head: PutKvRequest = header(cmd)?;
    let Some(value) = head.value else {
        return Ok(success().into());
    };
    ns.kv.put(&head.namespace, &head.key, &value)?;
    Ok(Reply::WhenPersisted)
}

/// GET_KV_CONFIG 101.
pub(crate) fn get(ns: &NameServer, cmd: &Command) -> Result<Reply, NamesrvError> {
    let head: KvRequest = header(cmd)?;
    let value = ns.kv.get(&head.namespace, &head.key);
    let value = value.ok_or_else(|| {
        NamesrvError::NoKey(format!("Namespace: {} Key: {}", head.namespace, head.key))
    })?;
    Ok(success()
        .with_header(&GetKvResponse { value: Some(value) })
        .into())
}

/// DELETE_KV_CONFIG 102.
pub(crate) fn delete(ns: &NameServer, cmd: &Command) -> Result<Reply, NamesrvError> {
    let head: KvRequest = header(cmd)?;
    ns.kv.delete(&head.namespace, &head.key);
    Ok(Reply::WhenPersisted)
}

/// GET_KVLIST_BY_NAMESPACE 219.
pub(crate) fn list(ns: &NameServer, cmd: &Command) -> Result<Reply, NamesrvError> {
    let head: KvListRequest = header(cmd)?;
    let table = ns.kv.namespace(&head.namespace);
    let table =
        table.ok_or_else(|| NamesrvError::NoKey(format!("Namespace: {}", head.namespace)))?;
    Ok(success()
        .with_body(wire::json::to_vec(&KvTable { table }))
        .into())
}
