//! The log engine: one commit log of records, consume queues that point into it, recovery.
//!
//! ```text
//! append ──(put lock)──> commit log ──> dispatcher ──> consume queues ──> arrival listeners
//!                            │                              │
//!                            └──> flusher: one sync         └──> maintainer: queue files,
//!                                 for all who wait               checkpoint
//! ```
//!
//! Files: see `layout`. Records are stored as they are pulled, queues are 20-byte units, so that a
//! directory of Apache RocketMQ 5.4.0 opens here and one of ours opens there.
//!
//! Invariants:
//! - `flushed <= written`, `dispatched <= written`; all only grow while the store is open.
//! - Published bytes of a log file are never written again.
//! - Queue positions have no gaps but those of damaged or removed records.
//! - After a failed write or sync nothing is accepted any more; nothing is tried twice.
//! - Recovery run twice changes nothing the second time.
//!
//! Workers (threads `store-flush`, `store-dispatch`, `store-queues`, `store-preallocate`) are
//! plain structs stepped under their own lock. Lock order: maintainer, dispatcher, flusher; then
//! the put lock; then the slot of the next file; then queue table, queue, waiters, which are leaves.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![warn(missing_docs)]

mod checkpoint;
mod commit_log;
pub mod config_file;
mod consume_queue;
pub mod disk;
mod dispatch;
mod draft;
mod error;
mod flush;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod ids;
mod layout;
mod maintain;
mod mapped_file;
mod mapped_file_queue;
mod open;
mod options;
mod query;
mod queue_ends;
mod record;
mod removed;
mod retention;
mod shared;
mod store;
mod watermarks;
mod workers;

pub use commit_log::DamagedRange;
pub use consume_queue::QueueEntry;
pub use draft::{AppendOutcome, Arrival, MessageDraft};
pub use error::StoreError;
pub use ids::{PhysicalOffset, QueueOffset};
pub use open::{LostEnd, RecoveryReport};
pub use options::{DELAY_LEVELS_MS, FlushPolicy, StoreOptions, Workers};
pub use query::{Boundary, Scan};
pub use retention::{Cleaned, Retiring, Segment};
pub use store::{QueueRange, Store};
