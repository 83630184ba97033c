//! What the retention must know of leases before it deletes log files, and what it changes.

use std::collections::{BTreeMap, BTreeSet};

use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::carry::{Part, Source};
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

/// Puts again what `group` has not read of a retry queue before `to`, where it `stays`, and passes over it.
///
/// A part at a time, read while nobody is kept from the queue: its messages may be cold.
///
/// # Errors
/// The store's, the topic was deleted, or the broker stops: the group then stands before what was not put again.
pub(crate) fn carry_unread(
    broker: &Broker,
    group: &str,
    source: Source<'_>,
    to: u64,
    stays: impl Fn(&RecordView<'_>) -> bool,
) -> Result<(), BrokerError> {
    let mut last = None;
    loop {
        source.check(broker)?;
        let from = unread_from(broker, group, source.topic, source.queue_id)?;
        if from >= to {
            return Ok(());
        }
        if last.replace(from) == Some(from) {
            return Err(BrokerError::Busy("a group is moved back in its retries"));
        }
        let part = Part::read(&broker.store, source, from, to)?;
        put_again(broker, group, &part, &stays)?;
    }
}

/// Position of the first message that the group has not read.
fn unread_from(
    broker: &Broker,
    group: &str,
    topic: &str,
    queue_id: i32,
) -> Result<u64, BrokerError> {
    if let Some(slot) = broker.pop.table.get(group, topic, queue_id)
        && let Some(mut locked) = slot.lock()
    {
        reconcile(broker, &slot, &mut locked)?;
        return Ok(locked.state().next);
    }
    let min = broker.store.queue(topic, queue_id).min.get();
    Ok(min.max(committed(broker, group, topic, queue_id).unwrap_or(0)))
}

fn committed(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> Option<u64> {
    let offset = broker.offsets.get(group, topic, queue_id)?;
    u64::try_from(offset).ok()
}

/// Puts again what the group has still not read of `part`; nothing where it was moved back before it meanwhile.
fn put_again(
    broker: &Broker,
    group: &str,
    part: &Part<'_>,
    stays: impl Fn(&RecordView<'_>) -> bool,
) -> Result<(), BrokerError> {
    let (topic, queue_id) = (part.source.topic, part.source.queue_id);
    let min = || broker.store.queue(topic, queue_id).min.get();
    if let Some(slot) = broker.pop.table.get(group, topic, queue_id)
        && let Some(mut locked) = slot.lock()
    {
        reconcile(broker, &slot, &mut locked)?;
        let next = locked.state().next;
        if next < part.from {
            return Ok(());
        }
        let done = part.put_again(broker, next, stays);
        // Where it failed, what was put again before is hidden.
        locked.skip_to(if done.is_ok() { part.end } else { min() });
        mirror(broker, &slot, &mut locked);
        return done;
    }
    let known = committed(broker, group, topic, queue_id);
    let next = min().max(known.unwrap_or(0));
    if next < part.from {
        return Ok(());
    }
    part.put_again(broker, next, stays)?;
    if known.is_some_and(|known| known < part.end) {
        let offset = i64::try_from(part.end).unwrap_or(i64::MAX);
        let now_ms = broker.now_ms();
        broker
            .offsets
            .commit(group, topic, queue_id, offset, now_ms);
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

#[cfg(test)]
mod tests {
    use super::super::position::{Start, move_to, open_slot};
    use super::*;
    use crate::test_broker::{append, dispatched, start};
    use crate::topic::{PERM_READ_WRITE, TopicConfig};

    const TOPIC: &str = "%RETRY%g+t";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_group_that_goes_on_while_its_messages_are_read_gets_none_twice() {
        let running = start().await;
        let broker = &running.broker;
        let range = || {
            let range = broker.store.queue(TOPIC, 0);
            (range.min.get(), range.max.get())
        };
        let retries = TopicConfig::new(TOPIC, 1, PERM_READ_WRITE);
        broker.topics.ensure(retries, 1).unwrap();
        let source = Source::of(broker, TOPIC, 0).unwrap();
        append(broker, TOPIC, 5).await;
        let slot = open_slot(broker, "g", TOPIC, 0, Start::Earliest, 1)
            .unwrap()
            .unwrap();

        let part = Part::read(&broker.store, source, 0, 4).unwrap();
        assert_eq!(part.end, 4);
        slot.lock().unwrap().skip_to(2);
        put_again(broker, "g", &part, |_| true).unwrap();
        dispatched(broker).await;
        assert_eq!(range(), (4, 7), "two of five were read meanwhile");
        assert_eq!(unread_from(broker, "g", TOPIC, 0).unwrap(), 4);

        let part = Part::read(&broker.store, source, 5, 7).unwrap();
        let mut locked = slot.lock().unwrap();
        move_to(broker, &slot, &mut locked, 4, false).unwrap();
        drop(locked);
        put_again(broker, "g", &part, |_| true).unwrap();
        dispatched(broker).await;
        assert_eq!(
            range(),
            (4, 7),
            "moved back: what lies between was not read"
        );

        carry_unread(broker, "g", source, 7, |_| true).unwrap();
        dispatched(broker).await;
        assert_eq!(range(), (7, 10));
        assert_eq!(unread_from(broker, "g", TOPIC, 0).unwrap(), 7);
        running.stop().await.unwrap();
    }

    /// Of a topic that is deleted, and made anew, in the middle of a round nothing is put again, and nothing of the new
    /// one is hidden.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_that_goes_in_a_round_is_let_go_and_the_one_after_it_kept_whole() {
        let running = start().await;
        let broker = &running.broker;
        let make = |now_ms| {
            let retries = TopicConfig::new(TOPIC, 1, PERM_READ_WRITE);
            broker.topics.ensure(retries, now_ms).unwrap();
        };
        let range = || {
            let range = broker.store.queue(TOPIC, 0);
            (range.min.get(), range.max.get())
        };
        make(1);
        let source = Source::of(broker, TOPIC, 0).unwrap();
        append(broker, TOPIC, 5).await;
        let part = Part::read(&broker.store, source, 0, 4).unwrap();
        let is_let_go = || {
            let carried = carry_unread(broker, "g", source, 4, |_| true);
            let put = put_again(broker, "g", &part, |_| true);
            matches!(carried, Err(BrokerError::NoTopic(_)))
                && matches!(put, Err(BrokerError::NoTopic(_)))
        };

        crate::handlers::topic::remove(broker, TOPIC).unwrap();
        assert!(is_let_go(), "deleted");
        make(2);
        append(broker, TOPIC, 2).await;
        assert!(is_let_go(), "made anew");
        append(broker, TOPIC, 4).await;
        assert!(is_let_go(), "and longer than it was");
        dispatched(broker).await;
        assert_eq!(range(), (0, 6));
        assert!(broker.carry.hidden().is_empty());
        running.stop().await.unwrap();
    }
}
