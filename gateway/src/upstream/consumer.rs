//! Receiving: what is asked for, given and settled.

use super::{Member, Scope, Upstream};
use crate::error::{ApiError, Code};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a lease is, for the broker that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Broker name.
    pub broker: String,
    /// The topic whose queue was popped: the retry topic for a retry.
    pub topic: String,
    /// Queue of that topic.
    pub queue_id: i32,
    /// Offset in that queue.
    pub queue_offset: i64,
    /// Position of the check point in the broker's log.
    pub lease_id: u64,
    /// 1 = first delivery.
    pub attempt: u32,
    /// When it was handed out, epoch ms.
    pub delivered_at_ms: i64,
}

/// One message handed to a member of a group.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names the lease to the broker.
    pub lease: Lease,
    /// Signed text of the lease.
    pub receipt: String,
    /// ULID, or whatever a native client made.
    pub message_id: String,
    /// Topic of the first store (broker name form).
    pub topic: String,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Ordering key.
    pub ordering_key: Option<String>,
    /// The user's properties.
    pub properties: Vec<(String, String)>,
    /// As stored, or guessed from the bytes.
    pub content_type: String,
    /// The bytes the producer gave.
    pub body: Bytes,
    /// Broker of the first store.
    pub broker: String,
    /// Queue of the first store.
    pub queue_id: i32,
    /// Offset of the first store.
    pub queue_offset: i64,
    /// Epoch ms.
    pub born_at_ms: i64,
    /// Epoch ms, of the first store.
    pub stored_at_ms: i64,
    /// Epoch ms of the first delivery.
    pub first_delivered_at_ms: i64,
    /// Epoch ms.
    pub invisible_until_ms: i64,
    /// Deliveries in all.
    pub max_attempts: u32,
    /// Of the last nack.
    pub last_error: Option<LastError>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// What the last holder said when it gave the message back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// Short code.
    pub code: Option<String>,
    /// Text.
    pub reason: Option<String>,
    /// Epoch ms.
    pub at_ms: i64,
}

/// One pop over all brokers of the topics.
#[derive(Clone, Debug)]
pub struct PopRequest {
    /// Tenant and namespace.
    pub scope: Scope,
    /// Group.
    pub group: String,
    /// None = all subscribed topics, rotated.
    pub topic: Option<String>,
    /// 1–256.
    pub max: u32,
    /// Stops early above this; at least one message.
    pub max_bytes: u32,
    /// None = the group's.
    pub invisible_ms: Option<u64>,
    /// Who asks.
    pub member: Member,
    /// Leases that the member may hold on all brokers together; 0 = any number.
    pub member_limit: u32,
    /// Leases that the member is known to hold, by broker: no broker counts those of another.
    pub member_holds: BTreeMap<Arc<str>, u32>,
    /// The call ends before.
    pub deadline: Instant,
}

impl PopRequest {
    /// Leases that the member may hold at this broker, after what it holds and has just taken elsewhere; `None` = any
    /// number.
    pub(super) fn limit_at(&self, broker: &str, taken: &[Delivery]) -> Option<u32> {
        let elsewhere: u32 = self
            .member_holds
            .iter()
            .filter(|(name, _)| name.as_ref() != broker)
            .map(|(_, held)| *held)
            .sum();
        let taken = taken.iter().filter(|m| m.lease.broker != broker).count();
        let used = elsewhere.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
        (self.member_limit > 0).then(|| self.member_limit.saturating_sub(used))
    }
}

/// Unread messages of one queue that retention deleted before the group read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Topic (broker name form).
    pub topic: String,
    /// Broker.
    pub broker: String,
    /// Queue.
    pub queue_id: i32,
    /// First lost offset.
    pub from: i64,
    /// First offset that is still there.
    pub to: i64,
}

/// The result of a pop. Dropped with messages inside, it gives them back without counting an attempt.
#[derive(Debug, Default)]
pub struct Popped {
    /// What was taken.
    pub messages: Vec<Delivery>,
    /// Call again at once.
    pub more: bool,
    /// The group is paused: nothing was taken.
    pub paused: bool,
    /// Brokers this answer could not take from, with the reason.
    pub partial: Vec<(String, &'static str)>,
    /// Messages lost unread; each loss is reported once per group.
    pub gap: Vec<Gap>,
    /// A broker gave nothing since the member holds as many leases there as it may.
    pub member_full: bool,
    /// The version of the group under which the broker gave; 0 = it does not say.
    pub(super) group_version: u64,
    giver: Option<Giver>,
}

/// Whom to give messages back to.
#[derive(Clone, Debug)]
pub(super) struct Giver {
    pub(super) upstream: Upstream,
    pub(super) scope: Scope,
    pub(super) group: String,
}

impl Popped {
    /// Nothing yet; `giver` gives back what is put in.
    pub(super) fn given_by(giver: Giver) -> Self {
        let mut popped = Self::default();
        popped.giver = Some(giver);
        popped
    }

