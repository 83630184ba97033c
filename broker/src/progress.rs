//! How far a group is in one queue, whichever kind its members are.

use crate::broker::Broker;
use crate::pop;

/// Positions are queue offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Everything below is settled: committed by a native member, or acked by lease members.
    pub(crate) settled: i64,
    /// The next message to be given out; what lies between is with the members.
    pub(crate) given: i64,
    /// One past the last message.
    pub(crate) end: i64,
}

/// The group's progress; a group that never read the queue has settled nothing.
pub(crate) fn of(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> Progress {
    let end = broker.store.queue(topic, queue_id).max.to_wire();
    let committed = broker.offsets.get(group, topic, queue_id);
    if let Some((settled, given)) = pop::progress(broker, group, topic, queue_id) {
        return Progress {
            settled,
            given,
            end,
        };
    }
    let settled = committed.unwrap_or(0).max(0);
    let given = broker
        .offsets
        .pulled(group, topic, queue_id)
        .map_or(settled, |pulled| pulled.max(settled));
    Progress {
        settled,
        given,
        end,
    }
}
