//! Codes 18, 45 and 225: several topics or groups in one request, and the progress of the delay levels.

use std::sync::Arc;

use remoting::Connection;
use serde::Deserialize;
use wire::Command;

use super::{group, json_body, success, topic};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::group::GroupConfig;
use crate::topic::TopicConfig;

/// Most topics or groups of one request.
const LIST_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Topics {
    topic_config_list: Vec<TopicConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Groups {
    group_config_list: Vec<GroupConfig>,
}

fn check_count(count: usize) -> Result<(), BrokerError> {
    if count > LIST_MAX {
        return Err(BrokerError::Invalid(format!(
            "the list has {count} entries, the limit is {LIST_MAX}"
        )));
    }
    Ok(())
}

/// Code 18: all topics of the list, or none where one of them may not be; a full table takes as many as fit and says so.
pub(crate) fn topics(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let list = json_body::<Topics>(cmd)?.topic_config_list;
    check_count(list.len())?;
    let mut checked = Vec::with_capacity(list.len());
    for config in list {
        checked.push(topic::Wanted::of(config)?);
    }
    let mut done = Ok(success());
    broker.topics.batch(broker.now_ms(), |batch| {
        for wanted in checked {
            if let Err(error) = topic::apply(broker, batch, wanted) {
                done = Err(error);
            }
        }
    });
    broker.save_topics()?;
    broker.wait_registered();
    done
}

/// Code 225: all groups of the list, or none where one of them has a bad name; a full table takes as many as fit and says
/// so.
pub(crate) fn groups(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let list = json_body::<Groups>(cmd)?.group_config_list;
    check_count(list.len())?;
    for config in &list {
        group::check(config)?;
    }
    let mut done = Ok(success());
    broker.groups.batch(broker.now_ms(), |batch| {
        for config in list {
            if let Err(error) = group::apply(batch, config) {
                done = Err(error);
            }
        }
    });
    broker.save_groups()?;
    done
}

/// Code 45: the content of `delayOffset.json`, as a follower reads it.
pub(crate) fn delay_offsets(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    Ok(success().with_body(broker.delay.view()))
}
