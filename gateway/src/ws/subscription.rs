//! One group subscription of a socket: credit, in-flight bound, sequence and leases, as a pure state.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use openapi::ws::{LeaseState, RequestId, SubscriptionState};
use serde_json::value::RawValue;

use super::action::{Adopted, Target};
use super::frame::{SettleItem, SettleKind, Subscribe};
use crate::memory::Held;

/// Credit a client may have outstanding, messages.
pub(super) const CREDIT_MAX: u64 = 10_000;
/// Messages in one frame, and in one pop.
pub(super) const TURN_MESSAGES: u32 = 64;
/// Leases beyond the in-flight bound that are remembered: the client may have settled those before them elsewhere.
const STALE_MAX: usize = 1_000;
/// How often a subscription that holds all it may asks the brokers whether it still does.
const PROBE: Duration = Duration::from_secs(1);
/// Bytes of messages in one frame and one pop; a larger message goes alone.
pub(super) const TURN_BYTES: usize = 256 * 1024;
const RENEW_RETRY: Duration = Duration::from_secs(1);
const PAUSE_LOOK: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// A message popped for this subscription.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) receipt: Arc<str>,
    /// The message object as the client gets it.
    pub(crate) json: Box<RawValue>,
    /// Body, bytes.
    pub(crate) size: u64,
    /// When it becomes visible again.
    pub(crate) until: Monotonic,
    /// Who gave it, and counts it.
    pub(crate) broker: Arc<str>,
    /// The memory of all messages of its pop.
    pub(crate) held: Option<Arc<Held>>,
}

/// Whether a pop makes sense, and what follows the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Being opened by the driver.
    Opening,
    /// A pop may be asked for.
    Idle,
    /// One is out for at most this many messages.
    Popping(u32),
    /// There was nothing; the driver reports an arrival.
    Waiting,
}

#[derive(Debug)]
struct Lease {
    broker: Arc<str>,
    until: Monotonic,
    renew_at: Monotonic,
    /// No extension goes beyond this.
    ends: Monotonic,
    sent: bool,
    extending: bool,
}

/// A settle request that waits until an earlier one with the same receipt is answered.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) id: Option<RequestId>,
    pub(super) kind: SettleKind,
    pub(super) items: Vec<SettleItem>,
}

/// Messages that go out in one frame.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) seq: u64,
    pub(super) credit: u32,
    pub(super) receipts: Vec<Arc<str>>,
    pub(super) items: Vec<Box<RawValue>>,
}

/// What is to be done about leases.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) extend: Vec<SettleItem>,
    /// Ended unsettled in the client's hands; they are forgotten.
    pub(super) ended: Vec<(Arc<str>, LeaseState)>,
    /// Never sent, and ended or soon to end; they are forgotten.
    pub(super) unsent: Vec<Arc<str>>,
}

/// The leases of a subscription that is over.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// In the client's hands.
    pub(super) delivered: Vec<Arc<str>>,
    /// Never sent.
    pub(super) unsent: Vec<Arc<str>>,
    /// Of requests of the client, or extensions, that are not answered yet.
    pub(super) asked: Vec<Arc<str>>,
}

/// What `pop` to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) max: u32,
    pub(super) bytes: usize,
}

/// State of one subscription. `invisible` is settled once it is open.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) target: Arc<Target>,
    pub(super) spec: Subscribe,
    /// Answer `subscribe` with this.
    pub(super) open_id: Option<RequestId>,
    pub(super) phase: Phase,
    pub(super) state: SubscriptionState,
    pub(super) not_before: Monotonic,
    /// Receipts of client requests that are not answered yet.
    pub(super) busy: HashSet<Arc<str>>,
    pub(super) deferred: VecDeque<Deferred>,
    /// A refusal that can pass was reported and has not passed.
    pub(super) complained: bool,
    invisible: Duration,
    credit: u64,
    bytes: Option<u64>,
    seq: u64,
    leases: HashMap<Arc<str>, Lease>,
    /// How many of them each broker has; none with 0.
    holds: BTreeMap<Arc<str>, u32>,
    /// The last pop brought nothing, since the brokers count as many leases as there may be.
    full: bool,
    /// Not before this is asked whether the bound is still reached.
    probe_at: Monotonic,
    ready: VecDeque<Item>,
    retry: Duration,
    last_pop: Option<Monotonic>,
    /// No lease needs a look before this; may be too early, never too late.
    look_at: Option<Monotonic>,
}

