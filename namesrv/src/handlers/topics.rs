//! Lists of topics (206, 224, 304, 311–313), and topics added or removed by hand (217, 216).

use wire::Command;
use wire::body::{TopicList, TopicRouteData};
use wire::headers::topic::{DeleteTopicInNamesrvRequest, TopicRequest, TopicsByClusterRequest};

use super::header;
use crate::dispatch::success;
use crate::error::NamesrvError;
use crate::namesrv::NameServer;
use crate::route_table::Queues;

/// Bit of a topic's flag: it belongs to a unit.
pub(crate) const UNIT: i32 = 1;
/// Bit of a topic's flag: a unit subscribes to it.
pub(crate) const UNIT_SUB: i32 = 2;

fn list(topic_list: Vec<String>) -> Command {
    success().with_body(wire::json::to_vec(&TopicList {
        broker_addr: None,
        topic_list,
    }))
}

fn allowed(ns: &NameServer, key: &str) -> Result<(), NamesrvError> {
    if ns.settings.lock().is_on(key) {
        Ok(())
    } else {
        Err(NamesrvError::Disabled)
    }
}

/// GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206.
pub(crate) fn all(ns: &NameServer) -> Result<Command, NamesrvError> {
    allowed(ns, "enableAllTopicList")?;
    Ok(list(ns.table.read().topics()))
}

/// GET_TOPICS_BY_CLUSTER 224.
pub(crate) fn of_cluster(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    allowed(ns, "enableTopicList")?;
    let head: TopicsByClusterRequest = header(cmd)?;
    Ok(list(ns.table.read().topics_of_cluster(&head.cluster)))
}

/// GET_SYSTEM_TOPIC_LIST_FROM_NS 304.
pub(crate) fn system(ns: &NameServer) -> Command {
    let (topic_list, broker_addr) = ns.table.read().system_topics();
    success().with_body(wire::json::to_vec(&TopicList {
        broker_addr,
        topic_list,
    }))
}

/// GET_UNIT_TOPIC_LIST 311, GET_HAS_UNIT_SUB_TOPIC_LIST 312, GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST 313.
pub(crate) fn unit(ns: &NameServer, all_of: i32, none_of: i32) -> Result<Command, NamesrvError> {
    allowed(ns, "enableTopicList")?;
    Ok(list(ns.table.read().unit_topics(all_of, none_of)))
}

/// DELETE_TOPIC_IN_NAMESRV 216; a topic that is not known is as good as deleted.
pub(crate) fn delete(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: DeleteTopicInNamesrvRequest = header(cmd)?;
    let cluster = head.cluster_name.as_deref().filter(|name| !name.is_empty());
    ns.table.write().delete_topic(&head.topic, cluster);
    ns.update_sizes();
    tracing::info!(topic = head.topic, cluster, "topic deleted by hand");
    Ok(success())
}

/// REGISTER_TOPIC_IN_NAMESRV 217.
pub(crate) fn register(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: TopicRequest = header(cmd)?;
    let body = cmd.body.to_bytes();
    if !body.is_empty() {
        let body: TopicRouteData =
            wire::json::from_slice(&body).map_err(|error| NamesrvError::Body(error.to_string()))?;
        let queues = body
            .queue_datas
            .iter()
            .map(|data| (data.broker_name.clone(), Queues::from(data)));
        ns.table
            .write()
            .register_topic(&head.topic, &queues.collect::<Vec<_>>());
        ns.update_sizes();
    }
    Ok(success())
}
