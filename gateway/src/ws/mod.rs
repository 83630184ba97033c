//! The socket protocol `mq.v1.json`.
//!
//! ```text
//!  upgrade   HTTP request -> socket: subprotocol, limits
//!  driver    one task a socket: frames and answers in, actions carried out
//!  jobs      calls to the brokers, each ending in one event (open: a new subscription)
//!  outbound  frames on their way to the socket (line: their bytes)
//!  session   pure machine of a socket (requests, answers, heartbeat beside it)
//!  subscription  pure state of a subscription: credit, in-flight bound, leases
//!  frame     client frames, read strictly (fields: one object)
//! ```

mod action;
mod answers;
mod config;
mod driver;
mod fields;
mod frame;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod heartbeat;
mod jobs;
mod line;
mod open;
mod outbound;
mod reader_fields;
mod reader_jobs;
mod reader_session;
#[cfg(test)]
mod reader_session_test;
mod reader_sub;
mod requests;
mod session;
mod sockets;
mod subscription;
mod upgrade;

#[cfg(test)]
mod frame_test;
#[cfg(test)]
mod session_model_test;
#[cfg(test)]
mod session_test;
#[cfg(test)]
mod session_turns_test;

pub use config::WsConfig;
#[cfg(feature = "fuzzing")]
pub(crate) use driver::FRAME_MAX;
#[cfg(feature = "fuzzing")]
pub(crate) use fuzzing::take_text;
pub use sockets::Sockets;
pub use upgrade::upgrade;
