//! Codes 25 and 26: the broker's settings as properties text, and the few that may change.

use std::fmt::Write as _;
use std::sync::Arc;

use remoting::Connection;
use wire::Command;

use super::success;
use crate::broker::Broker;
use crate::config::FlushMode;
use crate::error::BrokerError;
use crate::names;
use crate::settings::{CHANGEABLE, ChangeError, LiveSettings};

/// Longest text of a change, in bytes.
const TEXT_MAX: usize = 64 * 1024;

/// Code 26: RocketMQ's names where it has one, then ours.
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
    let live = &broker.live;
    let sync = config.flush.mode == FlushMode::Sync;
    let lines: Vec<(&str, String)> = vec![
        (
            "autoCreateSubscriptionGroup",
            live.create_groups().to_string(),
        ),
        ("autoCreateTopicEnable", live.create_topics().to_string()),
        ("brokerClusterName", config.cluster.clone()),
        ("brokerIP1", broker.store_host.ip().to_string()),
        ("brokerId", config.id.to_string()),
        ("brokerName", config.name.clone()),
        ("brokerPermission", live.permission().to_string()),
        ("brokerRole", "ASYNC_MASTER".to_owned()),
        ("defaultTopicQueueNums", "8".to_owned()),
        ("enablePropertyFilter", "false".to_owned()),
        (
            "flushDiskType",
            if sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" }.to_owned(),
        ),
        (
            "flushIntervalCommitLog",
            config.flush.interval.0.to_string(),
        ),
        ("listenPort", broker.store_host.port().to_string()),
        ("mappedFileSizeCommitLog", config.segment.size.0.to_string()),
        ("maxMessageSize", live.message_size_bytes().to_string()),
        ("namesrvAddr", config.namesrv.join(";")),
        (
            "registerNameServerPeriod",
            config.register_interval.0.to_string(),
        ),
        ("storePathRootDir", config.data.display().to_string()),
        ("timerWheelEnable", "false".to_owned()),
        ("traceOn", "true".to_owned()),
        ("create.groups", live.create_groups().to_string()),
        ("create.topics", live.create_topics().to_string()),
        ("flush.mode", if sync { "sync" } else { "async" }.to_owned()),
        ("limits.message_size", live.message_size_bytes().to_string()),
        ("permission", live.permission().to_string()),
    ];
    let mut text = String::new();
    for (key, value) in lines {
        // Writing into a String does not fail.
        writeln!(text, "{key}={value}").ok();
    }
    text
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
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    for (key, value) in &changes {
        LiveSettings::check(key, value).map_err(|error| refusal(key, &error))?;
    }
    for (key, value) in &changes {
        broker.live.set(key, value);
        tracing::info!(key, value, "setting changed");
    }
    if !changes.is_empty() {
        broker.save_settings()?;
        broker.registration.refresh();
    }
    Ok(success())
}

fn refusal(key: &str, error: &ChangeError) -> BrokerError {
    match error {
        ChangeError::Fixed => {
            let list: Vec<String> = CHANGEABLE
                .iter()
                .map(|(ours, theirs)| format!("{ours} ({theirs})"))
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
