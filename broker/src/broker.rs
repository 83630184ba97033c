//! The state that all handlers share, and the few operations that touch several tables at once.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::{Clock, Monotonic};
use parking_lot::Mutex;
use store::{AppendOutcome, MessageDraft, Store};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::clients::{Consumers, Kinds, Producers};
use crate::config::Config;
use crate::delay::Delay;
use crate::durability::Durability;
use crate::error::BrokerError;
use crate::group::{GroupConfig, GroupTable};
use crate::handlers::pull::HeldPull;
use crate::ids::Ids;
use crate::locks::LockTable;
use crate::longpoll::Holds;
use crate::metrics::Metrics;
use crate::names;
use crate::offsets::OffsetTable;
use crate::peer_config::Peers;
use crate::persist::ConfigFile;
use crate::pop::Pop;
use crate::registration::Registration;
use crate::request_modes::RequestModes;
use crate::routes::Routes;
use crate::settings::{Change, LiveSettings};
use crate::stats::Stats;
use crate::topic::{PERM_READ_WRITE, TopicConfig, TopicTable};
use crate::version::DataVersion;

/// Longest blocking wait for a flush.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for name servers to hear of a topic.
const REGISTER_WAIT: Duration = Duration::from_secs(1);
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// Totals of the counters at the last two midnights (UTC).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DayTotals {
    day: u64,
    /// Messages stored until this day began.
    pub(crate) put_today: u64,
    /// Messages stored until the day before began.
    pub(crate) put_yesterday: u64,
    /// Messages given out until this day began.
    pub(crate) get_today: u64,
    /// Messages given out until the day before began.
    pub(crate) get_yesterday: u64,
}

/// Everything a handler may need. Tables lock for themselves, shortly, and never each other.
#[derive(Debug)]
pub(crate) struct Broker {
    /// Settings as started with.
    pub(crate) config: Config,
    /// Settings that may change while it runs.
    pub(crate) live: LiveSettings,
    /// The only source of time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The log.
    pub(crate) store: Store,
    /// Topics.
    pub(crate) topics: TopicTable,
    /// Groups.
    pub(crate) groups: GroupTable,
    /// Committed offsets.
    pub(crate) offsets: OffsetTable,
    /// Connected producers.
    pub(crate) producers: Producers,
    /// Connected consumers.
    pub(crate) consumers: Consumers,
    /// Which kind of member each group has.
    pub(crate) kinds: Kinds,
    /// Queue locks of orderly consumers.
    pub(crate) locks: LockTable,
    /// Groups that pop instead of pulling.
    pub(crate) modes: RequestModes,
    /// Leases.
    pub(crate) pop: Pop,
    /// Parked pulls.
    pub(crate) holds: Holds<HeldPull>,
    /// Wakes the deadline task when an earlier deadline came in.
    pub(crate) deadline_moved: Notify,
    /// Answers that wait for the disk.
    pub(crate) durability: Durability,
    /// Name servers.
    pub(crate) registration: Registration,
    /// Topics on the other brokers.
    pub(crate) routes: Routes,
    /// Counters by topic and group.
    pub(crate) stats: Stats,
    /// The other masters of the cluster, with whom the configuration is levelled.
    pub(crate) peers: Peers,
    /// Numbers about all this.
    pub(crate) metrics: Metrics,
    /// The address that clients are told; goes into message ids.
    pub(crate) store_host: SocketAddr,
    /// Wall time of the start, ms.
    pub(crate) started_ms: u64,
    /// Cancelled when the broker stops.
    pub(crate) stopping: CancellationToken,
    /// Tasks that end before the store closes.
    pub(crate) tasks: TaskTracker,
    /// The runtime, for hooks that run on threads of the store.
    pub(crate) runtime: tokio::runtime::Handle,
    /// What may run on blocking threads.
    pub(crate) admission: Admission,
    /// Delay levels.
    pub(crate) delay: Delay,
    /// What outlives its log file.
    pub(crate) carry: crate::carry::Carry,
    /// Deletion of old log files.
    pub(crate) retention: crate::retention::Retention,
    /// Ids for messages that have none.
    pub(crate) ids: Ids,
    /// Totals at the last midnights.
    pub(crate) days: Mutex<DayTotals>,
    /// `config/gantry.json`: changed settings.
    pub(crate) settings_file: ConfigFile,
    /// Version of the changed settings.
    pub(crate) settings_version: Mutex<DataVersion>,
    /// Held by who changes settings.
    pub(crate) changing_settings: Mutex<()>,
    /// `config/topics.json`.
    pub(crate) topics_file: ConfigFile,
    /// `config/subscriptionGroup.json`.
    pub(crate) groups_file: ConfigFile,
    /// `config/messageRequestMode.json`.
    pub(crate) modes_file: ConfigFile,
    /// `config/consumerOffset.json`.
    pub(crate) offsets_file: ConfigFile,
    /// Set once a stop began: writes are refused.
    pub(crate) closed: AtomicBool,
}

