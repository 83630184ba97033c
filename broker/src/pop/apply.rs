//! The one way from a record of the log to the state of a queue, live and at start-up alike.

use std::sync::Arc;

use super::lease::{DeadCause, Fault, Hold, Lease, LeaseId};
use super::queue::QueueState;
use super::tombs::{Ended, Tomb};

/// What a settlement does to one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Consumed.
    Acked,
    /// Held, visible again at another time (epoch ms): extension and release.
    Visible(i64),
    /// The same, and another member holds it from now on.
    Adopted(i64, Arc<str>),
    /// Failed; goes to the retry topic at that time (epoch ms).
    Nacked(i64, Fault),
    /// Given back unread; goes to the retry topic at once, no attempt counted.
    Suspended,
    /// To be written as a dead letter at once.
    Dead(DeadCause, Fault),
    /// Exhausted in a group that keeps no dead letters, or its message is no longer stored.
    Dropped,
}

/// One lease of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Queue offset of the message.
    pub offset: u64,
    /// Lease it is about; a lease under another id at this offset stays as it is.
    pub id: LeaseId,
    /// What happens.
    pub what: What,
}

/// A fact about one queue of one group. Each stands in exactly one record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A pop gave out messages.
    Leased {
        /// Id of all its leases.
        id: LeaseId,
        /// First offset given out.
        start: u64,
        /// Where the next pop begins.
        next: u64,
        /// Epoch ms.
        pop_time_ms: i64,
        /// ms.
        invisible_ms: u64,
        /// Offset and attempt of each message, ascending.
        messages: Vec<(u64, u32)>,
        /// Who got them.
        member: Option<Arc<str>>,
    },
    /// Consumers settled leases.
    Settled {
        /// Epoch ms.
        at_ms: i64,
        /// In the order asked for.
        changes: Vec<Change>,
    },
    /// The message was stored again, as a retry or as a dead letter.
    Returned {
        /// Queue offset of the lease's message.
        offset: u64,
        /// The lease this ends.
        id: LeaseId,
        /// Dead letter rather than retry.
        dead: bool,
        /// Epoch ms.
        at_ms: i64,
    },
    /// Delivery continues elsewhere.
    Positioned {
        /// The next offset to deliver.
        next: u64,
        /// Whether all leases end (a seek); otherwise only those that will be delivered again.
        void: bool,
        /// Epoch ms.
        at_ms: i64,
    },
}

/// Applies the record at log `position`. A record the state already contains changes nothing, so that replay may start
/// anywhere before the snapshot was taken.
pub fn apply(state: &mut QueueState, position: u64, event: &Event) {
    if position < state.applied {
        return;
    }
    state.applied = position.saturating_add(1);
    match event {
        Event::Leased {
            id,
            start,
            next,
            pop_time_ms,
            invisible_ms,
            messages,
            member,
        } => {
            let visible_at_ms = pop_time_ms.saturating_add_unsigned(*invisible_ms);
            for &(offset, attempt) in messages {
                let lease = Lease {
                    id: *id,
                    pop_time_ms: *pop_time_ms,
                    visible_at_ms,
                    attempt,
                    start: *start,
                    hold: Hold::Held,
                    member: member.clone(),
                };
                state.insert(offset, lease);
            }
            state.next = *next;
            state.placed = state.applied;
            state.last_pop_time_ms = state.last_pop_time_ms.max(*pop_time_ms);
        }
        Event::Settled { at_ms, changes } => changes
            .iter()
            .for_each(|change| settle(state, *at_ms, change)),
        Event::Returned {
            offset,
            id,
            dead,
            at_ms,
        } => {
            end(
                state,
                *offset,
                *id,
                if *dead { Ended::Dead } else { Ended::Returned },
                *at_ms,
            );
        }
        Event::Positioned { next, void, at_ms } => {
            let from = if *void { 0 } else { *next };
            for (offset, id) in state.leases_from(from) {
                end(state, offset, id, Ended::Returned, *at_ms);
            }
            state.next = *next;
            state.placed = state.applied;
            if *void {
                state.retries_void_below = position;
            }
        }
    }
}

fn settle(state: &mut QueueState, at_ms: i64, change: &Change) {
    let Change { offset, id, what } = change;
    match what {
        What::Acked => end(state, *offset, *id, Ended::Acked, at_ms),
        What::Dropped => end(state, *offset, *id, Ended::Dead, at_ms),
        What::Visible(ms) => state.update(*offset, *id, |lease| lease.visible_at_ms = *ms),
        What::Adopted(ms, member) => state.update(*offset, *id, |lease| {
            lease.visible_at_ms = *ms;
            lease.member = Some(member.clone());
        }),
        What::Nacked(ms, fault) => state.update(*offset, *id, |lease| {
            lease.visible_at_ms = *ms;
            lease.hold = Hold::Nacked(Box::new(fault.clone()));
        }),
        What::Suspended => state.update(*offset, *id, |lease| {
            lease.visible_at_ms = at_ms;
            lease.hold = Hold::Suspended;
        }),
        What::Dead(cause, fault) => state.update(*offset, *id, |lease| {
            lease.visible_at_ms = at_ms;
            lease.hold = Hold::Dead(*cause, Box::new(fault.clone()));
        }),
    }
}

fn end(state: &mut QueueState, offset: u64, id: LeaseId, ended: Ended, at_ms: i64) {
    if let Some(lease) = state.remove(offset, id) {
        state.tombs.bury(Tomb {
            offset,
            id,
            pop_time_ms: lease.pop_time_ms,
            ended,
            at_ms,
        });
    }
}
