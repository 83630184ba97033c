//! Numbers of the lease engine for `/metrics`.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters and gauges; cheap to change from any thread.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Messages given out under a lease.
    pub(super) leased: Counter,
    /// Leases settled by an ack.
    pub(super) acked: Counter,
    /// Messages put back for another delivery.
    pub(super) returned: Counter,
    /// Messages that became dead letters.
    pub(super) dead: Counter,
    /// Messages dropped: out of attempts without dead letters, or no longer stored.
    pub(super) dropped: Counter,
    /// Messages that retention deleted before a group read them.
    pub(super) lost_unread: Counter,
    /// Put-backs that failed and are tried again.
    pub(super) put_back_failures: Counter,
    /// Leases that consumers hold.
    pub(super) held: Gauge<u64, AtomicU64>,
    /// Pops and notifications that wait.
    pub(super) waiting: Gauge<u64, AtomicU64>,
    /// Queues of groups with lease state.
    pub(super) states: Gauge<u64, AtomicU64>,
}

impl Numbers {
    /// Registers them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counters = [
            (
                "lease_messages",
                "Messages given out under a lease",
                &self.leased,
            ),
            ("lease_acks", "Leases settled by an ack", &self.acked),
            (
                "lease_returns",
                "Messages put back for another delivery",
                &self.returned,
            ),
            (
                "lease_dead_letters",
                "Leased messages that became dead letters",
                &self.dead,
            ),
            ("lease_dropped", "Leased messages dropped", &self.dropped),
            (
                "lost_unread_messages",
                "Messages that retention deleted before a group read them",
                &self.lost_unread,
            ),
            (
                "lease_put_back_failures",
                "Put-backs that failed and are tried again",
                &self.put_back_failures,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let gauges = [
            ("leases_held", "Leases that consumers hold", &self.held),
            (
                "lease_waiters",
                "Pops and notifications that wait",
                &self.waiting,
            ),
            (
                "lease_states",
                "Queues of groups with lease state",
                &self.states,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }
}
