//! Receiving: pop, notification, settling.

use super::{Scope, Upstream};
use crate::error::{ApiError, Code};
use bytes::Bytes;
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
    /// Label shown in members.
    pub member: String,
    /// The call ends before.
    pub deadline: Instant,
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
}

impl Popped {
    /// Takes the messages out: from here on the caller answers for their leases.
    #[must_use]
    pub fn take(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.messages)
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
    Nack { delay_ms: Option<u64>, code: Option<String>, reason: Option<String> },
    /// Dead-letter now.
    Dead { code: Option<String>, reason: Option<String> },
    /// Longer; counted from now; None = the group's.
    Extend { invisible_ms: Option<u64> },
    /// Visible after this time (never longer than it has), attempt counted.
    Release { after_ms: u64 },
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
            Self::Acked | Self::Nacked | Self::DeadLettered | Self::Extended | Self::Released => None,
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

impl Upstream {
    /// One no-wait sweep over all brokers that hold the topic(s). Creates group and subscription where `autoCreate` is
    /// on and a topic is named. Dropping the returned future, or the result, loses no attempt.
    ///
    /// # Errors
    /// `group_not_found`, `topic_not_found`, `subscription_not_found`, `group_mode_conflict`, `too_many_inflight`,
    /// `broker_unavailable` (no broker reached).
    pub async fn pop(&self, request: &PopRequest) -> Result<Popped, ApiError> {
        let _ = request;
        Err(ApiError::not_implemented("receiving is not there yet"))
    }

    /// Waits until something may be deliverable to the group, at most until `until`. All waiters of one gateway, group,
    /// topic and broker share one NOTIFICATION. `topic` None = all subscribed topics.
    ///
    /// # Errors
    /// As [`Upstream::pop`].
    pub async fn notification(
        &self, scope: &Scope, group: &str, topic: Option<&str>, until: Instant,
    ) -> Result<Wake, ApiError> {
        let _ = (scope, group, topic, until);
        Err(ApiError::not_implemented("receiving is not there yet"))
    }

    /// Settles leases of one group; same order, same length as asked. Never fails as a whole: what cannot be reached is
    /// `unavailable`.
    pub async fn settle(&self, scope: &Scope, group: &str, items: &[Settlement], deadline: Instant) -> Vec<SettleOutcome> {
        let _ = (scope, group, deadline);
        let gone = SettleOutcome { status: SettleStatus::Unavailable, late: false, already: false, visible_at_ms: None };
        vec![gone; items.len()]
    }
}