impl Subscription {
    pub(super) fn new(
        number: u32,
        spec: Subscribe,
        open_id: Option<RequestId>,
        now: Monotonic,
    ) -> Self {
        Self {
            target: Arc::new(Target {
                ns: spec.ns.clone(),
                group: spec.group.clone(),
                number,
            }),
            open_id,
            phase: Phase::Opening,
            state: SubscriptionState::Active,
            not_before: now,
            busy: HashSet::new(),
            deferred: VecDeque::new(),
            complained: false,
            invisible: Duration::from_millis(spec.invisible_ms.unwrap_or(30_000)),
            credit: spec.credit,
            bytes: None,
            seq: 0,
            leases: HashMap::new(),
            holds: BTreeMap::new(),
            full: false,
            probe_at: now,
            ready: VecDeque::new(),
            retry: RETRY_MIN,
            last_pop: None,
            look_at: None,
            spec,
        }
    }

    /// Takes the group's invisible time, where none was asked for, and the adopted leases.
    pub(super) fn opened(&mut self, invisible_ms: u64, adopted: &[Adopted], now: Monotonic) {
        self.invisible = Duration::from_millis(invisible_ms);
        self.phase = Phase::Idle;
        let until = now + self.invisible;
        for lease in adopted {
            let (receipt, broker) = (Arc::clone(&lease.receipt), Arc::clone(&lease.broker));
            self.hold(receipt, broker, until, true, now);
        }
    }

