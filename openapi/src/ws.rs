//! Frames the server sends on a WebSocket of the subprotocol `mq.v1.json`, one JSON object a text frame.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::messages::QueueRef;

/// Name of the JSON subprotocol, as offered in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL_JSON: &str = "mq.v1.json";

/// What a client puts into `id`: text of at most 32 bytes or a number below 2^32, returned as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum RequestId {
    /// Text.
    Text(String),
    /// Number.
    Number(u32),
}

/// What this gateway allows on one socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SocketLimits {
    /// Largest inbound frame, bytes.
    pub max_frame: usize,
    /// Open subscriptions at a time.
    pub max_subscriptions: usize,
    /// Largest `maxInFlight` of a subscription, messages.
    pub max_in_flight: u32,
}

/// Answer to an `id`, beside the members every `ok` has.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OkBody {
    /// To `subscribe`.
    #[serde(rename_all = "camelCase")]
    Subscribed {
        /// The client's name of the subscription.
        sub: String,
        /// Receipts of `resume` that go on here.
        adopted: Vec<String>,
        /// Receipts of `resume` that must be abandoned.
        gone: Vec<String>,
        /// Messages the group has not settled yet.
        lag: u64,
    },
    /// To `subscribe` of a reader.
    Reading {
        /// The client's name of the subscription.
        sub: String,
        /// Where it begins.
        cursor: String,
    },
    /// To `ack`, `nack`, `extend`: one result a receipt, as REST gives them.
    Settled {
        /// In the order of the request.
        #[schema(value_type = Vec<Object>)]
        results: Box<RawValue>,
    },
    /// To `publish`: the members of the REST answer.
    Published(std::collections::BTreeMap<String, serde_json::Value>),
    /// To `unsubscribe`.
    Unsubscribed {
        /// Leases given back.
        released: usize,
    },
}

/// State of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubscriptionState {
    /// Messages flow as credit allows.
    Active,
    /// The group is paused; settling goes on.
    Paused,
    /// Topic, group or subscription was deleted; the subscription has ended.
    Deleted,
    /// The caller may no longer read it; the subscription has ended.
    Revoked,
    /// Some brokers cannot be asked at present.
    Partial,
}

/// Why a lease ended while the socket lived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// Its time ran out.
    Expired,
    /// It was settled, voided or given to another member elsewhere.
    Lost,
    /// It reached `maxProcessing` or the longest life of a lease.
    Limit,
}

/// Every frame the server sends.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ServerFrame {
    /// First frame of a socket.
    Welcome {
        /// Id of this socket, in logs too.
        session: String,
        /// Name of the gateway.
        gateway: String,
        /// Longest silence of the server, a duration.
        heartbeat: String,
        /// Bounds of the socket.
        limits: SocketLimits,
        /// Who the caller is; null where authentication is off.
        #[schema(value_type = Option<Object>)]
        auth: Option<Box<RawValue>>,
        /// Wall clock of the gateway, RFC 3339.
        time: String,
    },
    /// Success of the request with this `id`.
    Ok {
        /// As the client gave it.
        id: RequestId,
        /// Members by kind of request.
        #[serde(flatten)]
        body: OkBody,
    },
    /// Failure of a request, a subscription or the socket.
    Error {
        /// As the client gave it, where it gave one that could be read.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<RequestId>,
        /// Subscription it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        sub: Option<String>,
        /// Stable code, as in REST problems.
        code: String,
        /// For people: what is wrong and what to do.
        detail: String,
        /// The same may succeed later.
        retryable: bool,
        /// The subscription, or without `sub` the socket, has ended.
        fatal: bool,
        /// One result a receipt, where some of them failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Vec<Object>>)]
        results: Option<Box<RawValue>>,
    },
    /// Messages of one subscription.
    Messages {
        /// Subscription.
        sub: String,
        /// 1 for the first frame of the subscription, then one more each.
        seq: u64,
        /// Messages as REST gives them.
        #[schema(value_type = Vec<Object>)]
        items: Vec<Box<RawValue>>,
        /// Of a reader: where to go on after them.
        #[serde(skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        /// Messages the client may still be sent.
        credit: u32,
    },
    /// Leases that ended without being settled on this socket.
    Lease {
        /// Subscription.
        sub: String,
        /// Their receipts.
        receipts: Vec<String>,
        /// How they ended.
        state: LeaseState,
    },
    /// A subscription changed its state.
    Status {
        /// Subscription.
        sub: String,
        /// New state.
        state: SubscriptionState,
        /// For people.
        detail: String,
    },
    /// Unread messages were deleted under the group.
    Gap {
        /// Subscription.
        sub: String,
        /// `retention`.
        reason: String,
        /// Topic.
        topic: String,
        /// Queue they were in.
        queue: QueueRef,
        /// Messages skipped.
        skipped: u64,
        /// First queue offset skipped.
        from: u64,
        /// First queue offset there is.
        to: u64,
    },
    /// Messages that a reader was not given.
    #[serde(rename = "gap")]
    ReaderGap {
        /// Subscription.
        sub: String,
        /// `slow`, `rate` or `retention`.
        reason: String,
        /// Messages skipped.
        skipped: u64,
        /// False where the count is a lower bound (slow) or does not regard the filter (retention).
        #[serde(skip_serializing_if = "Option::is_none")]
        exact: Option<bool>,
        /// Cursor before them.
        from: String,
        /// Cursor after them.
        to: String,
    },
    /// This gateway is going away; finish and connect again.
    Drain {
        /// Spread reconnecting over this long, a duration.
        reconnect_within: String,
        /// The socket is closed by then, RFC 3339.
        deadline: String,
        /// `restart`.
        reason: String,
    },
    /// Sent after a silence together with a ping of the protocol; need not be answered.
    Ping {
        /// Wall clock, milliseconds.
        t: u64,
    },
    /// Answer to a `ping` of the client.
    Pong {
        /// As the client gave it.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        t: Option<Box<RawValue>>,
        /// As the client gave it.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<RequestId>,
    },
}
