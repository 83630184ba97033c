//! What every process does around its work: settings, log, signals, ready file, deadline.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgMatches;
use node::config::{Settings, load};
use node::{Context, shutdown, telemetry};

use crate::cli;
use crate::exit::Failure;
use crate::flags::Flag;

/// For background work that does not end by itself once the process's work is done.
const RUNTIME_STOP: Duration = Duration::from_secs(1);

/// How a process differs from the others.
pub(crate) struct Process {
    /// Flags shown in its help.
    pub(crate) shown: &'static [Flag],
    /// Short names of keys.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// From the first signal to the end.
    pub(crate) stop_deadline: Duration,
}

/// Loads the settings and runs `work` until it returns, at the latest `stop_deadline` after a signal.
pub(crate) fn run<T, W, F>(process: &Process, given: &ArgMatches, work: W) -> Result<(), Failure>
where
    T: Settings,
    W: FnOnce(T, Context) -> F,
    F: Future<Output = Result<(), Failure>>,
{
    let mut layers = cli::layers::<T>(given, process.shown);
    layers.aliases = process.aliases;
    let loaded = load::<T>(&layers).map_err(Failure::usage)?;
    if given.get_flag("print-config") {
        std::io::stdout().write_all(loaded.print().as_bytes()).ok();
        return Ok(());
    }
    let mut pinned = loaded.pinned();
    if telemetry::variable().is_some() {
        pinned = pinned.with("log");
    }
    let format = given
        .get_one::<String>("log-format")
        .map(String::as_str)
        .unwrap_or("auto");
    telemetry::init(format.parse().map_err(Failure::usage)?).map_err(Failure::usage)?;
    let ready_file = given.get_one::<String>("ready-file").map(PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::running)?;
    let result = runtime.block_on(async {
        let ctx = Context {
            pinned,
            ..Context::new()
        };
        shutdown::on_signals(ctx.shutdown.clone()).context("cannot handle signals").map_err(Failure::running)?;
        let too_long = async {
            ctx.shutdown.requested().await;
            tokio::time::sleep(process.stop_deadline).await;
        };
        let told = async {
            ctx.ready.wait_all().await;
            match &ready_file {
                Some(path) => write_whole(path, &ctx.ready.to_json())
                    .with_context(|| format!("cannot write {}", path.display()))
                    .map_err(Failure::running),
                None => Ok(()),
            }
        };
        let work = work(loaded.settings, ctx.clone());
        let served = async {
            tokio::pin!(work);
            tokio::select! {
                done = &mut work => return done,
                told = told => told?,
            }
            work.await
        };
        tokio::select! {
            done = served => done,
            () = too_long => {
                let seconds = process.stop_deadline.as_secs();
                Err(Failure::running(anyhow::anyhow!("not stopped within {seconds} s of the signal; what was answered is kept")))
            }
        }
    });
    runtime.shutdown_timeout(RUNTIME_STOP);
    result
}

/// A reader sees the whole file or none.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, path)
}
