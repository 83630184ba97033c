//! One kind of member a group: those that lease messages and those that pull them never share one.
//!
//! Whoever comes while the other kind is alive is refused, and a refused call keeps nobody alive. Check and entry are one
//! step per group, so of two that come at the same moment one is refused.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use remoting::Connection;
use wire::body::members::Transport;

use super::activity::{Activity, Origin};
use super::rates::Rates;
use super::{Counts, Member};
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
    pub(super) leases: Activity,
    pub(super) rates: Rates,
    pub(super) lease_silence: Duration,
    native_silence: Duration,
}

impl Kinds {
    /// Nobody is there.
    pub(crate) fn new(config: &MembersConfig) -> Self {
        Self {
            gates: [const { Mutex::new(()) }; GATES],
            hasher: RandomState::new(),
            leases: Activity::default(),
            rates: Rates::default(),
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
    /// Whether the group has lease members that are alive: called lately, waiting, or heartbeats of a group that pops.
    pub(crate) fn has_lease_members(&self, group: &str) -> bool {
        let (kinds, now) = (&self.kinds, self.clock.monotonic());
        kinds.leases.has_alive(group, now, kinds.lease_silence)
            || self
                .consumers
                .any_live(group, now, kinds.native_silence, self.leases(group, now))
            || pop::is_waited_for(self, group)
    }

    /// Whether the group has members that pull or push and are alive; `except` one connection.
    pub(crate) fn has_natives(&self, group: &str, except: Option<u64>) -> bool {
        let now = self.clock.monotonic();
        let native = self.is_native(group, except);
        self.consumers
            .any_live(group, now, self.kinds.native_silence, native)
    }

    /// Which members of the group are of the lease kind.
    fn leases(&self, group: &str, now: Monotonic) -> impl Fn(&Member) -> bool {
        let (pops, silence) = (self.modes.pops(group), self.kinds.lease_silence);
        move |member| pops || member.leases(now, silence)
    }

    /// Which are of the other kind.
    pub(super) fn is_native(&self, group: &str, except: Option<u64>) -> impl Fn(&Member) -> bool {
        let pops = self.modes.pops(group);
        move |member| Some(member.conn.id()) != except && !pops && member.pulls()
    }

    /// A member of the gateway leases; `receives`: it asks for messages. Its `origin` is `None` where the call does not
    /// say whose it is.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while members that pull are alive.
    pub(crate) fn enter_leases(
        &self,
        group: &str,
        member: &str,
        origin: Option<Origin>,
        receives: bool,
    ) -> Result<(), BrokerError> {
        let _gate = self.kinds.gate(group).lock();
        self.check_leases(group, None)?;
        self.lease_member_called(group, member, origin, receives);
        Ok(())
    }

    /// A RocketMQ client pops, and waits for that long: its own heartbeats are of its kind. The label of its leases: its
    /// client id, or the address of one that sent no heartbeat.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while other members that pull are alive.
    pub(crate) fn enter_pop(
        &self,
        group: &str,
        conn: &Connection,
        wait: Duration,
    ) -> Result<Arc<str>, BrokerError> {
        let _gate = self.kinds.gate(group).lock();
        self.check_leases(group, Some(conn.id()))?;
        let (until, now_ms) = (self.clock.monotonic() + wait, self.wall_ms());
        let known = self.consumers.note_pop(conn.id(), group, until, now_ms);
        Ok(known.unwrap_or_else(|| {
            let label = format!("pop from {}", conn.peer());
            let origin = Origin {
                transport: Some(Transport::Native),
                gateway: None,
                ip: Some(conn.peer().ip()),
            };
            self.lease_member_called(group, &label, Some(origin), true);
            label.into()
        }))
    }

    /// A RocketMQ client pulls.
    pub(crate) fn pulls(&self, group: &str, conn: &Connection) {
        self.consumers.note_pull(conn.id(), group, self.wall_ms());
    }

    /// A lease member settles. That is always allowed; it keeps the kind alive unless the other one has the group.
    pub(crate) fn settles(&self, group: &str, conn: &Connection) {
        let _gate = self.kinds.gate(group).lock();
        if self.has_natives(group, None) {
            tracing::debug!(group, "a lease is settled after its kind has left");
        } else {
            // Requests do not say who settles.
            let label = format!("settling from {}", conn.peer());
            self.lease_member_called(group, &label, None, false);
        }
    }

    /// Leases of these members were acked or nacked, whoever said so.
    pub(crate) fn count_settled(
        &self,
        group: &str,
        members: impl IntoIterator<Item = (Arc<str>, Counts)>,
    ) {
        let now = self.clock.monotonic();
        self.kinds.rates.settled(group, members, now);
    }

    fn lease_member_called(
        &self,
        group: &str,
        member: &str,
        origin: Option<Origin>,
        receives: bool,
    ) {
        let (kinds, now) = (&self.kinds, self.clock.monotonic());
        let received_ms = receives.then(|| self.wall_ms());
        let time = (now, kinds.lease_silence);
        kinds.leases.seen(group, member, origin, received_ms, time);
    }

    /// Wall time, epoch ms.
    pub(super) fn wall_ms(&self) -> i64 {
        i64::try_from(self.now_ms()).unwrap_or(i64::MAX)
    }

    /// A lease member is not there after all: another broker refused it.
    pub(crate) fn leave_leases(&self, group: &str, member: &str) {
        self.kinds.leases.leave(group, member);
    }

    /// A consumer pulls or commits.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while lease members are alive.
    pub(crate) fn enter_pull(&self, group: &str, conn: &Connection) -> Result<(), BrokerError> {
        if self.consumers.has_popped(conn.id(), group) {
            let _gate = self.kinds.gate(group).lock();
            self.check_native(group)?;
            self.consumers.forget_pop(conn.id(), group);
            return Ok(());
        }
        self.check_native(group)
    }

    /// A consumer sends a heartbeat: `join` notes it. It is of the lease kind where it says so (`pops`), where an
    /// administrator said so, or where it popped lately. One that popped and is idle may come back to either kind.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while members of the other kind are alive; `join` is not called.
    pub(crate) fn enter_by_heartbeat<T>(
        &self,
        group: &str,
        conn: &Connection,
        pops: bool,
        join: impl FnOnce() -> T,
    ) -> Result<T, BrokerError> {
        let _gate = self.kinds.gate(group).lock();
        let (now, silence) = (self.clock.monotonic(), self.kinds.native_silence);
        let leases = self.leases(group, now);
        let own = |member: &Member| member.conn.id() == conn.id() && leases(member);
        if pops || self.modes.pops(group) || self.consumers.any_live(group, now, silence, own) {
            self.check_leases(group, Some(conn.id()))?;
        } else if !self.consumers.has_popped(conn.id(), group) {
            self.check_native(group)?;
        }
        Ok(join())
    }

    fn check_leases(&self, group: &str, except: Option<u64>) -> Result<(), BrokerError> {
        if !self.has_natives(group, except) {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let native = self.is_native(group, except);
        let silence = self.kinds.native_silence;
        let natives = self.consumers.live(group, now, silence, native);
        Err(self.refused(group, natives))
    }

    /// Whether a member may pull and commit.
    ///
    /// # Errors
    /// [`BrokerError::GroupMode`] while lease members are alive.
    pub(crate) fn check_native(&self, group: &str) -> Result<(), BrokerError> {
        if !self.has_lease_members(group) {
            return Ok(());
        }
        let (kinds, now) = (&self.kinds, self.clock.monotonic());
        let alive = kinds.leases.alive(group, now, kinds.lease_silence);
        let mut members: Vec<String> = alive.into_iter().map(|(name, _)| name).collect();
        let leases = self.leases(group, now);
        let silence = kinds.native_silence;
        members.extend(self.consumers.live(group, now, silence, leases));
        if members.is_empty() {
            members.push(WAITING.to_owned());
        }
        Err(self.refused(group, members))
    }

    /// An administrator changed how the group reads a topic.
    pub(crate) fn mode_changed(&self, group: &str) {
        let _gate = self.kinds.gate(group).lock();
        if !self.modes.pops(group) {
            self.consumers.forget_pops(group);
        }
    }

    fn refused(&self, group: &str, mut members: Vec<String>) -> BrokerError {
        members.truncate(NAMED_MAX);
        self.metrics.group_mode_conflicts.inc();
        BrokerError::GroupMode {
            group: names::shorten(group),
            members: members.join(","),
        }
    }

    /// Forgets the lease members of a group that is gone.
    pub(crate) fn forget_members(&self, group: &str) {
        self.kinds.leases.forget(group);
        self.kinds.rates.forget(group);
    }
}
