//! Code 315: one counter's last minute, hour and day.

use std::sync::Arc;

use remoting::Connection;
use wire::Command;
use wire::body::stats::{BrokerStatsData, StatsItem};

use super::json_answer;
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::stats::Window;

/// Names are RocketMQ's: `TOPIC_PUT_NUMS`, `GROUP_GET_NUMS` and the like; see [`crate::stats`].
pub(crate) fn view(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let name: String = cmd.ext.required("statsName")?;
    let key: String = cmd.ext.required("statsKey")?;
    let now = broker.clock.monotonic();
    let [minute, hour, day] = broker
        .stats
        .windows(&name, &key, &broker.config.cluster, now)
        .ok_or_else(|| {
            BrokerError::Absent(format!(
                "The stats <{}> <{}> not exist",
                names::shorten(&name),
                names::shorten(&key)
            ))
        })?;
    Ok(json_answer(&BrokerStatsData {
        stats_day: item(day),
        stats_hour: item(hour),
        stats_minute: item(minute),
    }))
}

fn item(window: Window) -> StatsItem {
    StatsItem {
        avgpt: window.per_time,
        sum: i64::try_from(window.sum).unwrap_or(i64::MAX),
        tps: window.per_second,
    }
}
