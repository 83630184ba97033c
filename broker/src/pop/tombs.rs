//! What became of receipts that are no longer in flight, for at least five minutes each.

use std::collections::{BTreeMap, VecDeque};

use super::lease::{LeaseId, Receipt};

/// How long the end of a lease is remembered, ms.
pub const KEEP_MS: i64 = 300_000;
/// Most ends remembered per queue and group; beyond it the oldest are forgotten and answer `gone`.
pub const KEEP_MAX: usize = 50_000;

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Settled for good by an ack.
    Acked,
    /// Put back for another delivery, or voided by a seek.
    Returned,
    /// Became a dead letter, or was dropped in its place.
    Dead,
}

/// One remembered end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tomb {
    /// Queue offset of the message.
    pub offset: u64,
    /// Lease that ended.
    pub id: LeaseId,
    /// Its pop time, epoch ms.
    pub pop_time_ms: i64,
    /// How.
    pub ended: Ended,
    /// When, epoch ms.
    pub at_ms: i64,
}

impl Tomb {
    fn is_named_by(&self, receipt: Receipt) -> bool {
        match receipt {
            Receipt::Lease(id) => self.id == id,
            Receipt::PopTime(ms) => self.pop_time_ms == ms,
        }
    }

    fn is_newer_than(&self, receipt: Receipt) -> bool {
        match receipt {
            Receipt::Lease(id) => self.id > id,
            Receipt::PopTime(ms) => self.pop_time_ms > ms,
        }
    }
}

/// Below this point only what is written in a [`Tomb`] is known; at or above it, what left the queue without a tomb
/// was acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Horizon {
    /// First lease id whose history is complete.
    pub id: LeaseId,
    /// First pop time (epoch ms) whose history is complete.
    pub pop_time_ms: i64,
}

/// The remembered ends of one queue and group.
///
/// Acks are by far the most common end, so they normally leave nothing here: a receipt at or above the horizon that is
/// neither in flight nor buried otherwise was acked. An ack gets a tomb only when its lease is older than a lease that
/// ended otherwise, since the horizon may soon pass it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tombs {
    horizon: Horizon,
    /// Highest lease id that ended otherwise than by an ack.
    highest_other: LeaseId,
    order: VecDeque<Tomb>,
    by_offset: BTreeMap<u64, Vec<Tomb>>,
}

impl Tombs {
    /// Nothing known before `horizon`.
    pub fn new(horizon: Horizon) -> Self {
        Tombs {
            horizon,
            ..Tombs::default()
        }
    }

    /// Remembers an end and forgets what is too old at its time.
    pub fn bury(&mut self, tomb: Tomb) {
        let needless = tomb.ended == Ended::Acked
            && tomb.id >= self.horizon.id
            && tomb.id > self.highest_other;
        if !needless {
            if tomb.ended != Ended::Acked {
                self.highest_other = self.highest_other.max(tomb.id);
            }
            self.order.push_back(tomb);
            self.by_offset.entry(tomb.offset).or_default().push(tomb);
        }
        self.forget_old(tomb.at_ms);
    }

    /// How the lease named by `receipt` ended; `below_next` says whether its offset was delivered at all.
    /// `None` when that is not known (any more).
    pub fn look_up(&self, offset: u64, receipt: Receipt, below_next: bool) -> Option<Ended> {
        let tombs = self.by_offset.get(&offset).map_or(&[][..], Vec::as_slice);
        if let Some(tomb) = tombs.iter().rev().find(|tomb| tomb.is_named_by(receipt)) {
            return Some(tomb.ended);
        }
        // A message that was given out again later had not been acked: that lease was lost in a crash.
        if tombs
            .iter()
            .any(|tomb| tomb.ended != Ended::Acked && tomb.is_newer_than(receipt))
        {
            return None;
        }
        let complete = match receipt {
            Receipt::Lease(id) => id >= self.horizon.id,
            Receipt::PopTime(ms) => ms >= self.horizon.pop_time_ms,
        };
        (complete && below_next).then_some(Ended::Acked)
    }

