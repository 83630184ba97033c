//! The lease engine of a broker: its state, how facts get into the log, and what others may ask of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clock::{Clock, Monotonic};
use store::{MessageDraft, PhysicalOffset, Store};
use tokio::sync::Notify;
use wire::message::properties::{Properties, names as property};
use wire::message::record::{RecordFields, RecordView};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::persist::ConfigFile;

use super::carry::Carrier;
use super::lease::LeaseId;
use super::names;
use super::numbers::Numbers;
use super::put_back;
use super::record::{self, Draft};
use super::replay::Replay;
use super::rules::RuleCache;
use super::schedule::Schedule;
use super::snapshot::Snapshot;
use super::table::{Locked, Slot, Table};
use super::tombs::Horizon;
use super::wait::Waiters;
use super::waiting::Waiting;

/// Longest wait for the disk before a snapshot is given up.
const FLUSH_WAIT: Duration = Duration::from_secs(30);

/// The state of the engine. Lock order: slots by key, then the store's put lock; everything else is a leaf.
#[derive(Debug)]
pub(crate) struct Pop {
    /// Leases and positions.
    pub(super) table: Table,
    /// When leases run out.
    pub(super) schedule: Schedule,
    /// Requests that wait for messages.
    pub(super) waiters: Waiters<Waiting>,
    /// Wakes the deadline task when an earlier deadline came in.
    pub(super) deadline_moved: Notify,
    /// Parsed group configurations.
    pub(super) rules: RuleCache,
    /// Start-up epoch: part of every lease id.
    pub(super) epoch: u16,
    /// Where sweeps start: moves on with each.
    pub(super) rotation: AtomicUsize,
    /// Counts facts; tells the snapshot whether there is anything new.
    pub(super) facts: AtomicU64,
    /// Metrics.
    pub(crate) numbers: Numbers,
    /// Groups whose retries may have to be carried over.
    pub(super) carrier: Carrier,
    log_topic: String,
    broker_name: String,
    file: ConfigFile,
    time: SteadyTime,
    /// The log's end at start-up: until it is dispatched, queues may look shorter than they are.
    log_end_at_start: PhysicalOffset,
}

/// Epoch milliseconds that follow the monotonic clock from the start on: a wall clock that jumps neither ends leases nor
/// prolongs them.
#[derive(Debug)]
struct SteadyTime {
    start_wall_ms: i64,
    start: Monotonic,
}

impl Pop {
    /// Changes how many requests may wait for messages.
    pub(crate) fn set_waiters_max(&self, max: usize) {
        self.waiters.set_max(max);
    }

    /// Rebuilds the leases from the snapshot and the log. Reads the log from the snapshot on, all of it without one.
    ///
    /// # Errors
    /// The snapshot of this start cannot be written: without it lease ids might repeat.
    pub(crate) fn recover(
        store: &Store,
        clock: &dyn Clock,
        file: ConfigFile,
        cluster: &str,
        broker_name: &str,
        waiters_max: usize,
    ) -> Result<Self, BrokerError> {
        let snapshot = load(&file)?;
        let log_topic = names::revive_log(cluster);
        let begin = match &snapshot {
            Some(_) => store.min_physical(),
            None => first_fact(store, &log_topic)?,
        };
        let mut replay = Replay::new(snapshot.as_ref(), begin.get());
        drop(snapshot);
        for (position, bytes) in store.scan(PhysicalOffset::new(replay.from())) {
            if let Ok(view) = RecordView::parse(&bytes) {
                replay_record(&mut replay, position.get(), &view, &log_topic);
            }
        }
        let (table, last_epoch) = replay.finish();
        let latest_pop_ms = table
            .all()
            .iter()
            .filter_map(|slot| slot.lock().map(|locked| locked.state().last_pop_time_ms))
            .max();
        let wall_ms = i64::try_from(clock.now_ms()).unwrap_or(i64::MAX);
        let pop = Pop {
            table,
            schedule: Schedule::default(),
            waiters: Waiters::new(waiters_max),
            deadline_moved: Notify::new(),
            rules: RuleCache::default(),
            epoch: last_epoch.wrapping_add(1),
            rotation: AtomicUsize::new(0),
            facts: AtomicU64::new(0),
            numbers: Numbers::default(),
            carrier: Carrier::default(),
            log_topic,
            broker_name: broker_name.to_owned(),
            file,
            time: SteadyTime {
                start_wall_ms: wall_ms.max(latest_pop_ms.unwrap_or(i64::MIN)),
                start: clock.monotonic(),
            },
            log_end_at_start: store.written(),
        };
        pop.save(store)?;
        for slot in pop.table.all() {
            if let Some(due_ms) = slot.lock().and_then(|mut locked| locked.to_schedule()) {
                pop.schedule.enter(due_ms, slot);
            }
        }
        Ok(pop)
    }

    /// Now, epoch ms, on the steady time of leases.
    pub(crate) fn now_ms(&self, clock: &dyn Clock) -> i64 {
        let passed = clock.monotonic().since(self.time.start).as_millis();
        self.time
            .start_wall_ms
            .saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// The topic of the lease facts.
    pub(crate) fn log_topic(&self) -> &str {
        &self.log_topic
    }

    /// The broker's name, as receipts carry it.
    pub(super) fn broker_name(&self) -> &str {
        &self.broker_name
    }

    /// Writes the snapshot. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self, store: &Store) -> Result<(), BrokerError> {
        self.file.try_write(|| {
            let snapshot = self.table.snapshot(self.epoch, store.written().get());
            let text = snapshot
                .encode()
                .map_err(|error| BrokerError::Persist(error.to_string()))?;
            // A snapshot must not be ahead of the log: after a power cut it would know put-backs that are lost.
            wait_flushed(store, store.written())?;
            Ok(text)
        })
    }

