//! Codes 11 and 361: read from one queue, or wait there until something arrives.

use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use remoting::{Connection, Responder};
use wire::message::flags;
use wire::{Body, Command, ResponseCode};

use super::reader::{self, Reader};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::filter::{Filter, FilterError};
use crate::names;
use crate::read::{self, ReadLimits, ReadOutcome, ReadStatus, SCAN_MAX};
use crate::topic::PERM_READ;

/// Most messages of one answer.
const MESSAGES_MAX: usize = 256;
/// Bytes of one answer unless the client names a number.
const BYTES_DEFAULT: usize = 256 * 1024;
/// Most bytes of one answer.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A pull that passed its checks.
#[derive(Debug)]
pub(crate) struct Pull {
    group: String,
    topic: String,
    queue_id: i32,
    offset: i64,
    limits: ReadLimits,
    filter: Arc<Filter>,
    /// Where a slow consumer should read from.
    slow_broker: i64,
    reader: Reader,
}

impl Pull {
    /// A look by a gateway.
    pub(super) fn of_reader(
        name: &str,
        topic: String,
        queue_id: i32,
        offset: i64,
        limits: ReadLimits,
        filter: Filter,
        reader: Reader,
    ) -> Self {
        Self {
            group: name.to_owned(),
            topic,
            queue_id,
            offset,
            limits,
            filter: Arc::new(filter),
            slow_broker: 0,
            reader,
        }
    }

    /// Topic, queue, filter and whose pull it is.
    pub(super) fn read_by(&self) -> (&str, i32, &Filter, Reader) {
        (&self.topic, self.queue_id, &self.filter, self.reader)
    }
}

/// A parked pull.
#[derive(Debug)]
pub(crate) struct HeldPull {
    pull: Pull,
    to: Responder,
}

/// Answers a pull.
pub(crate) fn handle(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    if !reader::is_reader(&cmd) && needs_disk(broker, &cmd) {
        let owner = broker.clone();
        broker
            .admission
            .create
            .run(broker, cmd.body.len(), move |admitted| match admitted {
                Ok(()) => begin(&owner, &cmd, to),
                Err(error) => to.send(refusal(&error)),
            });
        return;
    }
    begin(broker, &cmd, to);
}

/// Whether the group has to be created or written first.
fn needs_disk(broker: &Broker, cmd: &Command) -> bool {
    cmd.ext
        .get("consumerGroup")
        .is_some_and(|group| !broker.groups.contains(group) || broker.groups.is_unsaved(group))
}

fn begin(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    let prepared = if reader::is_reader(cmd) {
        reader::prepare(broker, cmd)
    } else {
        prepare(broker, cmd, to.conn())
    };
    match prepared {
        Ok((pull, wait)) => run(broker, pull, wait, to),
        Err((error, forbidden)) => {
            let mut response = refusal(&error);
            response.ext.put_opt("forbiddenType", forbidden);
            to.send(response);
        }
    }
}

/// Errors carry an `extFields` object, as clients expect of pulls.
fn refusal(error: &BrokerError) -> Command {
    let mut response = error.to_response();
    response.ext.mark_present();
    response
}

pub(super) type Refused = (BrokerError, Option<i32>);

/// What forbade a pull, for the client's log.
const FORBIDDEN_BROKER: i32 = 1;
const FORBIDDEN_GROUP: i32 = 2;
const FORBIDDEN_TOPIC: i32 = 3;
const FORBIDDEN_BROADCAST: i32 = 4;
const FORBIDDEN_PAIR: i32 = 5;