    /// Raises the horizon: everything before it without a tomb is unknown from now on.
    pub fn raise(&mut self, to: Horizon) {
        self.horizon.id = self.horizon.id.max(to.id);
        self.horizon.pop_time_ms = self.horizon.pop_time_ms.max(to.pop_time_ms);
    }

    /// Where complete knowledge begins.
    pub fn horizon(&self) -> Horizon {
        self.horizon
    }

    /// All remembered ends, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Tomb> {
        self.order.iter()
    }

    /// How many ends are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn forget_old(&mut self, now_ms: i64) {
        while let Some(oldest) = self.order.front().copied() {
            if oldest.at_ms.saturating_add(KEEP_MS) > now_ms && self.order.len() <= KEEP_MAX {
                return;
            }
            self.order.pop_front();
            if let Some(tombs) = self.by_offset.get_mut(&oldest.offset) {
                tombs.retain(|tomb| *tomb != oldest);
                if tombs.is_empty() {
                    self.by_offset.remove(&oldest.offset);
                }
            }
            if oldest.ended != Ended::Acked {
                self.raise(Horizon {
                    id: LeaseId(oldest.id.0.saturating_add(1)),
                    pop_time_ms: oldest.pop_time_ms.saturating_add(1),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tomb(offset: u64, id: u64, ended: Ended, at_ms: i64) -> Tomb {
        Tomb {
            offset,
            id: LeaseId(id),
            pop_time_ms: i64::try_from(id).unwrap() * 10,
            ended,
            at_ms,
        }
    }

    #[test]
    fn acks_leave_no_tomb_while_nothing_else_ended() {
        let mut tombs = Tombs::default();
        tombs.bury(tomb(1, 5, Ended::Acked, 0));
        assert!(tombs.is_empty());
        assert_eq!(
            tombs.look_up(1, Receipt::Lease(LeaseId(5)), true),
            Some(Ended::Acked)
        );
        assert_eq!(
            tombs.look_up(1, Receipt::PopTime(50), true),
            Some(Ended::Acked)
        );
        assert_eq!(tombs.look_up(9, Receipt::Lease(LeaseId(5)), false), None);
    }

    #[test]
    fn a_lease_lost_in_a_crash_is_not_taken_for_acked_when_the_next_one_was_put_back() {
        let mut tombs = Tombs::default();
        tombs.bury(tomb(1, 9, Ended::Returned, 0));
        assert_eq!(tombs.look_up(1, Receipt::Lease(LeaseId(5)), true), None);
        assert_eq!(tombs.look_up(1, Receipt::PopTime(50), true), None);
        assert_eq!(
            tombs.look_up(1, Receipt::Lease(LeaseId(9)), true),
            Some(Ended::Returned)
        );
        assert_eq!(
            tombs.look_up(2, Receipt::Lease(LeaseId(5)), true),
            Some(Ended::Acked)
        );
    }

    #[test]
    fn an_ack_older_than_a_return_is_known_five_minutes_after_the_return_is_forgotten() {
        let mut tombs = Tombs::default();
        tombs.bury(tomb(2, 7, Ended::Returned, 0));
        tombs.bury(tomb(1, 5, Ended::Acked, 299_000));
        tombs.bury(tomb(3, 9, Ended::Acked, 301_000));
        assert_eq!(
            tombs.look_up(2, Receipt::Lease(LeaseId(7)), true),
            None,
            "forgotten, and never taken for acked"
        );
        assert_eq!(
            tombs.look_up(1, Receipt::Lease(LeaseId(5)), true),
            Some(Ended::Acked)
        );
        assert_eq!(
            tombs.look_up(3, Receipt::Lease(LeaseId(9)), true),
            Some(Ended::Acked)
        );
    }

    #[test]
    fn the_number_of_tombs_is_bounded() {
        let mut tombs = Tombs::default();
        for id in 0..(KEEP_MAX as u64 + 10) {
            tombs.bury(tomb(id, id, Ended::Returned, 0));
        }
        assert_eq!(tombs.len(), KEEP_MAX);
        assert_eq!(tombs.look_up(0, Receipt::Lease(LeaseId(0)), true), None);
        assert_eq!(
            tombs.look_up(100, Receipt::Lease(LeaseId(100)), true),
            Some(Ended::Returned)
        );
    }
}
