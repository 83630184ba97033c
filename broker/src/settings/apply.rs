//! What follows from a change of a setting, beyond that it is read where it is used.

use tokio::sync::Semaphore;

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
            Change::Value(Key::Admin, _) => self.resize_admin(self.live.count(Key::Admin)),
            Change::Value(
                Key::Permission
                | Key::CreateTopics
                | Key::CreateGroups
                | Key::MessageSize
                | Key::Sends,
                _,
            ) => {}
        }
    }

    /// Changes how many administrative requests may be at work. Those at work finish.
    fn resize_admin(&self, wanted: usize) {
        let mut size = self.admin_size.lock();
        let permits = &self.admin_permits;
        match wanted.checked_sub(*size) {
            Some(more) => permits.add_permits(more),
            None => take(permits, size.saturating_sub(wanted), &self.runtime),
        }
        *size = wanted;
    }
}

/// Takes permits away: at once those that are free, the rest as they come back.
fn take(permits: &std::sync::Arc<Semaphore>, fewer: usize, runtime: &tokio::runtime::Handle) {
    let left = fewer.saturating_sub(permits.forget_permits(fewer));
    for _ in 0..left {
        let permits = permits.clone();
        runtime.spawn(async move {
            if let Ok(permit) = permits.acquire_owned().await {
                permit.forget();
            }
        });
    }
}
