//! How brokers leave: they say so, their connection ends, or they fall silent.

use clock::Monotonic;

use super::types::Live;
use super::{BrokerAddr, MASTER_ID, PERM_WRITE, RouteTable};

impl RouteTable {
    /// UNREGISTER_BROKER (104): the broker says goodbye. Unknown ones are ignored.
    pub fn unregister(&mut self, addr: &BrokerAddr, broker_name: &str, broker_id: i64) {
        let named = self
            .brokers
            .get(broker_name)
            .and_then(|broker| broker.addrs.get(&broker_id));
        if named == Some(&addr.addr) {
            self.drop_broker(addr, broker_name);
        }
    }

    /// A connection has ended: whoever last registered over it is gone at once. Returns the names.
    pub fn connection_closed(&mut self, connection: u64) -> Vec<String> {
        self.drop_where(|live| live.connection == connection)
    }

    /// Drops every broker that has been silent for longer than its limit. Returns the names.
    pub fn expire(&mut self, now: Monotonic) -> Vec<String> {
        self.drop_where(|live| now.since(live.seen) > live.expiry)
    }

    fn drop_where(&mut self, gone: impl Fn(&Live) -> bool) -> Vec<String> {
        let found = self.live.iter().filter(|(_, live)| gone(live));
        let found: Vec<_> = found
            .map(|(addr, live)| (addr.clone(), live.broker_name.clone()))
            .collect();
        for (addr, name) in &found {
            self.drop_broker(addr, name);
        }
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn drop_broker(&mut self, addr: &BrokerAddr, broker_name: &str) {
        self.live.remove(addr);
        let Some(broker) = self.brokers.get_mut(broker_name) else {
            return;
        };
        let had_master = broker.addrs.contains_key(&MASTER_ID);
        broker.addrs.retain(|_, known| *known != addr.addr);
        if broker.addrs.is_empty() {
            self.brokers.remove(broker_name);
            self.topics.retain(|_, brokers| {
                brokers.remove(broker_name);
                !brokers.is_empty()
            });
        } else if broker.acting_master && had_master && !broker.addrs.contains_key(&MASTER_ID) {
            // A replica stands in, for reading only.
            for entry in self
                .topics
                .values_mut()
                .filter_map(|brokers| brokers.get_mut(broker_name))
            {
                entry.perm_override = Some(entry.effective().perm & !PERM_WRITE);
            }
        }
    }
}
