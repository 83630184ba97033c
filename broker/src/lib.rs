//! The broker: log, queues, leases, retry and dead letters behind RocketMQ remoting.
//!
//! [`run`] serves until its context stops; [`start`] gives a handle for tests. Requests arrive on
//! connection tasks (`dispatch`), touch memory inline and go to blocking threads for everything
//! that may wait for the disk. Appends happen on the caller's thread; their answers leave from the
//! flush thread (`durability`).
#![forbid(unsafe_code)]

mod admission;
mod adopt;
mod allocate;
mod broker;
mod carry;
mod clients;
mod config;
mod delay;
mod dispatch;
mod durability;
mod error;
mod filter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod handlers;
mod ids;
mod late;
mod leases;
mod level;
mod locks;
mod longpoll;
mod metrics;
mod names;
mod offsets;
mod peer_config;
mod persist;
#[cfg(feature = "planted-faults")]
mod planted;
pub mod pop;
mod progress;
mod read;
mod registration;
mod request_modes;
mod retention;
mod retry;
mod routes;
mod server;
mod settings;
mod stats;
mod table;
#[cfg(test)]
mod test_broker;
mod topic;
mod unfinished;
mod unserved;
mod version;

pub use config::{
    Config, CreateConfig, FlushConfig, FlushMode, LimitsConfig, MembersConfig, RetentionConfig,
    SegmentConfig,
};
pub use server::{Addrs, Error, Running, run, start, start_on};
