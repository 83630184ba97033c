//! One pass over the queues of a topic and its retries: leases what is there, or says whether anything is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use store::PhysicalOffset;
use wire::receipt::Gap;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;

use super::lease::LeaseId;
use super::names::{Kind, revive_queue};
use super::position::{self, Start, mirror, reconcile};
use super::record::CheckPoint;
use super::rules::Rules;
use super::scan::{self, BUDGET, Found, Reach, Want};
use super::table::{Locked, Slot};

/// One in this many sweeps looks at retries first, the others at the topic first.
const RETRY_FIRST: usize = 5;

/// Most leases of one group on one broker, waiting ones included.
const OPEN_MAX: u64 = 1_000_000;

/// What a consumer asks for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Consumer group.
    pub(crate) group: Arc<str>,
    /// The topic, never a retry topic.
    pub(crate) topic: Arc<str>,
    /// Queue of the topic; -1 for all.
    pub(crate) queue_id: i32,
    /// Most messages.
    pub(crate) messages: usize,
    /// Most bytes of records.
    pub(crate) bytes: usize,
    /// Not even the first message may exceed them.
    pub(crate) not_first: bool,
    /// Lease time, ms.
    pub(crate) invisible_ms: u64,
    /// Wanted messages.
    pub(crate) filter: Arc<Filter>,
    /// Where a group without progress starts.
    pub(crate) start: Start,
    /// The group's rules.
    pub(crate) rules: Arc<Rules>,
    /// Label of the member that asks; `None` where nobody is counted.
    pub(crate) member: Option<Arc<str>>,
    /// Leases that it may hold on this broker; 0 = any number.
    pub(crate) member_limit: u32,
}

/// A leased message.
#[derive(Debug)]
pub(crate) struct Leased {
    /// From the topic or from its retries.
    pub(crate) kind: Kind,
    /// Queue it was popped from.
    pub(crate) queue_id: i32,
    /// Its place there.
    pub(crate) offset: u64,
    /// The lease.
    pub(crate) id: LeaseId,
    /// 1 for the first delivery.
    pub(crate) attempt: u32,
    /// The stored record.
    pub(crate) record: Bytes,
}

/// What a sweep did.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// In answer order: queues one after the other.
    pub(crate) leased: Vec<Leased>,
    /// Pop time of all of them, epoch ms.
    pub(crate) pop_time_ms: i64,
    /// Messages left in the queues it looked at; an upper bound under a filter.
    pub(crate) rest: u64,
    /// It ran out of budget: sweep again at once.
    pub(crate) again: bool,
    /// A queue was left out that may have to be read from the disk.
    pub(crate) cold: bool,
    /// The member holds as many leases as it may.
    pub(crate) member_full: bool,
    /// Messages of the topic that were lost unread.
    pub(crate) gaps: Vec<Gap>,
    /// Inside its last check point: once the disk holds what is before, it holds that record and all before it.
    pub(crate) durable_at: PhysicalOffset,
}

