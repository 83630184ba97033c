//! Codes 400, 401 and 402: which queues a client of a group reads and how, computed by the broker.

use std::sync::Arc;

use remoting::{Connection, Responder};
use serde::Deserialize;
use wire::Command;
use wire::body::MessageQueue;
use wire::body::assignment::{
    QueryAssignmentResponse, QueueAssignment, RequestMode, SetRequestMode,
};

use super::{json_answer, json_body, success};
use crate::allocate::{Strategy, for_pop};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::topic::PERM_READ;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AssignmentBody {
    topic: String,
    consumer_group: String,
    client_id: String,
    strategy_name: String,
    message_model: String,
}

/// Code 400. Inline where this broker is the whole cluster, else once the topic's route is known.
pub(crate) fn query(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let body: AssignmentBody = match json_body(cmd) {
        Ok(body) => body,
        Err(error) => return to.send(error.to_response()),
    };
    if broker.routes.is_alone() {
        let queues = own_queues(broker, &body.topic);
        return to.send(assign(broker, &body, queues));
    }
    let Some(place) = broker.admission.admin.place_to_wait() else {
        return to.send(BrokerError::Overload.to_response());
    };
    let owner = broker.clone();
    broker.spawn(async move {
        let queues = tokio::select! {
            () = owner.stopping.cancelled() => Vec::new(),
            queues = all_queues(&owner, &body.topic) => queues,
        };
        drop(place);
        to.send(assign(&owner, &body, queues));
    });
}

/// The readable queues of this broker: as in a route, both the topic and the broker must allow it.
fn own_queues(broker: &Broker, topic: &str) -> Vec<MessageQueue> {
    let Some(config) = broker.topics.get(topic) else {
        return Vec::new();
    };
    if config.perm & broker.live.permission() & PERM_READ == 0 {
        return Vec::new();
    }
    (0..config.read_queue_nums)
        .map(|id| MessageQueue::new(topic, broker.config.name.clone(), id))
        .collect()
}

/// The readable queues of all brokers in the order that all members agree on. This broker's are as it knows them.
async fn all_queues(broker: &Broker, topic: &str) -> Vec<MessageQueue> {
    let Some(route) = broker.routes.get(topic, broker.clock.monotonic()).await else {
        return Vec::new();
    };
    let mut queues = own_queues(broker, topic);
    for data in &route.queue_datas {
        if data.perm & PERM_READ != 0 && data.broker_name != broker.config.name {
            let ids = 0..data.read_queue_nums.min(crate::topic::QUEUES_MAX);
            queues.extend(ids.map(|id| MessageQueue::new(topic, data.broker_name.clone(), id)));
        }
    }
    queues.sort_unstable();
    queues
}

/// The answer. Where nothing can be said (no such topic, member or strategy) it is `{}`, and the client keeps what it has.
fn assign(broker: &Broker, body: &AssignmentBody, queues: Vec<MessageQueue>) -> Command {
    let nothing = || json_answer(&QueryAssignmentResponse::default());
    if queues.is_empty() {
        return nothing();
    }
    let (mode, queues) = if body.message_model.eq_ignore_ascii_case("BROADCASTING") {
        (RequestMode::Pull, queues)
    } else {
        let members = broker.consumers.client_ids(&body.consumer_group);
        let at = members.iter().position(|id| **id == *body.client_id);
        let strategy = Strategy::named(&body.strategy_name);
        let (Some(at), Some(strategy)) = (at, strategy) else {
            return nothing();
        };
        // The queues of a group's retries are always pulled.
        let set = broker.modes.get(&body.topic, &body.consumer_group);
        match set.filter(|set| set.mode == RequestMode::Pop && !names::is_retry(&body.topic)) {
            Some(set) => (
                RequestMode::Pop,
                for_pop(
                    strategy,
                    &queues,
                    members.len(),
                    at,
                    set.pop_share_queue_num,
                ),
            ),
            None => (
                RequestMode::Pull,
                strategy.share(&queues, members.len(), at),
            ),
        }
    };
    let assigned = queues
        .into_iter()
        .map(|message_queue| QueueAssignment {
            message_queue,
            mode,
        })
        .collect();
    json_answer(&QueryAssignmentResponse {
        message_queue_assignments: Some(assigned),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SetModeBody {
    topic: String,
    consumer_group: String,
    mode: String,
    pop_share_queue_num: i32,
}

/// Code 401. Blocks on the disk.
pub(crate) fn set_mode(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let body: SetModeBody = json_body(cmd)?;
    if names::is_retry(&body.topic) {
        return Err(BrokerError::Forbidden(
            "retry topic is not allowed to set mode".to_owned(),
        ));
    }
    names::check_topic(&body.topic).map_err(BrokerError::Invalid)?;
    names::check_group(&body.consumer_group).map_err(BrokerError::Invalid)?;
    let mode = match body.mode.to_ascii_uppercase().as_str() {
        "PULL" | "0" => RequestMode::Pull,
        "POP" | "1" => RequestMode::Pop,
        other => {
            return Err(BrokerError::Invalid(format!(
                "mode [{}] is neither PULL nor POP",
                names::shorten(other)
            )));
        }
    };
    let set = broker.modes.set(SetRequestMode {
        consumer_group: body.consumer_group.clone(),
        mode,
        pop_share_queue_num: body.pop_share_queue_num,
        topic: body.topic.clone(),
    });
    if !set {
        return Err(BrokerError::Full("request mode"));
    }
    broker.mode_changed(&body.consumer_group);
    broker.save_modes()?;
    tracing::info!(
        topic = body.topic,
        group = body.consumer_group,
        ?mode,
        "request mode set"
    );
    Ok(success())
}

/// Code 402.
pub(crate) fn all_modes(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    Ok(success().with_body(broker.modes.to_json()))
}
