//! Leases on messages: pop, settle, put back. The pure state and the ways in and out of it.
//!
//! ```text
//!             pop            ack
//!  queue ──────────▶ leased ──────▶ done
//!    ▲                 │ nack, time over
//!    └── retry topic ◀─┴─▶ dead letter topic
//! ```
//!
//! Every fact is a record of the commit log before it is answered or acted on, and the state is nothing but the sum of
//! these records ([`apply`]): a pop is one check point record per queue, a settlement one record per request, a put-back
//! or a dead letter the stored message itself with the property `__LEASE`. Append and apply happen under the lock of
//! the queue, so each state knows the log position up to which it is complete, and replay may start anywhere before.

pub mod apply;
pub mod lease;
pub mod names;
pub mod policy;
pub mod put_back;
pub mod queue;
pub mod record;
pub mod replay;
pub mod schedule;
pub mod settle;
pub mod snapshot;
pub mod table;
pub mod tombs;
pub mod wait;

mod answer;
mod carry;
mod cold;
mod engine;
mod handle_pop;
mod handle_settle;
mod in_flight;
mod numbers;
mod peek;
mod position;
mod retained;
mod revive;
mod rules;
mod scan;
mod service;
mod settle_all;
mod sweep;
mod waiting;

pub(crate) use carry::kind_changed;
pub(crate) use engine::{Pop, wait_flushed};
pub(crate) use handle_pop::{notify, polling_info, pop};
#[cfg(feature = "fuzzing")]
pub(crate) use handle_settle::read_batch_ack;
pub(crate) use handle_settle::{ack, batch_ack, change_invisible, settle};
pub(crate) use in_flight::list_in_flight;
pub(crate) use names::{is_retry_of, parse_retry_v2};
pub(crate) use peek::peek;
pub(crate) use position::{Start, set_position, start_at};
pub(crate) use retained::{InFlight, carry_unread, in_flight, is_void_retry, pass_over};
pub(crate) use service::{
    Workers, abandon, foreign_offsets, forget, group_changed, is_waited_for, lag, progress,
    release_waiting, start, stop,
};
pub(crate) use waiting::arrived;

#[cfg(test)]
mod model_test;