    pub(super) fn invisible_ms(&self) -> u64 {
        u64::try_from(self.invisible.as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds credit; false, and nothing added, where it would pass [`CREDIT_MAX`].
    pub(super) fn grant(&mut self, messages: u64, bytes: Option<u64>) -> bool {
        let credit = self.credit.saturating_add(messages);
        if credit > CREDIT_MAX {
            return false;
        }
        self.credit = credit;
        if let Some(bytes) = bytes {
            self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(bytes));
        }
        true
    }

    /// Messages popped or in the client's hands and not settled.
    pub(super) fn in_flight(&self) -> usize {
        self.leases.len()
    }

    /// The pop to ask for now: never more than credit and the in-flight bound allow together with what is under way.
    pub(super) fn wish(&self, now: Monotonic) -> Option<Wish> {
        if self.phase != Phase::Idle || now < self.not_before {
            return None;
        }
        let unsent = self.ready.len() as u64;
        let mut room = u64::from(self.spec.max_in_flight).saturating_sub(self.leases.len() as u64);
        if room == 0 {
            if now < self.probe_at || self.leases.len() >= self.bound() + STALE_MAX {
                return None;
            }
            // The brokers know what was settled through other gateways, and give no more than the bound.
            room = u64::from(TURN_MESSAGES);
        }
        let max = self
            .credit
            .saturating_sub(unsent)
            .min(room)
            .min(u64::from(TURN_MESSAGES));
        let bytes = self.bytes_left().map_or(TURN_BYTES, |left| {
            usize::try_from(left).unwrap_or(TURN_BYTES).min(TURN_BYTES)
        });
        let max = u32::try_from(max).unwrap_or(0);
        (max > 0 && bytes > 0).then_some(Wish { max, bytes })
    }

    /// Byte budget less what is popped and unsent.
    fn bytes_left(&self) -> Option<u64> {
        self.bytes
            .map(|bytes| bytes.saturating_sub(self.ready.iter().map(|item| item.size).sum()))
    }

    fn bound(&self) -> usize {
        self.spec.max_in_flight as usize
    }

    /// When a pop will be asked for if nothing else happens.
    pub(super) fn wishes_at(&self) -> Option<Monotonic> {
        let at = if self.leases.len() >= self.bound() {
            self.not_before.max(self.probe_at)
        } else {
            self.not_before
        };
        self.wish(at).map(|_| at)
    }

    /// Leases by broker, for the bound that the brokers keep.
    pub(super) fn holds(&self) -> BTreeMap<Arc<str>, u32> {
        self.holds.clone()
    }

    pub(super) fn popping(&mut self, max: u32, now: Monotonic) {
        self.phase = Phase::Popping(max);
        self.last_pop = Some(now);
    }

    /// Takes the messages of a pop; returns those beyond what was asked for. `full`: a broker gave less than it could,
    /// since this subscription holds as many of its leases as it may.
    pub(super) fn popped(
        &mut self,
        items: Vec<Item>,
        more: bool,
        full: bool,
        now: Monotonic,
    ) -> Vec<Arc<str>> {
        let Phase::Popping(max) = self.phase else {
            return items.into_iter().map(|item| item.receipt).collect();
        };
        let (max, mut surplus) = (max as usize, Vec::new());
        self.phase = if more || items.len() >= max {
            Phase::Idle
        } else {
            Phase::Waiting
        };
        self.not_before = now;
        self.retry = RETRY_MIN;
        self.full = full && items.is_empty();
        if self.full {
            self.phase = Phase::Idle;
            self.not_before = now + PROBE;
        }
        // One that brought something shows that more was settled elsewhere.
        let stale = self.leases.len() >= self.bound() && !items.is_empty();
        self.probe_at = if stale { now } else { now + PROBE };
        for (index, item) in items.into_iter().enumerate() {
            if index >= max || self.leases.contains_key(&item.receipt) {
                surplus.push(item.receipt);
                continue;
            }
            let broker = Arc::clone(&item.broker);
            self.hold(Arc::clone(&item.receipt), broker, item.until, false, now);
            self.ready.push_back(item);
        }
        surplus
    }

    /// Something may be deliverable; a pop follows at once, or `linger` after the last one.
    pub(super) fn arrived(&mut self, now: Monotonic) {
        if self.phase == Phase::Waiting {
            self.phase = Phase::Idle;
            let linger = Duration::from_millis(self.spec.linger_ms);
            self.not_before = self.last_pop.map_or(now, |at| at + linger).max(now);
        }
    }

    /// The group is paused: ask again in a while.
    pub(super) fn paused(&mut self, now: Monotonic) {
        self.phase = Phase::Idle;
        self.not_before = now + PAUSE_LOOK;
    }

    /// The pop did not take place.
    pub(super) fn not_popped(&mut self, now: Monotonic) {
        self.phase = Phase::Idle;
        self.not_before = now;
    }

    /// The pop failed: the next one waits, longer each time.
    pub(super) fn retry_later(&mut self, now: Monotonic) {
        self.phase = Phase::Idle;
        self.not_before = now + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    /// The next frame of messages, where there are any the credit covers.
    pub(super) fn turn(&mut self, now: Monotonic) -> Option<Turn> {
        let mut turn = Turn {
            seq: self.seq + 1,
            credit: 0,
            receipts: Vec::new(),
            items: Vec::new(),
        };
        let mut size = 0;
        while let Some(item) = self.ready.front() {
            if !self.leases.contains_key(&item.receipt) {
                self.ready.pop_front();
                continue;
            }
            let full = turn.items.len() >= TURN_MESSAGES as usize
                || (size > 0 && size + item.json.get().len() > TURN_BYTES);
            if full || !self.is_covered(item) {
                break;
            }
            let Some(item) = self.ready.pop_front() else {
                break;
            };
            size += item.json.get().len();
            self.credit -= 1;
            self.bytes = self.bytes.map(|left| left.saturating_sub(item.size));
            let max_processing = Duration::from_millis(self.spec.max_processing_ms);
            if let Some(lease) = self.leases.get_mut(&item.receipt) {
                lease.sent = true;
                lease.ends = now + max_processing;
            }
            turn.receipts.push(item.receipt);
            turn.items.push(item.json);
        }
        if turn.items.is_empty() {
            return None;
        }
        self.seq = turn.seq;
        turn.credit = u32::try_from(self.credit).unwrap_or(u32::MAX);
        Some(turn)
    }

    /// Whether the credit covers a message.
    fn is_covered(&self, item: &Item) -> bool {
        let fits = self.bytes.is_none_or(|left| {
            let alone = || self.leases.values().all(|lease| !lease.sent);
            item.size <= left || (left > 0 && alone())
        });
        self.credit > 0 && fits
    }

    /// Encoded bytes of the message that would go out next.
    pub(super) fn next_size(&self) -> Option<usize> {
        let mut left = self.ready.iter();
        let next = left.find(|item| self.leases.contains_key(&item.receipt))?;
        self.is_covered(next).then(|| next.json.get().len())
    }

    /// A lease of this subscription was settled: where the bound was reached, it is not any more.
    pub(super) fn freed(&mut self, now: Monotonic) {
        if std::mem::take(&mut self.full) {
            self.not_before = self.not_before.min(now);
        }
    }

    fn hold(
        &mut self,
        receipt: Arc<str>,
        broker: Arc<str>,
        until: Monotonic,
        sent: bool,
        now: Monotonic,
    ) {
        let ends = now + Duration::from_millis(self.spec.max_processing_ms);
        let renew_at = self.renewal(now, until);
        *self.holds.entry(Arc::clone(&broker)).or_default() += 1;
        let lease = Lease {
            broker,
            until,
            renew_at,
            ends,
            sent,
            extending: false,
        };
        self.look(if self.spec.auto_extend || !sent {
            renew_at
        } else {
            until
        });
        self.leases.insert(receipt, lease);
    }

    fn renewal(&self, now: Monotonic, until: Monotonic) -> Monotonic {
        now + (until.max(now) - now) * 2 / 3
    }

    fn look(&mut self, at: Monotonic) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// When [`Self::due`] wants to be asked again.
    pub(super) fn look_at(&self) -> Option<Monotonic> {
        self.look_at
    }

    /// What is to be done about leases now; what ended is forgotten.
    pub(super) fn due(&mut self, now: Monotonic) -> Due {
        let mut due = Due::default();
        if self.look_at.is_none_or(|at| now < at) {
            return due;
        }
        let mut next: Option<Monotonic> = None;
        for (receipt, lease) in &mut self.leases {
            let processing_over = self.spec.auto_extend && lease.until >= lease.ends;
            let asked = lease.extending || self.busy.contains(receipt);
            let renews = self.spec.auto_extend && !processing_over && !asked;
            // A message in no frame yet is not worth sending once its lease is about to end.
            let unsent = !lease.sent && !renews && now >= lease.renew_at;
            if !asked && (now >= lease.until || unsent) {
                if lease.sent {
                    let state = if processing_over {
                        LeaseState::Limit
                    } else {
                        LeaseState::Expired
                    };
                    due.ended.push((Arc::clone(receipt), state));
                } else {
                    due.unsent.push(Arc::clone(receipt));
                }
                continue;
            }
            if renews && now >= lease.renew_at {
                let span = self
                    .invisible
                    .min(lease.ends - now)
                    .max(Duration::from_secs(1));
                lease.extending = true;
                let invisible_ms = u64::try_from(span.as_millis()).ok();
                due.extend.push(SettleItem {
                    invisible_ms,
                    ..SettleItem::bare(Arc::clone(receipt))
                });
                continue;
            }
            let at = if renews || !lease.sent {
                lease.renew_at.min(lease.until)
            } else {
                lease.until
            };
            // A receipt with an answer outstanding is looked at again with that answer.
            if at > now {
                next = Some(next.map_or(at, |earlier| earlier.min(at)));
            }
        }
        self.look_at = next;
        let ended = due.ended.iter().map(|(receipt, _)| receipt);
        for receipt in ended.chain(&due.unsent) {
            self.forget(receipt);
        }
        if !due.unsent.is_empty() {
            self.ready
                .retain(|item| self.leases.contains_key(&item.receipt));
        }
        due
    }

    /// An extension, by the gateway or by the client, was answered: visible in `visible_ms` from now.
    pub(super) fn extended(&mut self, receipt: &Arc<str>, visible_ms: u64, now: Monotonic) {
        let until = now + Duration::from_millis(visible_ms);
        let renew_at = self.renewal(now, until);
        if let Some(lease) = self.leases.get_mut(receipt) {
            lease.until = until;
            lease.renew_at = renew_at;
            lease.extending = false;
            self.look(renew_at);
        }
    }

    /// An extension was not possible now; it is tried again while the lease lives.
    pub(super) fn not_extended(&mut self, receipt: &Arc<str>, now: Monotonic) {
        if let Some(lease) = self.leases.get_mut(receipt) {
            lease.extending = false;
            lease.renew_at = now + RENEW_RETRY;
            let at = lease.renew_at.min(lease.until).max(now);
            self.look(at);
        }
    }

    /// The lease is looked at again now that no request about it is outstanding.
    pub(super) fn look_again(&mut self, receipt: &Arc<str>) {
        if let Some(at) = self
            .leases
            .get(receipt)
            .map(|lease| lease.renew_at.min(lease.until))
        {
            self.look(at);
        }
    }

    /// The lease is over or in other hands; true where the client held it.
    pub(super) fn forget(&mut self, receipt: &Arc<str>) -> bool {
        self.drop_lease(receipt).is_some_and(|lease| lease.sent)
    }

    fn drop_lease(&mut self, receipt: &Arc<str>) -> Option<Lease> {
        let lease = self.leases.remove(receipt)?;
        if let Some(held) = self.holds.get_mut(&lease.broker) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.holds.remove(&lease.broker);
            }
        }
        Some(lease)
    }

