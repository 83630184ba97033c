//! Carries waiting retries over when a group changes its kind.
//!
//! Consumers that pull read the retries of their group in `%RETRY%group`, leases those of each topic in
//! `%RETRY%group+topic`. While a kind is alive, what waits in the topics of the other one is leased by the broker itself
//! and given back at once, without counting an attempt: so it lands where the living kind reads, and a crash in between
//! neither loses nor doubles it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;
use crate::names as core_names;

use super::lease::Receipt;
use super::names::{self, Kind};
use super::position::Start;
use super::revive;
use super::settle::Op;
use super::settle_all::{Item, settle_all};
use super::sweep::{self, Ask};

/// Messages carried at a time.
const BATCH: usize = 64;
/// Bytes of records carried at a time.
const BATCH_BYTES: usize = 4 << 20;
/// Lease time of what is being carried, ms: it is given back in the same breath.
const INVISIBLE_MS: u64 = 30_000;
/// How often all groups are looked at, for what no event told.
const LOOK: Duration = Duration::from_secs(2);

/// Groups to be looked at soon.
#[derive(Debug, Default)]
pub(crate) struct Carrier {
    groups: Mutex<BTreeSet<String>>,
    wake: Notify,
    /// Groups in whose `%RETRY%group` something may wait, so that a pop of any other need not look.
    retried: RwLock<HashSet<String>>,
}

impl Carrier {
    /// Has a group looked at. Any thread.
    pub(super) fn note(&self, group: &str) {
        if self.groups.lock().insert(group.to_owned()) {
            self.wake.notify_one();
        }
    }

    fn may_have_retries(&self, group: &str) -> bool {
        self.retried.read().contains(group)
    }

    fn note_retry(&self, group: &str) {
        if !self.may_have_retries(group) {
            self.retried.write().insert(group.to_owned());
        }
    }

    /// A group is gone, or nothing waits for it.
    pub(super) fn forget_retries(&self, group: &str) {
        self.retried.write().remove(group);
    }
}

/// Finds the groups for which retries wait at the start.
pub(super) fn recover(broker: &Broker) {
    for topic in broker.topics.names() {
        if let Some(group) = topic.strip_prefix(core_names::RETRY_PREFIX)
            && !group.contains('+')
            && waits(broker, group, &topic)
        {
            broker.pop.carrier.note_retry(group);
        }
    }
}

/// A member of the pulling kind came or went.
pub(crate) fn kind_changed(broker: &Broker, group: &str) {
    if broker.pop.table.has_group(group) {
        broker.pop.carrier.note(group);
    }
}

/// Something was stored in `%RETRY%group`. On the dispatch thread.
pub(super) fn native_retry_came(broker: &Broker, group: &str) {
    broker.pop.carrier.note_retry(group);
    kind_changed(broker, group);
}

/// Whether a pop of the group has to carry retries of pulling consumers over first. Cheap where none came.
pub(super) fn is_due(broker: &Broker, group: &str) -> bool {
    let carrier = &broker.pop.carrier;
    if !carrier.may_have_retries(group) {
        return false;
    }
    // In this order: one that comes meanwhile is seen, or noted again.
    carrier.forget_retries(group);
    let waits = native_retries_wait(broker, group);
    if waits {
        carrier.note_retry(group);
    }
    waits
}

/// Carries until the broker stops.
pub(super) async fn run(broker: Arc<Broker>) {
    loop {
        let all = tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = broker.pop.carrier.wake.notified() => false,
            () = tokio::time::sleep(LOOK) => true,
        };
        let mut groups = std::mem::take(&mut *broker.pop.carrier.groups.lock());
        if all {
            groups.extend(broker.pop.table.group_names());
        }
        if groups.is_empty() {
            continue;
        }
        let owner = broker.clone();
        let work = tokio::task::spawn_blocking(move || {
            for group in groups {
                if owner.stopping.is_cancelled() {
                    return;
                }
                if let Err(error) = settle_kind(&owner, &group) {
                    tracing::warn!(group, %error, "waiting retries are not carried over yet");
                }
            }
        });
        if work.await.is_err() {
            tracing::error!("carrying retries over panicked");
        }
    }
}

/// Carries what waits in the retry topics of the kind that is not there. Blocks.
fn settle_kind(broker: &Arc<Broker>, group: &str) -> Result<(), BrokerError> {
    if broker.has_natives(group, None) {
        return to_natives(broker, group);
    }
    if native_retries_wait(broker, group) && broker.has_lease_members(group) {
        return to_leases(broker, group);
    }
    Ok(())
}

/// Whether messages that pulling consumers gave back wait for the group.
fn native_retries_wait(broker: &Broker, group: &str) -> bool {
    waits(broker, group, &core_names::retry_topic(group))
}

/// Moves the retries of pulling consumers to where leases read them. Blocks.
///
/// # Errors
/// The store's.
pub(super) fn to_leases(broker: &Arc<Broker>, group: &str) -> Result<(), BrokerError> {
    carry(broker, group, &core_names::retry_topic(group))
}

fn to_natives(broker: &Arc<Broker>, group: &str) -> Result<(), BrokerError> {
    let mut topics = BTreeSet::new();
    for slot in broker.pop.table.of_group(group) {
        let topic = &*slot.key.topic;
        let first = names::origin_of(group, topic).unwrap_or(topic);
        if !core_names::is_retry(first) {
            topics.insert(Kind::RetryV2.topic(group, first));
        }
    }
    for topic in topics {
        if waits(broker, group, &topic) {
            carry(broker, group, &topic)?;
        }
    }
    Ok(())
}

/// Whether the group has not read all of a retry topic.
fn waits(broker: &Broker, group: &str, topic: &str) -> bool {
    let Some(config) = broker.topics.get(topic) else {
        return false;
    };
    (0..config.read_queue_nums).any(|queue_id| {
        let range = broker.store.queue(topic, queue_id);
        range.max.get() > sweep::progress(broker, group, topic, queue_id).max(range.min.get())
    })
}

fn carry(broker: &Arc<Broker>, group: &str, topic: &str) -> Result<(), BrokerError> {
    let config = broker
        .groups
        .get(group)
        .ok_or_else(|| BrokerError::NoGroup(core_names::shorten(group)))?;
    let queues = broker
        .topics
        .get(topic)
        .map_or(0, |known| known.read_queue_nums);
    let rules = broker.pop.rules.of(&config);
    let ask = Ask {
        group: group.into(),
        topic: topic.into(),
        queue_id: -1,
        messages: BATCH,
        bytes: BATCH_BYTES,
        not_first: false,
        invisible_ms: INVISIBLE_MS,
        filter: Arc::new(Filter::All),
        start: Start::Earliest,
        rules: rules.clone(),
        member: None,
        member_limit: 0,
    };
    let mut carried = 0;
    for queue_id in 0..queues {
        loop {
            let leased = sweep::lease_retries(broker, &ask, queue_id)?;
            if leased.is_empty() {
                break;
            }
            carried += leased.len();
            let items: Vec<Item> = leased
                .iter()
                .map(|leased| Item {
                    topic: topic.to_owned(),
                    queue_id,
                    offset: leased.offset,
                    receipt: Receipt::Lease(leased.id),
                    op: Op::Suspend,
                })
                .collect();
            settle_all(broker, group, &rules, &items)?;
            revive::put_back_now(broker, group, topic, queue_id)?;
            if broker.stopping.is_cancelled() {
                return Ok(());
            }
        }
    }
    if carried > 0 {
        tracing::info!(
            group,
            topic,
            messages = carried,
            "waiting retries carried over to the other kind of member"
        );
    }
    Ok(())
}
