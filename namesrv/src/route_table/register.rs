//! REGISTER_BROKER: what of it is taken.

use std::collections::HashSet;

use clock::Monotonic;

use super::types::{Live, TopicEntry};
use super::{
    BROKERS_MAX, EXPIRY_DEFAULT, MASTER_ID, PERM_WRITE, Queues, Registration, RouteTable,
    TOPICS_MAX, Version,
};

/// Why a registration was refused; nothing of it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// One changed topic from a broker that has not told its others (the name server restarted).
    #[error(
        "register broker failed: the broker is not known yet, its whole topic table has to come first"
    )]
    IncrementFirst,
    /// Another address holds this name and id with a newer state version.
    #[error("register broker failed: a newer registration holds this broker name and id")]
    Superseded,
    /// More brokers or topics than are kept.
    #[error("register broker failed: too many {0}")]
    TooMany(&'static str),
}

/// Answer to a replica: where its master is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// The master's replication address.
    pub ha_addr: Option<String>,
    /// The master's address.
    pub master_addr: Option<String>,
}

impl RouteTable {
    /// Takes a registration.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn register(&mut self, reg: &Registration, now: Monotonic) -> Result<Registered, Refused> {
        self.check_register(reg)?;
        self.enter_broker(reg);
        let before = self.live.get(&reg.addr).map(|live| live.version);
        let acting = reg.acting_master == Some(true);
        let is_prime = reg.broker_id == MASTER_ID || (acting && self.is_lowest(reg));
        if is_prime {
            self.take_topics(reg, before, acting && reg.broker_id != MASTER_ID)?;
        }
        let live = Live {
            broker_name: reg.broker_name.clone(),
            seen: now,
            expiry: reg.expiry.unwrap_or(EXPIRY_DEFAULT),
            version: reg.version,
            connection: reg.connection,
            ha_addr: reg.ha_addr.clone(),
        };
        self.live.insert(reg.addr.clone(), live);
        Ok(if reg.broker_id == MASTER_ID {
            Registered::default()
        } else {
            self.master_of(reg)
        })
    }

    fn check_register(&mut self, reg: &Registration) -> Result<(), Refused> {
        let known = self.live.contains_key(&reg.addr);
        if !known && reg.topics.len() == 1 && !reg.complete {
            return Err(Refused::IncrementFirst);
        }
        if !known && self.live.len() >= BROKERS_MAX {
            return Err(Refused::TooMany("brokers"));
        }
        let holder = self
            .brokers
            .get(&reg.broker_name)
            .and_then(|broker| broker.addrs.get(&reg.broker_id));
        if let Some(holder) = holder.filter(|addr| **addr != reg.addr.addr) {
            let holder = super::BrokerAddr {
                cluster: reg.addr.cluster.clone(),
                addr: holder.clone(),
            };
            let newer = self
                .live
                .get(&holder)
                .is_some_and(|l| l.version.state_version > reg.version.state_version);
            if newer {
                self.live.remove(&reg.addr);
                return Err(Refused::Superseded);
            }
        }
        Ok(())
    }

    /// Name, id and address; an address has one id per name, and an id one address.
    fn enter_broker(&mut self, reg: &Registration) {
        let broker = self.brokers.entry(reg.broker_name.clone()).or_default();
        broker.cluster.clone_from(&reg.addr.cluster);
        broker.acting_master = reg.acting_master == Some(true);
        broker.zone.clone_from(&reg.zone);
        broker
            .addrs
            .retain(|id, addr| *addr != reg.addr.addr || *id == reg.broker_id);
        let replaced = broker.addrs.insert(reg.broker_id, reg.addr.addr.clone());
        if let Some(addr) = replaced.filter(|addr| *addr != reg.addr.addr) {
            self.live.remove(&super::BrokerAddr {
                cluster: reg.addr.cluster.clone(),
                addr,
            });
        }
    }

    fn is_lowest(&self, reg: &Registration) -> bool {
        let broker = self.brokers.get(&reg.broker_name);
        broker.and_then(|broker| broker.addrs.keys().next()) == Some(&reg.broker_id)
    }

    fn take_topics(
        &mut self,
        reg: &Registration,
        before: Option<Version>,
        read_only: bool,
    ) -> Result<(), Refused> {
        let changed = before != Some(reg.version);
        let late = before.is_some_and(|before| reg.version.is_older_than(&before));
        for (topic, said) in &reg.topics {
            if !self.topics.contains_key(topic) && self.topics.len() >= TOPICS_MAX {
                return Err(Refused::TooMany("topics"));
            }
            let perm = if read_only {
                said.perm & !PERM_WRITE
            } else {
                said.perm
            };
            let said = Queues { perm, ..*said };
            let brokers = self.topics.entry(topic.clone()).or_default();
            match brokers.get_mut(&reg.broker_name) {
                None => {
                    brokers.insert(reg.broker_name.clone(), TopicEntry::new(said));
                }
                // An older table that was overtaken by a change of one of its topics.
                Some(_) if late => {}
                Some(entry) if changed || entry.said != said => *entry = TopicEntry::new(said),
                Some(_) => {}
            }
        }
        if reg.complete && !late {
            let named: HashSet<&str> = reg.topics.iter().map(|(topic, _)| topic.as_str()).collect();
            self.topics.retain(|topic, brokers| {
                if !named.contains(topic.as_str()) {
                    brokers.remove(&reg.broker_name);
                }
                !brokers.is_empty()
            });
        }
        Ok(())
    }

    fn master_of(&self, reg: &Registration) -> Registered {
        let broker = self.brokers.get(&reg.broker_name);
        let Some(master) = broker.and_then(|broker| broker.addrs.get(&MASTER_ID)) else {
            return Registered::default();
        };
        let addr = super::BrokerAddr {
            cluster: reg.addr.cluster.clone(),
            addr: master.clone(),
        };
        let ha_addr = self.live.get(&addr).map(|live| live.ha_addr.clone());
        Registered {
            ha_addr,
            master_addr: Some(master.clone()),
        }
    }
}