fn prepare(
    broker: &Arc<Broker>,
    cmd: &Command,
    conn: &Connection,
) -> Result<(Pull, Option<Duration>), Refused> {
    let plain = |error: BrokerError| (error, None);
    let wire = |error: wire::WireError| (BrokerError::from(error), None);
    let ext = &cmd.ext;
    let group: String = ext.required("consumerGroup").map_err(wire)?;
    let topic: String = ext.required("topic").map_err(wire)?;
    let queue_id: i32 = ext.required("queueId").map_err(wire)?;
    let offset: i64 = ext.required("queueOffset").map_err(wire)?;
    let max_messages: i32 = ext.required("maxMsgNums").map_err(wire)?;
    let sys_flag: i32 = ext.required("sysFlag").map_err(wire)?;
    let max_bytes: Option<i32> = ext.optional("maxMsgBytes").map_err(wire)?;
    let commit: Option<i64> = ext.optional("commitOffset").map_err(wire)?;
    let wait_ms: Option<i64> = ext.optional("suspendTimeoutMillis").map_err(wire)?;
    let sub_version: i64 = ext.optional("subVersion").map_err(wire)?.unwrap_or(0);

    if broker.live.permission() & PERM_READ == 0 {
        return Err((
            BrokerError::Forbidden("the broker is not readable".to_owned()),
            Some(FORBIDDEN_BROKER),
        ));
    }
    let config = broker.ensure_group(&group).map_err(plain)?;
    if !config.consume_enable {
        let text = format!(
            "subscription group no permission, {}",
            names::shorten(&group)
        );
        return Err((BrokerError::Forbidden(text), Some(FORBIDDEN_GROUP)));
    }
    let known = broker.topic_to_read(&topic).map_err(plain)?;
    if !known.is_readable() {
        let text = format!(
            "the topic[{}] pulling message is forbidden",
            names::shorten(&topic)
        );
        return Err((BrokerError::Forbidden(text), Some(FORBIDDEN_TOPIC)));
    }
    if broker.groups.is_forbidden(&group, &topic) {
        let text = format!(
            "the consumer group[{}] is forbidden for topic[{}]",
            names::shorten(&group),
            names::shorten(&topic)
        );
        return Err((BrokerError::Forbidden(text), Some(FORBIDDEN_PAIR)));
    }
    if queue_id < 0 || queue_id >= known.read_queue_nums {
        return Err(plain(BrokerError::Invalid(format!(
            "queueId[{queue_id}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}]",
            names::shorten(&topic),
            known.read_queue_nums
        ))));
    }
    broker.enter_pull(&group, conn).map_err(plain)?;
    broker.pulls(&group, conn);
    let filter = if sys_flag & flags::PULL_SUBSCRIPTION != 0 {
        Arc::new(
            Filter::parse(ext.get("expressionType"), ext.get("subscription"))
                .map_err(|error| plain(unparsed(error)))?,
        )
    } else {
        if broker.consumers.is_broadcasting(&group) == Some(true)
            && !config.consume_broadcast_enable
        {
            let text = format!(
                "the consumer group[{}] can not consume by broadcast way",
                names::shorten(&group)
            );
            return Err((BrokerError::Forbidden(text), Some(FORBIDDEN_BROADCAST)));
        }
        let subscription = broker
            .consumers
            .subscription(&group, &topic)
            .ok_or_else(|| {
                plain(BrokerError::NoSubscription {
                    group: names::shorten(&group),
                    topic: names::shorten(&topic),
                })
            })?;
        if subscription.version < sub_version {
            return Err(plain(BrokerError::SubscriptionNotLatest));
        }
        subscription.filter.clone().ok_or_else(|| {
            plain(BrokerError::Forbidden(
                "the broker does not support consumer to filter message by SQL92".to_owned(),
            ))
        })?
    };
    if sys_flag & flags::PULL_COMMIT_OFFSET != 0
        && let Some(commit) = commit
        && broker
            .offsets
            .pending_reset(&group, &topic, queue_id)
            .is_none()
    {
        broker
            .offsets
            .commit(&group, &topic, queue_id, commit, broker.now_ms());
    }
    let wait = (sys_flag & flags::PULL_SUSPEND != 0).then(|| {
        Duration::from_millis(wait_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0))
            .min(WAIT_MAX)
    });
    let limits = ReadLimits {
        records: usize::try_from(max_messages)
            .unwrap_or(0)
            .clamp(1, MESSAGES_MAX),
        bytes: max_bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(BYTES_DEFAULT)
            .clamp(BYTES_DEFAULT, BYTES_MAX),
        scan: SCAN_MAX,
    };
    let slow_broker = config.broker_id;
    Ok((
        Pull {
            group,
            topic,
            queue_id,
            offset,
            limits,
            filter,
            slow_broker,
            reader: Reader::No,
        },
        wait,
    ))
}

pub(super) fn unparsed(error: FilterError) -> BrokerError {
    match error {
        FilterError::Kind(kind) => {
            BrokerError::Subscription(format!("expression type {kind} is not supported yet"))
        }
        FilterError::TooLarge => BrokerError::Subscription("the expression is too long".to_owned()),
    }
}

