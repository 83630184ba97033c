//! Codes 10, 310 and 320: store a message and answer once it is as durable as promised.

use std::net::SocketAddr;
use std::sync::Arc;

use remoting::Responder;
use store::{AppendOutcome, MessageDraft};
use wire::message::id::offset_msg_id;
use wire::message::properties::{PropertiesView, names as property, push};
use wire::message::record::RecordFields;
use wire::{Command, ResponseCode};

use super::send_batch;
use super::send_request::{SendRequest, Wishes, check_body, check_properties, check_topic};
use crate::broker::Broker;
use crate::carry::CARRIED;
use crate::delay;
use crate::durability::{PutStatus, Waiter};
use crate::error::BrokerError;
use crate::names;
use crate::retry;
use crate::settings::Key;
use crate::topic::{PERM_INHERIT, TopicConfig};

/// Region that every stored message names.
pub(crate) const REGION: &str = "DefaultRegion";

/// What is stored: where, and what the answer says about it.
pub(crate) struct Stored {
    /// Of the last record.
    pub(crate) last: AppendOutcome,
    /// Offset ids, comma joined.
    pub(crate) msg_id: String,
    /// The queue that was asked for or picked.
    pub(crate) queue_id: i32,
    /// Of the first record.
    pub(crate) queue_offset: i64,
    /// The producer's id of the message.
    pub(crate) transaction_id: Option<String>,
    /// Wait for the disk whatever the policy.
    pub(crate) want_flushed: bool,
}

