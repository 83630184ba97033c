//! Starts and stops the engine's workers, and what the rest of the broker asks of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::QueueOffset;
use wire::body::gantry::QueueLag;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::offsets::{self, Foreign};

use super::answer;
use super::carry;
use super::lease::Hold;
use super::names::Kind;
use super::position::{self, mirror};
use super::record;
use super::revive;
use super::sweep::Swept;
use super::table::is_forgotten_with;
use super::waiting::{self, Waiting};

/// How often a changed state is written.
const SAVE_EVERY: Duration = Duration::from_secs(3);

/// Threads and tasks of the engine.
#[derive(Debug)]
pub(crate) struct Workers {
    revive: std::thread::JoinHandle<()>,
}

/// Starts the workers; call once the broker's runtime and store are up.
///
/// # Errors
/// No thread can be made.
pub(crate) fn start(broker: &Arc<Broker>) -> Result<Workers, std::io::Error> {
    forget_orphans(broker);
    adopt_offsets(broker);
    carry::recover(broker);
    let owner = broker.clone();
    let revive = std::thread::Builder::new()
        .name("pop-revive".to_owned())
        .spawn(move || revive::run(&owner))?;
    broker.spawn(waiting::run_deadlines(broker.clone()));
    broker.spawn(carry::run(broker.clone()));
    broker.spawn(save_often(broker.clone()));
    Ok(Workers { revive })
}

/// Stops the workers and writes the state. Blocks; call before the store closes, when no request is at work any more.
pub(crate) fn stop(broker: &Arc<Broker>, workers: Workers) {
    broker.pop.schedule.stop();
    if workers.revive.join().is_err() {
        tracing::error!("the thread pop-revive panicked");
    }
    if let Err(error) = broker.pop.save(&broker.store) {
        tracing::error!(%error, "leases are not saved, the log is read again at the next start");
    }
}

/// Lets the workers end without waiting for them or writing anything: the broker is dropped, not stopped.
pub(crate) fn abandon(broker: &Broker) {
    broker.pop.schedule.stop();
}

/// A group may have been deleted just before a kill, its leases not yet.
fn forget_orphans(broker: &Arc<Broker>) {
    let mut groups: Vec<_> = broker
        .pop
        .table
        .all()
        .iter()
        .map(|slot| slot.key.group.clone())
        .collect();
    groups.dedup();
    for group in groups.iter().filter(|group| !broker.groups.contains(group)) {
        if let Err(error) = forget(broker, Some(group), None) {
            tracing::error!(%error, group = %group, "leases of a deleted group stay");
        }
    }
}

/// After a start the log knows progress better than the offset table, which is written every few seconds; unless the
/// table holds what others committed since the last record of the log about it.
fn adopt_offsets(broker: &Broker) {
    let foreign = broker.offsets.take_foreign();
    for slot in broker.pop.table.all() {
        if let Some(mut locked) = slot.lock() {
            let key = &slot.key;
            let since = foreign
                .get(&offsets::pair_key(&key.topic, &key.group))
                .and_then(|queues| queues.get(&key.queue_id));
            if since.is_none_or(|&since| since < locked.state().placed) {
                mirror(broker, &slot, &mut locked);
            }
        }
    }
}

/// Queues whose offset in the table is not where leases stand: a native consumer's or an operator's, committed when
/// the log ended as far as each entry says.
pub(crate) fn foreign_offsets(broker: &Broker) -> Foreign {
    let mut foreign = Foreign::new();
    for slot in broker.pop.table.all() {
        if let Some(locked) = slot.lock() {
            let key = &slot.key;
            let committed = broker
                .offsets
                .get(&key.group, &key.topic, key.queue_id)
                .and_then(|offset| u64::try_from(offset).ok());
            let state = locked.state();
            if committed.is_some() && committed != state.mirrored {
                foreign
                    .entry(offsets::pair_key(&key.topic, &key.group))
                    .or_default()
                    .insert(key.queue_id, state.placed);
            }
        }
    }
    foreign
}

async fn save_often(broker: Arc<Broker>) {
    let mut saved = 0;
    loop {
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = tokio::time::sleep(SAVE_EVERY) => {}
        }
        let owner = broker.clone();
        let work = tokio::task::spawn_blocking(move || {
            count(&owner);
            let facts = owner.pop.facts.load(Ordering::Relaxed);
            if facts != saved
                && let Err(error) = owner.pop.save(&owner.store)
            {
                tracing::error!(%error, "cannot save leases");
                return saved;
            }
            facts
        });
        saved = work.await.unwrap_or(saved);
    }
}

/// Sets the gauges.
fn count(broker: &Broker) {
    let pop = &broker.pop;
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    pop.numbers.states.set(number(pop.table.len()));
    pop.numbers.waiting.set(number(pop.waiters.len()));
    pop.numbers.held.set(pop.table.held_in_all());
}

