//! Wiring: what is started, in which order it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::Context;
use parking_lot::{Mutex, RwLock};
use remoting::{Server, ServerOptions};

use crate::config::Config;
use crate::error::RunError;
use crate::kv_config::KvConfig;
use crate::metrics::NamesrvMetrics;
use crate::route_table::RouteTable;
use crate::runtime_config::RuntimeConfig;

/// The admin port's distance from the main port.
const ADMIN_OFFSET: u16 = 1;
/// How often [`Running::broker_registered`] looks.
const REGISTERED_LOOK: Duration = Duration::from_millis(2);
/// For requests in flight at the end.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What the handlers share. Lock order: none is held while another is taken.
pub(crate) struct NameServer {
    pub(crate) ctx: Context,
    pub(crate) table: RwLock<RouteTable>,
    pub(crate) kv: Arc<KvConfig>,
    pub(crate) settings: Mutex<RuntimeConfig>,
    pub(crate) metrics: NamesrvMetrics,
}

impl NameServer {
    /// Drops silent brokers.
    pub(crate) fn expire(&self) {
        let now = self.ctx.clock.monotonic();
        for broker in self.table.write().expire(now) {
            tracing::warn!(broker, "broker dropped: silent for too long");
        }
        self.update_sizes();
    }

    pub(crate) fn update_sizes(&self) {
        let (topics, brokers) = self.table.read().sizes();
        self.metrics.sizes(topics, brokers);
    }
}

/// A name server that serves.
pub struct Running {
    server: Server,
    shared: Arc<NameServer>,
    ctx: Context,
    admin: Option<SocketAddr>,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Where health and metrics are, if anywhere.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Resolves when some broker has registered.
    pub async fn broker_registered(&self) {
        while self.shared.table.read().sizes().1 == 0 {
            tokio::time::sleep(REGISTERED_LOOK).await;
        }
    }

    /// Finishes what is in flight and closes.
    pub async fn stop(self) {
        self.ctx.ready.not_serving("namesrv", "stopping");
        self.server.shutdown(STOP_DEADLINE).await;
        self.ctx.shutdown.finish(STOP_DEADLINE).await;
    }
}

/// Starts a name server; it serves when this returns.
///
/// # Errors
/// The address cannot be bound, or the key-value file cannot be read.
pub async fn start(config: Config, ctx: Context) -> Result<Running, RunError> {
    let ctx = ctx.child();
    let kv = KvConfig::open(config.data.as_deref())?;
    let metrics = NamesrvMetrics::register(&ctx.metrics);
    let mut options = ServerOptions::new(config.listen);
    options.connections_max = config.connections_max;
    let shared = Arc::new(NameServer {
        ctx: ctx.clone(),
        table: RwLock::new(RouteTable::default()),
        kv: Arc::new(kv),
        settings: Mutex::new(RuntimeConfig::new(&config)),
        metrics,
    });
    let failed = |addr| move |source| RunError::Listen { addr, source };
    let server = Server::bind(options, Arc::clone(&shared) as _).map_err(failed(config.listen))?;
    ctx.ready.listening("namesrv", server.local_addr());
    let admin = match config
        .admin_listen
        .resolve(server.local_addr(), ADMIN_OFFSET)
    {
        Some(addr) => Some(
            node::admin::serve(addr, "namesrv-admin", &ctx)
                .await
                .map_err(failed(addr))?,
        ),
        None => None,
    };
    let stop = ctx.shutdown.token();
    let every = config.scan_interval.duration();
    let scanned = Arc::clone(&shared);
    ctx.shutdown.spawn(async move {
        let mut interval = tokio::time::interval(every);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = interval.tick() => scanned.expire(),
            }
        }
    });
    ctx.ready.serving("namesrv");
    Ok(Running {
        server,
        shared,
        ctx,
        admin,
    })
}

/// Runs a name server until the context's shutdown is requested.
///
/// # Errors
/// See [`start`].
pub async fn run(config: Config, ctx: Context) -> Result<(), RunError> {
    let running = start(config, ctx.clone()).await?;
    ctx.shutdown.requested().await;
    running.stop().await;
    Ok(())
}