    /// Names of all groups that have leases or progress.
    pub(crate) fn group_names(&self) -> Vec<String> {
        self.table.group_names()
    }

    /// Leases of the group on this broker that a member holds.
    pub(crate) fn held_by(&self, group: &str, member: &str) -> u64 {
        self.table.held_by(group, member)
    }

    /// Whether the consume queues hold everything that was in the log at start-up.
    pub(super) fn is_caught_up(&self, store: &Store) -> bool {
        store.dispatched() >= self.log_end_at_start
    }

    /// A state for a queue that the group has not touched yet.
    pub(super) fn horizon(&self, store: &Store, now_ms: i64) -> (Horizon, u64) {
        let end = store.written().get();
        (
            Horizon {
                id: LeaseId::new(self.epoch, end),
                pop_time_ms: now_ms,
            },
            end,
        )
    }

    /// Enters a deadline that a change brought closer.
    pub(super) fn schedule_if(&self, due_ms: Option<i64>, slot: &Arc<Slot>) {
        if let Some(due_ms) = due_ms {
            self.schedule.enter(due_ms, slot.clone());
        }
    }

    /// Applies a fact that is in the log at `position`, and enters the deadline it brings.
    pub(super) fn apply(
        &self,
        locked: &mut Locked<'_>,
        slot: &Arc<Slot>,
        position: PhysicalOffset,
        event: &super::apply::Event,
    ) {
        locked.apply(position.get(), event);
        self.facts.fetch_add(1, Ordering::Relaxed);
        self.schedule_if(locked.to_schedule(), slot);
    }

    /// Appends one fact about (`group`, `topic`, `queue_id`) to the log. The caller holds the lock of that queue.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn append_fact(
        &self,
        broker: &Broker,
        draft: &Draft,
        queue_id: i32,
        at_ms: i64,
    ) -> Result<PhysicalOffset, BrokerError> {
        let properties: Properties = [
            (property::TAGS, draft.tag),
            (property::UNIQ_KEY, draft.key.as_str()),
        ]
        .into_iter()
        .collect();
        let text = properties.encode();
        let fields = fact_fields(
            &self.log_topic,
            queue_id,
            &draft.body,
            text.as_bytes(),
            broker.store_host,
            at_ms,
        );
        Ok(broker.append(&MessageDraft::from(fields))?.physical_offset)
    }
}

/// Where facts can begin in a log without a snapshot: at the first queue entry of their topic, or where the queues end.
/// A large log that never had a lease is not read.
fn first_fact(store: &Store, log_topic: &str) -> Result<PhysicalOffset, BrokerError> {
    let mut first = store.dispatched();
    for queue_id in 0..names::REVIVE_QUEUES {
        let min = store.queue(log_topic, queue_id).min;
        if let Some(entry) = store.entries(log_topic, queue_id, min, 1)?.first() {
            first = first.min(entry.physical_offset);
        }
    }
    Ok(first.max(store.min_physical()))
}

/// The snapshot, or its backup where it is damaged; without either the whole log is read.
fn load(file: &ConfigFile) -> Result<Option<Snapshot>, BrokerError> {
    let Some(text) = file.read()? else {
        return Ok(None);
    };
    if let Some(snapshot) = Snapshot::decode(&text) {
        return Ok(Some(snapshot));
    }
    tracing::error!("popState.json is damaged, its backup is used");
    let backup = file.read_backup()?.and_then(|text| Snapshot::decode(&text));
    if backup.is_none() {
        tracing::error!(
            "the backup of popState.json is no use either, leases are read from the whole log"
        );
    }
    Ok(backup)
}

/// Blocks until everything below `end` is on the disk.
///
/// # Errors
/// The store failed, or takes very long.
pub(crate) fn wait_flushed(store: &Store, end: PhysicalOffset) -> Result<(), BrokerError> {
    let (done, flushed) = mpsc::sync_channel(1);
    store.when_flushed(
        end,
        Box::new(move |result| {
            done.send(result).ok();
        }),
    );
    match flushed.recv_timeout(FLUSH_WAIT) {
        Ok(result) => Ok(result?),
        Err(_) => Err(BrokerError::Busy("the disk is slow")),
    }
}

fn fact_fields<'a>(
    topic: &'a str,
    queue_id: i32,
    body: &'a [u8],
    properties: &'a [u8],
    host: SocketAddr,
    at_ms: i64,
) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_ts_ms: at_ms,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_offset: 0,
        body,
        properties,
    }
}

/// Feeds one stored record to the replay, if it says anything about leases.
fn replay_record(replay: &mut Replay, position: u64, view: &RecordView<'_>, log_topic: &str) {
    if view.topic == log_topic {
        if let Some(fact) = view
            .tags()
            .and_then(|tag| record::decode(tag, view.body, position))
        {
            replay.record(position, &fact);
        }
    } else if let Some((group, end, event)) = put_back::end_of(view) {
        replay.returned(position, group, end.topic, end.queue_id, event);
    }
}