/// Forgets a deleted group, a deleted topic, or a group on a topic, and saves at once. Call after the configuration is
/// gone, so that nothing new comes. Blocks.
///
/// # Errors
/// The log or the file cannot be written.
pub(crate) fn forget(
    broker: &Arc<Broker>,
    group: Option<&str>,
    topic: Option<&str>,
) -> Result<(), BrokerError> {
    let pop = &broker.pop;
    if let (Some(group), None) = (group, topic) {
        pop.carrier.forget_retries(group);
    }
    for waiting in pop.waiters.take_all(|key| {
        group.is_none_or(|group| *key.group == *group)
            && topic.is_none_or(|topic| *key.topic == *topic)
    }) {
        answer::empty(broker, waiting, &Swept::default());
    }
    if pop
        .table
        .forget(u64::MAX, |key| is_forgotten_with(key, group, topic))
        == 0
    {
        return Ok(());
    }
    let at_ms = pop.now_ms(broker.clock.as_ref());
    let draft = record::forget_draft(group, topic, at_ms)
        .map_err(|_| BrokerError::Internal("forget record"))?;
    pop.append_fact(broker, &draft, 0, at_ms)?;
    pop.save(&broker.store)
}

/// Answers what waits for a group on a topic it has given up.
pub(crate) fn release_waiting(broker: &Arc<Broker>, group: &str, topic: &str) {
    for waiting in broker
        .pop
        .waiters
        .take_all(|key| *key.group == *group && *key.topic == *topic)
    {
        answer::empty(broker, waiting, &Swept::default());
    }
}

/// A group's configuration changed: what waits under the old one looks again.
pub(crate) fn group_changed(broker: &Arc<Broker>, group: &str) {
    waiting::wake_group(broker, group);
}

/// Whether a request of the group waits whose client is still there.
pub(crate) fn is_waited_for(broker: &Broker, group: &str) -> bool {
    let is_open = |waiting: &Waiting| !waiting.to.conn().is_closed();
    broker.pop.waiters.any_of(group, is_open)
}

/// How far a group is in the queues of `topic` and of its retries.
pub(crate) fn lag(broker: &Broker, group: &str, topic: &str) -> Vec<QueueLag> {
    let now_ms = broker.pop.now_ms(broker.clock.as_ref());
    let mut queues = Vec::new();
    for (kind, name, count) in position::sources(broker, group, topic) {
        for queue_id in 0..count {
            let range = broker.store.queue(&name, queue_id);
            let committed = broker
                .offsets
                .get(group, &name, queue_id)
                .and_then(|offset| u64::try_from(offset).ok());
            let start = committed.unwrap_or(range.min.get());
            let mut entry = QueueLag {
                topic: name.clone(),
                queue_id,
                retry: kind != Kind::Normal,
                min_offset: range.min.to_wire(),
                ack_floor: signed(start),
                next_deliver: signed(start),
                max_offset: range.max.to_wire(),
                ..QueueLag::default()
            };
            if let Some(slot) = broker.pop.table.get(group, &name, queue_id)
                && let Some(locked) = slot.lock()
            {
                let state = locked.state();
                let held = state
                    .in_flight()
                    .filter(|(_, lease)| lease.hold == Hold::Held && lease.visible_at_ms > now_ms)
                    .count();
                let next = if state.mirrored == committed {
                    state.next
                } else {
                    start
                };
                entry.ack_floor = signed(state.ack_floor().min(next));
                entry.next_deliver = signed(next);
                entry.in_flight = u64::try_from(held).unwrap_or(u64::MAX);
                entry.waiting = u64::try_from(state.in_flight_len() - held).unwrap_or(u64::MAX);
            }
            entry.oldest_ready_at_ms = oldest_ready(broker, &entry);
            queues.push(entry);
        }
    }
    queues
}

/// What lease members have settled of a queue, and what is given out next; `None` where no lease member ever came, or a
/// native member took over since.
pub(crate) fn progress(
    broker: &Broker,
    group: &str,
    topic: &str,
    queue_id: i32,
) -> Option<(i64, i64)> {
    let slot = broker.pop.table.get(group, topic, queue_id)?;
    let locked = slot.lock()?;
    let state = locked.state();
    let committed = broker
        .offsets
        .get(group, topic, queue_id)
        .and_then(|offset| u64::try_from(offset).ok());
    if state.mirrored != committed {
        return None;
    }
    let settled = state.ack_floor().min(state.next);
    Some((signed(settled), signed(state.next)))
}

/// Store time (epoch ms) of the oldest message of a queue that is next to be delivered.
fn oldest_ready(broker: &Broker, queue: &QueueLag) -> Option<i64> {
    let next = queue.next_deliver.max(queue.min_offset);
    let next = QueueOffset::from_wire(next).filter(|_| next < queue.max_offset)?;
    let store = &broker.store;
    store.store_timestamp(&queue.topic, queue.queue_id, next)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