    /// Takes the messages out: from here on the caller answers for their leases.
    #[must_use]
    pub fn take(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.messages)
    }
}

impl Drop for Popped {
    fn drop(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let Some(giver) = self.giver.take() else {
            return;
        };
        giver.give_back(self.take().into_iter().map(|m| m.lease).collect());
    }
}

impl Giver {
    /// Makes messages visible at once, their attempt not counted.
    pub(super) fn give_back(self, leases: Vec<Lease>) {
        let suspend = |lease| Settlement {
            lease,
            op: SettleOp::Suspend,
        };
        let items: Vec<Settlement> = leases.into_iter().map(suspend).collect();
        let tracker = self.upstream.0.options.tracker.clone();
        tracker.spawn(async move {
            let deadline = Instant::now() + Duration::from_secs(5);
            self.upstream
                .settle(&self.scope, &self.group, &items, deadline)
                .await;
        });
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something may be deliverable: pop.
    Ready,
    /// The time is over.
    Elapsed,
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleOp {
    /// Done.
    Ack,
    /// Failed; `delay_ms` None = the retry policy's next.
    Nack {
        delay_ms: Option<u64>,
        code: Option<String>,
        reason: Option<String>,
    },
    /// Dead-letter now.
    Dead {
        code: Option<String>,
        reason: Option<String>,
    },
    /// Longer; counted from now; None = the group's. With a member, the lease is its own from now on.
    Extend {
        invisible_ms: Option<u64>,
        member: Option<String>,
    },
    /// Visible after this time (never longer than it has), attempt counted.
    Release {
        after_ms: u64,
        /// Only where the lease counts for this member; else `gone`.
        member: Option<String>,
    },
    /// Visible at once, attempt not counted.
    Suspend,
}

/// A lease and what to do with it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The lease.
    pub lease: Lease,
    /// What to do.
    pub op: SettleOp,
}

/// What became of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleStatus {
    /// Done for good.
    Acked,
    /// Comes again.
    Nacked,
    /// In the dead letters.
    DeadLettered,
    /// Longer.
    Extended,
    /// Given back (release, suspend).
    Released,
    /// This receipt decides nothing any more.
    Gone,
    /// 12 h in all are over.
    Limit,
    /// Not ours, or changed.
    Invalid,
    /// Of another group.
    Forbidden,
    /// The broker could not be asked, or did not answer.
    Unavailable,
}

impl SettleStatus {
    /// The member `status` of a result.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Nacked => "nacked",
            Self::DeadLettered => "deadLettered",
            Self::Extended => "extended",
            Self::Released => "released",
            Self::Gone => "gone",
            Self::Limit => "limit",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
        }
    }

    /// The problem code of a failure.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Acked | Self::Nacked | Self::DeadLettered | Self::Extended | Self::Released => {
                None
            }
            Self::Gone => Some(Code::ReceiptGone),
            Self::Limit => Some(Code::LeaseLimitReached),
            Self::Invalid => Some(Code::ReceiptInvalid),
            Self::Forbidden => Some(Code::ReceiptWrongGroup),
            Self::Unavailable => Some(Code::BrokerUnavailable),
        }
    }
}

/// The broker's answer about one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleOutcome {
    /// What became of it.
    pub status: SettleStatus,
    /// The lease had run out, but the message had not been put back.
    pub late: bool,
    /// The same had been said before.
    pub already: bool,
    /// extend: invisible until; nack: next delivery. Epoch ms.
    pub visible_at_ms: Option<i64>,
}

/// Brokers left out of an answer, with the reason.
pub(crate) type Partial = Vec<(String, &'static str)>;
/// Why a broker is left out: it cannot be asked, or does not answer.
pub(super) const UNREACHABLE: &str = "unreachable";
/// Why a broker is left out: its version of the group is older than the one this gateway knows.
pub(super) const STALE_CONFIG: &str = "stale_config";

/// Why a broker that failed so is left out of an answer that others (where there are `several`) may still give; `None` =
/// the whole call fails.
pub(super) fn left_out(error: &ApiError, several: bool) -> Option<&'static str> {
    match error.code() {
        _ if error.is_stale_config() => Some(STALE_CONFIG),
        Code::BrokerUnavailable | Code::BrokerTimeout | Code::BrokerBusy => Some(UNREACHABLE),
        Code::GroupNotFound | Code::SubscriptionNotFound if several => Some(STALE_CONFIG),
        _ => None,
    }
}

/// Names a broker as left out, once.
pub(crate) fn leave_out(partial: &mut Partial, broker: &str, reason: &'static str) {
    if !partial.iter().any(|(name, _)| name == broker) {
        partial.push((broker.to_owned(), reason));
    }
}

/// A broker that left the name servers.
pub(super) fn unregistered(broker: &str) -> ApiError {
    let detail = format!("broker '{broker}' is not registered and cannot be reached");
    ApiError::new(Code::BrokerUnavailable, detail)
}
