//! Start-up: the snapshot, then every lease fact of the log since it was taken.

use super::apply::Event;
use super::lease::LeaseId;
use super::queue::QueueState;
use super::record::{QueueEvent, Record};
use super::snapshot::Snapshot;
use super::table::{Table, is_forgotten_with};
use super::tombs::Horizon;

/// Rebuilds the table. Feed it the records from [`Replay::from`] on, in log order.
#[derive(Debug)]
pub struct Replay {
    table: Table,
    from: u64,
    epoch: u16,
}

impl Replay {
    /// Begins with `snapshot`, or with nothing and the log's start `min_position`.
    pub fn new(snapshot: Option<&Snapshot>, min_position: u64) -> Self {
        let table = Table::default();
        let Some(snapshot) = snapshot else {
            return Replay {
                table,
                from: min_position,
                epoch: 0,
            };
        };
        for queue in &snapshot.queues {
            table.insert(&queue.group, &queue.topic, queue.queue_id, queue.restore());
        }
        Replay {
            table,
            from: snapshot.replay_from.max(min_position),
            epoch: snapshot.epoch,
        }
    }

    /// Where to start reading the log.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// A record of the lease log.
    pub fn record(&mut self, position: u64, record: &Record) {
        match record {
            Record::Events { group, events } => events
                .iter()
                .for_each(|event| self.event(group, position, event)),
            Record::Forget { group, topic } => {
                self.table.forget(position, |key| {
                    is_forgotten_with(key, group.as_deref(), topic.as_deref())
                });
            }
        }
    }

    /// A stored message that ends a lease of `group`.
    pub fn returned(
        &mut self,
        position: u64,
        group: &str,
        topic: &str,
        queue_id: i32,
        event: Event,
    ) {
        let event = QueueEvent {
            topic: topic.to_owned(),
            queue_id,
            event,
        };
        self.event(group, position, &event);
    }

    fn event(&mut self, group: &str, position: u64, event: &QueueEvent) {
        if let Event::Leased { id, .. } = &event.event {
            self.epoch = self.epoch.max(id.epoch());
        }
        let slot = match fresh_state(&event.event, self.epoch, position) {
            Some(fresh) => self
                .table
                .get_or_create(group, &event.topic, event.queue_id, || fresh),
            None => self.table.get(group, &event.topic, event.queue_id),
        };
        if let Some(slot) = slot
            && let Some(mut locked) = slot.lock()
        {
            locked.apply(position, &event.event);
        }
    }

    /// The rebuilt table and the highest epoch seen; the broker runs in the next one.
    pub fn finish(self) -> (Table, u16) {
        (self.table, self.epoch)
    }
}

/// The state that begins with this very record, if the record is one that a state can begin with. Settlements and
/// put-backs of a state that does not exist are about one that was deleted.
fn fresh_state(event: &Event, epoch: u16, position: u64) -> Option<QueueState> {
    let horizon = match event {
        Event::Leased {
            id, pop_time_ms, ..
        } => Horizon {
            id: *id,
            pop_time_ms: *pop_time_ms,
        },
        Event::Positioned { at_ms, .. } => Horizon {
            id: LeaseId::new(epoch, position),
            pop_time_ms: *at_ms,
        },
        Event::Settled { .. } | Event::Returned { .. } => return None,
    };
    Some(QueueState::new(0, horizon, position))
}