/// Whether the group may get messages now.
///
/// # Errors
/// [`BrokerError::TooManyInFlight`].
pub(crate) fn room(broker: &Broker, ask: &Ask) -> Result<usize, BrokerError> {
    let max = ask.rules.policy.max_in_flight;
    let (held, open) = broker.pop.table.open(&ask.group);
    let room = u64::from(max)
        .saturating_sub(held)
        .min(OPEN_MAX.saturating_sub(open));
    if room == 0 {
        return Err(BrokerError::TooManyInFlight {
            group: ask.group.to_string(),
            max,
        });
    }
    Ok(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Whether the group holds as many leases as it may, so that requests wait for one to end.
pub(super) fn is_full(broker: &Broker, group: &str, rules: &Rules) -> bool {
    let (held, open) = broker.pop.table.open(group);
    held >= u64::from(rules.policy.max_in_flight) || open >= OPEN_MAX
}

/// Leases that the member may still take.
fn member_room(broker: &Broker, ask: &Ask) -> usize {
    let (Some(member), true) = (&ask.member, ask.member_limit > 0) else {
        return usize::MAX;
    };
    let held = broker.pop.table.held_by(&ask.group, member);
    usize::try_from(u64::from(ask.member_limit).saturating_sub(held)).unwrap_or(usize::MAX)
}

/// Leases up to what is asked for. `tells_gaps`: the answer reports losses; without that they stay for one that does.
///
/// # Errors
/// The group is at its limit, the state table is full, or the store's.
pub(super) fn lease(
    broker: &Broker,
    ask: &Ask,
    reach: Reach,
    tells_gaps: bool,
) -> Result<Swept, BrokerError> {
    let mut swept = Swept {
        pop_time_ms: broker.pop.now_ms(broker.clock.as_ref()),
        ..Swept::default()
    };
    let member_room = member_room(broker, ask);
    if member_room == 0 {
        swept.member_full = true;
        return Ok(swept);
    }
    let messages = ask.messages.min(room(broker, ask)?).min(member_room);
    let mut bytes = ask.bytes;
    let mut budget = BUDGET.max(messages);
    let now_ms = swept.pop_time_ms;
    let visited = visit(broker, ask, now_ms, |kind, slot, locked| {
        let want = Want {
            filter: &ask.filter,
            group: &ask.group,
            retry: kind != Kind::Normal,
            reach,
            messages: messages - swept.leased.len(),
            bytes,
            is_first: swept.leased.is_empty() && !ask.not_first,
        };
        if want.messages > 0 && bytes > 0 && budget > 0 {
            let found = look(broker, slot, locked, want, &mut budget)?;
            swept.again |= found.exhausted;
            swept.cold |= found.cold;
            bytes = bytes.saturating_sub(found.bytes);
            give_out(broker, ask, kind, slot, locked, found, &mut swept)?;
            if tells_gaps
                && kind == Kind::Normal
                && let Some((from, to)) = locked.take_gap()
            {
                swept.gaps.push(Gap {
                    queue_id: slot.key.queue_id,
                    from: i64::try_from(from).unwrap_or(i64::MAX),
                    to: i64::try_from(to).unwrap_or(i64::MAX),
                });
            }
        }
        let max = broker
            .store
            .queue(&slot.key.topic, slot.key.queue_id)
            .max
            .get();
        swept.rest += max.saturating_sub(locked.state().next);
        Ok(false)
    });
    // What is leased is given out, whatever happened to the other queues.
    if let Err(error) = visited
        && swept.leased.is_empty()
    {
        return Err(error);
    }
    swept.again |= budget == 0 && swept.rest > 0;
    Ok(swept)
}

/// Whether there is something to lease; passes over what the group does not want on the way.
///
/// # Errors
/// As [`lease`], but for the limit: at the limit there is nothing.
pub(super) fn is_there(broker: &Broker, ask: &Ask, reach: Reach) -> Result<Presence, BrokerError> {
    if ask.rules.policy.paused || room(broker, ask).is_err() || member_room(broker, ask) == 0 {
        return Ok(Presence::No);
    }
    let mut budget = BUDGET;
    let mut presence = Presence::No;
    visit(
        broker,
        ask,
        broker.pop.now_ms(broker.clock.as_ref()),
        |kind, slot, locked| {
            if budget == 0 {
                presence = Presence::LookAgain;
                return Ok(true);
            }
            let want = Want {
                filter: &ask.filter,
                group: &ask.group,
                retry: kind != Kind::Normal,
                reach,
                messages: 1,
                bytes: 1,
                is_first: true,
            };
            let found = look(broker, slot, locked, want, &mut budget)?;
            let first = found.matches.first().map(|first| first.offset);
            locked.skip_to(first.unwrap_or(found.next));
            mirror(broker, slot, locked);
            if first.is_some() {
                presence = Presence::Yes;
            } else if found.cold {
                presence = Presence::Cold;
            } else if found.exhausted {
                presence = Presence::LookAgain;
            }
            Ok(first.is_some())
        },
    )?;
    Ok(presence)
}

/// Answer of [`is_there`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A pop would get something.
    Yes,
    /// Nothing.
    No,
    /// Nothing so far; the budget ran out.
    LookAgain,
    /// Nothing in memory; a queue may have to be read from the disk.
    Cold,
}

/// Leases the next messages of one queue of a retry topic, `ask.topic`, past all limits of the group: the broker itself
/// carries them elsewhere.
///
/// # Errors
/// The state table is full, or the store's.
pub(super) fn lease_retries(
    broker: &Broker,
    ask: &Ask,
    queue_id: i32,
) -> Result<Vec<Leased>, BrokerError> {
    let mut swept = Swept {
        pop_time_ms: broker.pop.now_ms(broker.clock.as_ref()),
        ..Swept::default()
    };
    if broker.store.queue(&ask.topic, queue_id).max.get() == 0 {
        return Ok(Vec::new());
    }
    let now_ms = swept.pop_time_ms;
    let slot = position::open_slot(broker, &ask.group, &ask.topic, queue_id, ask.start, now_ms)?;
    let Some(slot) = slot else {
        return Ok(Vec::new());
    };
    let Some(mut locked) = slot.lock() else {
        return Ok(Vec::new());
    };
    let want = Want {
        filter: &ask.filter,
        group: &ask.group,
        retry: true,
        reach: Reach::Disk,
        messages: ask.messages,
        bytes: ask.bytes,
        is_first: true,
    };
    let mut budget = BUDGET;
    let found = look(broker, &slot, &mut locked, want, &mut budget)?;
    give_out(
        broker,
        ask,
        Kind::RetryV2,
        &slot,
        &mut locked,
        found,
        &mut swept,
    )?;
    Ok(swept.leased)
}

/// Queue offset the group reads next in a queue, without opening a state for it: 0 where it has none.
pub(super) fn progress(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> u64 {
    let committed = broker
        .offsets
        .get(group, topic, queue_id)
        .and_then(|offset| u64::try_from(offset).ok());
    let Some(slot) = broker.pop.table.get(group, topic, queue_id) else {
        return committed.unwrap_or(0);
    };
    let Some(locked) = slot.lock() else {
        return committed.unwrap_or(0);
    };
    let state = locked.state();
    committed
        .filter(|&offset| Some(offset) != state.mirrored)
        .unwrap_or(state.next)
}

/// Calls `each` for the queues in an order that moves on with every call, until it says stop.
fn visit(
    broker: &Broker,
    ask: &Ask,
    now_ms: i64,
    mut each: impl FnMut(Kind, &Arc<Slot>, &mut Locked<'_>) -> Result<bool, BrokerError>,
) -> Result<(), BrokerError> {
    let turn = broker.pop.rotation.fetch_add(1, Ordering::Relaxed);
    let mut sources = position::sources(broker, &ask.group, &ask.topic);
    if turn.is_multiple_of(RETRY_FIRST) && !sources.is_empty() {
        sources.rotate_left(1);
    }
    for (kind, topic, queues) in sources {
        let queues = usize::try_from(queues).unwrap_or(0);
        for index in 0..queues {
            let queue_id = i32::try_from((turn + index) % queues).unwrap_or(0);
            if kind == Kind::Normal && ask.queue_id >= 0 && ask.queue_id != queue_id {
                continue;
            }
            if broker.store.queue(&topic, queue_id).max.get() == 0 {
                continue;
            }
            let start = if kind == Kind::Normal {
                ask.start
            } else {
                Start::Earliest
            };
            let slot = position::open_slot(broker, &ask.group, &topic, queue_id, start, now_ms)?;
            let Some(slot) = slot else {
                continue;
            };
            let Some(mut locked) = slot.lock() else {
                continue;
            };
            if each(kind, &slot, &mut locked)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn look(
    broker: &Broker,
    slot: &Arc<Slot>,
    locked: &mut Locked<'_>,
    want: Want<'_>,
    budget: &mut usize,
) -> Result<Found, BrokerError> {
    reconcile(broker, slot, locked)?;
    let from = locked.state().next;
    scan::scan(
        broker,
        &slot.key.topic,
        slot.key.queue_id,
        from,
        want,
        budget,
    )
}

/// Writes the check point of what was found, applies it, and adds it to the answer.
fn give_out(
    broker: &Broker,
    ask: &Ask,
    kind: Kind,
    slot: &Arc<Slot>,
    locked: &mut Locked<'_>,
    found: Found,
    swept: &mut Swept,
) -> Result<(), BrokerError> {
    if found.matches.is_empty() {
        locked.skip_to(found.next);
        mirror(broker, slot, locked);
        return Ok(());
    }
    let pop = &broker.pop;
    let key = &slot.key;
    let messages: Vec<(u64, u32)> = found
        .matches
        .iter()
        .map(|found| (found.offset, found.attempt))
        .collect();
    let point = CheckPoint {
        group: &key.group,
        topic: &key.topic,
        queue_id: key.queue_id,
        epoch: pop.epoch,
        pop_time_ms: swept.pop_time_ms,
        invisible_ms: ask.invisible_ms,
        next: found.next,
        messages: &messages,
        member: ask.member.as_ref(),
    };
    let draft = point
        .draft(pop.broker_name())
        .map_err(|_| BrokerError::Internal("check point record"))?;
    let queue = revive_queue(&key.group, &key.topic, key.queue_id);
    let position = pop.append_fact(broker, &draft, queue, point.pop_time_ms)?;
    swept.durable_at = swept.durable_at.max(position.plus(1));
    pop.apply(locked, slot, position, &point.event(position.get()));
    mirror(broker, slot, locked);
    let id = LeaseId::new(pop.epoch, position.get());
    swept
        .leased
        .extend(found.matches.into_iter().map(|found| Leased {
            kind,
            queue_id: key.queue_id,
            offset: found.offset,
            id,
            attempt: found.attempt,
            record: found.record,
        }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::topic;
    use crate::test_broker::{append, start};
    use crate::topic::{PERM_READ_WRITE, TopicConfig};

    const RETRIES: &str = "%RETRY%g+t";

    /// From when a topic's removal begins until it is over nothing of it is given out, nor of its retries, also where
    /// somebody makes it again meanwhile; then it begins anew.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_of_a_topic_that_is_being_removed_comes_again() {
        let running = start().await;
        let broker = &running.broker;
        let make = |name| {
            let config = TopicConfig::new(name, 1, PERM_READ_WRITE);
            broker.topics.ensure(config, 1).unwrap();
        };
        [RETRIES, "t"].into_iter().for_each(make);
        let group = broker.ensure_group("g").unwrap();
        let ask = Ask {
            group: "g".into(),
            topic: "t".into(),
            queue_id: -1,
            messages: 32,
            bytes: 1 << 20,
            not_first: false,
            invisible_ms: 60_000,
            filter: Arc::new(Filter::All),
            start: Start::Earliest,
            rules: broker.pop.rules.of(&group),
            member: None,
            member_limit: 0,
        };
        let receive = || {
            let leased = lease(broker, &ask, Reach::Disk, false).unwrap().leased;
            let place = |leased: &Leased| (leased.kind == Kind::Normal, leased.offset);
            let mut places: Vec<_> = leased.iter().map(place).collect();
            places.sort_unstable();
            places
        };
        append(broker, "t", 2).await;
        append(broker, RETRIES, 1).await;
        let all = [(false, 0), (true, 0), (true, 1)];
        assert_eq!(receive(), all);

        let removal = broker.store.remove_topic_after("t", || {
            assert_eq!(receive(), [], "begun");
            broker.topics.remove("t", 2, true);
            topic::forget(broker, "t")?;
            assert_eq!(receive(), [], "forgotten");
            make("t");
            assert_eq!(receive(), [], "made again");
            assert_eq!(is_there(broker, &ask, Reach::Disk)?, Presence::No);
            assert!(
                lease_retries(
                    broker,
                    &Ask {
                        topic: RETRIES.into(),
                        ..ask.clone()
                    },
                    0
                )?
                .is_empty()
            );
            assert!(!broker.pop.table.has_group("g"), "a state was made");
            assert!(broker.topic_to_read("t").is_err(), "a pull finds it");
            topic::remove_retries(broker, "t")?;
            Ok::<_, BrokerError>(true)
        });
        removal.unwrap();
        assert_eq!(receive(), []);
        assert_eq!(broker.offsets.topics_of("g"), Vec::<String>::new());
        [RETRIES, "t"].into_iter().for_each(make);
        append(broker, "t", 2).await;
        append(broker, RETRIES, 1).await;
        assert_eq!(receive(), all);
        running.stop().await.unwrap();
    }
}
