//! Start and stop of a broker: what in which order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use node::Context;
use node::config::{Pinned, Settings};
use parking_lot::Mutex;
use remoting::{Client, ClientOptions, Server, ServerOptions};
use store::disk::{Disk, RealDisk};
use store::{FlushPolicy, Store, StoreError, StoreOptions};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::broker::{Broker, DayTotals};
use crate::carry::Carry;
use crate::clients::{Consumers, Kinds, Producers};
use crate::config::{Config, FlushMode, MESSAGE_MAX_BYTES};
use crate::delay::{self, Delay};
use crate::durability::Durability;
use crate::error::BrokerError;
use crate::group::GroupTable;
use crate::handlers::pull;
use crate::ids::Ids;
use crate::late::{Late, Port};
use crate::locks::LockTable;
use crate::longpoll::{self, Holds};
use crate::metrics::Metrics;
use crate::offsets::OffsetTable;
use crate::peer_config::{self, Peers};
use crate::persist::{ConfigFile, Loaded};
use crate::pop::{self, Pop};
use crate::registration::Registration;
use crate::request_modes::RequestModes;
use crate::retention::{self, Retention};
use crate::routes::Routes;
use crate::settings::LiveSettings;
use crate::stats::Stats;
use crate::topic::{TopicTable, system_topics};
use crate::unfinished;
use crate::version::DataVersion;

/// The admin port's distance from the listen port.
const ADMIN_OFFSET: u16 = 3;
/// Longest time that requests at work may take at a stop.
const DRAIN: Duration = Duration::from_secs(3);
/// How often committed offsets are written.
const OFFSETS_EVERY: Duration = Duration::from_secs(5);
/// How often the disk's health is looked at.
const FAILURE_LOOK: Duration = Duration::from_millis(200);
/// Room for headers and properties in a record.
const RECORD_EXTRA_BYTES: u64 = 64 * 1024;

/// Why a broker could not start or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error("configuration: {0}")]
    Config(String),
    /// The data directory cannot be opened or failed later.
    #[error(transparent)]
    Store(StoreError),
    /// A table of the data directory cannot be read or written.
    #[error("table of the data directory: {0}")]
    Table(String),
    /// A table of the data directory does not parse, and neither does its backup.
    #[error(
        "table of the data directory: {0}; put a good copy there, or remove both files to begin with an empty table"
    )]
    DamagedTable(String),
    /// The port cannot be bound.
    #[error("cannot listen at {addr}; end what listens there or give another address")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The answer of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Exit code of the process (2 bad configuration, 3 directory in use, 4 damaged, 1 anything else).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Store(StoreError::InUse { .. }) => 3,
            Self::Store(StoreError::Layout { .. }) | Self::DamagedTable(_) => 4,
            Self::Store(_) | Self::Table(_) | Self::Bind { .. } => 1,
        }
    }
}

impl From<BrokerError> for Error {
    fn from(error: BrokerError) -> Self {
        match error {
            BrokerError::Store(error) => Self::Store(error),
            BrokerError::Damaged(why) => Self::DamagedTable(why),
            other => Self::Table(other.to_string()),
        }
    }
}

/// Addresses of a running broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addrs {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The second port for producers, if there is one.
    pub fast: Option<SocketAddr>,
    /// What clients are told.
    pub advertised: SocketAddr,
}

/// Threads beside the requests.
#[derive(Debug)]
struct Workers {
    /// Delivers delayed messages.
    delivery: std::thread::JoinHandle<()>,
    /// The lease engine's.
    pop: pop::Workers,
}

/// A broker at work. Dropping it does not stop it in order: call [`Running::stop`].
#[derive(Debug)]
pub struct Running {
    pub(crate) broker: Arc<Broker>,
    servers: Vec<Server>,
    workers: Option<Workers>,
    /// Addresses it is bound to.
    pub addrs: Addrs,
}

