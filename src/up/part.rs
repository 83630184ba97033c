//! One server of `gantry up` that runs beside the others.

use std::future::Future;

use node::{Context, Role};
use tokio::task::JoinHandle;

use crate::exit::Failure;

/// A running server with a stop of its own.
pub(crate) struct Part {
    role: Role,
    ctx: Context,
    task: JoinHandle<Result<(), Failure>>,
    done: bool,
}

impl Part {
    /// Starts it.
    pub(crate) fn start<F>(role: Role, ctx: &Context, run: impl FnOnce(Context) -> F) -> Self
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let ctx = ctx.detached();
        let task = tokio::spawn(run(ctx.clone()));
        Self {
            role,
            ctx,
            task,
            done: false,
        }
    }

    /// Waits until it serves; its failure ends the wait.
    pub(crate) async fn wait_serving(&mut self) -> Result<(), Failure> {
        let ready = self.ctx.ready.clone();
        tokio::select! {
            () = ready.wait_serving(self.role) => Ok(()),
            failed = self.ended() => failed,
        }
    }

    /// Resolves when it ends by itself, which is a failure whatever it says.
    pub(crate) async fn ended(&mut self) -> Result<(), Failure> {
        self.join().await?;
        let role = self.role;
        Err(Failure::running(anyhow::anyhow!(
            "the {role} ended by itself"
        )))
    }

    /// Stops it, if it has not ended already, and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.ctx.shutdown.request();
        if self.done { Ok(()) } else { self.join().await }
    }

    async fn join(&mut self) -> Result<(), Failure> {
        let ended = (&mut self.task).await;
        self.done = true;
        ended.unwrap_or_else(|panicked| Err(Failure::running(panicked)))
    }
}
