//! Messages: the stored record (also the pull answer), its properties, ids, flags, and client batches.

pub mod batch;
pub mod flags;
pub mod id;
pub mod properties;
pub(crate) mod reader;
pub mod record;
pub mod tags;

/// Topic in which messages wait for their delay level: queue id = level − 1, and the tag code of a queue entry is the
/// deliver time, epoch ms (RocketMQ 5.4.0 `TopicValidator.RMQ_SYS_SCHEDULE_TOPIC`).
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

pub use batch::{BatchEntry, decode_batch, encode_batch};
pub use properties::{Properties, PropertiesView, names};
pub use record::{RecordFields, RecordScan, RecordView, encode_record, patch_record};
