//! The socket protocol `mq.v1.json`.
//!
//! ```text
//!  upgrade   HTTP request -> socket: subprotocol, limits
//!  driver    one task a socket: frames and answers in, actions carried out
//!  session   pure machine of a socket (requests, answers, heartbeat beside it)
//!  subscription  pure state of a subscription: credit, in-flight bound, leases
//!  frame     client frames, read strictly (fields: one object)
//! ```

mod action;
mod answers;
mod config;
mod fields;
mod frame;
mod heartbeat;
mod requests;
mod session;
mod sockets;
mod subscription;

#[cfg(test)]
mod frame_test;
#[cfg(test)]
mod session_test;

pub use config::WsConfig;
pub use sockets::Sockets;

use crate::error::ApiError;
use crate::state::AppState;
use axum::extract::State;

/// `GET /v1/ws`.
///
/// # Errors
/// 501 until it is there.
pub async fn upgrade(State(state): State<AppState>) -> Result<(), ApiError> {
    let _ = state;
    Err(ApiError::not_implemented("sockets are not there yet"))
}
