//! Puts back what ran out, was given back or is dead: the worker behind the schedule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::{MessageDraft, PhysicalOffset, QueueEntry, QueueOffset};
use wire::message::id::parse_offset_msg_id;
use wire::message::properties::names as property;
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names as core_names;
use crate::topic::{PERM_READ_WRITE, TopicConfig};

use super::apply::{Change, Event, What};
use super::lease::{Lease, Receipt};
use super::names::{self, revive_queue};
use super::put_back;
use super::record::{self, Part};
use super::rules::Rules;
use super::scan;
use super::settle::{self, Fate};
use super::sweep;
use super::table::{Locked, Slot};
use super::waiting;

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
    let rules = match broker.groups.get(&slot.key.group) {
        Some(config) => broker.pop.rules.of(&config),
        // The group was deleted this moment; its states go next.
        None => return Err(BrokerError::NoGroup(slot.key.group.to_string())),
    };
    let full = sweep::is_full(broker, &slot.key.group, &rules);
    for (offset, lease) in due {
        put_one_back(broker, slot, &rules, offset, &lease, now_ms)?;
    }
    if full || broker.pop.waiters.is_limited(&slot.key.group) {
        waiting::wake_group(broker, &slot.key.group);
    }
    Ok(())
}

fn put_one_back(
    broker: &Arc<Broker>,
    slot: &Arc<Slot>,
    rules: &Rules,
    offset: u64,
    lease: &Lease,
    now_ms: i64,
) -> Result<(), BrokerError> {
    let pop = &broker.pop;
    let key = &slot.key;
    let fate = settle::fate(lease, &rules.policy);
    let stored = if fate == Fate::Drop {
        None
    } else {
        read(broker, &key.topic, key.queue_id, offset)?
    };
    let old = stored
        .as_deref()
        .and_then(|bytes| RecordView::parse(bytes).ok())
        // A retry that a seek has voided meanwhile ends here.
        .filter(|old| {
            !core_names::is_retry(&key.topic) || !scan::is_void(broker, &key.group, &key.topic, old)
        });
    let put_back = match &old {
        None => None,
        Some(old) => {
            let place = if *key.topic == core_names::retry_topic(&key.group) {
                first_place(broker, old)
            } else {
                None
            };
            let mut built =
                put_back::build(&key.group, &key.topic, old, lease, &fate, place, now_ms)?;
            if matches!(fate, Fate::Retry { .. }) {
                built.topic = target(broker, &key.group, rules, built.topic);
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
    let dead = put_back.topic == names::dead(&key.group);
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

pub(super) fn read(
    broker: &Broker,
    topic: &str,
    queue_id: i32,
    offset: u64,
) -> Result<Option<Bytes>, BrokerError> {
    let (store, at) = (&broker.store, QueueOffset::new(offset));
    let record = |entries: Vec<QueueEntry>| match entries.first() {
        Some(entry) if entry.queue_offset == at => store.record(entry.physical_offset, entry.size),
        _ => Ok(None),
    };
    if let Some(shown) = record(store.entries(topic, queue_id, at, 1)?)? {
        return Ok(Some(shown));
    }
    // Its log file is about to go, or is gone: the retention hides it first, then keeps a copy while the lease lasts, then
    // removes it. Looked for in that order, it is missed nowhere.
    if let Some(hidden) = record(store.entries_with_hidden(topic, queue_id, at, 1)?)? {
        return Ok(Some(hidden));
    }
    Ok(broker.carry.kept(store, topic, queue_id, offset))
}

/// Where a retry goes: while pulling members have the group, to the topic in which they read retries. One that names no
/// first topic goes with the group's first subscription; without any it is kept as a dead letter.
fn target(broker: &Broker, group: &str, rules: &Rules, topic: String) -> String {
    let own = core_names::retry_topic(group);
    if broker.has_natives(group, None) {
        return own;
    }
    if names::origin_of(group, &topic) != Some(own.as_str()) {
        return topic;
    }
    match rules.subscriptions.keys().min() {
        Some(first) => names::retry_v2(group, first),
        None => names::dead(group),
    }
}

/// The first place of a message that a pulling consumer gave back, as [`put_back::build`] notes it for others.
fn first_place(broker: &Broker, old: &RecordView<'_>) -> Option<String> {
    let id = old.property(property::ORIGIN_MESSAGE_ID)?;
    let (host, position) = parse_offset_msg_id(id).ok()?;
    if host != broker.store_host {
        return None;
    }
    let record = broker
        .store
        .record_at(PhysicalOffset::from_wire(position)?)
        .ok()??;
    let view = RecordView::parse(&record).ok()?;
    Some(format!(
        "{} {} {}",
        view.queue_id, view.queue_offset, view.store_ts_ms
    ))
}

/// Puts back what is due in one queue now, without waiting for the worker. Blocks.
///
/// # Errors
/// The store's.
pub(super) fn put_back_now(
    broker: &Arc<Broker>,
    group: &str,
    topic: &str,
    queue_id: i32,
) -> Result<(), BrokerError> {
    let Some(slot) = broker.pop.table.get(group, topic, queue_id) else {
        return Ok(());
    };
    loop {
        let now_ms = broker.pop.now_ms(broker.clock.as_ref());
        let Some(locked) = slot.lock() else {
            return Ok(());
        };
        let due = locked.state().due(now_ms, BATCH);
        drop(locked);
        if due.is_empty() {
            return Ok(());
        }
        put_all_back(broker, &slot, due, now_ms)?;
    }
}

/// Retry and dead letter topics come into being with their first message: readable, one queue.
fn ensure_target(broker: &Arc<Broker>, group: &str, topic: &str) -> Result<(), BrokerError> {
    if topic == super::names::dead(group) {
        broker.ensure_dlq_topic(group)?;
    } else {
        broker.ensure_topic(TopicConfig::new(topic, 1, PERM_READ_WRITE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::position::Start;
    use super::*;
    use crate::filter::Filter;
    use crate::test_broker::{append, dispatched, start};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_that_ends_while_its_message_is_hidden_puts_it_back() {
        let running = start().await;
        let broker = &running.broker;
        broker
            .ensure_topic(TopicConfig::new("T", 1, PERM_READ_WRITE))
            .unwrap();
        let group = broker.ensure_group("g").unwrap();
        let rules = broker.pop.rules.of(&group);
        append(broker, "T", 1).await;
        let ask = sweep::Ask {
            group: "g".into(),
            topic: "T".into(),
            queue_id: -1,
            messages: 1,
            bytes: 1 << 20,
            not_first: false,
            invisible_ms: 60_000,
            filter: Arc::new(Filter::All),
            start: Start::Earliest,
            rules: rules.clone(),
            member: None,
            member_limit: 0,
        };
        let swept = sweep::lease(broker, &ask, scan::Reach::Disk, false).unwrap();
        let slot = broker.pop.table.get("g", "T", 0).unwrap();
        let held: BTreeMap<u64, Lease> = {
            let locked = slot.lock().unwrap();
            let held = locked.state().in_flight();
            held.map(|(offset, lease)| (offset, lease.clone()))
                .collect()
        };
        assert_eq!((swept.leased.len(), held.len()), (1, 1));
        // As the retention does before it keeps what is leased.
        broker.store.hide_before("T", 0, QueueOffset::new(1));
        for (offset, lease) in held {
            put_one_back(broker, &slot, &rules, offset, &lease, lease.visible_at_ms).unwrap();
        }
        dispatched(broker).await;
        assert_eq!(broker.pop.numbers.dropped.get(), 0, "lost");
        assert_eq!(broker.store.queue("%RETRY%g+T", 0).max.get(), 1);
        running.stop().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_retry_topic_is_in_the_file_of_its_table_before_it_is_written_to() {
        let running = start().await;
        let (broker, topic) = (&running.broker, "%RETRY%g+t");
        let made = TopicConfig::new(topic, 1, PERM_READ_WRITE);
        broker.topics.ensure(made, 1).unwrap();
        assert!(broker.topics.is_unsaved(topic));
        ensure_target(broker, "g", topic).unwrap();
        assert!(!broker.topics.is_unsaved(topic));
        running.stop().await.unwrap();
    }
}
