//! Code 36: a native consumer gives a message back; it comes again after a delay, or is dead.

use std::sync::Arc;

use remoting::Responder;
use store::{AppendOutcome, MessageDraft, PhysicalOffset};
use wire::message::id::offset_msg_id;
use wire::message::properties::names as property;
use wire::message::record::RecordView;
use wire::{Command, ResponseCode, version};

use super::send_request::check_properties;
use super::success;
use crate::broker::Broker;
use crate::delay;
use crate::durability::{PutStatus, Waiter};
use crate::error::BrokerError;
use crate::names;
use crate::retry;

/// Stores the message again on a blocking thread. Answers once it is as durable as a send would be:
/// the consumer commits past the message next.
pub(crate) fn handle(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    let owner = broker.clone();
    let bytes = cmd.body.len();
    broker.admission.create.run(broker, bytes, move |admitted| {
        match admitted.and_then(|()| put_back(&owner, &cmd)) {
            Ok(None) => to.send(success()),
            Ok(Some(outcome)) => {
                let now = owner.clock.monotonic();
                owner.durability.when_durable(
                    &owner.store,
                    outcome.end(),
                    false,
                    now,
                    Waiter::Send,
                    move |status| {
                        to.send(match status {
                            PutStatus::Buffered | PutStatus::Flushed => success(),
                            PutStatus::FlushTimeout | PutStatus::Failed => Command::error(
                                ResponseCode::SystemError,
                                "given back, not confirmed on the disk",
                            ),
                        });
                    },
                );
            }
            Err(error) => to.send(error.to_response()),
        }
    });
}

fn put_back(broker: &Arc<Broker>, cmd: &Command) -> Result<Option<AppendOutcome>, BrokerError> {
    let group: String = cmd.ext.required("group")?;
    let offset: i64 = cmd.ext.required("offset")?;
    let wanted_level: i32 = cmd.ext.required("delayLevel")?;
    let max_from_client: Option<i32> = cmd.ext.optional("maxReconsumeTimes")?;
    broker.check_writable()?;
    let config = broker.ensure_group(&group)?;
    if broker.live.permission() & crate::topic::PERM_WRITE == 0 {
        return Err(BrokerError::Forbidden(
            "the broker is not writable".to_owned(),
        ));
    }
    if config.retry_queue_nums <= 0 {
        return Ok(None);
    }
    let retry_topic = broker.ensure_retry_topic(&config)?;
    if !retry_topic.is_writable() {
        return Err(BrokerError::Forbidden(format!(
            "topic[{}] is not writable",
            names::shorten(&retry_topic.topic_name)
        )));
    }
    let absent = || BrokerError::Absent(format!("look message by offset failed, {offset}"));
    let at = PhysicalOffset::from_wire(offset).ok_or_else(absent)?;
    let record = broker.store.record_at(at)?.ok_or_else(absent)?;
    let view = RecordView::parse(&record)?;
    let max = max_from_client
        .filter(|_| cmd.version >= version::V3_4_9)
        .unwrap_or(config.retry_max_times);
    let origin_id = offset_msg_id(view.store_host, offset);
    let mut properties =
        retry::carry_properties(view.properties().to_owned(), view.topic, &origin_id);
    let mut fields = view.fields();
    fields.store_host = broker.store_host;
    fields.prepared_offset = 0;
    let dead = retry::is_exhausted(view.reconsume_times, max, wanted_level);
    let topic;
    let text;
    if dead {
        topic = broker.ensure_dlq_topic(&group)?.topic_name.clone();
        let first_topic = properties
            .get(property::RETRY_TOPIC)
            .unwrap_or(view.topic)
            .to_owned();
        let first_id = properties
            .get(property::ORIGIN_MESSAGE_ID)
            .unwrap_or(&origin_id)
            .to_owned();
        properties.set(property::DLQ_ORIGIN_TOPIC, first_topic);
        properties.set(property::DLQ_ORIGIN_MESSAGE_ID, first_id);
        properties.set(property::DELAY, "0");
        properties.set(
            property::DEAD_CAUSE,
            if wanted_level < 0 {
                "rejected"
            } else {
                "maxAttempts"
            },
        );
        properties.set(property::DEAD_AT, broker.now_ms().to_string());
        text = properties.encode();
        fields.queue_id = 0;
        fields.topic = &topic;
    } else {
        let level = retry::next_level(wanted_level, view.reconsume_times).clamp(1, 18);
        let level = usize::try_from(level).map_err(|_| BrokerError::Internal("delay level"))?;
        topic = retry_topic.topic_name.clone();
        let queues = u64::try_from(retry_topic.write_queue_nums.max(1)).unwrap_or(1);
        let queue_id = i32::try_from(broker.ids.sequence() % queues)
            .map_err(|_| BrokerError::Internal("queue id"))?;
        let mut encoded = properties.encode();
        fields.queue_id = delay::park(&mut encoded, &topic, queue_id, level);
        text = encoded;
        fields.topic = names::SCHEDULE_TOPIC;
    }
    fields.reconsume_times = view.reconsume_times.saturating_add(1);
    check_properties(text.len())?;
    fields.properties = text.as_bytes();
    let outcome = broker
        .append(&MessageDraft::from(fields))
        .map_err(super::send::too_large)?;
    let now = broker.clock.monotonic();
    broker.stats.sent_back(&group, view.topic, now);
    if dead {
        broker.metrics.dead_letters.inc();
        broker.stats.dead(&group, view.topic, now);
    }
    Ok(Some(outcome))
}
