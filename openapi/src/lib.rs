//! Bodies of the REST and WebSocket API.

pub mod ws;
