//! IN_FLIGHT 900009: the leases that consumers of a group hold, a bounded part at a time.

use std::sync::Arc;

use bytes::Bytes;
use remoting::Connection;
use wire::Command;
use wire::body::in_flight::{HeldLease, InFlight, Place};
use wire::message::properties::names as property;
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::handlers::json_answer;
use crate::names as core_names;

use super::lease::Lease;
use super::names::{self, Kind};
use super::put_back::first_topic;
use super::revive;
use super::table::Slot;

/// Most leases of one answer.
const LEASES_MAX: usize = 500;
/// Most leases looked at for one answer, under the locks of their queues.
const SCAN_MAX: usize = 20_000;
/// Most messages read for one answer.
const READS_MAX: usize = 1_000;

/// Which leases are wanted.
struct Wanted {
    group: String,
    topic: Option<String>,
    key: Option<String>,
    client: Option<String>,
    /// Delivered at or before, epoch ms.
    before_ms: i64,
}

impl Wanted {
    fn parse(broker: &Broker, cmd: &Command) -> Result<Self, BrokerError> {
        let older: Option<u64> = cmd.ext.optional("olderThan")?;
        let now_ms = broker.pop.now_ms(broker.clock.as_ref());
        Ok(Self {
            group: cmd.ext.required("group")?,
            topic: cmd.ext.optional("topic")?,
            key: cmd.ext.optional("key")?,
            client: cmd.ext.optional("client")?,
            before_ms: now_ms.saturating_sub_unsigned(older.unwrap_or(0)),
        })
    }

    /// Whether the queue may hold some.
    fn is_in(&self, slot: &Slot) -> bool {
        let popped = &*slot.key.topic;
        self.topic.as_deref().is_none_or(|topic| {
            popped == topic
                || names::origin_of(&self.group, popped) == Some(topic)
                || popped == Kind::Group.topic(&self.group, topic)
        })
    }

    fn is_held(&self, lease: &Lease) -> bool {
        let client = lease.member.as_deref();
        lease.is_held()
            && lease.pop_time_ms <= self.before_ms
            && (self.client.is_none() || self.client.as_deref() == client)
    }

    /// Whether the message is wanted; one whose record is gone has no keys.
    fn is_of(&self, popped: &str, record: Option<&RecordView<'_>>) -> bool {
        let of_key = self.key.as_deref().is_none_or(|key| {
            let keys = record.and_then(|record| record.property(property::KEYS));
            keys.is_some_and(|keys| keys.split(' ').any(|one| one == key))
        });
        let of_topic = self.topic.as_deref().is_none_or(|topic| {
            record.map_or(popped, |record| first_topic(&self.group, popped, record)) == topic
        });
        of_key && of_topic
    }
}

/// What one look may still cost.
struct Budget {
    leases: usize,
    scan: usize,
    reads: usize,
}

/// Code 900009. Blocks on the disk where the messages are old.
pub(crate) fn list_in_flight(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let wanted = Wanted::parse(broker, cmd)?;
    if !broker.groups.contains(&wanted.group) {
        return Err(BrokerError::NoGroup(core_names::shorten(&wanted.group)));
    }
    let limit: Option<u32> = cmd.ext.optional("limit")?;
    let limit = limit.map_or(LEASES_MAX, |limit| {
        usize::try_from(limit).unwrap_or(LEASES_MAX)
    });
    let mut budget = Budget {
        leases: limit.min(LEASES_MAX),
        scan: SCAN_MAX,
        reads: READS_MAX,
    };
    let from = Place {
        topic: cmd.ext.optional("fromTopic")?.unwrap_or_default(),
        queue_id: cmd.ext.optional("fromQueue")?.unwrap_or(0),
        queue_offset: cmd.ext.optional("fromOffset")?.unwrap_or(0),
    };
    let mut slots = broker.pop.table.of_group(&wanted.group);
    slots.sort_by(|a, b| a.key.cmp(&b.key));
    let mut found = InFlight::default();
    for slot in slots.iter().filter(|slot| wanted.is_in(slot)) {
        let here = (&*slot.key.topic, slot.key.queue_id);
        let mut at = match here.cmp(&(from.topic.as_str(), from.queue_id)) {
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Equal => u64::try_from(from.queue_offset).unwrap_or(0),
            std::cmp::Ordering::Greater => 0,
        };
        loop {
            let (part, next) = part(slot, &wanted, at, &mut budget);
            for (offset, lease) in part {
                if let Some(held) = held(broker, slot, &wanted, offset, &lease)? {
                    budget.leases -= 1;
                    found.leases.push(held);
                }
            }
            let Some(next) = next else { break };
            if budget.leases == 0 || budget.scan == 0 || budget.reads == 0 {
                found.next = Some(place(slot, next));
                return Ok(answer(broker, &wanted.group, found));
            }
            at = next;
        }
    }
    Ok(answer(broker, &wanted.group, found))
}