/// Runs a broker until the context asks for a stop.
///
/// # Errors
/// It could not start, or the disk failed while it ran.
pub async fn run(config: Config, ctx: Context) -> Result<(), Error> {
    ctx.ready.expect("broker");
    let admin = config.admin_listen;
    let running = start(config, &ctx).await?;
    ctx.ready.listening("broker", running.addrs.listen);
    if let Some(addr) = admin.resolve(running.addrs.listen, ADMIN_OFFSET) {
        node::admin::serve(addr, "broker-admin", &ctx)
            .await
            .map_err(|source| Error::Bind { addr, source })?;
    }
    if let Some(fast) = running.addrs.fast {
        ctx.ready.listening("broker-fast", fast);
    }
    ctx.ready.serving("broker");
    let failed = tokio::select! {
        () = ctx.shutdown.requested() => false,
        () = running.failed() => true,
    };
    ctx.ready.not_serving(
        "broker",
        if failed {
            "the disk failed"
        } else {
            "stopping"
        },
    );
    let store = running.broker.store.clone();
    let stopped = running.stop().await;
    if failed || store.poisoned() {
        return Err(Error::Store(StoreError::Poisoned {
            reason: "a sync failed".into(),
        }));
    }
    stopped
}

/// Starts a broker; it serves when this returns.
///
/// # Errors
/// See [`Error`].
pub async fn start(config: Config, ctx: &Context) -> Result<Running, Error> {
    start_on(config, ctx, Arc::new(RealDisk)).await
}

/// Starts a broker on the given disk.
///
/// # Errors
/// See [`Error`].
pub async fn start_on(
    config: Config,
    ctx: &Context,
    disk: Arc<dyn Disk>,
) -> Result<Running, Error> {
    let faults = config.validate();
    if !faults.is_empty() {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(Error::Config(texts.join("; ")));
    }
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    // The port first: its number goes into message ids and into the registration.
    let late = Arc::new(Late::default());
    let server = bind(&config, config.listen, &late, false)?;
    let listen = server.local_addr();
    let advertised = config.advertised(listen).map_err(Error::Config)?;
    let fast = bind_fast(&config, listen, &late);
    let clock = ctx.clock.clone();
    let opening = config.clone();
    let pinned = ctx.pinned.clone();
    let runtime = tokio::runtime::Handle::current();
    let opened = tokio::task::spawn_blocking(move || {
        open(opening, pinned, clock, &disk, advertised, runtime)
    })
    .await;
    let broker = opened.map_err(|error| Error::Table(error.to_string()))??;
    ctx.metrics.register("broker", |registry| {
        broker.metrics.register(registry);
        broker.admission.register(registry);
        broker.pop.numbers.register(registry);
        broker.retention.register(registry);
        registry.register(
            "carried_messages",
            "Messages put again since their log file was deleted",
            broker.carry.messages.clone(),
        );
    });
    late.show_tables(&broker);
    peer_config::level(&broker, peer_config::START_WAIT).await;
    let workers = start_workers(&broker)?;
    late.open(&broker);
    let addrs = Addrs {
        listen,
        fast: fast.as_ref().map(Server::local_addr),
        advertised,
    };
    tracing::info!(
        addr = %listen,
        advertised = %advertised,
        topics = broker.topics.len(),
        groups = broker.groups.len(),
        "broker serves"
    );
    Ok(Running {
        broker,
        servers: std::iter::once(server).chain(fast).collect(),
        workers: Some(workers),
        addrs,
    })
}

fn bind(config: &Config, addr: SocketAddr, late: &Arc<Late>, fast: bool) -> Result<Server, Error> {
    let mut options = ServerOptions::new(addr);
    options.connections_max = usize::try_from(config.limits.connections).unwrap_or(usize::MAX);
    Server::bind(
        options,
        Arc::new(Port {
            late: late.clone(),
            fast,
        }),
    )
    .map_err(|source| Error::Bind { addr, source })
}

/// The second port, two below the first, where old producers look for it. A taken port is no error.
fn bind_fast(config: &Config, listen: SocketAddr, late: &Arc<Late>) -> Option<Server> {
    if !config.fast_port || config.listen.port() == 0 {
        return None;
    }
    let port = listen.port().checked_sub(2).filter(|port| *port > 0)?;
    match bind(config, SocketAddr::new(listen.ip(), port), late, true) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(port, %error, "no second port for producers");
            None
        }
    }
}

