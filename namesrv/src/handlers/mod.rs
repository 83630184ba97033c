//! One file per family of requests: read the header, ask the table, write the answer.

pub(crate) mod brokers;
pub(crate) mod kv;
pub(crate) mod register;
pub(crate) mod route;
pub(crate) mod settings;
pub(crate) mod topics;

use wire::{Command, Header};

use crate::error::NamesrvError;

/// The typed header of a request.
fn header<H: Header>(cmd: &Command) -> Result<H, NamesrvError> {
    cmd.header().map_err(NamesrvError::Header)
}
