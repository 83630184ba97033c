//! Orderly stop: one request to stop, tasks that are counted, one deadline.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// The request to stop and the tasks that must end after it. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Nothing requested, no tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that stops with this one or alone before, with tasks of its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Asks everything to stop. Any thread, any number of times.
    pub fn request(&self) {
        self.token.cancel();
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when a stop is requested.
    pub fn requested(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    /// The token itself, for `select!` in tasks that outlive a borrow.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// The counter of tasks.
    #[must_use]
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Starts a task that [`finish`](Self::finish) waits for; it has to watch the token.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Requests the stop and waits for every task; `false` when some outlived `deadline`.
    pub async fn finish(&self, deadline: Duration) -> bool {
        self.request();
        self.tasks.close();
        tokio::time::timeout(deadline, self.tasks.wait())
            .await
            .is_ok()
    }
}

/// Requests the stop at the first SIGTERM or SIGINT and ends the process with code 1 at the second,
/// without any further ado. Runs for the life of the process.
///
/// # Errors
/// The signal handlers could not be installed.
pub fn on_signals(shutdown: Shutdown) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for round in 0_u8.. {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if round > 0 {
                tracing::warn!(signal = name, "second signal, exiting at once");
                std::process::exit(1);
            }
            tracing::info!(signal = name, "stopping");
            shutdown.request();
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_stops_with_its_parent_and_alone() {
        let parent = Shutdown::new();
        let (one, two) = (parent.child(), parent.child());
        one.request();
        assert!(one.is_requested() && !two.is_requested() && !parent.is_requested());
        parent.request();
        assert!(two.is_requested());
    }

    #[tokio::test(start_paused = true)]
    async fn finish_waits_for_tasks_up_to_the_deadline() {
        let shutdown = Shutdown::new();
        let token = shutdown.token();
        shutdown.spawn(async move { token.cancelled().await });
        assert!(shutdown.finish(Duration::from_secs(1)).await);
        let stuck = Shutdown::new();
        stuck.spawn(std::future::pending::<()>());
        assert!(!stuck.finish(Duration::from_secs(1)).await);
    }
}
