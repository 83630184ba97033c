//! Sending: queue choice, the broker call, what its answer means.

use super::{Scope, Upstream};
use crate::error::ApiError;
use bytes::Bytes;
use tokio::time::Instant;

/// The durability a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// In the leader's page cache.
    Buffered,
    /// fsynced on the leader.
    Flushed,
    /// Confirmed by the in-sync set.
    Replicated,
}

/// A checked message, ready to be sent.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// A ULID; made by [`Upstream::send`] where it is empty.
    pub message_id: String,
    /// The stored bytes.
    pub body: Bytes,
    /// Always set.
    pub content_type: String,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Decides the queue.
    pub ordering_key: Option<String>,
    /// The user's properties, in the order given.
    pub properties: Vec<(String, String)>,
    /// None = the topic's and broker's policy.
    pub durability: Option<Durability>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// A fixed queue: broker name and queue id (diagnostics).
    pub queue: Option<(String, i32)>,
}

/// Where and how a message was stored.
#[derive(Clone, Debug)]
pub struct Sent {
    /// ULID.
    pub message_id: String,
    /// Broker name.
    pub broker: String,
    /// Queue of that broker.
    pub queue_id: i32,
    /// Offset in the queue.
    pub queue_offset: i64,
    /// Store time, epoch ms.
    pub stored_at_ms: i64,
    /// Reached: `buffered` or `flushed`.
    pub durability: &'static str,
}

impl Upstream {
    /// Stores one message. Creates the topic where `autoCreate` is on. Retries another broker only when nothing was
    /// written to the first.
    ///
    /// # Errors
    /// `topic_not_found`, `message_too_large`, `broker_busy`, `broker_unavailable`, `broker_timeout` (outcome unknown),
    /// `durability_not_confirmed` (outcome unknown) …
    pub async fn send(&self, scope: &Scope, topic: &str, draft: &Draft, deadline: Instant) -> Result<Sent, ApiError> {
        let _ = (scope, topic, draft, deadline);
        Err(ApiError::not_implemented("sending is not there yet"))
    }
}