/// Reads, inline where the messages are in memory.
fn run(broker: &Arc<Broker>, pull: Pull, wait: Option<Duration>, to: Responder) {
    if !read::is_cold(
        &broker.store,
        &pull.topic,
        pull.queue_id,
        pull.offset,
        broker.config.limits.hot.0,
    ) {
        finish(broker, pull, wait, to);
        return;
    }
    let owner = broker.clone();
    broker
        .admission
        .read
        .run(broker, 0, move |admitted| match admitted {
            Ok(()) => {
                owner.metrics.cold_reads.inc();
                finish(&owner, pull, wait, to);
            }
            Err(error) => to.send(refusal(&error)),
        });
}

/// Reads and answers, or parks.
fn finish(broker: &Arc<Broker>, pull: Pull, wait: Option<Duration>, to: Responder) {
    let outcome = match read_queue(broker, &pull) {
        Ok(outcome) => outcome,
        Err(error) => return to.send(refusal(&error)),
    };
    let (code, _) = code_of(outcome.status, pull.offset);
    match wait {
        Some(wait)
            if code == ResponseCode::PullNotFound
                && !to.is_oneway()
                && !broker.stopping.is_cancelled() =>
        {
            park(broker, pull, wait, to);
        }
        _ => to.send(answer(broker, &pull, outcome)),
    }
}

fn read_queue(broker: &Broker, pull: &Pull) -> Result<ReadOutcome, BrokerError> {
    let mut outcome = read::read(
        &broker.store,
        &pull.topic,
        pull.queue_id,
        pull.offset,
        pull.limits,
        &pull.filter,
    )?;
    if pull.reader == Reader::No
        && let Some(offset) = broker
            .offsets
            .take_reset(&pull.group, &pull.topic, pull.queue_id)
    {
        outcome = ReadOutcome {
            status: ReadStatus::OffsetReset,
            next: offset,
            records: Vec::new(),
            bytes: 0,
            ..outcome
        };
    }
    Ok(outcome)
}

/// Response code, and whether the answer means that nothing is there yet.
fn code_of(status: ReadStatus, offset: i64) -> (ResponseCode, bool) {
    match status {
        ReadStatus::Found => (ResponseCode::Success, false),
        ReadStatus::NoMatchedMessage | ReadStatus::MessageWasRemoving => {
            (ResponseCode::PullRetryImmediately, false)
        }
        ReadStatus::OffsetOverflowOne => (ResponseCode::PullNotFound, true),
        ReadStatus::NoMessageInQueue if offset == 0 => (ResponseCode::PullNotFound, true),
        ReadStatus::NoMessageInQueue
        | ReadStatus::OffsetOverflowBadly
        | ReadStatus::OffsetTooSmall
        | ReadStatus::OffsetReset => (ResponseCode::PullOffsetMoved, false),
    }
}

/// Counts what the group got, and where it is.
fn note(broker: &Broker, pull: &Pull, outcome: &ReadOutcome) {
    if !outcome.records.is_empty() {
        broker.stats.got(
            &pull.group,
            &pull.topic,
            outcome.records.len() as u64,
            outcome.bytes as u64,
            broker.clock.monotonic(),
        );
    }
    broker
        .offsets
        .note_pull(&pull.group, &pull.topic, pull.queue_id, outcome.next);
}

fn answer(broker: &Broker, pull: &Pull, mut outcome: ReadOutcome) -> Command {
    let (code, _) = code_of(outcome.status, pull.offset);
    if outcome.records.is_empty() {
        broker.metrics.get_missed.inc();
    } else {
        broker.metrics.get_found.inc();
        broker
            .metrics
            .get_messages
            .inc_by(outcome.records.len() as u64);
        broker.metrics.get_bytes.inc_by(outcome.bytes as u64);
    }
    // A reader has no group, whatever a group of the name is doing.
    if pull.reader == Reader::No {
        note(broker, pull, &outcome);
    }
    let mut response = Command::response(code).with_remark(outcome.status.name());
    let ext = &mut response.ext;
    ext.put("suggestWhichBrokerId", pull.slow_broker);
    ext.put("nextBeginOffset", outcome.next);
    ext.put("minOffset", outcome.min);
    ext.put("maxOffset", outcome.max);
    ext.put("topicSysFlag", 0i32);
    ext.put("groupSysFlag", 0i32);
    reader::finish(broker, pull, &mut outcome, &mut response);
    if !outcome.records.is_empty() {
        response.body = Body::from(outcome.records);
    }
    response
}

