//! Body of IN_FLIGHT (900009): the leases that consumers of a group hold at one broker.

use serde::{Deserialize, Serialize};

/// The answer of IN_FLIGHT.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InFlight {
    /// By topic popped, queue and offset.
    pub leases: Vec<HeldLease>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Place>,
}

/// A place among the leases of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// Topic whose queue was popped; the retry topic for a retry.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset.
    pub queue_offset: i64,
}

/// A message that a consumer holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldLease {
    /// What was popped: with the lease id it names the lease in SETTLE.
    pub popped: Place,
    /// The lease.
    pub lease_id: u64,
    /// Id of the message; absent where its record is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Where the message was stored first.
    pub first: Place,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// The member that holds it, where it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The gateway of that member's last call, where there was one within `members.lease_silence`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// When it was delivered, epoch ms.
    pub delivered_at_ms: i64,
    /// Until when nobody else is given it, epoch ms.
    pub visible_at_ms: i64,
}
