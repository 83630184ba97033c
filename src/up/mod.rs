//! `gantry up`: all processes in one, started in the order they need each other.

mod config;

use std::time::Duration;

use clap::ArgMatches;
use node::Context;

use crate::exit::Failure;
use crate::flags;
use crate::process::{Process, run};

pub(crate) use config::UpConfig;

const STOP_DEADLINE: Duration = Duration::from_secs(25);

/// Parses, runs, stops.
pub(crate) fn main(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process {
        shown: flags::UP,
        aliases: config::ALIASES,
        stop_deadline: STOP_DEADLINE,
    };
    run(&process, given, up)
}

async fn up(config: UpConfig, ctx: Context) -> Result<(), Failure> {
    ctx.ready.expect("namesrv");
    let namesrv = namesrv::start(config.namesrv(), ctx.clone())
        .await
        .map_err(Failure::running)?;
    ctx.shutdown.requested().await;
    namesrv.stop().await;
    Ok(())
}
