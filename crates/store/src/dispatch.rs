//! Follows the log and makes its records visible in their queues.

use crate::commit_log::Next;
use crate::consume_queue::Put;
use crate::record::unit_of;
use crate::shared::{Listener, Shared};
use crate::{Arrival, QueueOffset};
use std::sync::Arc;
use wire::message::record::RecordView;

/// Records of one step.
const STEP_RECORDS: usize = 256;

/// What a worker found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There may be more: call again.
    Again,
    /// Nothing left until woken.
    Idle,
}

/// The worker that fills the queues.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {}

impl Dispatcher {
    /// Dispatches a bounded number of records.
    pub(crate) fn step(&mut self, shared: &Shared) -> Step {
        let marks = shared.log.marks();
        let listeners = shared.listeners.read().clone();
        for _ in 0..STEP_RECORDS {
            let at = marks.dispatched();
            if at >= marks.written() {
                return Step::Idle;
            }
            let next = shared
                .log
                .next_record(at, |view| dispatch(shared, &listeners, view));
            match next {
                Next::Record { end, .. } => marks.raise_dispatched(end.min(marks.written())),
                Next::End(end) => {
                    // A blank was passed, or nothing is readable yet.
                    let end = end.min(marks.written());
                    if end == at {
                        return Step::Idle;
                    }
                    marks.raise_dispatched(end);
                }
            }
        }
        Step::Again
    }
}

fn dispatch(shared: &Shared, listeners: &[Arc<Listener>], view: &RecordView<'_>) {
    let Some((position, unit)) = unit_of(view, &shared.options.delay_levels_ms) else {
        return;
    };
    if shared.removed.hides(view.topic, unit.physical) {
        return;
    }
    let queue = shared.queues.get_or_make(view.topic, view.queue_id);
    let Put::Added { first, units } = queue.put(position, unit) else {
        return;
    };
    shared.queues.add_backlog(units);
    if first {
        shared.queues.list_dirty(&queue);
    }
    let arrival = Arrival {
        topic: view.topic,
        queue_id: view.queue_id,
        queue_offset: QueueOffset::new(position),
        tags_code: unit.tags_code,
        store_timestamp_ms: view.store_ts_ms,
    };
    for listener in listeners {
        listener(&arrival);
    }
}
