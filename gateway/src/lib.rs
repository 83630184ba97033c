//! The stateless gateway: REST and WebSocket in front of the brokers.
//!
//! ```text
//!  http/      sockets, hyper, header and body time limits
//!  app        routes + one outer layer (request id, loopback rules, problem documents)
//!  rest/      one file per resource: parse strictly -> call upstream -> answer
//!  ws/        the socket protocol mq.v1.json
//!  reader/    reading topics without a group: cursors, merge, the shared live tail
//!  upstream/  routes, queue choice, broker calls; the only place that speaks remoting
//!  db/        SQL on SQLite or Postgres (signing keys)
//! ```
//! Nothing a client depends on lives here: receipts carry everything, any gateway settles any of them.

mod api_document;
pub mod app;
pub mod config;
pub mod db;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
pub mod http;
pub mod json;
mod later;
pub mod memory;
pub mod message;
mod metrics;
pub mod page;
pub mod params;
mod reader;
pub mod receipt;
pub mod render;
pub mod rest;
pub mod signing;
pub mod state;
mod store;
pub mod upstream;
mod web_ui;
pub mod ws;

pub use api_document::api_document;
pub use app::app;
pub use config::{Auth, Config};
pub use error::{ApiError, Code};
pub use gateway::{RunError, Running, run, start};
pub use state::AppState;
pub use web_ui::curl_lines;
