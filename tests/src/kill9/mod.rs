//! The kill -9 campaign: a load of sends, pops and acks on a broker that is killed and started again, and the oracle that
//! judges what was answered against what is there; `fleet` does it to several of everything.

pub mod campaign;
pub mod fleet;
pub mod load;
pub mod oracle;
mod rest_batch;
