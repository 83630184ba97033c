//! `AppState`: what every handler may use.

use crate::config::Config;
use crate::http::origin::OriginRules;
use crate::memory::Budget;
use crate::metrics::GatewayMetrics;
use crate::params::new_ulid;
use crate::receipt::ReceiptKeys;
use crate::upstream::{Upstream, UpstreamOptions};
use crate::ws::Sockets;
use axum::http::HeaderValue;
use clock::Clock;
use node::{ByteSize, Context};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// One-way sends under way at a time.
const ONEWAY_MAX: usize = 10_000;

/// Shared by all requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct AppState(Arc<Parts>);

/// The parts of [`AppState`].
#[derive(Debug)]
pub struct Parts {
    /// Settings.
    pub config: Config,
    /// Name of this gateway: header `Mq-Gateway`, member `gateway` of welcome.
    pub gateway_id: String,
    /// The same as a header value.
    pub gateway_header: HeaderValue,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Open sockets and their bound.
    pub sockets: Sockets,
    /// Calls to name servers and brokers.
    pub upstream: Upstream,
    /// Signs and checks receipts.
    pub receipts: Arc<ReceiptKeys>,
    /// Signs page tokens.
    pub pages: crate::page::PageKeys,
    /// Signs cursors.
    pub(crate) cursors: crate::signing::Signer,
    /// Live tails of topics, shared by all who wait for messages.
    pub(crate) tails: crate::reader::Tails,
    /// Who may ask while authentication is off.
    pub origins: OriginRules,
    /// Request bodies held.
    pub bodies: Arc<Budget>,
    /// Answers with messages that are not written yet.
    pub answers: Arc<Budget>,
    /// Places for receives and browses that wait.
    pub waiting: Semaphore,
    /// One-way sends under way.
    pub oneway: Arc<Semaphore>,
    /// Counters.
    pub metrics: GatewayMetrics,
    /// Readiness and metrics of the process.
    pub context: Context,
    /// Cancelled when draining begins: no new pops, waits end, sockets get `drain`.
    pub draining: CancellationToken,
    /// Requests that are not answered yet and open sockets: a drain ends when there are none.
    pub under_way: TaskTracker,
    /// Owns every task; awaited at shutdown.
    pub tracker: TaskTracker,
    /// Port of the HTTP socket; 0 = not bound (tests that call the router).
    bound_port: AtomicU16,
}

impl AppState {
    /// The state of a gateway with these settings (valid ones) and keys.
    #[must_use]
    pub fn new(config: Config, context: &Context, receipts: ReceiptKeys) -> Self {
        let (draining, tracker) = (CancellationToken::new(), context.shutdown.tasks().clone());
        let receipts = Arc::new(receipts);
        let made_up = || {
            format!(
                "gw-{}",
                new_ulid(context.clock.now_ms())
                    .chars()
                    .skip(18)
                    .collect::<String>()
                    .to_lowercase()
            )
        };
        let gateway_id = config.name.clone().unwrap_or_else(made_up);
        let upstream = Upstream::new(UpstreamOptions {
            gateway: gateway_id.clone(),
            name_servers: config.namesrv.clone(),
            auto_create: config.auto_create,
            clock: Arc::clone(&context.clock),
            receipts: Arc::clone(&receipts),
            draining: draining.clone(),
            tracker: tracker.clone(),
        });
        context.metrics.register("gateway", |registry| {
            registry.register(
                "stale_config",
                "Pops refused by brokers with an older version of the group",
                upstream.stale_config().refusals.clone(),
            );
        });
        let parts = Parts {
            gateway_header: HeaderValue::from_str(&gateway_id)
                .unwrap_or(HeaderValue::from_static("gateway")),
            gateway_id,
            clock: Arc::clone(&context.clock),
            sockets: Sockets::new(config.ws.sockets),
            upstream,
            pages: crate::page::PageKeys::of(&receipts),
            cursors: receipts.signer("cursor"),
            receipts,
            tails: crate::reader::Tails::default(),
            origins: OriginRules::parse(&config.allow_origin).unwrap_or_default(),
            bodies: budget(config.bodies_max),
            answers: budget(config.answers_max),
            waiting: Semaphore::new(config.waiters_max.min(Semaphore::MAX_PERMITS)),
            oneway: Arc::new(Semaphore::new(ONEWAY_MAX)),
            metrics: GatewayMetrics::register(&context.metrics),
            context: context.clone(),
            draining,
            under_way: TaskTracker::new(),
            tracker,
            bound_port: AtomicU16::new(0),
            config,
        };
        Self(Arc::new(parts))
    }

    /// Remembers the port of the HTTP socket.
    pub fn bound(&self, port: u16) {
        self.0.bound_port.store(port, Ordering::Release);
    }

    /// The port of the HTTP socket, once bound.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        Some(self.0.bound_port.load(Ordering::Acquire)).filter(|p| *p != 0)
    }

    /// Largest message body, bytes.
    #[must_use]
    pub fn message_max(&self) -> usize {
        usize::try_from(self.0.config.message_max.bytes()).unwrap_or(usize::MAX)
    }

    /// Largest request body, bytes.
    #[must_use]
    pub fn request_max(&self) -> usize {
        usize::try_from(self.0.config.request_max.bytes()).unwrap_or(usize::MAX)
    }

    /// Wall time, epoch ms.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        i64::try_from(self.0.clock.now_ms()).unwrap_or(i64::MAX)
    }
}

impl Deref for AppState {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

fn budget(size: ByteSize) -> Arc<Budget> {
    Budget::new(usize::try_from(size.bytes()).unwrap_or(usize::MAX))
}
