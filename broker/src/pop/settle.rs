//! What a consumer's word about a lease means now: the truthful answer, and the change to write down if any.

use std::sync::Arc;

use super::apply::{Change, What};
use super::lease::{DeadCause, Fault, Hold, Lease, Receipt};
use super::policy::{LEASE_MAX_MS, Policy};
use super::queue::QueueState;
use super::tombs::Ended;

/// What the consumer asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Consumed.
    Ack,
    /// Failed; again after `delay_ms`, or after the group's backoff.
    Nack {
        /// ms, at most 12 h.
        delay_ms: Option<u64>,
        /// The consumer's words.
        fault: Fault,
    },
    /// Never again: a dead letter now.
    Dead(Fault),
    /// More time, from now; `None` = the group's. With a member, the lease is its own from now on.
    Extend(Option<u64>, Option<Arc<str>>),
    /// Visible after that many ms from now, never later than it already would be; the attempt counts.
    ///
    /// With a member, only where the lease is its own: another one may have taken it over.
    Release(u64, Option<Arc<str>>),
    /// Visible at once, attempt not counted.
    Suspend,
}

/// Result of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Will not be delivered again.
    Acked,
    /// Will be delivered again at `visible_at_ms`.
    Nacked,
    /// Is a dead letter (or dropped, where the group keeps none).
    DeadLettered,
    /// Invisible until `visible_at_ms`.
    Extended,
    /// Given back.
    Released,
    /// The receipt decides nothing any more.
    Gone,
    /// The lease would live longer than 12 h.
    Limit,
}

impl Status {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Acked => "acked",
            Status::Nacked => "nacked",
            Status::DeadLettered => "deadLettered",
            Status::Extended => "extended",
            Status::Released => "released",
            Status::Gone => "gone",
            Status::Limit => "limit",
        }
    }
}

/// Answer to one item and what has to be written before it may be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Result.
    pub status: Status,
    /// The lease had run out, but its message was not put back yet.
    pub late: bool,
    /// The same was decided before.
    pub already: bool,
    /// When the message becomes visible, epoch ms.
    pub visible_at_ms: Option<i64>,
    /// The change, absent when nothing changes.
    pub change: Option<Change>,
}

impl Decision {
    fn unchanged(status: Status, already: bool, visible_at_ms: Option<i64>) -> Self {
        Decision {
            status,
            late: false,
            already,
            visible_at_ms,
            change: None,
        }
    }
}

/// Decides `op` on the message at `offset` under `receipt`. Pure: the state is changed when the record of the change is
/// applied.
pub fn decide(
    state: &QueueState,
    policy: &Policy,
    offset: u64,
    receipt: Receipt,
    op: &Op,
    now_ms: i64,
) -> Decision {
    match state.lease(offset, receipt) {
        Some(lease) if lease.is_held() => decide_held(lease, policy, offset, op, now_ms),
        Some(lease) => decide_given_back(lease, op),
        None => decide_ended(state.ended(offset, receipt), policy, op),
    }
}

fn decide_held(lease: &Lease, policy: &Policy, offset: u64, op: &Op, now_ms: i64) -> Decision {
    let (status, visible_at_ms, what) = match op {
        Op::Ack => (Status::Acked, None, What::Acked),
        Op::Dead(fault) => bury(policy, DeadCause::Rejected, fault),
        Op::Nack { fault, .. } if policy.is_last(lease.attempt) => {
            bury(policy, DeadCause::MaxAttempts, fault)
        }
        Op::Nack { delay_ms, fault } => {
            let delay_ms = delay_ms
                .unwrap_or_else(|| policy.nack_delay_ms(lease.attempt, lease.id.0 ^ offset));
            let at_ms = now_ms.saturating_add_unsigned(delay_ms.min(LEASE_MAX_MS));
            (
                Status::Nacked,
                Some(at_ms),
                What::Nacked(at_ms, fault.clone()),
            )
        }
        Op::Extend(invisible_ms, member) => {
            let invisible_ms = invisible_ms
                .filter(|&ms| ms > 0)
                .unwrap_or(policy.invisible_ms);
            let at_ms = now_ms.saturating_add_unsigned(invisible_ms);
            if at_ms > lease.pop_time_ms.saturating_add_unsigned(LEASE_MAX_MS) {
                return Decision::unchanged(Status::Limit, false, Some(lease.visible_at_ms));
            }
            let what = match member {
                Some(member) => What::Adopted(at_ms, member.clone()),
                None => What::Visible(at_ms),
            };
            (Status::Extended, Some(at_ms), what)
        }
        Op::Release(_, Some(member)) if lease.member.as_ref() != Some(member) => {
            return Decision::unchanged(Status::Gone, false, None);
        }
        Op::Release(invisible_ms, _) => {
            let at_ms = now_ms.saturating_add_unsigned((*invisible_ms).min(LEASE_MAX_MS));
            if at_ms >= lease.visible_at_ms {
                return Decision::unchanged(Status::Released, false, Some(lease.visible_at_ms));
            }
            (Status::Released, Some(at_ms), What::Visible(at_ms))
        }
        Op::Suspend => (Status::Released, Some(now_ms), What::Suspended),
    };
    let change = Some(Change {
        offset,
        id: lease.id,
        what,
    });
    Decision {
        status,
        late: lease.visible_at_ms <= now_ms,
        already: false,
        visible_at_ms,
        change,
    }
}

