//! What the tests of whole processes share: starting `gantry` as a process, and clients for each of its doors.
//!
//! The clients are written from the protocols alone and share no code with the product, so a fault in a codec of ours
//! cannot hide behind the same fault here.

pub mod acceptance;
pub mod bulk;
pub mod doors;
pub mod fleet;
pub mod http;
pub mod java;
pub mod kill9;
pub mod narrow;
pub mod native;
pub mod needs;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod record;
pub mod wait;
pub mod ws;
