//! HTTP: sockets and their time limits, the layer around all routes, the body and the problem document.

mod accept;
pub mod call;
mod connection;
pub mod guarded;
pub mod origin;
mod outer;
mod problem;
pub(crate) mod read;
pub mod server;
mod stalled;
mod written;

pub(crate) use accept::names as names_type;
pub use call::Call;

/// Who opened the connection of a request; among its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) std::net::IpAddr);
pub(crate) use outer::{Meta, outer};
