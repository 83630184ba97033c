//! Requests that wait for messages: the table of them, and who wakes them.

mod hold;
mod wake;

pub(crate) use hold::Holds;
pub(crate) use wake::{run_deadlines, wake_arrival};
