//! Codes 307 and 309: what an administrator asks of one consumer, passed on to it and its answer back.

use std::sync::Arc;

use remoting::Responder;
use store::PhysicalOffset;
use wire::message::id::parse_offset_msg_id;
use wire::{Command, RequestCode};

use crate::broker::Broker;
use crate::clients::pass_on;
use crate::error::BrokerError;
use crate::names;

/// Code 307: the consumer's own view of itself, unchanged.
pub(crate) fn running_info(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    match consumer_of(&cmd) {
        Ok((group, client)) => {
            let mut request = Command::request(RequestCode::GetConsumerRunningInfo);
            request.ext = cmd.ext;
            pass_on(broker, group, client, request, to);
        }
        Err(error) => to.send(error.to_response()),
    }
}

/// Code 309: the consumer is given one stored message to consume now, outside its progress.
pub(crate) fn consume_directly(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    let (owner, bytes) = (broker.clone(), cmd.body.len());
    broker.admission.admin.run(broker, bytes, move |admitted| {
        match admitted.and_then(|()| directly(&owner, cmd)) {
            Ok((group, client, request)) => pass_on(&owner, group, client, request, to),
            Err(error) => to.send(error.to_response()),
        }
    });
}

fn directly(broker: &Arc<Broker>, cmd: Command) -> Result<(String, String, Command), BrokerError> {
    let (group, client) = consumer_of(&cmd)?;
    let id: String = cmd.ext.required("msgId")?;
    let (_, offset) = parse_offset_msg_id(&id)?;
    let absent = || BrokerError::Absent(format!("can not find message by the offset, {offset}"));
    let at = PhysicalOffset::from_wire(offset).ok_or_else(absent)?;
    let record = broker.store.record_at(at)?.ok_or_else(absent)?;
    let view = wire::message::record::RecordView::parse(&record)?;
    let mut request = Command::request(RequestCode::ConsumeMessageDirectly);
    request.ext = cmd.ext;
    request.ext.put("brokerName", broker.config.name.as_str());
    request.ext.put("topic", view.topic);
    request.ext.put("topicSysFlag", 0i32);
    request.ext.put("groupSysFlag", 0i32);
    Ok((group, client, request.with_body(record)))
}

fn consumer_of(cmd: &Command) -> Result<(String, String), BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let client: String = cmd.ext.required("clientId")?;
    if client.is_empty() {
        return Err(BrokerError::Invalid(format!(
            "clientId is empty: name the consumer of group [{}] to ask",
            names::shorten(&group)
        )));
    }
    Ok((group, client))
}
