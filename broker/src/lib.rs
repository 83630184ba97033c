//! The broker: log, queues, leases, retry and dead letters behind RocketMQ remoting.

mod group;
mod names;
mod offsets;
mod topic;
mod version;
