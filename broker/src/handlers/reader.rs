//! Pulls by a gateway's reader (code 11 with the fields `gantry`=1 and `reader`=1): a look at a queue that leaves no
//! trace. No group is needed or made, nobody becomes a member, no offset is committed.

use std::time::Duration;

use wire::Command;
use wire::message::flags;
use wire::message::record::RecordView;

use super::offset::store_time;
use super::pull::{self, Pull, Refused};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::Filter;
use crate::names;
use crate::read::{ReadLimits, ReadOutcome, SCAN_MAX};
use crate::topic::PERM_READ;

/// Stands in logs where a pull has its group.
const READER: &str = "GANTRY_READER";
/// Most messages of one answer with bodies.
const MESSAGES_MAX: usize = 256;
/// Most bytes of one answer.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How a reader wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// No reader: a consumer's pull.
    No,
    /// The records.
    Records,
    /// Offsets and store times of the matching messages, without their bodies.
    Times,
}

/// Whether a pull comes from a gateway's reader.
pub(super) fn is_reader(cmd: &Command) -> bool {
    cmd.ext.get("gantry") == Some("1") && cmd.ext.get("reader") == Some("1")
}

/// Checks a reader's pull. Fields: `topic`, `queueId`, `queueOffset`, `maxMsgNums`, `sysFlag` (2 = wait),
/// `suspendTimeoutMillis` (≤ 60 s), `subscription` (tags, `*` = all), `maxMsgBytes` (≤ 4 MiB, a first larger message
/// is still given), `maxScan` (entries looked at, ≤ 800), `times`=1.
///
/// # Errors
/// Unreadable broker or topic, no such topic or queue, a field that is no number.
pub(super) fn prepare(broker: &Broker, cmd: &Command) -> Result<(Pull, Option<Duration>), Refused> {
    checked(broker, cmd).map_err(|error| (error, None))
}

fn checked(broker: &Broker, cmd: &Command) -> Result<(Pull, Option<Duration>), BrokerError> {
    let ext = &cmd.ext;
    let topic: String = ext.required("topic")?;
    let queue_id: i32 = ext.required("queueId")?;
    let offset: i64 = ext.required("queueOffset")?;
    let max_messages: u32 = ext.required("maxMsgNums")?;
    let max_bytes: Option<u32> = ext.optional("maxMsgBytes")?;
    let max_scan: Option<u32> = ext.optional("maxScan")?;
    let sys_flag: i32 = ext.optional("sysFlag")?.unwrap_or(0);
    let wait_ms: Option<u64> = ext.optional("suspendTimeoutMillis")?;
    if broker.live.permission() & PERM_READ == 0 {
        let text = "the broker is not readable".to_owned();
        return Err(BrokerError::Forbidden(text));
    }
    let known = broker.topic_to_read(&topic)?;
    if !known.is_readable() {
        let text = format!("topic [{}] may not be read", names::shorten(&topic));
        return Err(BrokerError::Forbidden(text));
    }
    if queue_id < 0 || queue_id >= known.queue_count() {
        return Err(BrokerError::Invalid(format!(
            "queueId[{queue_id}] is illegal, topic [{}] has {} queues",
            names::shorten(&topic),
            known.queue_count()
        )));
    }
    let filter = Filter::parse(None, ext.get("subscription")).map_err(pull::unparsed)?;
    let times = ext.get("times") == Some("1");
    let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let limits = ReadLimits {
        records: size(max_messages).clamp(1, if times { SCAN_MAX } else { MESSAGES_MAX }),
        bytes: if times {
            usize::MAX
        } else {
            max_bytes.map_or(BYTES_MAX, size).clamp(1, BYTES_MAX)
        },
        scan: max_scan.map_or(SCAN_MAX, size).clamp(1, SCAN_MAX),
    };
    let wait = (sys_flag & flags::PULL_SUSPEND != 0 && !times)
        .then(|| Duration::from_millis(wait_ms.unwrap_or(0)).min(WAIT_MAX));
    let reader = if times {
        Reader::Times
    } else {
        Reader::Records
    };
    Ok((
        Pull::of_reader(READER, topic, queue_id, offset, limits, filter, reader),
        wait,
    ))
}

/// Adds what only readers get: `nextStoredAt`, the store time of the message at the next offset where there is one;
/// `removed`, how many of the entries passed point at messages that are gone; `entries`, the matches as
/// `offset storeTime` joined by `;`, in place of their bodies.
pub(super) fn finish(
    broker: &Broker,
    pull: &Pull,
    outcome: &mut ReadOutcome,
    response: &mut Command,
) {
    let (topic, queue_id, filter, reader) = pull.read_by();
    if reader == Reader::No {
        return;
    }
    let next = store_time(broker, topic, queue_id, outcome.next);
    response.ext.put_opt("nextStoredAt", next);
    if outcome.removed > 0 {
        response.ext.put("removed", outcome.removed);
    }
    if reader == Reader::Times {
        let entries: Vec<String> = outcome
            .records
            .drain(..)
            .filter_map(|record| {
                let view = RecordView::parse(&record).ok()?;
                let matches = filter.matches(view.tags());
                matches.then(|| format!("{} {}", view.queue_offset, view.store_ts_ms))
            })
            .collect();
        response.ext.put("entries", entries.join(";"));
    }
}
