//! Puts back what ran out, was given back or is dead: the worker behind the schedule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::{MessageDraft, QueueOffset};
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names as core_names;
use crate::topic::{PERM_READ_WRITE, TopicConfig};

use super::apply::{Change, Event, What};
use super::lease::{Lease, Receipt};
use super::names::revive_queue;
use super::policy::Policy;
use super::put_back;
use super::record::{self, Part};
use super::settle::{self, Fate};
use super::table::{Locked, Slot};

/// Leases of one queue that are put back before others get their turn.
const BATCH: usize = 64;
/// Wait after the store refused, ms.
const RETRY_MS: i64 = 500;
/// Longest sleep: the bound for a wake that gets lost.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Runs until the schedule is stopped. On its own thread: it may block on the disk.
pub(crate) fn run(broker: &Arc<Broker>) {
    loop {
        step(broker);
        let now_ms = broker.pop.now_ms(broker.clock.as_ref());
        if !broker.pop.schedule.sleep(now_ms, LONGEST_SLEEP) {
            return;
        }
    }
}

/// Does all work that is due now.
pub(crate) fn step(broker: &Arc<Broker>) {
    let pop = &broker.pop;
    let now_ms = pop.now_ms(broker.clock.as_ref());
    while let Some((due_ms, slot)) = pop.schedule.take_due(now_ms) {
        let Some(mut locked) = slot.lock() else {
            continue;
        };
        if !locked.take_schedule(due_ms) {
            continue;
        }
        let due = locked.state().due(now_ms, BATCH);
        drop(locked);
        let outcome = put_all_back(broker, &slot, due, now_ms);
        let Some(mut locked) = slot.lock() else {
            continue;
        };
        let next = match outcome {
            Ok(()) => locked.to_schedule(),
            Err(error) => {
                pop.numbers.put_back_failures.inc();
                let key = &slot.key;
                tracing::warn!(group = %key.group, topic = %key.topic, queue_id = key.queue_id, %error, "cannot put back yet");
                Some(locked.postpone(now_ms + RETRY_MS))
            }
        };
        drop(locked);
        pop.schedule_if(next, &slot);
    }
}

fn put_all_back(
    broker: &Arc<Broker>,
    slot: &Arc<Slot>,
    due: Vec<(u64, Lease)>,
    now_ms: i64,
) -> Result<(), BrokerError> {
    let policy = match broker.groups.get(&slot.key.group) {
        Some(config) => broker.pop.rules.of(&config).policy.clone(),
        // The group was deleted this moment; its states go next.
        None => return Err(BrokerError::NoGroup(slot.key.group.to_string())),
    };
    for (offset, lease) in due {
        put_one_back(broker, slot, &policy, offset, &lease, now_ms)?;
    }
    Ok(())
}

fn put_one_back(
    broker: &Arc<Broker>,
    slot: &Arc<Slot>,
    policy: &Policy,
    offset: u64,
    lease: &Lease,
    now_ms: i64,
) -> Result<(), BrokerError> {
    let pop = &broker.pop;
    let key = &slot.key;
    let fate = settle::fate(lease, policy);
    let stored = if fate == Fate::Drop {
        None
    } else {
        read(broker, &key.topic, key.queue_id, offset)?
    };
    let old = stored
        .as_deref()
        .and_then(|bytes| RecordView::parse(bytes).ok());
    let put_back = match &old {
        None => None,
        Some(old) => {
            let mut built = put_back::build(&key.group, &key.topic, old, lease, &fate, now_ms)?;
            if matches!(fate, Fate::Retry { .. }) && is_native(broker, &key.group) {
                built.topic = core_names::retry_topic(&key.group);
            }
            ensure_target(broker, &key.group, &built.topic)?;
            Some(built)
        }
    };
    let Some(mut locked) = slot.lock() else {
        return Ok(());
    };
    // Settled or extended while the message was read: not ours to put back.
    if locked.state().lease(offset, Receipt::Lease(lease.id)) != Some(lease) {
        return Ok(());
    }
    let (Some(old), Some(put_back)) = (&old, &put_back) else {
        return drop_one(broker, slot, &mut locked, offset, lease, now_ms);
    };
    let outcome = broker.append(&MessageDraft::from(put_back.fields(old, broker.store_host)))?;
    let dead = matches!(fate, Fate::Dead { .. });
    pop.apply(
        &mut locked,
        slot,
        outcome.physical_offset,
        &Event::Returned {
            offset,
            id: lease.id,
            dead,
            at_ms: now_ms,
        },
    );
    if dead {
        pop.numbers.dead.inc();
        broker.metrics.dead_letters.inc();
        let key = &slot.key;
        let now = broker.clock.monotonic();
        broker.stats.dead(&key.group, &key.topic, now);
    } else {
        pop.numbers.returned.inc();
    }
    Ok(())
}

/// Ends a lease whose message is not kept: out of attempts without dead letters, or deleted with its log file.
fn drop_one(
    broker: &Broker,
    slot: &Arc<Slot>,
    locked: &mut Locked<'_>,
    offset: u64,
    lease: &Lease,
    now_ms: i64,
) -> Result<(), BrokerError> {
    let pop = &broker.pop;
    let key = &slot.key;
    let changes = vec![Change {
        offset,
        id: lease.id,
        what: What::Dropped,
    }];
    let part = Part {
        topic: key.topic.to_string(),
        queue_id: key.queue_id,
        check_point: None,
        changes: changes.clone(),
    };
    let draft = record::settle_draft(&key.group, pop.broker_name(), now_ms, &[part])
        .map_err(|_| BrokerError::Internal("settle record"))?;
    let queue = revive_queue(&key.group, &key.topic, key.queue_id);
    let position = pop.append_fact(broker, &draft, queue, now_ms)?;
    pop.apply(
        locked,
        slot,
        position,
        &Event::Settled {
            at_ms: now_ms,
            changes,
        },
    );
    pop.numbers.dropped.inc();
    Ok(())
}

fn read(
    broker: &Broker,
    topic: &str,
    queue_id: i32,
    offset: u64,
) -> Result<Option<Bytes>, BrokerError> {
    let entries = broker
        .store
        .entries(topic, queue_id, QueueOffset::new(offset), 1)?;
    match entries
        .first()
        .filter(|entry| entry.queue_offset.get() == offset)
    {
        Some(entry) => Ok(broker.store.record(entry.physical_offset, entry.size)?),
        None => Ok(None),
    }
}

/// Whether pulling members have taken the group over: they read the retries of the group, not those of its topics.
fn is_native(broker: &Broker, group: &str) -> bool {
    let now = broker.clock.monotonic();
    !broker.consumers.live_ids(group, now).is_empty()
        && broker.pop.pops.alive(group, now).is_empty()
}

/// Retry and dead letter topics come into being with their first message: readable, one queue.
fn ensure_target(broker: &Arc<Broker>, group: &str, topic: &str) -> Result<(), BrokerError> {
    if broker.topics.get(topic).is_some() {
        return Ok(());
    }
    if topic == super::names::dead(group) {
        broker.ensure_dlq_topic(group)?;
    } else {
        broker.ensure_topic(TopicConfig::new(topic, 1, PERM_READ_WRITE))?;
    }
    Ok(())
}
