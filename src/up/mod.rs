//! `gantry up`: all processes in one, started in the order they need each other.

mod banner;
mod config;
mod part;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgMatches;
use node::Context;

use crate::exit::Failure;
use crate::flags;
use crate::process::{Process, run};
use crate::roles::{GATEWAY_STOP_DEADLINE, broker_failure, gateway_failure};

pub(crate) use config::UpConfig;
use part::Part;

/// The broker registers a few milliseconds after its start.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(10);

/// Parses, runs, stops.
pub(crate) fn main(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process {
        shown: flags::UP,
        aliases: config::ALIASES,
        stop_deadline: GATEWAY_STOP_DEADLINE,
    };
    run(&process, given, up)
}

/// Runs until a stop is requested or a part fails; then the parts stop, the last started first.
async fn up(config: UpConfig, ctx: Context) -> Result<(), Failure> {
    for role in ["namesrv", "broker", "gateway"] {
        ctx.ready.expect(role);
    }
    let namesrv = namesrv::start(config.namesrv(), ctx.detached())
        .await
        .map_err(Failure::running)?;
    let broker_config = config.broker(namesrv.addr());
    let mut broker = Part::start("broker", &ctx, |ctx| async move {
        let ctx = Context {
            pinned: ctx.pinned.section("broker"),
            ..ctx
        };
        broker::run(broker_config, ctx)
            .await
            .map_err(broker_failure)
    });
    let served = async {
        broker.wait_serving().await?;
        tokio::time::timeout(REGISTRATION_LIMIT, namesrv.broker_registered())
            .await
            .context("the broker did not register with the name server")
            .map_err(Failure::running)?;
        front(&config, &ctx, namesrv.addr(), &mut broker).await
    };
    let result = served.await;
    let stopped = broker.stop().await;
    namesrv.stop().await;
    result.and(stopped)
}

/// The gateway, from its start to its end, before a broker that serves.
async fn front(
    config: &UpConfig,
    ctx: &Context,
    namesrv: SocketAddr,
    broker: &mut Part,
) -> Result<(), Failure> {
    let gateway_config = config.gateway(namesrv);
    let mut gateway = Part::start("gateway", ctx, |ctx| async {
        gateway::run(gateway_config, ctx)
            .await
            .map_err(gateway_failure)
    });
    let served = async {
        gateway.wait_serving().await?;
        if let Some(http) = ctx.ready.addr("gateway") {
            banner::print(http, config.flush_mode(), &config.data);
        }
        tokio::select! {
            () = ctx.shutdown.requested() => Ok(()),
            failed = gateway.ended() => failed,
            failed = broker.ended() => failed,
        }
    };
    let result = served.await;
    result.and(gateway.stop().await)
}
