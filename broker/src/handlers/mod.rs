//! One file per request or family: parse, call, answer. No policy of their own.

pub(crate) mod assignment;
pub(crate) mod broker_config;
pub(crate) mod broker_stats;
pub(crate) mod cleanup;
pub(crate) mod config_level;
pub(crate) mod consume_stats;
pub(crate) mod consumer_call;
pub(crate) mod consumer_info;
pub(crate) mod consumer_status;
pub(crate) mod forbidden;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod gantry_group;
pub(crate) mod gantry_topic;
pub(crate) mod group;
pub(crate) mod group_offsets;
pub(crate) mod heartbeat;
pub(crate) mod inspect;
pub(crate) mod lists;
pub(crate) mod lock;
pub(crate) mod offset;
pub(crate) mod pull;
mod reader;
pub(crate) mod reply_message;
pub(crate) mod reset_offset;
pub(crate) mod runtime_info;
pub(crate) mod send;
pub(crate) mod send_back;
pub(crate) mod send_batch;
pub(crate) mod send_request;
pub(crate) mod time_span;
pub(crate) mod topic;
pub(crate) mod view;

use serde::Serialize;
use wire::{Command, ResponseCode};

use crate::error::BrokerError;

/// An answer that only says success.
pub(crate) fn success() -> Command {
    Command::response(ResponseCode::Success)
}

/// A successful answer with a JSON body.
pub(crate) fn json_answer(body: &impl Serialize) -> Command {
    success().with_body(wire::json::to_vec(body))
}

/// A body that must be JSON of this shape.
pub(crate) fn json_body<T: serde::de::DeserializeOwned>(cmd: &Command) -> Result<T, BrokerError> {
    if cmd.body.is_empty() {
        return Err(BrokerError::Body("it is empty".to_owned()));
    }
    wire::json::from_slice(&cmd.body.to_bytes())
        .map_err(|error| BrokerError::Body(error.to_string()))
}
