//! Settles many leases of one group at once: locks their queues in order, writes one record, applies it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use store::PhysicalOffset;

use crate::broker::Broker;
use crate::clients::Counts;
use crate::error::BrokerError;

use super::apply::{Change, Event, What};
use super::lease::Receipt;
use super::names::revive_queue;
use super::record::{self, Part};
use super::rules::Rules;
use super::settle::{self, Decision, Op, Status};
use super::table::{Locked, QueueKey, Slot};

/// One settlement.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Topic whose queue was popped.
    pub(crate) topic: String,
    /// That queue.
    pub(crate) queue_id: i32,
    /// Place of the message there.
    pub(crate) offset: u64,
    /// The lease.
    pub(crate) receipt: Receipt,
    /// What to do.
    pub(crate) op: Op,
}

/// Results in order of the items, and the log position that must be durable before they are told.
#[derive(Debug)]
pub(crate) struct Settled {
    /// One per item.
    pub(crate) decisions: Vec<Decision>,
    /// `None` when no queue was found.
    pub(crate) durable_at: Option<PhysicalOffset>,
}

const GONE: Decision = Decision {
    status: Status::Gone,
    late: false,
    already: false,
    visible_at_ms: None,
    change: None,
};

/// Decides all items in their order and writes down what changes. An answer also waits for the record that an earlier,
/// equal settlement wrote: `already` must not be said before it is true on the disk.
///
/// # Errors
/// The store's: then nothing of this call is applied, unless the items name one lease twice.
pub(crate) fn settle_all(
    broker: &Broker,
    group: &str,
    rules: &Rules,
    items: &[Item],
) -> Result<Settled, BrokerError> {
    let pop = &broker.pop;
    let now_ms = pop.now_ms(broker.clock.as_ref());
    let mut slots: BTreeMap<QueueKey, Arc<Slot>> = BTreeMap::new();
    for item in items {
        if let Some(slot) = pop.table.get(group, &item.topic, item.queue_id) {
            slots.entry(slot.key.clone()).or_insert(slot);
        }
    }
    let slots: Vec<Arc<Slot>> = slots.into_values().collect();
    let mut locked: Vec<Option<Locked<'_>>> = slots.iter().map(|slot| slot.lock()).collect();
    let find = |item: &Item| {
        slots
            .iter()
            .position(|slot| *slot.key.topic == *item.topic && slot.key.queue_id == item.queue_id)
    };

    let mut decisions: Vec<Decision> = vec![GONE; items.len()];
    let mut counted: BTreeMap<Arc<str>, Counts> = BTreeMap::new();
    let mut open: Vec<usize> = (0..items.len()).collect();
    while !open.is_empty() {
        let mut seen = HashSet::new();
        let mut again = Vec::new();
        let mut parts: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
        for index in open {
            let (Some(item), Some(slot_index)) =
                (items.get(index), items.get(index).and_then(find))
            else {
                continue;
            };
            let Some(Some(state)) = locked.get(slot_index) else {
                continue;
            };
            if !seen.insert((slot_index, item.offset)) {
                // The same message twice: the second word is judged after the first has taken effect.
                again.push(index);
                continue;
            }
            let decision = settle::decide(
                state.state(),
                &rules.policy,
                item.offset,
                item.receipt,
                &item.op,
                now_ms,
            );
            if let Some(change) = &decision.change
                && let Some(holder) = state.state().holder(item.offset)
            {
                count(counted.entry(holder).or_default(), &change.what);
            }
            parts
                .entry(slot_index)
                .or_default()
                .extend(decision.change.clone());
            if let Some(place) = decisions.get_mut(index) {
                *place = decision;
            }
        }
        let acks = parts
            .values()
            .flatten()
            .filter(|change| change.what == What::Acked)
            .count();
        pop.numbers.acked.inc_by(u64::try_from(acks).unwrap_or(0));
        parts.retain(|_, changes| !changes.is_empty());
        if !parts.is_empty() {
            write(broker, group, &slots, &mut locked, parts, now_ms)?;
        }
        open = again;
    }
    broker.count_settled(group, counted);
    let durable_at = locked
        .iter()
        .flatten()
        .map(|locked| PhysicalOffset::new(locked.state().applied))
        .max();
    Ok(Settled {
        decisions,
        durable_at,
    })
}

/// Counts what a settlement says of the work of the member that held the lease.
fn count(counts: &mut Counts, what: &What) {
    match what {
        What::Acked => counts.acks += 1,
        What::Nacked(..) | What::Dead(..) | What::Dropped => counts.nacks += 1,
        What::Visible(_) | What::Adopted(..) | What::Suspended => {}
    }
}

fn write(
    broker: &Broker,
    group: &str,
    slots: &[Arc<Slot>],
    locked: &mut [Option<Locked<'_>>],
    changes: BTreeMap<usize, Vec<Change>>,
    now_ms: i64,
) -> Result<(), BrokerError> {
    let pop = &broker.pop;
    let mut parts = Vec::with_capacity(changes.len());
    let mut queue = 0;
    for (&index, changes) in &changes {
        let (Some(slot), Some(Some(state))) = (slots.get(index), locked.get(index)) else {
            continue;
        };
        let key = &slot.key;
        queue = revive_queue(&key.group, &key.topic, key.queue_id);
        let first = changes.first().and_then(|change| {
            state
                .state()
                .lease(change.offset, Receipt::Lease(change.id))
        });
        let check_point = first.map(|lease| (lease.start, lease.pop_time_ms));
        parts.push(Part {
            topic: key.topic.to_string(),
            queue_id: key.queue_id,
            check_point,
            changes: changes.clone(),
        });
    }
    let draft = record::settle_draft(group, pop.broker_name(), now_ms, &parts)
        .map_err(|_| BrokerError::Internal("settle record"))?;
    let position = pop.append_fact(broker, &draft, queue, now_ms)?;
    for (index, changes) in changes {
        if let (Some(slot), Some(Some(state))) = (slots.get(index), locked.get_mut(index)) {
            pop.apply(
                state,
                slot,
                position,
                &Event::Settled {
                    at_ms: now_ms,
                    changes,
                },
            );
        }
    }
    Ok(())
}
