//! Transport of wire frames over TCP: a server, a pooled client, and the connection both share.
//!
//! One task owns a socket. It reads into one buffer, decodes every whole frame in it, calls the
//! [`Service`] inline for requests and completes the pending table for responses, then writes all
//! replies of that round with one vectored write. A reply sent from another thread is appended to
//! the connection's outbound batch and wakes the task at most once until it runs again, so a group
//! of replies (one fsync, many waiters) costs one wake and one write.
//!
//! Bounds: bytes queued to a peer (over it the peer is slow and is closed), unanswered requests per
//! connection (over it reading pauses), memory for large frames that are still coming in (over it their
//! connection is closed), own requests in flight (over it `Refused`), connections per
//! server (over it accepting pauses), time for one frame to arrive, time without any traffic, and
//! time without write progress.

mod budget;
mod client;
mod connection;
mod driver;
mod error;
mod limits;
mod outbound;
mod pending;
mod responder;
mod server;

use std::sync::Arc;

use wire::Command;

pub use client::{Client, ClientOptions};
pub use connection::Connection;
pub use error::{ErrorKind, RemotingError, SendError};
pub use limits::Limits;
pub use responder::Responder;
pub use server::{Server, ServerOptions};

/// Answers the requests of a connection.
pub trait Service: Send + Sync + 'static {
    /// Called on the connection's own task for each request, in the order of arrival. Must not
    /// block for more than 500 µs: do short work inline and hand the rest to a task or thread
    /// together with `to`. A panic is answered with code 1 and the connection goes on.
    fn call(&self, cmd: Command, to: Responder);

    /// A connection was opened; no request of it has been seen yet.
    fn opened(&self, _conn: &Arc<Connection>) {}

    /// A connection has ended, for whatever reason; called once, after its last `call`.
    fn closed(&self, _conn: &Arc<Connection>) {}
}
