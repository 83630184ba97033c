//! Who is connected: producers and consumers by group, known from their heartbeats.

mod activity;
mod call;
mod consumers;
mod kind;
mod members;
mod producers;
mod rates;

use std::sync::Arc;

use clock::Monotonic;
use remoting::Connection;
use wire::Language;

pub(crate) use activity::Origin;
pub(crate) use call::{call_member, pass_on};
pub(crate) use consumers::{ConsumerHeartbeat, Consumers, Subscription};
pub(crate) use kind::Kinds;
pub(crate) use producers::Producers;
pub(crate) use rates::Counts;

/// Longest silence of a producer before it is forgotten.
pub(crate) const MEMBER_SILENCE: std::time::Duration = std::time::Duration::from_secs(120);
/// Most members of one group.
pub(crate) const MEMBERS_MAX: usize = 20_000;

/// One member of a group: a client id on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// As the client calls itself; the same in all its groups.
    pub(crate) client_id: Arc<str>,
    /// Its language, for views and for the form of pushed bodies.
    pub(crate) language: Language,
    /// Its protocol version.
    pub(crate) version: i32,
    /// Of the subscriptions in its last heartbeat; 0 where the client does not say.
    pub(crate) fingerprint: i64,
    /// Where it is connected.
    pub(crate) conn: Arc<Connection>,
    /// Its last heartbeat.
    pub(crate) seen: Monotonic,
    /// Wall time of the last heartbeat, in ms, for views.
    pub(crate) seen_ms: u64,
    /// Its heartbeats say that it leases messages (POP) rather than pulling them.
    pub(crate) pops: bool,
    /// The end of its last pop, which may be to come; `None` where it never popped, or pulled or committed since.
    pub(crate) popped: Option<Monotonic>,
    /// When it last asked for messages, epoch ms.
    pub(crate) received_ms: Option<i64>,
}

impl Member {
    /// Whether the member counts as present.
    pub(crate) fn is_live(&self, now: Monotonic, silence: std::time::Duration) -> bool {
        !self.conn.is_closed() && now.since(self.seen) < silence
    }

    /// Whether it leases messages: by its heartbeats, or by a pop within `silence`.
    pub(crate) fn leases(&self, now: Monotonic, silence: std::time::Duration) -> bool {
        let lately = |popped| now.since(popped) < silence;
        self.pops || self.popped.is_some_and(lately)
    }

    /// Whether it pulls messages. One that popped and has been idle since is of neither kind.
    pub(crate) fn pulls(&self) -> bool {
        !self.pops && self.popped.is_none()
    }
}
