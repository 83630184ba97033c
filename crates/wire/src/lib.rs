//! The RocketMQ remoting protocol and the stored message layout: pure bytes to values and back.
//!
//! ```text
//! frame   i32 total | u8 kind, u24 header length | header | body        total = 4 + header + body
//!                     kind 0 = JSON text, 1 = ROCKETMQ binary           at most 16 MiB with the length field
//! record  i32 size | magic | crc | queue | flag | offsets | hosts | times | body | topic | properties
//! ```
//!
//! All integers are big-endian two's complement. Every frame says its own header kind; both kinds are
//! read, JSON is written. Nothing here does I/O, reads a clock or keeps state; input of any shape gives
//! a value or a [`WireError`], never a panic.
//!
//! Where to look: [`frame`] cuts and joins frames, [`Command`] is one of them, [`codes`] names the
//! numbers, [`headers`] has the typed `extFields`, [`body`] the JSON bodies, [`message`] the record
//! that is both the disk format and the pull answer, [`receipt`] the POP texts.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

pub mod body;
pub mod codes;
pub mod command;
mod cursor;
pub mod error;
pub mod ext;
pub mod frame;
mod header_binary;
mod header_json;
pub mod headers;
pub mod inflate;
pub mod json;
pub mod language;
pub mod message;
pub mod receipt;
mod scan;
pub mod version;

pub use codes::{RequestCode, ResponseCode};
pub use command::{Body, Command};
pub use error::WireError;
pub use ext::{ExtFields, FromExt, Header, ToExt};
pub use language::Language;
