//! The listening side: accepts up to a bound of connections and ends them in good order.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Service;
use crate::budget::Budget;
use crate::connection::Connection;
use crate::driver::Driver;
use crate::limits::Limits;

/// Connections the kernel may hold while accepting pauses.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept (out of file handles): the condition outlasts a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For connections that are cut at the deadline to run their `closed` hook.
const CUT_WAIT: Duration = Duration::from_millis(500);

/// Where and within which bounds to listen.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Port 0 picks a free one.
    pub addr: SocketAddr,
    /// At this number of connections accepting pauses; further ones wait in the kernel's backlog.
    pub connections_max: usize,
    /// Bounds of each connection.
    pub limits: Limits,
}

impl ServerOptions {
    /// The usual bounds at the given address.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            connections_max: 20_000,
            limits: Limits::default(),
        }
    }
}

/// A listening socket and its connections. Dropping it ends both at once.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stop_accepting: CancellationToken,
    tasks: TaskTracker,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    budget: Budget,
}

impl Server {
    /// Listens and serves from now on. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not allowed.
    pub fn bind(options: ServerOptions, service: Arc<dyn Service>) -> io::Result<Self> {
        let socket = if options.addr.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(options.addr)?;
        let listener = socket.listen(BACKLOG)?;
        let local = listener.local_addr()?;
        let shared = Arc::new(Shared {
            stop_accepting: CancellationToken::new(),
            tasks: TaskTracker::new(),
            connections: Mutex::new(HashMap::new()),
            budget: Budget::new(options.limits.partial_max_bytes),
        });
        shared
            .tasks
            .spawn(accept(listener, options, service, Arc::clone(&shared)));
        Ok(Self { local, shared })
    }

    /// The bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Every open connection, in no order.
    #[must_use]
    pub fn each_connection(&self) -> Vec<Arc<Connection>> {
        self.shared.connections.lock().values().cloned().collect()
    }

    /// Stops accepting, sends new requests away (GO_AWAY 1500 to peers that know it), lets what is
    /// in flight finish until the deadline, then closes. The caller wakes its own long polls first.
    pub async fn shutdown(&self, deadline: Duration) {
        self.shared.stop_accepting.cancel();
        self.shared.tasks.close();
        for conn in self.each_connection() {
            conn.drain();
        }
        if tokio::time::timeout(deadline, self.shared.tasks.wait())
            .await
            .is_ok()
        {
            return;
        }
        let left = self.each_connection();
        tracing::warn!(
            connections = left.len(),
            "connections cut at the end of shutdown"
        );
        for conn in left {
            conn.close();
        }
        tokio::time::timeout(CUT_WAIT, self.shared.tasks.wait())
            .await
            .ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop_accepting.cancel();
        for conn in self.each_connection() {
            conn.close();
        }
    }
}

async fn accept(
    listener: TcpListener,
    options: ServerOptions,
    service: Arc<dyn Service>,
    shared: Arc<Shared>,
) {
    let permits = Arc::new(Semaphore::new(options.connections_max));
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = shared.stop_accepting.cancelled() => return,
            next = next => next,
        };
        let Ok(permit) = permit else { return };
        match accepted {
            Ok((stream, peer)) => serve(stream, peer, permit, &options, &service, &shared),
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    options: &ServerOptions,
    service: &Arc<dyn Service>,
    shared: &Arc<Shared>,
) {
    // Fails only on a socket that is gone already; its first read says so.
    stream.set_nodelay(true).ok();
    let local = stream.local_addr().unwrap_or(options.addr);
    let conn = Arc::new(Connection::new(peer, local, options.limits.clone()));
    shared
        .connections
        .lock()
        .insert(conn.id(), Arc::clone(&conn));
    // A shutdown that listed the connections before this one was added still ends it.
    if shared.stop_accepting.is_cancelled() {
        conn.drain();
    }
    let driver = Driver::new(
        Arc::clone(&conn),
        Some(Arc::clone(service)),
        stream,
        shared.budget.none_reserved(),
    );
    let shared_of_task = Arc::clone(shared);
    shared.tasks.spawn(async move {
        driver.run().await;
        shared_of_task.connections.lock().remove(&conn.id());
        drop(permit);
    });
}
