//! What goes into the session machine and what comes out of it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use clock::Monotonic;
use serde_json::value::RawValue;

use super::frame::{Publish, Request, SettleItem, SettleKind, Subscribe};
use super::reader_fields::ReaderSubscribe;
use super::subscription::Item;
use crate::reader::{Chunk, Wanted};
use crate::upstream::Gap;

/// Something happened to the socket or was answered upstream.
#[derive(Debug)]
pub(crate) enum Event {
    /// One object of a text frame.
    Request(Request),
    /// A frame that breaks the protocol.
    Malformed(&'static str),
    /// Any inbound frame, those of the protocol included.
    Traffic,
    /// Answer to [`Action::Open`].
    Opened {
        sub: u32,
        result: Result<Opened, Refusal>,
    },
    /// Answer to [`Action::OpenReader`]: the first cursor.
    ReaderOpened {
        sub: u32,
        result: Result<Arc<str>, Refusal>,
    },
    /// Answer to [`Action::Read`].
    Chunk {
        sub: u32,
        result: Result<Chunk, Refusal>,
    },
    /// Answer to [`Action::Pop`].
    Popped {
        sub: u32,
        result: Result<Batch, Refusal>,
    },
    /// Answer to [`Action::Pop`]: there was no memory for messages, nobody was asked.
    NotPopped { sub: u32 },
    /// Answer to [`Action::Wait`].
    Arrived { sub: u32 },
    /// Answer to [`Action::Settle`]: as many, in the same order.
    Settled { token: u64, outcomes: Vec<Outcome> },
    /// Answer to [`Action::Publish`].
    Published {
        token: u64,
        result: Result<std::collections::BTreeMap<String, serde_json::Value>, Refusal>,
    },
    /// Frames left the outbound queue for the socket.
    Written { bytes: usize, frames: usize },
    /// The gateway is going away.
    Drain {
        deadline: Monotonic,
        deadline_text: String,
        reconnect_within: String,
    },
    /// The socket has ended; `clean` where the client closed it. `unwritten` are receipts in frames that never left.
    Ended {
        clean: bool,
        unwritten: HashSet<Arc<str>>,
    },
    /// The time of [`super::session::Session::wake_at`] has come, or may have.
    Tick,
}

/// What the driver is to do, in order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Queue a text frame; one that is no push overtakes those that are. `receipts` are those of its messages.
    Send {
        text: String,
        push: bool,
        receipts: Vec<Arc<str>>,
    },
    /// Send a ping of the WebSocket protocol.
    Ping,
    /// Look the group up and extend the leases to adopt.
    Open { sub: u32, spec: Box<Subscribe> },
    /// Look the topic and the place of a reader up.
    OpenReader {
        sub: u32,
        spec: Box<ReaderSubscribe>,
    },
    /// Wait for messages of a reader; replaces a read that only watches.
    Read { sub: u32, wanted: Wanted },
    /// Take messages without waiting.
    Pop {
        sub: u32,
        max: u32,
        bytes: usize,
        invisible_ms: u64,
        /// Leases that the subscription may hold on all brokers, and those it knows of.
        limit: u32,
        holds: BTreeMap<Arc<str>, u32>,
    },
    /// Report when something may be deliverable.
    Wait { sub: u32 },
    /// The subscription is over: end its wait, give back what a late pop brings.
    Forget { sub: u32 },
    /// Settle leases of the group and answer with the token.
    Settle {
        token: u64,
        target: Arc<Target>,
        kind: SettleKind,
        items: Vec<SettleItem>,
    },
    /// Store a message and answer with the token.
    Publish { token: u64, publish: Box<Publish> },
    /// Close the socket with this code and reason.
    Close { code: u16, reason: &'static str },
}

/// Whose leases a settle request is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ns: String,
    pub(crate) group: String,
    /// Number of the subscription: whose leases they are at the brokers.
    pub(crate) number: u32,
}

/// A lease of an earlier socket that goes on here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adopted {
    pub(crate) receipt: Arc<str>,
    pub(crate) broker: Arc<str>,
}

/// A group subscription the driver looked up.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) adopted: Vec<Adopted>,
    pub(crate) gone: Vec<String>,
    /// Messages not settled yet.
    pub(crate) lag: u64,
    /// The group's invisible time, or the one asked for; milliseconds.
    pub(crate) invisible_ms: u64,
}

/// What a pop brought.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    /// There is more to pop at once.
    pub(crate) more: bool,
    pub(crate) paused: bool,
    /// A broker gave nothing, since the subscription holds all it may.
    pub(crate) full: bool,
    /// Messages lost unread.
    pub(crate) gaps: Vec<Gap>,
    /// Brokers that could not be asked.
    pub(crate) partial: Vec<String>,
}

/// Why something was refused, as in REST problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Stable code of the API.
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) retryable: bool,
}

/// What became of one receipt.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) effect: Effect,
    /// The result object as REST gives it.
    pub(crate) json: Box<RawValue>,
    /// Set where the client's request failed for this receipt.
    pub(crate) refusal: Option<Refusal>,
}

/// What a settle answer means for the lease held here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Settled or in other hands: the lease is over.
    Over,
    /// As [`Effect::Over`], but not by this request.
    Gone,
    /// Given back by this request.
    Released,
    /// Goes on, visible in this many milliseconds.
    Extended { visible_ms: u64 },
    /// May not become longer.
    Limit,
    /// Nothing changed, or nobody knows.
    Unchanged,
}