impl Broker {
    /// Wall time in ms since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Runs a task that the stop waits for. Any thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Runs blocking work that the stop waits for. Any thread.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.tasks.spawn_blocking_on(work, &self.runtime);
    }

    /// Whether the store takes writes.
    ///
    /// # Errors
    /// Stopping, or the put lock is held too long.
    pub(crate) fn check_writable(&self) -> Result<(), BrokerError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(BrokerError::Stopping);
        }
        if self.store.full() {
            return Err(BrokerError::Store(store::StoreError::Full));
        }
        if self.store.busy() {
            return Err(BrokerError::Busy("the disk is slow"));
        }
        Ok(())
    }

    /// Whether there is space for what clients send. What the broker itself writes goes on.
    ///
    /// # Errors
    /// The disk is full to the limit.
    pub(crate) fn check_space(&self) -> Result<(), BrokerError> {
        if self.retention.refuses() {
            return Err(BrokerError::Store(store::StoreError::Full));
        }
        Ok(())
    }

    /// Appends one record on the caller's thread.
    ///
    /// # Errors
    /// Stopping, busy, or the store's.
    pub(crate) fn append(&self, draft: &MessageDraft<'_>) -> Result<AppendOutcome, BrokerError> {
        self.check_writable()?;
        Ok(self.store.append(draft)?)
    }

    /// Creates the topic unless it exists, writes the table unless its file has the topic, and starts the registration.
    /// Blocks on the disk when it writes.
    ///
    /// # Errors
    /// The table is full or cannot be written.
    pub(crate) fn ensure_topic(
        &self,
        config: TopicConfig,
    ) -> Result<Arc<TopicConfig>, BrokerError> {
        let name = config.topic_name.clone();
        if let Some(known) = self.topics.get(&name)
            && !self.topics.is_unsaved(&name)
        {
            return Ok(known);
        }
        let change = self
            .topics
            .ensure(config, self.now_ms())
            .ok_or(BrokerError::Full("topic"))?;
        self.save_topics()?;
        Ok(change.config)
    }

    /// The topic, for one who reads its messages: while it is being removed it is not there, though it may have been made
    /// again.
    ///
    /// # Errors
    /// No such topic.
    pub(crate) fn topic_to_read(&self, topic: &str) -> Result<Arc<TopicConfig>, BrokerError> {
        self.topics
            .get(topic)
            .filter(|_| !self.store.is_removing(topic))
            .ok_or_else(|| BrokerError::NoTopic(names::shorten(topic)))
    }

    /// Writes the topic table unless its file has every change, and tells the name servers. Blocks on the disk.
    ///
    /// # Errors
    /// The table cannot be written.
    pub(crate) fn save_topics(&self) -> Result<(), BrokerError> {
        let write = || self.topics_file.write_twice(|| self.topics.to_json());
        if self.topics.save(write)? {
            self.registration.changed();
        }
        Ok(())
    }

    /// Waits until the name servers know the topic table as it is now, for a second at most: an administrator who was
    /// answered reads the route next. On a blocking thread only.
    pub(crate) fn wait_registered(&self) {
        let sequence = self.topics.sequence();
        self.runtime
            .block_on(self.registration.wait_synced(sequence, REGISTER_WAIT));
    }

    /// The group, created where that is allowed. Blocks on the disk when its file does not have it.
    ///
    /// # Errors
    /// No such group and not to be created, a bad name, a full table, or the table cannot be written.
    pub(crate) fn ensure_group(&self, group: &str) -> Result<Arc<GroupConfig>, BrokerError> {
        if let Some(known) = self.groups.get(group) {
            if self.groups.is_unsaved(group) {
                self.save_groups()?;
            }
            return Ok(known);
        }
        if !self.live.create_groups() && !names::is_system_group(group) {
            return Err(BrokerError::NoGroup(names::shorten(group)));
        }
        names::check_group(group).map_err(BrokerError::Invalid)?;
        let change = self
            .groups
            .ensure(group, self.now_ms())
            .ok_or(BrokerError::Full("group"))?;
        self.save_groups()?;
        Ok(change.config)
    }

    /// Writes the group table unless its file has every change. Blocks on the disk.
    ///
    /// # Errors
    /// The table cannot be written.
    pub(crate) fn save_groups(&self) -> Result<(), BrokerError> {
        let write = || self.groups_file.write_twice(|| self.groups.to_json());
        self.groups.save(write).map(|_| ())
    }

    /// Writes the request modes. Blocks on the disk.
    ///
    /// # Errors
    /// The table cannot be written.
    pub(crate) fn save_modes(&self) -> Result<(), BrokerError> {
        self.modes_file.write(|| self.modes.to_json())
    }

    /// Writes the offset table. Blocks on the disk.
    ///
    /// # Errors
    /// The table cannot be written.
    pub(crate) fn save_offsets(&self) -> Result<(), BrokerError> {
        self.offsets_file.try_write(|| {
            let text = self.offsets.to_file(&crate::pop::foreign_offsets(self));
            // Pops move offsets when their leases are written: after a power cut the table must not be ahead of the log.
            crate::pop::wait_flushed(&self.store, self.store.written())?;
            Ok(text)
        })
    }

    /// `%RETRY%group` with the group's number of queues, created unless it exists.
    ///
    /// # Errors
    /// As [`Broker::ensure_topic`].
    pub(crate) fn ensure_retry_topic(
        &self,
        group: &GroupConfig,
    ) -> Result<Arc<TopicConfig>, BrokerError> {
        let queues = group.retry_queue_nums.clamp(1, crate::topic::QUEUES_MAX);
        self.ensure_topic(TopicConfig::new(
            &names::retry_topic(&group.group_name),
            queues,
            PERM_READ_WRITE,
        ))
    }

    /// `%DLQ%group`, created unless it exists.
    ///
    /// # Errors
    /// As [`Broker::ensure_topic`].
    pub(crate) fn ensure_dlq_topic(&self, group: &str) -> Result<Arc<TopicConfig>, BrokerError> {
        self.ensure_topic(TopicConfig::new(
            &names::dlq_topic(group),
            1,
            PERM_READ_WRITE,
        ))
    }

    /// Forgets members that fell silent, locks that ran out. Called about once a second.
    pub(crate) fn housekeep(self: &Arc<Self>, now: Monotonic) {
        self.producers.expire(now);
        for (group, member) in self.consumers.expire(now, self.kinds.native_silence()) {
            crate::handlers::heartbeat::member_left(self, &group, &member);
        }
        self.locks.expire(now);
        self.metrics.sample(now);
        if self.stats.is_sample_due(now) {
            let owner = self.clone();
            self.spawn_blocking(move || owner.stats.sample(now));
        }
        self.metrics.show(self);
        self.roll_day();
    }

    fn roll_day(&self) {
        let today = self.now_ms() / DAY_MS;
        let mut days = self.days.lock();
        if days.day == today {
            return;
        }
        let first = days.day == 0;
        *days = DayTotals {
            day: today,
            put_yesterday: days.put_today,
            get_yesterday: days.get_today,
            put_today: if first {
                0
            } else {
                self.metrics.put_messages.get()
            },
            get_today: if first {
                0
            } else {
                self.metrics.get_messages.get()
            },
        };
    }

    /// Totals at the last midnights.
    pub(crate) fn day_totals(&self) -> DayTotals {
        *self.days.lock()
    }

    /// Blocks until everything written so far is on the disk; false when that takes too long or fails.
    pub(crate) fn wait_flushed(&self) -> bool {
        let end = self.store.written();
        if self.store.flushed() >= end {
            return true;
        }
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        self.store.when_flushed(
            end,
            Box::new(move |result| {
                // The waiter may have given up.
                done.try_send(result.is_ok()).ok();
            }),
        );
        wait.recv_timeout(FLUSH_WAIT).unwrap_or(false)
    }

    /// Version of the changed settings.
    pub(crate) fn config_version(&self) -> DataVersion {
        *self.settings_version.lock()
    }

    /// Changes settings: on the disk first, then in this run. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be written; then nothing has changed.
    pub(crate) fn change_settings(&self, changes: &[Change]) -> Result<(), BrokerError> {
        let _alone = self.changing_settings.lock();
        self.settings_file.write(|| self.live.to_json(changes))?;
        self.settings_version.lock().bump(self.now_ms());
        for change in changes {
            self.live.set(change);
            self.apply(change);
            tracing::info!(?change, "setting changed");
        }
        Ok(())
    }
}
