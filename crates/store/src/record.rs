//! What the store itself needs to know about a record.

use crate::consume_queue::Unit;
use wire::message::SCHEDULE_TOPIC;
use wire::message::flags::{TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, transaction_kind};
use wire::message::properties::names;
use wire::message::record::{RecordScan, RecordView};
use wire::message::tags::tags_code;

/// What stands at a log position.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A record that says itself that it belongs here.
    Record(RecordView<'a>),
    /// Filler up to the end of the file.
    Blank,
    /// Zeros, a torn record, or damage.
    Nothing,
}

/// Looks at `bytes`, which begin at log position `at` and end with the file or earlier.
/// The body is compared with its checksum if `check`.
pub(crate) fn look(bytes: &[u8], at: u64, check: bool) -> Found<'_> {
    match RecordScan::at(bytes) {
        RecordScan::Record(_) => {
            let view = if check {
                RecordView::parse_checked(bytes)
            } else {
                RecordView::parse(bytes)
            };
            match view {
                Ok(view) if u64::try_from(view.physical_offset) == Ok(at) => Found::Record(view),
                _ => Found::Nothing,
            }
        }
        RecordScan::Blank(_) => Found::Blank,
        RecordScan::End => Found::Nothing,
    }
}

/// True when the record takes a position in its queue: not a prepared or rolled-back one.
pub(crate) fn takes_position(sys_flag: i32) -> bool {
    !matches!(
        transaction_kind(sys_flag),
        TRANSACTION_PREPARED | TRANSACTION_ROLLBACK
    )
}

/// The queue position and unit of a record; `None` when it has none.
pub(crate) fn unit_of(view: &RecordView<'_>, delay_levels_ms: &[u64]) -> Option<(u64, Unit)> {
    let position = u64::try_from(view.queue_offset).ok()?;
    let physical = u64::try_from(view.physical_offset).ok()?;
    let size = u32::try_from(view.total_size()).ok()?;
    let fits = takes_position(view.sys_flag) && view.queue_id >= 0 && is_topic(view.topic);
    fits.then_some(())?;
    let tags_code = code_of(view, delay_levels_ms);
    let unit = Unit {
        physical,
        size,
        tags_code,
    };
    Some((position, unit))
}

fn code_of(view: &RecordView<'_>, delay_levels_ms: &[u64]) -> i64 {
    if view.topic == SCHEDULE_TOPIC {
        let level = view
            .property(names::DELAY)
            .and_then(|v| v.parse::<usize>().ok());
        if let Some(level) = level.filter(|level| *level > 0) {
            // A level beyond the last is the last, as in RocketMQ 5.4.0 ScheduleMessageService.
            let level = level.min(delay_levels_ms.len());
            let delay = delay_levels_ms
                .get(level.saturating_sub(1))
                .copied()
                .unwrap_or(0);
            return view
                .store_ts_ms
                .saturating_add(i64::try_from(delay).unwrap_or(i64::MAX));
        }
    }
    view.tags().map_or(0, tags_code)
}

/// True for a name that can be a directory: not empty, no separators, no NUL, not `.` or `..`.
pub(crate) fn is_topic(topic: &str) -> bool {
    !topic.is_empty()
        && topic.len() <= 255
        && topic != "."
        && topic != ".."
        && !topic.bytes().any(|b| b == b'/' || b == 0)
}