fn bury(policy: &Policy, cause: DeadCause, fault: &Fault) -> (Status, Option<i64>, What) {
    let what = if policy.dead_letters {
        What::Dead(cause, fault.clone())
    } else {
        What::Dropped
    };
    (given_up(policy), None, what)
}

/// The answer about a message that is delivered no more: where there are no dead letters it is none.
fn given_up(policy: &Policy) -> Status {
    if policy.dead_letters {
        Status::DeadLettered
    } else {
        Status::Nacked
    }
}

/// The lease was given back and waits to be put back: the same word again is `already`, any other comes too late.
fn decide_given_back(lease: &Lease, op: &Op) -> Decision {
    match (&lease.hold, op) {
        (Hold::Nacked(_), Op::Nack { .. }) => {
            Decision::unchanged(Status::Nacked, true, Some(lease.visible_at_ms))
        }
        (Hold::Dead(..), Op::Nack { .. } | Op::Dead(_)) => {
            Decision::unchanged(Status::DeadLettered, true, None)
        }
        (Hold::Suspended, Op::Suspend) => {
            Decision::unchanged(Status::Released, true, Some(lease.visible_at_ms))
        }
        _ => Decision::unchanged(Status::Gone, false, None),
    }
}

fn decide_ended(ended: Option<Ended>, policy: &Policy, op: &Op) -> Decision {
    match (ended, op) {
        (Some(Ended::Acked), Op::Ack) => Decision::unchanged(Status::Acked, true, None),
        (Some(Ended::Dead), Op::Nack { .. } | Op::Dead(_)) => {
            Decision::unchanged(given_up(policy), true, None)
        }
        _ => Decision::unchanged(Status::Gone, false, None),
    }
}

/// What becomes of a lease whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Stored again in the retry topic.
    Retry {
        /// Whether the delivery counts.
        counted: bool,
        /// What the consumer said, if it said something.
        fault: Option<Fault>,
    },
    /// Stored as a dead letter.
    Dead {
        /// Why.
        cause: DeadCause,
        /// What the consumer said.
        fault: Option<Fault>,
    },
    /// Forgotten.
    Drop,
}

/// Decides what to do with a lease that is due. An expiry is a failed delivery without words.
pub fn fate(lease: &Lease, policy: &Policy) -> Fate {
    let spoken = |fault: &Fault| (!fault.is_silent()).then(|| fault.clone());
    let dead = |cause, fault| {
        if policy.dead_letters {
            Fate::Dead { cause, fault }
        } else {
            Fate::Drop
        }
    };
    match &lease.hold {
        Hold::Suspended => Fate::Retry {
            counted: false,
            fault: None,
        },
        Hold::Dead(cause, fault) => Fate::Dead {
            cause: *cause,
            fault: spoken(fault),
        },
        Hold::Held if policy.is_last(lease.attempt) => dead(DeadCause::MaxAttempts, None),
        Hold::Held => Fate::Retry {
            counted: true,
            fault: None,
        },
        Hold::Nacked(fault) if policy.is_last(lease.attempt) => {
            dead(DeadCause::MaxAttempts, spoken(fault))
        }
        Hold::Nacked(fault) => Fate::Retry {
            counted: true,
            fault: spoken(fault),
        },
    }
}
