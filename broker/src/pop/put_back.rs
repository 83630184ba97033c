//! The record that ends a lease: the message stored again, as a retry or as a dead letter.

use std::net::SocketAddr;

use wire::WireError;
use wire::message::id::offset_msg_id;
use wire::message::properties::{PROPERTIES_MAX_BYTES, Properties, names as property};
use wire::message::record::{RecordFields, RecordView};

use super::apply::Event;
use super::lease::{Fault, Lease, LeaseId};
use super::names::{self, Kind};
use super::settle::Fate;

/// What may go when the properties get too long for a record, the least needed first.
const EXPENDABLE: [&str; 10] = [
    property::ERR_REASON,
    property::TRACE_ON,
    property::MSG_REGION,
    property::CLUSTER,
    property::ERR_CODE,
    property::ERR_AT,
    property::DEAD_AT,
    property::DLQ_ORIGIN_MESSAGE_ID,
    property::ORIGIN_MESSAGE_ID,
    property::FIRST_POP_TIME,
];
/// Longest code and reason that are kept, in characters.
const WORDS_MAX: usize = 1_024;

/// Which lease a stored message ends: the value of its property `__LEASE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseEnd<'a> {
    /// The lease.
    pub id: LeaseId,
    /// Queue that was popped.
    pub queue_id: i32,
    /// Queue offset of the message there.
    pub offset: u64,
    /// Topic of that queue.
    pub topic: &'a str,
}

impl<'a> LeaseEnd<'a> {
    /// `leaseId queueId queueOffset topic`.
    pub fn encode(&self) -> String {
        format!(
            "{} {} {} {}",
            self.id.0, self.queue_id, self.offset, self.topic
        )
    }

    /// Reads the property; `None` when it is not of this form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let id = LeaseId(parts.next()?.parse().ok()?);
        let queue_id = parts.next()?.parse().ok()?;
        let offset = parts.next()?.parse().ok()?;
        Some(LeaseEnd {
            id,
            queue_id,
            offset,
            topic: parts.next()?,
        })
    }
}

/// The lease that a stored message ends, with its group, if it is such a message.
pub fn end_of<'a>(record: &RecordView<'a>) -> Option<(&'a str, LeaseEnd<'a>, Event)> {
    if !names::may_end_a_lease(record.topic) {
        return None;
    }
    let end = LeaseEnd::parse(record.property(property::LEASE)?)?;
    let group = record.property(property::ORIGIN_GROUP)?;
    let dead = record.topic == names::dead(group);
    let event = Event::Returned {
        offset: end.offset,
        id: end.id,
        dead,
        at_ms: record.store_ts_ms,
    };
    Some((group, end, event))
}

/// The new record, ready to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// Where it goes.
    pub topic: String,
    /// Failed deliveries so far.
    pub reconsume_times: i32,
    /// Encoded.
    pub properties: String,
}

