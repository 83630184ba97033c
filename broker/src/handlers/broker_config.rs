//! Codes 25 and 26: the broker's settings as properties text, and the few that may change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use remoting::Connection;
use serde_json::Value;
use wire::Command;

use super::success;
use crate::broker::Broker;
use crate::config::FlushMode;
use crate::error::BrokerError;
use crate::names;
use crate::settings::{Change, ChangeError, LOG, LiveSettings, SETTINGS};

/// Longest text of a change, in bytes.
const TEXT_MAX: usize = 64 * 1024;

/// Code 26: every setting by our name, and by RocketMQ's where it has one.
pub(crate) fn get(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let mut response = success().with_body(text(broker).into_bytes());
    let version = serde_json::to_string(&broker.config_version())
        .map_err(|_| BrokerError::Internal("version text"))?;
    response.ext.put("version", version);
    Ok(response)
}

fn text(broker: &Broker) -> String {
    let config = &broker.config;
    let sync = config.flush.mode == FlushMode::Sync;
    let mut lines = BTreeMap::new();
    for (key, value) in [
        ("brokerClusterName", config.cluster.clone()),
        ("brokerIP1", broker.store_host.ip().to_string()),
        ("brokerId", config.id.to_string()),
        ("brokerName", config.name.clone()),
        ("brokerRole", "ASYNC_MASTER".to_owned()),
        ("defaultTopicQueueNums", "8".to_owned()),
        ("enablePropertyFilter", "false".to_owned()),
        (
            "flushDiskType",
            if sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" }.to_owned(),
        ),
        ("listenPort", broker.store_host.port().to_string()),
        ("mappedFileSizeCommitLog", config.segment.size.0.to_string()),
        ("namesrvAddr", config.namesrv.join(";")),
        (
            "registerNameServerPeriod",
            config.register_interval.0.to_string(),
        ),
        ("storePathRootDir", config.data.display().to_string()),
        ("timerWheelEnable", "false".to_owned()),
        ("traceOn", "true".to_owned()),
    ] {
        lines.insert(key.to_owned(), value);
    }
    let tree = serde_json::to_value(config).unwrap_or_default();
    flatten("", &tree, &mut lines);
    for setting in &SETTINGS {
        let value = broker.live.get(setting.key);
        lines.insert(setting.ours.to_owned(), setting.show(value));
        if !setting.theirs.is_empty() {
            lines.insert(setting.theirs.to_owned(), setting.show_theirs(value));
        }
    }
    if let Some(filter) = broker.live.log_filter() {
        lines.insert(LOG.to_owned(), filter);
    }
    let mut text = String::new();
    for (key, value) in lines {
        // Writing into a String does not fail.
        writeln!(text, "{key}={}", value.replace('\\', "\\\\")).ok();
    }
    text
}

/// The settings as started with, by the keys of the TOML file.
fn flatten(at: &str, tree: &Value, lines: &mut BTreeMap<String, String>) {
    match tree {
        Value::Object(members) => {
            for (name, value) in members {
                let key = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                flatten(&key, value, lines);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            lines.insert(at.to_owned(), text.clone());
        }
        Value::Array(list) => {
            let parts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            lines.insert(at.to_owned(), parts.join(","));
        }
        other => {
            lines.insert(at.to_owned(), other.to_string());
        }
    }
}

/// Code 25: all changes of the text or none; kept in the data directory.
pub(crate) fn update(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let body = cmd.body.to_bytes();
    if body.len() > TEXT_MAX {
        return Err(BrokerError::Body(format!(
            "the text has {} bytes, the limit is {TEXT_MAX}",
            body.len()
        )));
    }
    let text = String::from_utf8_lossy(&body);
    let changes: Vec<(&str, &str)> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        // As in a properties file, a name alone has an empty value: it is refused by name, not passed over.
        .map(|line| line.split_once('=').unwrap_or((line, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let mut checked = Vec::new();
    for (key, value) in &changes {
        checked.push(LiveSettings::check(key, value).map_err(|error| refusal(key, &error))?);
    }
    let mut response = success();
    if !checked.is_empty() {
        broker.change_settings(&checked)?;
        broker.registration.refresh();
    }
    let pinned: Vec<&str> = checked
        .iter()
        .filter(|change| broker.live.is_pinned(change))
        .map(Change::name)
        .collect();
    if !pinned.is_empty() {
        response = response.with_remark(format!(
            "changed until the next start: the environment or a flag sets {}",
            pinned.join(", ")
        ));
    }
    Ok(response)
}

fn refusal(key: &str, error: &ChangeError) -> BrokerError {
    match error {
        ChangeError::Fixed => {
            let list: Vec<String> = SETTINGS
                .iter()
                .map(|setting| match setting.theirs {
                    "" => setting.ours.to_owned(),
                    theirs => format!("{} ({theirs})", setting.ours),
                })
                .chain(std::iter::once(LOG.to_owned()))
                .collect();
            BrokerError::Forbidden(format!(
                "{} can not change while the broker runs; these can: {}",
                names::shorten(key),
                list.join(", ")
            ))
        }
        ChangeError::Value(wanted) => {
            BrokerError::Invalid(format!("{} must be {wanted}", names::shorten(key)))
        }
    }
}
