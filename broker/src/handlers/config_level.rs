//! Codes 900011 to 900013: what this broker's tables hold, for its peers, and what peers and gateways bring.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::config_level::{
    ConfigEntries, ConfigEntry, ConfigList, ConfigNames, ConfigOffered,
};

use super::{json_answer, json_body};
use crate::adopt::{self, Kind};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::table::Table;

/// Most marks of a page.
const PAGE_MAX: usize = 5_000;
/// Most entries of an answer or an offer.
pub(crate) const ENTRIES_MAX: usize = 200;
/// An answer with entries ends above this many bytes.
const BYTES_MAX: usize = 4 << 20;

fn kind(cmd: &Command) -> Result<Kind, BrokerError> {
    let text: String = cmd.ext.required("kind")?;
    Kind::parse(&text).ok_or_else(|| BrokerError::Invalid("kind must be topic or group".to_owned()))
}

/// Code 900011: names with their versions, in order, `limit` after the name `after`. `known` is the state of an earlier
/// answer; where nothing has changed since, the page is empty.
pub(crate) fn list(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let after = cmd.ext.get("after").unwrap_or("");
    let limit = cmd
        .ext
        .optional::<u32>("limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(PAGE_MAX)
        .clamp(1, PAGE_MAX);
    let kind = kind(cmd)?;
    meet(broker, cmd);
    let sequence = match kind {
        Kind::Topic => broker.topics.sequence(),
        Kind::Group => broker.groups.sequence(),
    };
    // The sequence is read first: what changes meanwhile is read again.
    let state = format!("{}.{sequence}", broker.started_ms);
    let (marks, more) = if cmd.ext.get("known") == Some(state.as_str()) {
        (Vec::new(), false)
    } else {
        match kind {
            Kind::Topic => broker.topics.marks(after, limit),
            Kind::Group => broker.groups.marks(after, limit),
        }
    };
    let mut answer = json_answer(&ConfigList { marks, more, state });
    answer.ext.put("brokerName", broker.config.name.as_str());
    answer
        .ext
        .put("clusterName", broker.config.cluster.as_str());
    Ok(answer)
}

/// Remembers the peer that asks, if it is one.
fn meet(broker: &Broker, cmd: &Command) {
    let (name, addr) = (cmd.ext.get("from"), cmd.ext.get("fromAddr"));
    if let (Some(name), Some(addr)) = (name, addr)
        && cmd.ext.get("clusterName") == Some(broker.config.cluster.as_str())
        && name != broker.config.name
        && crate::names::check_topic(name).is_ok()
        && addr.parse::<std::net::SocketAddr>().is_ok()
    {
        broker.peers.met(name, addr, broker.now_ms());
    }
}

/// Code 900012: the entries of these names; those that would make the answer too large are left out.
pub(crate) fn fetch(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let wanted: ConfigNames = json_body(cmd)?;
    if wanted.names.len() > ENTRIES_MAX {
        return Err(BrokerError::Invalid(format!(
            "names: at most {ENTRIES_MAX}"
        )));
    }
    let entries = match kind(cmd)? {
        Kind::Topic => entries(&broker.topics, &wanted.names),
        Kind::Group => entries(&broker.groups, &wanted.names),
    };
    Ok(json_answer(&ConfigEntries { entries }))
}

fn entries<T: crate::table::Entry>(table: &Table<T>, names: &[String]) -> Vec<ConfigEntry> {
    let mut bytes = 0;
    let mut entries = Vec::new();
    for name in names {
        let (config, version, deleted_at_ms) = match table.get(name) {
            Some(config) => {
                let version = config.version();
                bytes += config.content().len();
                (
                    serde_json::to_value(config.as_ref()).unwrap_or_default(),
                    version,
                    0,
                )
            }
            None => match table.deletion(name) {
                None => continue,
                Some(gone) => (serde_json::Value::Null, gone.version, gone.at_ms),
            },
        };
        if bytes > BYTES_MAX && !entries.is_empty() {
            break;
        }
        let name = name.clone();
        entries.push(ConfigEntry {
            config,
            deleted_at_ms,
            name,
            version,
        });
    }
    entries
}

/// Code 900013: takes what is newer, and refuses where one of the entries cannot be. `fresh` says that it was written a moment ago, so that `latest` is now.
pub(crate) fn offer(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let offered: ConfigEntries = json_body(cmd)?;
    if offered.entries.len() > ENTRIES_MAX {
        return Err(BrokerError::Invalid(format!(
            "entries: at most {ENTRIES_MAX}"
        )));
    }
    let from = cmd.ext.get("from").unwrap_or("");
    let fresh = cmd.ext.bool("fresh");
    let adopted = adopt::adopt(broker, kind(cmd)?, &offered.entries, from, fresh)?;
    let results = adopted.into_iter().collect::<Result<_, _>>()?;
    Ok(json_answer(&ConfigOffered { results }))
}
