//! Parsing of names, durations, times, ids and query parameters.

mod duration;
mod names;
mod query;
mod time;
mod ulid;

pub use duration::{format_duration, parse_duration};
pub use names::{
    check_group, check_group_writable, check_namespace, check_topic, check_topic_writable,
    is_reserved_property, is_system_group, is_system_topic,
};
pub use query::Query;
pub(crate) use query::{duration_in, percent_decode, percent_encode};
pub use time::{format_time, parse_time, write_time};
pub use ulid::new_ulid;
