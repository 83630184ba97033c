//! What the retention must know of leases before it deletes log files, and what it changes.

use std::collections::{BTreeMap, BTreeSet};

use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;

use super::position::{mirror, reconcile};

/// Positions in flight by topic and queue.
pub(crate) type InFlight = BTreeMap<(String, i32), BTreeSet<u64>>;

/// Every message in flight, of all groups: held, nacked, or about to be put back.
pub(crate) fn in_flight(broker: &Broker) -> InFlight {
    let mut found = InFlight::new();
    for slot in broker.pop.table.all() {
        let Some(locked) = slot.lock() else { continue };
        if locked.state().in_flight_len() > 0 {
            let offsets = locked.state().in_flight().map(|(offset, _)| offset);
            found
                .entry((slot.key.topic.to_string(), slot.key.queue_id))
                .or_default()
                .extend(offsets);
        }
    }
    found
}

/// Has `copy` put again what `group` has not read of a retry queue before `to`, and passes over it. Nobody pops the queue
/// meanwhile.
///
/// # Errors
/// `copy`'s, or the store's: the group then stands where it stood.
pub(crate) fn carry_unread(
    broker: &Broker,
    group: &str,
    topic: &str,
    queue_id: i32,
    to: u64,
    copy: impl FnOnce(u64) -> Result<(), BrokerError>,
) -> Result<(), BrokerError> {
    if let Some(slot) = broker.pop.table.get(group, topic, queue_id)
        && let Some(mut locked) = slot.lock()
    {
        reconcile(broker, &slot, &mut locked)?;
        if locked.state().next < to {
            let copied = copy(locked.state().next);
            // Where it failed, what was put again before is hidden.
            let min = broker.store.queue(topic, queue_id).min.get();
            locked.skip_to(if copied.is_ok() { to } else { min });
            mirror(broker, &slot, &mut locked);
            return copied;
        }
        return Ok(());
    }
    let committed = broker.offsets.get(group, topic, queue_id);
    let next = committed.and_then(|offset| u64::try_from(offset).ok());
    if next.unwrap_or(0) < to {
        copy(next.unwrap_or(0))?;
        if next.is_some() {
            let offset = i64::try_from(to).unwrap_or(i64::MAX);
            broker
                .offsets
                .commit(group, topic, queue_id, offset, broker.now_ms());
        }
    }
    Ok(())
}

/// Whether a seek has voided a retry: it was stored before, and a copy of it would not be.
pub(crate) fn is_void_retry(
    broker: &Broker,
    group: &str,
    topic: &str,
    retry: &RecordView<'_>,
) -> bool {
    super::scan::is_void(broker, group, topic, retry)
}

/// Passes over positions that were put again before the broker started: nobody lost them.
pub(crate) fn pass_over(broker: &Broker, topic: &str, queue_id: i32, to: u64) {
    for slot in broker.pop.table.all() {
        if *slot.key.topic == *topic
            && slot.key.queue_id == queue_id
            && let Some(mut locked) = slot.lock()
        {
            locked.skip_to(to);
        }
    }
}
