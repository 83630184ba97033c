//! `AppState`: what every handler may use.

use crate::config::Config;
use crate::receipt::ReceiptKeys;
use crate::upstream::Upstream;
use crate::ws::Sockets;
use clock::Clock;
use std::ops::Deref;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Open sockets and their bound.
    pub sockets: Sockets,
    /// Calls to name servers and brokers.
    pub upstream: Upstream,
    /// Signs and checks receipts.
    pub receipts: Arc<ReceiptKeys>,
    /// Cancelled when draining begins: no new pops, waits end, sockets get `drain`.
    pub draining: CancellationToken,
    /// Owns every task; awaited at shutdown.
    pub tracker: TaskTracker,
}

impl AppState {
    /// Wraps the parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