/// Opens the store and loads the tables. Blocks on the disk.
fn open(
    config: Config,
    pinned: Pinned,
    clock: Arc<dyn clock::Clock>,
    disk: &Arc<dyn Disk>,
    advertised: SocketAddr,
    runtime: tokio::runtime::Handle,
) -> Result<Arc<Broker>, Error> {
    let mut options = StoreOptions::new(&config.data);
    options.age_by_file_time = true;
    options.segment_size = config.segment.size.0;
    // The limit of bodies may change while the broker runs.
    options.record_max_bytes =
        MESSAGE_MAX_BYTES + RECORD_EXTRA_BYTES + crate::carry::KEPT_EXTRA_BYTES;
    options.flush = match config.flush.mode {
        FlushMode::Sync => FlushPolicy::Sync,
        FlushMode::Async => FlushPolicy::Async {
            interval_ms: config.flush.interval.0,
            // RocketMQ waits for 4 pages, up to 10 s; what we say of the interval holds for a single message.
            pages_min: 0,
        },
    };
    let (store, report) =
        Store::open(options, disk.clone(), clock.clone()).map_err(Error::Store)?;
    tracing::info!(
        clean = report.clean,
        end = report.dispatched_to.get(),
        truncated_at = report.truncated_at.map(|at| at.get()),
        damaged = report.damaged.len(),
        scanned_bytes = report.scanned_bytes,
        repaired_entries = report.repaired_entries,
        rebuilt_entries = report.rebuilt_entries,
        "data directory opened"
    );
    for range in &report.damaged {
        tracing::error!(
            from = range.from.get(),
            to = range.to.get(),
            "a part of the log cannot be read; it is skipped and left as it is"
        );
    }
    if let Some(lost) = &report.lost {
        tracing::error!(
            file = %lost.file.display(),
            offset = lost.offset,
            end = report.dispatched_to.get(),
            records_behind = lost.records,
            durable_bytes_behind = lost.durable_bytes,
            "the log ends before data that was written: messages behind this place are lost to it; whole records found \
             there are kept in damaged/"
        );
    }
    let root = store.root();
    let file = |name: &str| ConfigFile::new(disk.clone(), &root, name);
    let now_ms = clock.now_ms();
    let live = LiveSettings::new(&config, pinned);
    let client = Client::new(ClientOptions::default());
    let routes = Routes::new(&config.namesrv, client.clone());
    let registration = Registration::new(&config.namesrv, client.clone());
    let long_polls = usize::try_from(config.limits.long_polls).unwrap_or(usize::MAX);
    let pop = Pop::recover(
        &store,
        clock.as_ref(),
        file("popState.json"),
        &config.cluster,
        &config.name,
        long_polls,
    )?;
    let carry = Carry::recover(&store, file("carry.json"), pop.log_topic().to_owned())?;
    let broker = Broker {
        live,
        pop,
        topics: TopicTable::new(now_ms),
        groups: GroupTable::new(now_ms),
        offsets: OffsetTable::new(now_ms),
        producers: Producers::default(),
        consumers: Consumers::default(),
        locks: LockTable::default(),
        holds: Holds::new(long_polls),
        deadline_moved: Notify::new(),
        durability: Durability::new(config.flush.mode == FlushMode::Sync),
        registration,
        routes,
        modes: RequestModes::default(),
        stats: Stats::new(clock.monotonic()),
        kinds: Kinds::new(&config.members),
        peers: Peers::new(client, file("peers.json")),
        metrics: Metrics::default(),
        store_host: advertised,
        started_ms: now_ms,
        stopping: CancellationToken::new(),
        tasks: TaskTracker::new(),
        runtime,
        admission: Admission::new(&config.limits),
        delay: Delay::new(file("delayOffset.json"), now_ms),
        carry,
        retention: Retention::default(),
        ids: Ids::new(advertised, now_ms),
        days: Mutex::new(DayTotals::default()),
        settings_file: file("gantry.json"),
        settings_version: Mutex::new(DataVersion::new(now_ms)),
        changing_settings: Mutex::new(()),
        topics_file: file("topics.json"),
        groups_file: file("subscriptionGroup.json"),
        modes_file: file("messageRequestMode.json"),
        offsets_file: file("consumerOffset.json"),
        closed: AtomicBool::new(false),
        config,
        clock,
        store,
    };
    load(&broker)?;
    for (topic, queue_id, to) in broker.carry.hidden() {
        pop::pass_over(&broker, &topic, queue_id, to);
    }
    let broker = Arc::new(broker);
    unfinished::finish(&broker)?;
    Ok(broker)
}

/// Fills the tables from their files, then adds what every broker has.
fn load(broker: &Broker) -> Result<(), BrokerError> {
    broker.settings_file.load(|json| {
        for change in broker.live.restore(json) {
            broker.apply(&change);
        }
        Ok(0)
    })?;
    let topics = broker.topics_file.load(|json| broker.topics.load(json))?;
    broker.groups_file.load(|json| broker.groups.load(json))?;
    broker.modes_file.load(|json| broker.modes.load(json))?;
    broker.offsets_file.load(|json| broker.offsets.load(json))?;
    broker.peers.recall();
    broker.delay.recover(&broker.store)?;
    if topics != Loaded::Whole {
        unfinished::restore_topics(broker);
    }
    for topic in system_topics(
        &broker.config.cluster,
        &broker.config.name,
        broker.live.create_topics(),
    ) {
        broker.topics.ensure(topic, broker.now_ms());
    }
    broker.save_topics()
}

