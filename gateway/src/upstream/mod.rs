//! Calls to name servers and brokers: the only part of the gateway that speaks remoting.

pub mod admin;
pub mod consumer;
pub mod producer;
pub mod routes;
pub mod select;

pub use consumer::{Delivery, Lease, Popped, PopRequest, SettleOp, SettleOutcome, SettleStatus, Settlement, Wake};
pub use producer::{Draft, Durability, Sent};

use std::sync::Arc;

/// Tenant and namespace of a call. Only `default`/`default` exists so far; its names are bare in the brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope;

/// The cluster as the gateway sees it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream(#[expect(dead_code, reason = "filled next")] Arc<Inner>);

#[derive(Debug)]
struct Inner {}
