//! The calling side: one connection per address, made when first needed and again after it ended.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use wire::Command;

use crate::Service;
use crate::budget::Budget;
use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::{ErrorKind, RemotingError, SendError};
use crate::limits::Limits;

/// Addresses with a slot; the slots of ended connections are dropped first, then new ones refused.
const ADDRESSES_MAX: usize = 10_000;

/// Bounds of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Longest wait for a connection to be made; the deadline of the request also counts.
    pub connect_timeout: Duration,
    /// Bounds of each connection.
    pub limits: Limits,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let limits = Limits {
            idle: Duration::from_secs(100),
            ..Limits::default()
        };
        Self {
            connect_timeout: Duration::from_secs(3),
            limits,
        }
    }
}

/// Sends requests to any number of peers. Cheap to clone; the last clone closes the connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    options: ClientOptions,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    handler: RwLock<Option<Arc<dyn Service>>>,
    tasks: TaskTracker,
    budget: Budget,
}

/// What is known of one address.
#[derive(Default)]
struct Slot {
    conn: Mutex<Option<Arc<Connection>>>,
    /// Held while connecting; holds the number of attempts and the reason the last one failed for.
    connecting: tokio::sync::Mutex<Attempts>,
    attempts: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct Attempts {
    last_failure: Option<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("addresses", &self.shared.slots.lock().len())
            .finish()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for slot in self.slots.get_mut().values() {
            if let Some(conn) = slot.conn.lock().take() {
                conn.close();
            }
        }
    }
}

impl Client {
    /// A client without connections.
    #[must_use]
    pub fn new(options: ClientOptions) -> Self {
        let budget = Budget::new(options.limits.partial_max_bytes);
        let shared = Shared {
            budget,
            options,
            slots: Mutex::new(HashMap::new()),
            handler: RwLock::new(None),
            tasks: TaskTracker::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Who answers requests that peers send to us (code 40 and the like). Holds for connections
    /// made afterwards; without a handler such requests are answered with code 3.
    pub fn set_request_handler(&self, handler: Arc<dyn Service>) {
        *self.shared.handler.write() = Some(handler);
    }

    /// Sends a request to `addr` (`host:port`) and waits for its answer, whatever its code.
    /// `timeout` covers connecting too.
    ///
    /// # Errors
    /// See [`RemotingError`].
    pub async fn invoke(
        &self,
        addr: &str,
        cmd: Command,
        timeout: Duration,
    ) -> Result<Command, RemotingError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let conn = self.connection(addr, timeout).await?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        conn.invoke(cmd, left).await.map_err(|error| RemotingError {
            peer: addr.to_owned(),
            ..error
        })
    }

    /// Sends a request that gets no answer; success means queued to a live connection.
    ///
    /// # Errors
    /// See [`RemotingError`].
    pub async fn oneway(
        &self,
        addr: &str,
        cmd: Command,
        timeout: Duration,
    ) -> Result<(), RemotingError> {
        let conn = self.connection(addr, timeout).await?;
        conn.send_oneway(cmd).map_err(|why| {
            let kind = match why {
                SendError::Closed => ErrorKind::Closed,
                SendError::Slow => ErrorKind::Refused,
                SendError::TooLarge => ErrorKind::TooLarge,
            };
            RemotingError::new(kind, addr, false, why.to_string())
        })
    }

    /// The live connection to `addr`, made if there is none. Callers that meet while it is being
    /// made share one attempt and its failure.
    ///
    /// # Errors
    /// `Connect`, with nothing written.
    pub async fn connection(
        &self,
        addr: &str,
        timeout: Duration,
    ) -> Result<Arc<Connection>, RemotingError> {
        let slot = self.slot(addr)?;
        if let Some(conn) = slot.live() {
            return Ok(conn);
        }
        let wait = timeout.min(self.shared.options.connect_timeout);
        let seen = slot.attempts.load(std::sync::atomic::Ordering::Acquire);
        let refuse = |detail: String| RemotingError::new(ErrorKind::Connect, addr, false, detail);
        let too_late = || refuse(format!("after {} ms", wait.as_millis()));
        let attempt = async {
            let mut attempts = slot.connecting.lock().await;
            if let Some(conn) = slot.live() {
                return Ok(conn);
            }
            if slot.attempts.load(std::sync::atomic::Ordering::Acquire) != seen
                && let Some(failure) = &attempts.last_failure
            {
                return Err(refuse(failure.clone()));
            }
            let made = tokio::time::timeout(wait, self.connect(addr)).await;
            slot.attempts
                .fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            let made = match made {
                Ok(Ok(conn)) => Ok(conn),
                Ok(Err(error)) => Err(refuse(error.to_string())),
                Err(_) => Err(too_late()),
            };
            match &made {
                Ok(conn) => {
                    *slot.conn.lock() = Some(Arc::clone(conn));
                    attempts.last_failure = None;
                }
                Err(error) => attempts.last_failure = Some(error.detail.clone()),
            }
            made
        };
        tokio::time::timeout(timeout, attempt)
            .await
            .unwrap_or_else(|_| Err(too_late()))
    }

    /// Ends the connection to `addr`, if there is one.
    pub fn disconnect(&self, addr: &str) {
        let slot = self.shared.slots.lock().remove(addr);
        if let Some(conn) = slot.and_then(|slot| slot.conn.lock().take()) {
            conn.close();
        }
    }

    async fn connect(&self, addr: &str) -> io::Result<Arc<Connection>> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let conn = Arc::new(Connection::new(
            stream.peer_addr()?,
            stream.local_addr()?,
            self.shared.options.limits.clone(),
        ));
        let handler = self.shared.handler.read().clone();
        let driver = Driver::new(
            Arc::clone(&conn),
            handler,
            stream,
            self.shared.budget.none_reserved(),
        );
        self.shared.tasks.spawn(driver.run());
        Ok(conn)
    }

    fn slot(&self, addr: &str) -> Result<Arc<Slot>, RemotingError> {
        let mut slots = self.shared.slots.lock();
        if let Some(slot) = slots.get(addr) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= ADDRESSES_MAX {
            slots.retain(|_, slot| slot.live().is_some());
        }
        if slots.len() >= ADDRESSES_MAX {
            return Err(RemotingError::new(
                ErrorKind::Refused,
                addr,
                false,
                "too many peers",
            ));
        }
        let slot = Arc::new(Slot::default());
        slots.insert(addr.to_owned(), Arc::clone(&slot));
        Ok(slot)
    }
}

impl Slot {
    fn live(&self) -> Option<Arc<Connection>> {
        self.conn
            .lock()
            .as_ref()
            .filter(|conn| !conn.is_closed())
            .map(Arc::clone)
    }
}
