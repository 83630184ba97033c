//! The broker: log, queues, leases, retry and dead letters behind RocketMQ remoting.

mod group;
mod names;
mod offsets;
#[allow(dead_code, reason = "wired step by step")]
pub mod pop;
mod topic;
mod version;