/// Stores and answers.
pub(crate) type Answer = fn(&Arc<Broker>, &Command, &SendRequest<'_>, Responder);

/// Answers a send.
pub(crate) fn handle(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    take(broker, cmd, to, answer);
}

/// Hands a send to `answer`: inline where the topic is known, else on a blocking thread.
pub(crate) fn take(broker: &Arc<Broker>, cmd: Command, to: Responder, answer: Answer) {
    let request = match SendRequest::parse(&cmd) {
        Ok(request) => request,
        Err(error) => return refuse(broker, to, &error.into()),
    };
    if needs_disk(broker, &request) {
        let owner = broker.clone();
        let bytes = cmd.body.len();
        broker
            .admission
            .create
            .run(broker, bytes, move |admitted| match admitted {
                Ok(()) => match SendRequest::parse(&cmd) {
                    Ok(request) => answer(&owner, &cmd, &request, to),
                    Err(error) => refuse(&owner, to, &error.into()),
                },
                Err(error) => refuse(&owner, to, &error),
            });
        return;
    }
    answer(broker, &cmd, &request, to);
}

/// Whether a topic or group has to be created first.
fn needs_disk(broker: &Broker, request: &SendRequest<'_>) -> bool {
    !broker.topics.contains(request.topic)
        || broker.topics.is_unsaved(request.topic)
        || (names::is_retry(request.topic) && !request.batch)
}

fn answer(broker: &Arc<Broker>, cmd: &Command, request: &SendRequest<'_>, to: Responder) {
    let peer = to.conn().peer();
    match store(broker, cmd, request, peer) {
        Ok(stored) => confirm(broker, stored, to),
        Err(error) => refuse(broker, to, &error),
    }
}

/// Refuses with the two fields that every answer to a send has.
pub(crate) fn refuse(broker: &Broker, to: Responder, error: &BrokerError) {
    broker.metrics.put_failures.inc();
    let mut response = error.to_response();
    response.ext.put(property::MSG_REGION, REGION);
    response.ext.put(property::TRACE_ON, true);
    to.send(response);
}

/// Sends the answer when the record is durable.
fn confirm(broker: &Arc<Broker>, stored: Stored, to: Responder) {
    let end = stored.last.end();
    let want_flushed = stored.want_flushed;
    let now = broker.clock.monotonic();
    broker.durability.when_durable(
        &broker.store,
        end,
        want_flushed,
        now,
        Waiter::Send,
        move |status| {
            to.send(response(&stored, status));
        },
    );
}

/// The answer to a send that is stored.
pub(crate) fn response(stored: &Stored, status: PutStatus) -> Command {
    let mut response = match status {
        PutStatus::Buffered | PutStatus::Flushed => Command::response(ResponseCode::Success),
        PutStatus::FlushTimeout => Command::error(
            ResponseCode::FlushDiskTimeout,
            "stored, not confirmed on the disk in time",
        ),
        PutStatus::Failed => Command::error(
            ResponseCode::FlushDiskTimeout,
            "stored, the disk failed before it was confirmed",
        ),
    };
    let ext = &mut response.ext;
    ext.put("msgId", stored.msg_id.as_str());
    ext.put("queueId", stored.queue_id);
    ext.put("queueOffset", stored.queue_offset);
    ext.put_opt("transactionId", stored.transaction_id.as_deref());
    ext.put(property::MSG_REGION, REGION);
    ext.put(property::TRACE_ON, true);
    ext.put("durability", status.durability());
    ext.put("storedAt", stored.last.store_timestamp_ms);
    response
}

/// Checks and appends.
///
/// # Errors
/// Any reason not to store the message.
pub(crate) fn store(
    broker: &Arc<Broker>,
    cmd: &Command,
    request: &SendRequest<'_>,
    peer: SocketAddr,
) -> Result<Stored, BrokerError> {
    broker.check_writable()?;
    broker.check_space()?;
    if broker.durability.waiting(Waiter::Send) >= broker.live.count(Key::Sends) {
        broker.metrics.busy.inc();
        return Err(BrokerError::Busy("too many sends wait for the disk"));
    }
    check_topic(request.topic)?;
    let topic = find_topic(broker, request)?;
    if request.queue_id >= topic.queue_count() {
        return Err(BrokerError::Invalid(format!(
            "request queueId[{}] is illegal, topic [{}] has {} queues. Producer: {peer}",
            request.queue_id,
            names::shorten(request.topic),
            topic.queue_count()
        )));
    }
    let queue_id = if request.queue_id < 0 {
        pick_queue(broker, &topic)?
    } else {
        request.queue_id
    };
    if request.batch {
        return send_batch::store(broker, cmd, request, &topic, queue_id, peer);
    }
    let body = cmd.body.to_bytes();
    check_body(broker, body.len())?;
    let wishes = Wishes::of(request.properties.as_bytes());
    wishes.check_supported()?;
    wishes.check_type(request, &topic)?;
    let target = retry::redirect(broker, request, cmd.version)?;
    let mut properties = build_properties(broker, request.properties);
    let uniq_key = if wishes.has_uniq_key {
        PropertiesView::new(properties.as_bytes())
            .get(property::UNIQ_KEY)
            .unwrap_or_default()
            .to_owned()
    } else {
        let id = broker.ids.next(broker.now_ms());
        push(&mut properties, property::UNIQ_KEY, &id);
        id
    };
    let mut record = RecordFields {
        topic: request.topic,
        queue_id,
        flag: request.flag,
        sys_flag: request.client_sys_flag(),
        born_ts_ms: request.born_ts_ms,
        born_host: peer,
        store_host: broker.store_host,
        reconsume_times: request.reconsume_times.max(0),
        prepared_offset: 0,
        body: &body,
        properties: &[],
    };
    let mut answered_queue = queue_id;
    let parked;
    if let Some(dead) = &target {
        // It will not be delayed there.
        retry::set_property(&mut properties, property::DELAY, "-1");
        record.topic = &dead.topic;
        record.queue_id = 0;
        answered_queue = 0;
    } else if wishes.delay_level > 0 {
        parked = delay::park(&mut properties, request.topic, queue_id, wishes.delay_level);
        record.topic = names::SCHEDULE_TOPIC;
        record.queue_id = parked;
    }
    check_properties(properties.len())?;
    record.properties = properties.as_bytes();
    let start = broker.clock.monotonic();
    let outcome = broker
        .append(&MessageDraft::from(record))
        .map_err(too_large)?;
    broker
        .metrics
        .put_took(broker.clock.monotonic().since(start));
    broker.metrics.put_messages.inc();
    broker
        .stats
        .put(request.topic, 1, u64::from(outcome.wrote_bytes), start);
    broker
        .metrics
        .put_bytes
        .inc_by(u64::from(outcome.wrote_bytes));
    if target.is_some() {
        broker.metrics.dead_letters.inc();
    }
    Ok(Stored {
        last: outcome,
        msg_id: offset_msg_id(broker.store_host, outcome.physical_offset.to_wire()),
        queue_id: answered_queue,
        queue_offset: outcome.queue_offset.to_wire(),
        transaction_id: Some(uniq_key),
        want_flushed: request.want_flushed,
    })
}

/// A record that fits no log file breaks a limit of the message, not of the broker.
pub(crate) fn too_large(error: BrokerError) -> BrokerError {
    match error {
        BrokerError::Store(store::StoreError::TooLarge {
            size_bytes,
            size_max_bytes,
        }) => BrokerError::MessageTooLarge {
            remark: format!(
                "the message is illegal: with its properties it has {size_bytes} bytes, the limit is {size_max_bytes}"
            ),
            limit: size_max_bytes,
            actual: size_bytes,
        },
        other => other,
    }
}

/// The topic, created from its template where that is allowed.
fn find_topic(broker: &Broker, request: &SendRequest<'_>) -> Result<Arc<TopicConfig>, BrokerError> {
    if let Some(topic) = broker.topics.get(request.topic) {
        return if broker.topics.is_unsaved(request.topic) {
            broker.ensure_topic(topic.as_ref().clone())
        } else {
            Ok(topic)
        };
    }
    if names::is_retry(request.topic) {
        return broker.ensure_topic(TopicConfig::new(
            request.topic,
            1,
            crate::topic::PERM_READ_WRITE,
        ));
    }
    let template = broker
        .topics
        .get(request.default_topic)
        .filter(|template| broker.live.create_topics() && template.perm & PERM_INHERIT != 0)
        .ok_or_else(|| BrokerError::NoTopic(names::shorten(request.topic)))?;
    let queues = request
        .default_queues
        .clamp(1, template.write_queue_nums.max(1));
    let config = TopicConfig {
        topic_filter_type: template.topic_filter_type.clone(),
        ..TopicConfig::new(request.topic, queues, template.perm & !PERM_INHERIT)
    };
    let topic = broker.ensure_topic(config)?;
    tracing::info!(
        topic = request.topic,
        queues,
        "topic created by its first send"
    );
    Ok(topic)
}

fn pick_queue(broker: &Broker, topic: &TopicConfig) -> Result<i32, BrokerError> {
    let queues = u64::try_from(topic.write_queue_nums).unwrap_or(0);
    if queues == 0 {
        return Err(BrokerError::Forbidden(format!(
            "topic[{}] has no writable queue",
            names::shorten(&topic.topic_name)
        )));
    }
    i32::try_from(broker.ids.sequence() % queues).map_err(|_| BrokerError::Internal("queue id"))
}

/// The properties to store: what the client sent, less what only brokers say, and what they add.
pub(crate) fn build_properties(broker: &Broker, sent: &str) -> String {
    let mut out = String::with_capacity(sent.len() + 96);
    for (name, value) in PropertiesView::new(sent.as_bytes()).iter() {
        match name {
            property::POP_CK | property::MSG_REGION | property::TRACE_ON | property::CLUSTER => {}
            // These say which lease or delay a record ends: only the broker may.
            property::LEASE | delay::DELAYED_FROM | delay::DUE | CARRIED => {}
            _ => push(&mut out, name, value),
        }
    }
    push(&mut out, property::MSG_REGION, REGION);
    push(&mut out, property::TRACE_ON, "true");
    push(&mut out, property::CLUSTER, &broker.config.cluster);
    out
}
