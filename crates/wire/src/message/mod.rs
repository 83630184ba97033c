//! Messages: the stored record (also the pull answer), its properties, ids, flags, and client batches.

pub mod batch;
pub mod flags;
pub mod id;
pub mod properties;
pub(crate) mod reader;
pub mod record;
pub mod tags;

pub use batch::{BatchEntry, decode_batch, encode_batch};
pub use properties::{Properties, PropertiesView, names};
pub use record::{RecordFields, RecordScan, RecordView, encode_record, patch_record};