/// Builds the record for a lease of `group` on the message `old`, which was popped from `popped_topic`. Queue, offset and
/// time (ms) of its first store are `first_place`, or where `old` itself stands.
///
/// # Errors
/// [`WireError::TooLong`] when even the least properties do not fit a record.
pub fn build(
    group: &str,
    popped_topic: &str,
    old: &RecordView<'_>,
    lease: &Lease,
    fate: &Fate,
    first_place: Option<String>,
    now_ms: i64,
) -> Result<PutBack, WireError> {
    let mut properties = old.properties().to_owned();
    let first_topic = first_topic(group, popped_topic, old).to_owned();
    for gone in [
        property::DELAY,
        property::POP_CK,
        property::WAIT,
        property::LEASE,
        property::REAL_TOPIC,
        property::REAL_QID,
        crate::carry::CARRIED,
    ] {
        properties.remove(gone);
    }
    let offset_id = offset_msg_id(old.store_host, old.physical_offset);
    let first = |properties: &mut Properties, name: &str, value: String| {
        if properties.get(name).is_none() {
            properties.set(name, value);
        }
    };
    first(&mut properties, property::RETRY_TOPIC, first_topic.clone());
    first(
        &mut properties,
        property::ORIGIN_MESSAGE_ID,
        offset_id.clone(),
    );
    first(
        &mut properties,
        property::FIRST_POP_TIME,
        lease.pop_time_ms.to_string(),
    );
    first(
        &mut properties,
        property::ORIGIN,
        first_place.unwrap_or_else(|| {
            format!("{} {} {}", old.queue_id, old.queue_offset, old.store_ts_ms)
        }),
    );
    properties.set(property::ORIGIN_GROUP, group);
    let offset = u64::try_from(old.queue_offset).unwrap_or_default();
    let end = LeaseEnd {
        id: lease.id,
        queue_id: old.queue_id,
        offset,
        topic: popped_topic,
    };
    properties.set(property::LEASE, end.encode());
    let (topic, counted, fault) = match fate {
        Fate::Retry { counted, fault } => (names::retry_v2(group, &first_topic), *counted, fault),
        Fate::Dead { cause, fault } => {
            first(&mut properties, property::DLQ_ORIGIN_TOPIC, first_topic);
            let id = properties
                .get(property::UNIQ_KEY)
                .map_or(offset_id, str::to_owned);
            first(&mut properties, property::DLQ_ORIGIN_MESSAGE_ID, id);
            properties.set(property::DEAD_CAUSE, cause.as_str());
            properties.set(property::DEAD_AT, now_ms.to_string());
            (names::dead(group), true, fault)
        }
        Fate::Drop => {
            return Err(WireError::Malformed {
                what: "put-back",
                why: "nothing to store",
            });
        }
    };
    if let Some(fault) = fault {
        speak(&mut properties, fault);
    }
    let reconsume_times = old.reconsume_times.saturating_add(i32::from(counted));
    Ok(PutBack {
        topic,
        reconsume_times,
        properties: fit(properties)?,
    })
}

impl PutBack {
    /// The fields of the record; everything not said here stays as in `old`.
    pub fn fields<'a>(&'a self, old: &RecordView<'a>, store_host: SocketAddr) -> RecordFields<'a> {
        RecordFields {
            topic: &self.topic,
            queue_id: 0,
            store_host,
            reconsume_times: self.reconsume_times,
            properties: self.properties.as_bytes(),
            ..old.fields()
        }
    }
}

/// The topic a message was first sent to.
pub fn first_topic<'a>(group: &str, popped_topic: &'a str, record: &RecordView<'a>) -> &'a str {
    if popped_topic == Kind::Group.topic(group, "") {
        return record
            .property(property::RETRY_TOPIC)
            .unwrap_or(popped_topic);
    }
    match names::origin_of(group, popped_topic) {
        None => popped_topic,
        Some(origin) => record.property(property::RETRY_TOPIC).unwrap_or(origin),
    }
}

fn speak(properties: &mut Properties, fault: &Fault) {
    let short = |text: &Option<String>| {
        text.as_deref()
            .unwrap_or_default()
            .chars()
            .take(WORDS_MAX)
            .collect::<String>()
    };
    properties.set(property::ERR_CODE, short(&fault.code));
    properties.set(property::ERR_REASON, short(&fault.reason));
    properties.set(property::ERR_AT, fault.at_ms.to_string());
}

fn fit(mut properties: Properties) -> Result<String, WireError> {
    let mut text = properties.encode();
    for name in EXPENDABLE {
        if text.len() <= PROPERTIES_MAX_BYTES {
            break;
        }
        properties.remove(name);
        text = properties.encode();
    }
    if text.len() > PROPERTIES_MAX_BYTES {
        return Err(WireError::TooLong {
            what: "properties",
            size: text.len(),
            limit: PROPERTIES_MAX_BYTES,
        });
    }
    Ok(text)
}

#[cfg(test)]
#[path = "put_back_test.rs"]
mod tests;
