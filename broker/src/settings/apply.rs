//! What follows from a change of a setting, beyond that it is read where it is used.

use super::{Change, Key};
use crate::broker::Broker;

impl Broker {
    /// Brings a change to those that keep a value of their own.
    pub(crate) fn apply(&self, change: &Change) {
        match change {
            Change::Log(filter) => {
                if let Err(error) = node::telemetry::set_filter(filter) {
                    tracing::error!(filter, error, "the filter of the log stays as it was");
                }
            }
            Change::Value(Key::FlushInterval, ms) => self.store.set_flush_interval(*ms),
            Change::Value(Key::LongPolls, _) => {
                let max = self.live.count(Key::LongPolls);
                self.holds.set_max(max);
                self.pop.set_waiters_max(max);
            }
            Change::Value(key @ (Key::Admin | Key::Reads | Key::Create), _) => {
                let class = match key {
                    Key::Reads => &self.admission.read,
                    Key::Create => &self.admission.create,
                    _ => &self.admission.admin,
                };
                class.resize(self.live.count(*key), &self.runtime);
            }
            Change::Value(
                Key::Permission
                | Key::CreateTopics
                | Key::CreateGroups
                | Key::MessageSize
                | Key::Sends
                | Key::Acks
                | Key::RetentionTime
                | Key::RetentionHour
                | Key::ExpiredPercent
                | Key::CleanPercent
                | Key::RefusePercent,
                _,
            ) => {}
        }
    }
}