/// Starts what runs beside the requests. The answer is its threads.
fn start_workers(broker: &Arc<Broker>) -> Result<Workers, Error> {
    let weak = Arc::downgrade(broker);
    broker.store.on_arrival(Box::new(move |arrival| {
        let Some(broker) = weak.upgrade() else { return };
        if arrival.topic == crate::names::SCHEDULE_TOPIC {
            broker.delay.notify();
        }
        pop::arrived(&broker, arrival.topic, arrival.queue_id, arrival.tags_code);
        longpoll::wake_arrival(
            &broker,
            arrival.topic,
            arrival.queue_id,
            arrival.queue_offset.get(),
            arrival.tags_code,
        );
    }));
    Registration::start(broker);
    broker.spawn(longpoll::run_deadlines(broker.clone()));
    broker.spawn(keep_offsets(broker.clone()));
    broker.spawn(retention::run(broker.clone()));
    broker.spawn(peer_config::run(broker.clone()));
    let owner = broker.clone();
    let thread = |error: std::io::Error| Error::Table(error.to_string());
    let delivery = std::thread::Builder::new()
        .name("broker-delay".to_owned())
        .spawn(move || delay::run(&owner))
        .map_err(thread)?;
    Ok(Workers {
        delivery,
        pop: pop::start(broker).map_err(thread)?,
    })
}

/// Writes the committed offsets now and then.
async fn keep_offsets(broker: Arc<Broker>) {
    loop {
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = tokio::time::sleep(OFFSETS_EVERY) => {}
        }
        if !broker.offsets.take_dirty() {
            continue;
        }
        let owner = broker.clone();
        broker.spawn_blocking(move || {
            if let Err(error) = owner.save_offsets() {
                owner.offsets.mark_dirty();
                tracing::error!(%error, "committed offsets not written");
            }
        });
    }
}

impl Running {
    /// Resolves when the disk failed: nothing more can be promised.
    pub async fn failed(&self) {
        while !self.broker.store.poisoned() {
            tokio::time::sleep(FAILURE_LOOK).await;
        }
    }

    /// Stops in order: unregister, refuse new work, let work at hand finish, write everything.
    ///
    /// # Errors
    /// Something could not be written.
    pub async fn stop(mut self) -> Result<(), Error> {
        let broker = self.broker.clone();
        broker.stopping.cancel();
        broker.delay.notify();
        broker.registration.unregister(&broker).await;
        broker.closed.store(true, Ordering::Release);
        pull::release_all(&broker);
        let mut servers = JoinSet::new();
        for server in self.servers.drain(..) {
            servers.spawn(async move { server.shutdown(DRAIN).await });
        }
        while servers.join_next().await.is_some() {}
        broker.tasks.close();
        if tokio::time::timeout(DRAIN, broker.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("tasks cut at the end of the stop");
        }
        let workers = self.workers.take();
        let closed = tokio::task::spawn_blocking(move || close(&broker, workers)).await;
        closed.map_err(|error| Error::Table(error.to_string()))?
    }

    /// Addresses the broker is bound to.
    #[must_use]
    pub fn addrs(&self) -> Addrs {
        self.addrs
    }
}

/// Lets the threads end; the directory is left as a crash would leave it.
impl Drop for Running {
    fn drop(&mut self) {
        if self.workers.is_some() {
            self.broker.stopping.cancel();
            self.broker.delay.notify();
            pop::abandon(&self.broker);
        }
    }
}

/// Writes the tables and closes the store. Blocks on the disk.
fn close(broker: &Arc<Broker>, workers: Option<Workers>) -> Result<(), Error> {
    if let Some(workers) = workers {
        if workers.delivery.join().is_err() {
            tracing::error!("the delivery of delayed messages had ended early");
        }
        pop::stop(broker, workers.pop);
    }
    let saved = broker
        .save_offsets()
        .and_then(|()| broker.delay.save(broker));
    broker.store.close().map_err(Error::Store)?;
    tracing::info!("broker stopped");
    saved.map_err(Error::from)
}
