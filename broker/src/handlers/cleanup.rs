//! Codes 306, 316, 329 and 908: an administrator asks for what the broker does by itself, now.

use std::collections::BTreeSet;
use std::sync::Arc;

use remoting::Connection;
use wire::Command;

use super::{success, topic};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::retention;

/// Code 306: queue files without a message in the log go, as they do behind each deletion of log files.
pub(crate) fn queues(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    broker.store.step_maintain(true);
    Ok(success())
}

/// Code 329: log files older than the retention time go, whatever the hour.
pub(crate) fn log(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    retention::expired(broker)?;
    Ok(success())
}

/// Code 316: queues of topics that are not in the table go. The system's stay.
pub(crate) fn topics(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let unused: BTreeSet<String> = broker
        .store
        .topics()
        .into_iter()
        .map(|(topic, _)| topic)
        .filter(|topic| !names::is_system_topic(topic) && !broker.topics.contains(topic))
        .collect();
    for name in unused {
        topic::remove_unused(broker, &name)?;
    }
    Ok(success())
}

/// Code 908 sets how far a follower's leader has flushed; a leader has nothing to set (RocketMQ 5.4.0
/// `AdminBrokerProcessor`).
pub(crate) fn master_flush_offset(
    _broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    cmd.ext.required::<i64>("masterFlushOffset")?;
    Ok(success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::{append, start};
    use crate::topic::{PERM_READ_WRITE, TopicConfig};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_that_is_made_while_unused_ones_are_removed_keeps_its_messages() {
        let running = start().await;
        let broker = &running.broker;
        append(broker, "made", 2).await;
        append(broker, "unused", 2).await;
        let made = TopicConfig::new("made", 1, PERM_READ_WRITE);
        broker.topics.ensure(made, 1).unwrap();
        for name in ["made", "unused"] {
            topic::remove_unused(broker, name).unwrap();
        }
        let left = |name| broker.store.queue(name, 0).max.get();
        assert_eq!((left("made"), left("unused")), (2, 0));
        running.stop().await.unwrap();
    }
}
