//! Where delivery of a queue stands: found when a group first comes, kept equal to the group's committed offset, moved
//! on request.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use store::{Boundary, PhysicalOffset};

use crate::broker::Broker;
use crate::durability::{PutStatus, Waiter};
use crate::error::BrokerError;
use crate::handlers::offset::is_in_memory;

use super::apply::Event;
use super::names::{self, Kind, revive_queue};
use super::queue::QueueState;
use super::record;
use super::table::{Locked, Slot};

/// Longest wait for the queues to catch up with the log.
const CATCH_UP_MS: u64 = 2_000;

/// Where a group starts in a queue that it has no progress in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The oldest message.
    Earliest,
    /// After the newest.
    Latest,
    /// What RocketMQ calls latest: a young queue is read from its start.
    NativeLatest,
    /// The first message stored at or after this time, epoch ms.
    At(i64),
}

impl Start {
    /// Reads `earliest`, `latest` or epoch ms.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "earliest" => Some(Start::Earliest),
            "latest" => Some(Start::Latest),
            number => number.parse().ok().map(Start::At),
        }
    }

    fn offset(self, broker: &Broker, topic: &str, queue_id: i32) -> u64 {
        let range = broker.store.queue(topic, queue_id);
        match self {
            Start::Earliest => range.min.get(),
            Start::NativeLatest
                if range.min.get() == 0 && is_in_memory(broker, topic, queue_id) =>
            {
                0
            }
            Start::Latest | Start::NativeLatest => range.max.get(),
            Start::At(ms) => broker
                .store
                .offset_by_time(topic, queue_id, ms, Boundary::Lower)
                .get(),
        }
    }
}

/// How many removals have begun, unless one of the topic, or of the one whose retries it holds, is under way.
fn before_removal(broker: &Broker, group: &str, topic: &str) -> Option<u64> {
    let begun = broker.store.removals_begun();
    let origin = names::origin_of(group, topic);
    let is_removing = |name| broker.store.is_removing(name);
    (!is_removing(topic) && !origin.is_some_and(is_removing)).then_some(begun)
}

/// The slot of a queue, made at `now_ms` at the group's committed offset or at `start`; `None` while its topic is being
/// removed: the group's progress goes before the messages do.
///
/// # Errors
/// The table is full, or a start that has to be written down could not be.
pub(super) fn open_slot(
    broker: &Broker,
    group: &str,
    topic: &str,
    queue_id: i32,
    start: Start,
    now_ms: i64,
) -> Result<Option<Arc<Slot>>, BrokerError> {
    let pop = &broker.pop;
    let (slot, must_log) = loop {
        let Some(begun) = before_removal(broker, group, topic) else {
            return Ok(None);
        };
        if let Some(slot) = pop.table.get(group, topic, queue_id) {
            return Ok(Some(slot));
        }
        let committed = broker
            .offsets
            .get(group, topic, queue_id)
            .and_then(|offset| u64::try_from(offset).ok());
        let next = committed.unwrap_or_else(|| start.offset(broker, topic, queue_id));
        let (horizon, applied) = pop.horizon(&broker.store, now_ms);
        let mut state = QueueState::new(next, horizon, applied);
        state.mirrored = committed;
        // What was read above may be of a topic that went meanwhile.
        let holds = || before_removal(broker, group, topic) == Some(begun);
        let placed = pop.table.place_while(group, topic, queue_id, state, holds);
        match placed {
            Some(slot) => break (slot, committed.is_none() && start != Start::Earliest),
            None if holds() => return Err(BrokerError::Full("lease state")),
            None => {}
        }
    };
    if must_log
        && let Some(mut locked) = slot.lock()
        && locked.state().mirrored.is_none()
    {
        let next = locked.state().next;
        move_to(broker, &slot, &mut locked, next, false)?;
        mirror(broker, &slot, &mut locked);
    }
    Ok(Some(slot))
}

/// Writes down and applies that delivery continues at `next`.
///
/// # Errors
/// The store's.
pub(super) fn move_to(
    broker: &Broker,
    slot: &Arc<Slot>,
    locked: &mut Locked<'_>,
    next: u64,
    void: bool,
) -> Result<PhysicalOffset, BrokerError> {
    let pop = &broker.pop;
    let key = &slot.key;
    let at_ms = pop.now_ms(broker.clock.as_ref());
    let draft = record::position_draft(&key.group, &key.topic, key.queue_id, next, void, at_ms)
        .map_err(|_| BrokerError::Internal("position record"))?;
    let queue = revive_queue(&key.group, &key.topic, key.queue_id);
    let position = pop.append_fact(broker, &draft, queue, at_ms)?;
    pop.apply(
        locked,
        slot,
        position,
        &Event::Positioned { next, void, at_ms },
    );
    Ok(position)
}

/// Takes over what others did to the group's offset, and what the log lost: call before reading `next`.
///
/// # Errors
/// The store's.
pub(super) fn reconcile(
    broker: &Broker,
    slot: &Arc<Slot>,
    locked: &mut Locked<'_>,
) -> Result<(), BrokerError> {
    let key = &slot.key;
    let committed = broker
        .offsets
        .get(&key.group, &key.topic, key.queue_id)
        .and_then(|offset| u64::try_from(offset).ok());
    let state = locked.state();
    let foreign =
        committed.filter(|&offset| Some(offset) != state.mirrored && offset != state.next);
    if let Some(offset) = foreign {
        move_to(broker, slot, locked, offset, false)?;
    }
    let range = broker.store.queue(&key.topic, key.queue_id);
    let next = locked.state().next;
    if next < range.min.get() {
        lose(broker, slot, locked, range.min.get());
    } else if next > range.max.get() && broker.pop.is_caught_up(&broker.store) {
        move_to(broker, slot, locked, range.max.get(), false)?;
    }
    mirror(broker, slot, locked);
    Ok(())
}

