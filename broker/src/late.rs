//! A port that is bound before the data is loaded: requests wait until the broker can answer them.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use remoting::{Connection, Responder, Service};
use wire::{Command, RequestCode};

use crate::broker::Broker;
use crate::dispatch::dispatch;
use crate::error::BrokerError;
use crate::handlers::heartbeat;

/// Requests that may wait for the start.
const WAITING_MAX: usize = 10_000;

/// What the ports of a broker share until it is open. An old client takes any early refusal of an
/// offset query for "no progress", so early requests are kept, not refused.
#[derive(Debug, Default)]
pub(crate) struct Late {
    broker: OnceLock<Arc<Broker>>,
    /// Its tables are loaded: peers that level theirs are answered, or two that start together would wait for each other.
    tables: OnceLock<Arc<Broker>>,
    waiting: Mutex<Vec<(bool, Command, Responder)>>,
}

impl Late {
    /// From now on requests are answered, the waiting ones first.
    pub(crate) fn open(&self, broker: &Arc<Broker>) {
        let mut waiting = self.waiting.lock();
        if self.broker.set(broker.clone()).is_err() {
            return;
        }
        for (fast, cmd, to) in waiting.drain(..) {
            dispatch(broker, fast, cmd, to);
        }
    }

    /// From now on peers may read the configuration.
    pub(crate) fn show_tables(&self, broker: &Arc<Broker>) {
        let mut waiting = self.waiting.lock();
        if self.tables.set(broker.clone()).is_err() {
            return;
        }
        for (fast, cmd, to) in waiting.extract_if(.., |(_, cmd, _)| is_of_peers(cmd)) {
            dispatch(broker, fast, cmd, to);
        }
    }

    fn answering(&self, cmd: &Command) -> Option<&Arc<Broker>> {
        self.broker
            .get()
            .or_else(|| self.tables.get().filter(|_| is_of_peers(cmd)))
    }

    fn call(&self, fast: bool, cmd: Command, to: Responder) {
        if let Some(broker) = self.answering(&cmd) {
            return dispatch(broker, fast, cmd, to);
        }
        let mut waiting = self.waiting.lock();
        if let Some(broker) = self.answering(&cmd) {
            drop(waiting);
            return dispatch(broker, fast, cmd, to);
        }
        if waiting.len() >= WAITING_MAX {
            drop(waiting);
            return to.send(BrokerError::Busy("the broker is starting").to_response());
        }
        waiting.push((fast, cmd, to));
    }
}

fn is_of_peers(cmd: &Command) -> bool {
    matches!(
        cmd.request_code(),
        RequestCode::ListConfig | RequestCode::FetchConfig
    )
}

/// One port of a broker.
#[derive(Debug)]
pub(crate) struct Port {
    /// Shared by all ports.
    pub(crate) late: Arc<Late>,
    /// The second port for producers: serves no pulls.
    pub(crate) fast: bool,
}

impl Service for Port {
    fn call(&self, cmd: Command, to: Responder) {
        self.late.call(self.fast, cmd, to);
    }

    fn closed(&self, conn: &Arc<Connection>) {
        if let Some(broker) = self.late.broker.get() {
            heartbeat::connection_closed(broker, conn);
        }
    }
}
