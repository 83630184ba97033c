//! Wiring: what is started, in which order it stops.

use crate::config::Config;
use crate::db::{Db, DbError};
use crate::receipt::ReceiptKeys;
use crate::state::AppState;
use crate::store::Store;
use crate::{app, http};
use node::config::Settings;
use node::{Context, Shutdown};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The admin port's distance from the main port.
const ADMIN_OFFSET: u16 = 10;
/// Requests and sockets are served this long after the signal, or until none is under way.
const SERVE_ON: Duration = Duration::from_secs(20);
/// From the signal to the end, sockets and leases included; a little is left for the metadata store.
const STOP_DEADLINE: Duration = Duration::from_millis(24_500);
/// The role in `listening` lines.
const ROLE: &str = "gateway";

/// Why a gateway could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings that cannot be used.
    #[error("{0}")]
    Config(String),
    /// The address cannot be bound.
    #[error("cannot listen at {addr}: {source}; end what listens there or give another address")]
    Listen {
        /// Which.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The data directory cannot be made.
    #[error("data directory {}: {source}", path.display())]
    Data {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The metadata store.
    #[error(transparent)]
    Db(#[from] DbError),
    /// A stop was asked for before it served.
    #[error("stopped before the metadata store could be reached")]
    Stopped,
}

impl RunError {
    /// The process's exit code: 2 where command line or configuration must be changed, 4 where the
    /// metadata store is damaged, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Db(error) if error.is_configuration() => 2,
            Self::Db(error) if error.is_damage() => 4,
            _ => 1,
        }
    }
}

/// A gateway that serves.
pub struct Running {
    addr: SocketAddr,
    state: AppState,
    context: Context,
    accepting: CancellationToken,
    /// Stops the admin socket, which tells of the drain until the end.
    admin_stop: Shutdown,
    db: Db,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The state, for tests.
    #[must_use]
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// Drains: not ready any more, waits end, sockets are told and no new ones taken. Requests, also on new
    /// connections, are served until none is under way and every socket has closed, at most 20 s; then closes.
    pub async fn stop(self) {
        let end = Instant::now() + STOP_DEADLINE;
        self.context.ready.not_serving(ROLE, "draining");
        self.state.draining.cancel();
        self.state.under_way.close();
        if tokio::time::timeout(SERVE_ON, self.state.under_way.wait())
            .await
            .is_err()
        {
            tracing::info!("draining took its whole time; what is still under way is cut off");
        }
        self.accepting.cancel();
        let left = end.saturating_duration_since(Instant::now());
        if !self.context.shutdown.finish(left).await {
            tracing::warn!("stopped with requests in flight");
        }
        self.admin_stop.request();
        self.db.close().await;
    }
}

/// Starts a gateway; it serves when this returns.
///
/// # Errors
/// See [`RunError`].
pub async fn start(config: Config, context: &Context) -> Result<Running, RunError> {
    let faults = config.validate();
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(RunError::Config(lines.join("\n")));
    }
    let context = context.child();
    let data = config.data.clone();
    std::fs::create_dir_all(&data).map_err(|source| RunError::Data {
        path: data.clone(),
        source,
    })?;
    let store = Store::open(&config, &context).await?;
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|source| RunError::Listen {
            addr: config.listen,
            source,
        })?;
    let addr = listener.local_addr().map_err(|source| RunError::Listen {
        addr: config.listen,
        source,
    })?;
    let admin_listen = config.admin_listen;
    context.ready.expect(ROLE);
    let state = AppState::new(config, &context, ReceiptKeys::of(&store.ring));
    state.bound(addr.port());
    let accepting = CancellationToken::new();
    let serve = http::server::serve(
        listener,
        app(state.clone()),
        state.clone(),
        accepting.clone(),
    );
    context.shutdown.spawn(serve);
    context.ready.listening(ROLE, addr);
    let admin_context = context.detached();
    if let Some(at) = admin_listen.resolve(addr, ADMIN_OFFSET) {
        let bound = node::admin::serve(at, "gateway-admin", &admin_context).await;
        bound.map_err(|source| RunError::Listen { addr: at, source })?;
    }
    context.shutdown.spawn(observe(state.clone()));
    let db = store.db.clone();
    context.shutdown.spawn(store.watch(state.clone()));
    context.ready.serving(ROLE);
    Ok(Running {
        addr,
        state,
        context,
        accepting,
        admin_stop: admin_context.shutdown,
        db,
    })
}

/// Keeps the gauges up to date.
async fn observe(state: AppState) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            () = state.draining.cancelled() => return,
            _ = every.tick() => state.metrics.observe(state.upstream.waiters(), state.sockets.count()),
        }
    }
}

/// Runs a gateway until the context's shutdown is requested.
///
/// # Errors
/// See [`start`].
pub async fn run(config: Config, context: Context) -> Result<(), RunError> {
    let running = start(config, &context).await?;
    context.shutdown.requested().await;
    running.stop().await;
    Ok(())
}
