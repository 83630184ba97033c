//! What one group has of one queue: where delivery stands, what is in flight, what became of past receipts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lease::{Lease, LeaseId, Receipt};
use super::tombs::{Ended, Horizon, Tombs};

/// State of one (group, topic, queue). Changed only by [`super::apply::apply`] and, for what needs no record, by
/// [`QueueState::skip_to`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Queue offset delivery continues at.
    pub next: u64,
    /// Log position after the last record that is in here.
    pub applied: u64,
    /// Latest pop time given out, epoch ms.
    pub last_pop_time_ms: i64,
    /// Receipts that have ended.
    pub tombs: Tombs,
    /// Last value of `next` that was put in the group's offset table; another value there is a native consumer's or an
    /// operator's.
    pub mirrored: Option<u64>,
    /// Log position after the last record that said where delivery stands: an offset of others that was committed since
    /// is newer than `next`.
    pub placed: u64,
    /// Retries of messages of this queue that stand below this log position were voided by a seek.
    pub retries_void_below: u64,
    in_flight: BTreeMap<u64, Lease>,
    due: BTreeSet<(i64, u64)>,
    held: i64,
}

impl QueueState {
    /// Delivery starts at `next`; receipts from before `horizon` are not ours. `applied` is the log's end at this
    /// moment: older records are about an earlier state of the same name.
    pub fn new(next: u64, horizon: Horizon, applied: u64) -> Self {
        QueueState {
            next,
            applied,
            last_pop_time_ms: horizon.pop_time_ms,
            tombs: Tombs::new(horizon),
            mirrored: None,
            placed: applied,
            retries_void_below: 0,
            in_flight: BTreeMap::new(),
            due: BTreeSet::new(),
            held: 0,
        }
    }

    /// Passes over messages that do not concern the group. Needs no record: after a crash they are passed over again.
    pub fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// All offsets below are done with.
    pub fn ack_floor(&self) -> u64 {
        self.in_flight
            .keys()
            .next()
            .map_or(self.next, |&first| first.min(self.next))
    }

    /// The lease at `offset` if `receipt` names it.
    pub fn lease(&self, offset: u64, receipt: Receipt) -> Option<&Lease> {
        self.in_flight
            .get(&offset)
            .filter(|lease| lease.is_named_by(receipt))
    }

    /// How a lease that is not in flight ended, if that is still known. Where the message is in flight under another
    /// lease, the one that `receipt` names ended by a crash that took its record with it: nothing is known of it.
    pub fn ended(&self, offset: u64, receipt: Receipt) -> Option<Ended> {
        let never = matches!(receipt, Receipt::PopTime(ms) if ms > self.last_pop_time_ms);
        if never || self.in_flight.contains_key(&offset) {
            return None;
        }
        self.tombs.look_up(offset, receipt, offset < self.next)
    }

    /// Everything in flight by ascending offset.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, &Lease)> {
        self.in_flight
            .iter()
            .map(|(&offset, lease)| (offset, lease))
    }

    /// The same from an offset on.
    pub(super) fn in_flight_from(&self, from: u64) -> impl Iterator<Item = (u64, &Lease)> {
        self.in_flight
            .range(from..)
            .map(|(&offset, lease)| (offset, lease))
    }

    /// Messages in flight, waiting ones included.
    pub fn in_flight_len(&self) -> usize {
        self.in_flight.len()
    }

    /// The member that holds the lease at `offset`, if one does.
    pub(super) fn holder(&self, offset: u64) -> Option<Arc<str>> {
        let lease = self.in_flight.get(&offset)?;
        lease.member.clone().filter(|_| lease.is_held())
    }

    /// Leases that a consumer holds.
    pub fn held(&self) -> i64 {
        self.held
    }

    /// When the earliest lease is to be put back, epoch ms.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|&(ms, _)| ms)
    }

    /// Up to `max` leases whose time has come at `now_ms`, earliest first.
    pub fn due(&self, now_ms: i64, max: usize) -> Vec<(u64, Lease)> {
        let ready = self
            .due
            .iter()
            .take_while(|&&(ms, _)| ms <= now_ms)
            .take(max);
        ready
            .filter_map(|&(_, offset)| Some((offset, self.in_flight.get(&offset)?.clone())))
            .collect()
    }

    /// Offsets and ids of the leases at `from` and above.
    pub(super) fn leases_from(&self, from: u64) -> Vec<(u64, LeaseId)> {
        self.in_flight
            .range(from..)
            .map(|(&offset, lease)| (offset, lease.id))
            .collect()
    }

    /// Puts a lease in flight; one that is there under the same offset is replaced.
    pub(super) fn insert(&mut self, offset: u64, lease: Lease) {
        self.due.insert((lease.visible_at_ms, offset));
        self.held += i64::from(lease.is_held());
        if let Some(old) = self.in_flight.insert(offset, lease) {
            self.held -= i64::from(old.is_held());
            if self
                .in_flight
                .get(&offset)
                .is_some_and(|new| new.visible_at_ms != old.visible_at_ms)
            {
                self.due.remove(&(old.visible_at_ms, offset));
            }
        }
    }

    /// Takes a lease out of flight, if it is there under this id.
    pub(super) fn remove(&mut self, offset: u64, id: LeaseId) -> Option<Lease> {
        if self.in_flight.get(&offset)?.id != id {
            return None;
        }
        let lease = self.in_flight.remove(&offset)?;
        self.due.remove(&(lease.visible_at_ms, offset));
        self.held -= i64::from(lease.is_held());
        Some(lease)
    }

    /// Changes a lease, if it is there under this id.
    pub(super) fn update(&mut self, offset: u64, id: LeaseId, change: impl FnOnce(&mut Lease)) {
        if let Some(mut lease) = self.remove(offset, id) {
            change(&mut lease);
            self.insert(offset, lease);
        }
    }
}
