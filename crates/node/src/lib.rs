//! What every process shares: settings, shutdown, telemetry, readiness, the admin listener.
//!
//! A process is built as: [`config::load`] merges defaults, file, environment and flags and names
//! every fault at once; [`telemetry::init`] sends the log to stderr; a [`Context`] carries the clock,
//! the [`Shutdown`], the [`Ready`] lines and the [`Metrics`] into each server's `run`; and
//! [`shutdown::on_signals`] turns SIGTERM and SIGINT into an orderly stop.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod admin;
mod admin_addr;
pub mod config;
mod context;
pub mod metrics;
mod ready;
pub mod shutdown;
pub mod telemetry;
pub mod units;

pub use admin_addr::AdminListen;
pub use context::Context;
pub use metrics::Metrics;
pub use ready::{Ready, Role};
pub use shutdown::Shutdown;
pub use units::{ByteSize, Millis};