/// Unread messages are gone with their log files: says so once, in the log, in a metric, and in the next pop answer.
fn lose(broker: &Broker, slot: &Slot, locked: &mut Locked<'_>, first_left: u64) {
    let key = &slot.key;
    let from = locked.state().next;
    tracing::warn!(
        group = %key.group,
        topic = %key.topic,
        queue_id = key.queue_id,
        from,
        to = first_left,
        "retention deleted messages that the group had not read"
    );
    broker
        .pop
        .numbers
        .lost_unread
        .inc_by(first_left.saturating_sub(from));
    locked.lose_to(first_left);
}

/// Puts `next` into the group's offset table, so that native tools and a native take-over see it.
pub(super) fn mirror(broker: &Broker, slot: &Slot, locked: &mut Locked<'_>) {
    let next = locked.state().next;
    if locked.state().mirrored != Some(next) {
        let key = &slot.key;
        let offset = i64::try_from(next).unwrap_or(i64::MAX);
        // A reset that was meant for pulls is done: leases went there at once.
        broker
            .offsets
            .take_reset(&key.group, &key.topic, key.queue_id);
        if broker.offsets.commit(
            &key.group,
            &key.topic,
            key.queue_id,
            offset,
            broker.now_ms(),
        ) {
            locked.set_mirrored(next);
        }
    }
}

/// Fixes where the group starts in each queue of `topic` it has no progress in, and returns when that is durable. Blocks.
///
/// # Errors
/// No such topic, the store's, or not durable in time.
pub(crate) fn start_at(
    broker: &Arc<Broker>,
    group: &str,
    topic: &str,
    start: Start,
) -> Result<(), BrokerError> {
    let config = broker
        .topics
        .get(topic)
        .ok_or_else(|| BrokerError::NoTopic(topic.to_owned()))?;
    wait_dispatched(broker);
    let now_ms = broker.pop.now_ms(broker.clock.as_ref());
    let mut end = None;
    for queue_id in 0..config.read_queue_nums.max(config.write_queue_nums) {
        if broker.pop.table.get(group, topic, queue_id).is_some()
            || broker.offsets.get(group, topic, queue_id).is_some()
        {
            continue;
        }
        let slot = open_slot(broker, group, topic, queue_id, Start::Earliest, now_ms)?
            .ok_or_else(|| BrokerError::NoTopic(topic.to_owned()))?;
        if let Some(mut locked) = slot.lock() {
            let next = start.offset(broker, topic, queue_id);
            end = Some(move_to(broker, &slot, &mut locked, next, false)?);
            mirror(broker, &slot, &mut locked);
        }
    }
    end.map_or(Ok(()), |end| wait_durable(broker, end))
}

/// Moves delivery of one queue to `next` and ends its leases; returns when that is durable. Blocks.
///
/// # Errors
/// The store's, or not durable in time.
pub(crate) fn set_position(
    broker: &Arc<Broker>,
    group: &str,
    topic: &str,
    queue_id: i32,
    offset: i64,
) -> Result<(), BrokerError> {
    let next = u64::try_from(offset)
        .map_err(|_| BrokerError::Invalid(format!("offset {offset} is negative")))?;
    let Some(slot) = broker.pop.table.get(group, topic, queue_id) else {
        // No lease member ever came: the offset table alone is the progress.
        broker
            .offsets
            .commit(group, topic, queue_id, offset, broker.now_ms());
        return broker.save_offsets();
    };
    let Some(mut locked) = slot.lock() else {
        return Ok(());
    };
    let end = move_to(broker, &slot, &mut locked, next, true)?;
    mirror(broker, &slot, &mut locked);
    drop(locked);
    wait_durable(broker, end)
}

/// Blocks until the queues hold what is in the log now, so that `latest` is after everything that was answered.
fn wait_dispatched(broker: &Broker) {
    let written = broker.store.written();
    for _ in 0..CATCH_UP_MS {
        if broker.store.dispatched() >= written {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks until the record at `position` is as durable as the flush policy asks.
fn wait_durable(broker: &Arc<Broker>, position: PhysicalOffset) -> Result<(), BrokerError> {
    let (done, status) = mpsc::sync_channel(1);
    broker.durability.when_durable(
        &broker.store,
        position.plus(1),
        false,
        broker.clock.monotonic(),
        Waiter::Settle,
        move |status| {
            done.send(status).ok();
        },
    );
    match status.recv() {
        Ok(PutStatus::Buffered | PutStatus::Flushed) => Ok(()),
        Ok(PutStatus::FlushTimeout | PutStatus::Failed) | Err(_) => {
            Err(BrokerError::Busy("the disk is slow"))
        }
    }
}

/// Topics that a pop of `topic` reads for `group`, retries marked.
pub(super) fn sources(broker: &Broker, group: &str, topic: &str) -> Vec<(Kind, String, i32)> {
    [Kind::Normal, Kind::RetryV2, Kind::RetryV1]
        .into_iter()
        .filter_map(|kind| {
            let name = kind.topic(group, topic);
            // The old name of one group's retries of a topic may be the retry topic of another group.
            let owner = name.strip_prefix(crate::names::RETRY_PREFIX);
            if kind == Kind::RetryV1 && owner.is_some_and(|owner| broker.groups.contains(owner)) {
                return None;
            }
            let queues = broker.topics.get(&name)?.read_queue_nums;
            Some((kind, name, queues))
        })
        .collect()
}
