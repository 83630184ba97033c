//! `gantry up`: all processes in one, started in the order they need each other.

mod config;
mod part;

use std::time::Duration;

use anyhow::Context as _;
use clap::ArgMatches;
use node::Context;

use crate::exit::Failure;
use crate::flags;
use crate::process::{Process, run};
use crate::roles::broker_failure;

pub(crate) use config::UpConfig;
use part::Part;

const STOP_DEADLINE: Duration = Duration::from_secs(25);
/// The broker registers a few milliseconds after its start.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(10);

/// Parses, runs, stops.
pub(crate) fn main(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process { shown: flags::UP, aliases: config::ALIASES, stop_deadline: STOP_DEADLINE };
    run(&process, given, up)
}

/// Runs until a stop is requested or a part fails; then the parts stop, the last started first.
async fn up(config: UpConfig, ctx: Context) -> Result<(), Failure> {
    for role in ["namesrv", "broker"] {
        ctx.ready.expect(role);
    }
    let own = ctx.detached();
    let namesrv = namesrv::start(config.namesrv(), own).await.map_err(Failure::running)?;
    let broker_config = config.broker(namesrv.addr());
    let mut broker =
        Part::start("broker", &ctx, |ctx| async { broker::run(broker_config, ctx).await.map_err(broker_failure) });
    let result = async {
        broker.wait_serving().await?;
        tokio::time::timeout(REGISTRATION_LIMIT, namesrv.broker_registered())
            .await
            .context("the broker did not register with the name server")
            .map_err(Failure::running)?;
        tokio::select! {
            () = ctx.shutdown.requested() => Ok(()),
            failed = broker.ended() => failed,
        }
    }
    .await;
    let stopped = broker.stop().await;
    namesrv.stop().await;
    result.and(stopped)
}
