//! What one delivered message is to its group: the lease, how it stands, and the receipt that names it.

use std::sync::Arc;

/// Bits of a lease id below the epoch: log positions up to 256 TiB.
const POSITION_BITS: u32 = 48;

/// Identifies one pop of one queue for as long as the log lives.
///
/// The low 48 bits are the physical offset of the check point record, the high 16 the start-up epoch of the broker
/// that wrote it: a receipt of a tail that a power cut took cannot name the record that later got the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// The id of the check point at `position` written in `epoch`.
    pub fn new(epoch: u16, position: u64) -> Self {
        LeaseId((u64::from(epoch) << POSITION_BITS) | (position & ((1 << POSITION_BITS) - 1)))
    }

    /// The start-up epoch in it.
    pub fn epoch(self) -> u16 {
        u16::try_from(self.0 >> POSITION_BITS).unwrap_or(u16::MAX)
    }

    /// Log position of the check point.
    pub fn position(self) -> u64 {
        self.0 & ((1 << POSITION_BITS) - 1)
    }
}

/// How a caller names a lease: our clients by id, RocketMQ clients by the pop time in their receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receipt {
    /// Lease id, from `leases` of a pop answer.
    Lease(LeaseId),
    /// `popTime` (epoch ms) of `extraInfo`: names one lease together with the offset.
    PopTime(i64),
}

/// Why a message failed, in the consumer's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    /// Short code such as `db_timeout`.
    pub code: Option<String>,
    /// Free text.
    pub reason: Option<String>,
    /// When it was said, epoch ms.
    pub at_ms: i64,
}

impl Fault {
    /// Whether nothing was said.
    pub fn is_silent(&self) -> bool {
        self.code.is_none() && self.reason.is_none()
    }
}

/// Why a message became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCause {
    /// All deliveries used up.
    MaxAttempts,
    /// The consumer asked for it.
    Rejected,
}

impl DeadCause {
    /// The word stored with the dead letter.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadCause::MaxAttempts => "maxAttempts",
            DeadCause::Rejected => "rejected",
        }
    }
}

/// Where a lease stands until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// With a consumer, or expired and about to be put back.
    Held,
    /// Given back as failed: waits for its time, then goes to the retry topic with one attempt more.
    Nacked(Box<Fault>),
    /// Given back unread: goes to the retry topic at once, no attempt counted.
    Suspended,
    /// Decided to be a dead letter, not written yet.
    Dead(DeadCause, Box<Fault>),
}

/// One message in flight of one queue and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Stable over extensions.
    pub id: LeaseId,
    /// When it was popped, epoch ms.
    pub pop_time_ms: i64,
    /// When it is to be put back, epoch ms.
    pub visible_at_ms: i64,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// First queue offset of its check point (Apache's acks name it).
    pub start: u64,
    /// How it stands.
    pub hold: Hold,
    /// Label of the member that holds it: of a gateway, or the id of a RocketMQ client. `None` for one of the broker's own.
    pub member: Option<Arc<str>>,
}

impl Lease {
    /// Whether `receipt` names this lease.
    pub fn is_named_by(&self, receipt: Receipt) -> bool {
        match receipt {
            Receipt::Lease(id) => self.id == id,
            Receipt::PopTime(ms) => self.pop_time_ms == ms,
        }
    }

    /// Whether a consumer still holds it, in time or late.
    pub fn is_held(&self) -> bool {
        self.hold == Hold::Held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_carry_epoch_and_position_and_sort_by_them() {
        let id = LeaseId::new(3, 77);
        assert_eq!((id.epoch(), id.position()), (3, 77));
        assert!(LeaseId::new(3, 78) > id && LeaseId::new(4, 0) > LeaseId::new(3, 1 << 47));
    }
}