/// With the gateways of those members that were heard of lately.
fn answer(broker: &Broker, group: &str, mut found: InFlight) -> Command {
    let gateways = broker.gateways_of_members(group);
    for held in &mut found.leases {
        let client = held.client.as_deref();
        held.gateway = client.and_then(|client| gateways.get(client).cloned());
    }
    json_answer(&found)
}

/// Copies leases of a queue from an offset on, and says where to go on.
fn part(
    slot: &Slot,
    wanted: &Wanted,
    at: u64,
    budget: &mut Budget,
) -> (Vec<(u64, Lease)>, Option<u64>) {
    let mut part = Vec::new();
    let Some(locked) = slot.lock() else {
        return (part, None);
    };
    for (offset, lease) in locked.state().in_flight_from(at) {
        if part.len() == budget.leases || budget.scan == 0 || budget.reads == 0 {
            return (part, Some(offset));
        }
        budget.scan -= 1;
        if wanted.is_held(lease) {
            budget.reads -= 1;
            part.push((offset, lease.clone()));
        }
    }
    (part, None)
}

fn place(slot: &Slot, offset: u64) -> Place {
    Place {
        topic: slot.key.topic.to_string(),
        queue_id: slot.key.queue_id,
        queue_offset: i64::try_from(offset).unwrap_or(i64::MAX),
    }
}

/// The lease with its message, if that is wanted.
fn held(
    broker: &Broker,
    slot: &Slot,
    wanted: &Wanted,
    offset: u64,
    lease: &Lease,
) -> Result<Option<HeldLease>, BrokerError> {
    let record: Option<Bytes> = revive::read(broker, &slot.key.topic, slot.key.queue_id, offset)?;
    let view = record
        .as_deref()
        .and_then(|record| RecordView::parse(record).ok());
    if !wanted.is_of(&slot.key.topic, view.as_ref()) {
        return Ok(None);
    }
    let popped = place(slot, offset);
    let mut first = popped.clone();
    if let Some(view) = &view {
        first_topic(&wanted.group, &slot.key.topic, view).clone_into(&mut first.topic);
        let origin = view.property(property::ORIGIN).unwrap_or_default();
        let mut numbers = origin.split(' ').map(str::parse::<i64>);
        if let (Some(Ok(queue)), Some(Ok(offset))) = (numbers.next(), numbers.next()) {
            first.queue_id = i32::try_from(queue).unwrap_or(first.queue_id);
            first.queue_offset = offset;
        }
    }
    Ok(Some(HeldLease {
        popped,
        lease_id: lease.id.0,
        message_id: view.as_ref().map(message_id),
        first,
        attempt: lease.attempt,
        client: lease.member.as_deref().map(str::to_owned),
        gateway: None,
        delivered_at_ms: lease.pop_time_ms,
        visible_at_ms: lease.visible_at_ms,
    }))
}

/// The id under which a receive shows the message.
fn message_id(record: &RecordView<'_>) -> String {
    let id = record
        .property(property::UNIQ_KEY)
        .filter(|id| !id.is_empty())
        .or_else(|| record.property(property::ORIGIN_MESSAGE_ID));
    id.map_or_else(
        || format!("{}-{}", record.queue_id, record.physical_offset),
        str::to_owned,
    )
}