/// Waits for an arrival at the queue's end.
fn park(broker: &Arc<Broker>, pull: Pull, wait: Duration, to: Responder) {
    let deadline: Monotonic = broker.clock.monotonic() + wait;
    let (topic, queue_id, from) = (
        pull.topic.clone(),
        pull.queue_id,
        u64::try_from(pull.offset).unwrap_or(0),
    );
    let filter = pull.filter.clone();
    let parked = broker.holds.park(
        &topic,
        queue_id,
        from,
        filter,
        deadline,
        HeldPull { pull, to },
    );
    let (id, sooner) = match parked {
        Ok(parked) => parked,
        Err(held) => {
            broker.metrics.busy.inc();
            held.to.send(refusal(&BrokerError::Busy(
                "too many requests wait for messages",
            )));
            return;
        }
    };
    if sooner {
        broker.deadline_moved.notify_one();
    }
    // A message may have come between the read and the parking; a stop likewise.
    let arrived = broker.store.queue(&topic, queue_id).max.get() > from;
    if (arrived || broker.stopping.is_cancelled())
        && let Some(held) = broker.holds.take(&topic, queue_id, id)
    {
        // Parks again if what came does not match.
        let left = broker.clock.monotonic().until(deadline);
        if arrived {
            recheck(broker, held, left);
        } else {
            resume(broker, held);
        }
    }
}

/// Reads once more after parking. What does not match is passed over and waited for anew.
fn recheck(broker: &Arc<Broker>, mut held: HeldPull, left: Duration) {
    match read_queue(broker, &held.pull) {
        Ok(outcome)
            if outcome.status == ReadStatus::NoMatchedMessage
                && outcome.next > held.pull.offset =>
        {
            held.pull.offset = outcome.next;
            finish(broker, held.pull, Some(left), held.to);
        }
        Ok(outcome) => held.to.send(answer(broker, &held.pull, outcome)),
        Err(error) => held.to.send(refusal(&error)),
    }
}

/// Answers a parked pull with what is there now.
pub(crate) fn resume(broker: &Arc<Broker>, held: HeldPull) {
    let HeldPull { pull, to } = held;
    // Its kind may have lost the group while it waited.
    if pull.reader == Reader::No
        && let Err(error) = broker.check_native(&pull.group)
    {
        return to.send(refusal(&error));
    }
    match read_queue(broker, &pull) {
        Ok(outcome) => to.send(answer(broker, &pull, outcome)),
        Err(error) => to.send(refusal(&error)),
    }
}

/// Answers the parked pulls of a group on one queue: its position was set.
pub(crate) fn release_group(broker: &Arc<Broker>, group: &str, topic: &str, queue_id: i32) {
    let of_group = |held: &HeldPull| held.pull.reader == Reader::No && held.pull.group == group;
    for held in broker.holds.take_of(topic, queue_id, of_group) {
        resume(broker, held);
    }
}

/// Answers all parked pulls: the broker stops.
pub(crate) fn release_all(broker: &Arc<Broker>) {
    for held in broker.holds.drain() {
        resume(broker, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Change, Key};
    use crate::test_broker::start;
    use wire::RequestCode;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_group_that_its_file_lacks_is_written_for_a_pull_also_where_none_is_created() {
        let running = start().await;
        let broker = &running.broker;
        broker.live.set(&Change::Value(Key::CreateGroups, 0));
        let pull =
            |group| Command::request(RequestCode::PullMessage).with_ext("consumerGroup", group);
        broker.groups.ensure("g", 1).unwrap();
        assert!(needs_disk(broker, &pull("g")));
        broker.ensure_group("g").unwrap();
        assert!(!broker.groups.is_unsaved("g") && !needs_disk(broker, &pull("g")));
        assert!(matches!(
            broker.ensure_group("h"),
            Err(BrokerError::NoGroup(_))
        ));
        running.stop().await.unwrap();
    }
}
