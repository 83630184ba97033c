//! Code 223 with the question 221: where the members of a group say they are in a topic.

use std::sync::Arc;
use std::time::Duration;

use remoting::Responder;
use tokio::task::JoinSet;
use wire::body::offsets::ConsumerStatus;
use wire::body::queue::QueueMap;
use wire::{Command, RequestCode, ResponseCode};

use super::success;
use crate::broker::Broker;
use crate::clients::{Member, call_member};
use crate::dispatch::reply;
use crate::error::BrokerError;
use crate::names;

/// Members asked at a time.
const AT_ONCE: usize = 64;
/// Longest time for all of them.
const WHOLE_WAIT: Duration = Duration::from_secs(12);

/// Asks one member (field `clientAddr`) or all; those that do not answer are left out.
pub(crate) fn ask_all(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let asked = match Asked::parse(broker, cmd) {
        Ok(asked) => asked,
        Err(error) => return to.send(error.to_response()),
    };
    let Some(place) = broker.admission.admin.place_to_wait() else {
        return to.send(BrokerError::Overload.to_response());
    };
    let owner = broker.clone();
    broker.spawn(async move {
        let answer = tokio::select! {
            () = owner.stopping.cancelled() => Err(BrokerError::Stopping),
            status = asked.collect() => {
                Ok(success().with_body(wire::json::to_vec_apache(&status)))
            }
        };
        drop(place);
        reply(to, answer);
    });
}

struct Asked {
    group: String,
    topic: String,
    members: Vec<Member>,
}

impl Asked {
    fn parse(broker: &Broker, cmd: &Command) -> Result<Self, BrokerError> {
        let group: String = cmd.ext.required("group")?;
        let topic: String = cmd.ext.required("topic")?;
        let one = cmd.ext.get("clientAddr").filter(|id| !id.is_empty());
        let view = broker.consumers.view(&group).ok_or_else(|| {
            BrokerError::Absent(format!(
                "No Any Consumer online in the consumer group: [{}]",
                names::shorten(&group)
            ))
        })?;
        let mut members = view.members;
        members.retain(|member| one.is_none_or(|id| *member.client_id == *id));
        Ok(Self {
            group,
            topic,
            members,
        })
    }

    async fn collect(self) -> ConsumerStatus {
        let mut status = ConsumerStatus::default();
        let mut asking = JoinSet::new();
        let mut waiting = self.members.into_iter();
        let all = async {
            loop {
                while asking.len() < AT_ONCE
                    && let Some(member) = waiting.next()
                {
                    asking.spawn(ask(member, self.group.clone(), self.topic.clone()));
                }
                match asking.join_next().await {
                    Some(Ok(Some((id, table)))) => {
                        status.consumer_table.insert(id, table);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        };
        // Who has not answered by then is left out.
        tokio::time::timeout(WHOLE_WAIT, all).await.ok();
        status
    }
}

async fn ask(member: Member, group: String, topic: String) -> Option<(String, QueueMap<i64>)> {
    let mut cmd = Command::request(RequestCode::GetConsumerStatusFromClient);
    cmd.ext.put("group", group);
    cmd.ext.put("topic", topic);
    let id = member.client_id.to_string();
    let left_out = |why: String| {
        tracing::debug!(client = %names::shorten(&id), why, "member told no offsets");
        None
    };
    match call_member(&member, cmd).await {
        Ok(answer) if answer.response_code() == ResponseCode::Success => {
            match wire::json::from_slice::<ConsumerStatus>(&answer.body.to_bytes()) {
                Ok(status) => Some((id, status.message_queue_table)),
                Err(error) => left_out(error.to_string()),
            }
        }
        Ok(answer) => left_out(format!("{}: {:?}", answer.code, answer.remark)),
        Err(error) => left_out(error.to_string()),
    }
}