    /// Gives up every lease. `unwritten` are receipts in frames that never reached the socket.
    pub(super) fn give_up(&mut self, unwritten: &HashSet<Arc<str>>) -> GivenUp {
        self.ready.clear();
        self.holds.clear();
        let deferred: HashSet<&Arc<str>> = self
            .deferred
            .iter()
            .flat_map(|request| request.items.iter().map(|item| &item.receipt))
            .collect();
        let mut given_up = GivenUp::default();
        for (receipt, lease) in self.leases.drain() {
            let delivered = lease.sent && !unwritten.contains(&receipt);
            let asked = self.busy.contains(&receipt) || deferred.contains(&receipt);
            let list = if asked || (delivered && lease.extending) {
                &mut given_up.asked
            } else if delivered {
                &mut given_up.delivered
            } else {
                &mut given_up.unsent
            };
            list.push(receipt);
        }
        given_up
    }

    /// Popped messages that were not put into a frame yet, taken back (drain).
    pub(super) fn take_unsent(&mut self) -> Vec<Arc<str>> {
        let unsent: Vec<Arc<str>> = self.ready.drain(..).map(|item| item.receipt).collect();
        unsent
            .into_iter()
            .filter(|receipt| self.drop_lease(receipt).is_some())
            .collect()
    }
}
