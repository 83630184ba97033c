//! What can go wrong between two processes, and whether the peer may have seen the request.

use std::fmt;

/// Why a request has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No connection could be made (address, refusal, time).
    Connect,
    /// No response within the time given.
    Timeout,
    /// The connection ended before the response came.
    Closed,
    /// Not sent: too many requests in flight, or the peer reads too slowly.
    Refused,
    /// Not sent: the frame would exceed the protocol's limit.
    TooLarge,
}

/// A request without a response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} {peer}: {detail}{}", self.kind.verb(), if *.written { " (request was sent)" } else { "" })]
pub struct RemotingError {
    /// What happened.
    pub kind: ErrorKind,
    /// `host:port` of the peer, as the caller named it.
    pub peer: String,
    /// Whether any byte of the request was handed to the kernel. `false` is certain: the peer has
    /// not seen the request and never will, so repeating it elsewhere cannot double it.
    pub written: bool,
    /// The cause, for the log.
    pub detail: String,
}

impl ErrorKind {
    fn verb(self) -> &'static str {
        match self {
            Self::Connect => "cannot connect to",
            Self::Timeout => "no answer in time from",
            Self::Closed => "connection closed by",
            Self::Refused => "not sent to",
            Self::TooLarge => "too large to send to",
        }
    }
}

impl RemotingError {
    pub(crate) fn new(
        kind: ErrorKind,
        peer: impl fmt::Display,
        written: bool,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            peer: peer.to_string(),
            written,
            detail: detail.into(),
        }
    }

    /// Whether the same request may be sent again, to this or another peer, without any risk of it
    /// being carried out twice.
    #[must_use]
    pub fn retryable(&self) -> bool {
        !self.written && self.kind != ErrorKind::TooLarge
    }
}

/// Why a frame was not queued to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection has ended.
    #[error("connection closed")]
    Closed,
    /// The peer reads too slowly; the connection has been closed for it.
    #[error("peer reads too slowly")]
    Slow,
    /// The frame would exceed the protocol's limit of 16 MiB.
    #[error("frame too large")]
    TooLarge,
}
