//! The name server: which broker holds which topic, and which brokers are alive.
//!
//! It speaks RocketMQ remoting (RocketMQ 5.4.0 DefaultRequestProcessor and ClientRequestProcessor),
//! keeps its tables in memory and knows no other name server: brokers register with all of them.
//! Only the key-value table is kept on disk, when there is a data directory.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bodies;
mod config;
mod dispatch;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod kv_config;
mod metrics;
mod namesrv;
pub mod route_table;
mod runtime_config;

pub use config::Config;
pub use error::{NamesrvError, RunError};
pub use namesrv::{Running, run, start};
