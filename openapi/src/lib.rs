//! Bodies of the REST and WebSocket API: what the OpenAPI document describes, and types for clients and tests.
//!
//! The gateway reads requests with its own strict parser and writes messages by hand, so that a stored `json` value
//! keeps its bytes; these types say the same in the form that generators understand.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod dead_letters;
pub mod groups;
pub mod messages;
pub mod problem;
pub mod settle;
pub mod subscriptions;
pub mod topics;
pub mod ws;
