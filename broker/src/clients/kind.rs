//! One kind of member a group: those that lease messages and those that pull them never share one.
//!
//! Whoever comes while the other kind is alive is refused, and a refused call keeps nobody alive. Check and entry are one
//! step per group, so of two that come at the same moment one is refused.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use remoting::Connection;

use super::activity::Activity;
use crate::broker::Broker;
use crate::config::MembersConfig;
use crate::error::BrokerError;
use crate::names;
use crate::pop;

/// Locks that groups share by their hash.
const GATES: usize = 64;
/// Most members named in a refusal.
const NAMED_MAX: usize = 16;
/// What a refusal calls a receive whose member is not known any more.
const WAITING: &str = "waiting receive";

/// Who is in which group as a lease member, and for how long each kind counts as alive.
#[derive(Debug)]
pub(crate) struct Kinds {
    gates: [Mutex<()>; GATES],
    hasher: RandomState,
    leases: Activity,
    lease_silence: Duration,
    native_silence: Duration,
}

impl Kinds {
    /// Nobody is there.
    pub(crate) fn new(config: &MembersConfig) -> Self {
        Self {
            gates: [const { Mutex::new(()) }; GATES],
            hasher: RandomState::new(),
            leases: Activity::default(),
            lease_silence: config.lease_silence.duration(),
            native_silence: config.native_silence.duration(),
        }
    }

    /// Longest time between two heartbeats of a member that pulls.
    pub(crate) fn native_silence(&self) -> Duration {
        self.native_silence
    }

    fn gate(&self, group: &str) -> &Mutex<()> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let hash = self.hasher.hash_one(group) as usize;
        &self.gates[hash % GATES]
    }
}

impl Broker {
    /// Names of the lease members of a group that are alive: called lately, waiting, or heartbeats of a group that pops.
    pub(crate) fn lease_members(&self, group: &str) -> Vec<String> {
        let now = self.clock.monotonic();
        let mut members = self
            .kinds
            .leases
            .alive(group, now, self.kinds.lease_silence);
        let pops = self.modes.pops(group);
        members.extend(
            self.consumers
                .live(group, now, self.kinds.native_silence, |member| {
                    pops || member.pops
                }),
        );
        if members.is_empty() && pop::is_waited_for(self, group) {
            members.push(WAITING.to_owned());
        }
        members.truncate(NAMED_MAX);
        members
    }

    /// Names of the members of a group that pull or push and are alive; `except` one connection.
    pub(crate) fn native_members(&self, group: &str, except: Option<u64>) -> Vec<String> {
        if self.modes.pops(group) {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        let mut members = self
            .consumers
            .live(group, now, self.kinds.native_silence, |member| {
                !member.pops && Some(member.conn.id()) != except
            });
        members.truncate(NAMED_MAX);
        members
    }

    /// A lease member calls. With `conn` it is a RocketMQ client that pops: its own heartbeats are of its kind.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while members that pull are alive.
    pub(crate) fn enter_leases(
        &self,
        group: &str,
        member: &str,
        conn: Option<&Connection>,
    ) -> Result<(), BrokerError> {
        let _gate = self.kinds.gate(group).lock();
        let natives = self.native_members(group, conn.map(Connection::id));
        if !natives.is_empty() {
            return Err(self.refused(group, &natives));
        }
        let known = conn.is_some_and(|conn| self.consumers.note_pops(conn.id(), group));
        if !known {
            let now = self.clock.monotonic();
            self.kinds
                .leases
                .seen(group, member, now, self.kinds.lease_silence);
        }
        Ok(())
    }

    /// A lease member settles. That is always allowed; it keeps the kind alive unless the other one has the group.
    pub(crate) fn settles(&self, group: &str, member: &str) {
        if let Err(error) = self.enter_leases(group, member, None) {
            tracing::debug!(group, %error, "a lease is settled after its kind has left");
        }
    }

    /// A lease member is not there after all: another broker refused it.
    pub(crate) fn leave_leases(&self, group: &str, member: &str) {
        self.kinds.leases.leave(group, member);
    }

    /// A member that pulls sends a heartbeat: `join` notes it.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while lease members are alive; `join` is not called.
    pub(crate) fn enter_native<T>(
        &self,
        group: &str,
        join: impl FnOnce() -> T,
    ) -> Result<T, BrokerError> {
        let _gate = self.kinds.gate(group).lock();
        self.check_native(group)?;
        Ok(join())
    }

    /// Whether a member may pull and commit.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while lease members are alive.
    pub(crate) fn check_native(&self, group: &str) -> Result<(), BrokerError> {
        let leases = self.lease_members(group);
        if leases.is_empty() {
            return Ok(());
        }
        Err(self.refused(group, &leases))
    }

    fn refused(&self, group: &str, members: &[String]) -> BrokerError {
        self.metrics.group_mode_conflicts.inc();
        BrokerError::GroupMode {
            group: names::shorten(group),
            members: members.join(","),
        }
    }

    /// Forgets the lease members of a group that is gone.
    pub(crate) fn forget_members(&self, group: &str) {
        self.kinds.leases.forget(group);
    }
}
