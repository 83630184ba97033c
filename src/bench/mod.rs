//! `gantry bench`: a lean load generator for brokers (remoting) and gateways (REST).
//!
//! Requests are encoded once; a send patches its correlation id into a copy of the bytes. So most of
//! the machine is left to the server, and the same generator measures Apache RocketMQ as well.

mod args;
mod cpu;
mod limits;
mod outcome;
mod pace;
mod remoting;
mod report;
mod rest;
mod template;
mod topic;

use anyhow::Context as _;
use clap::{ArgMatches, FromArgMatches};

use crate::exit::Failure;

use args::SendArgs;
pub(crate) use args::command;

/// Parses and measures.
pub(crate) fn main(given: &ArgMatches) -> Result<(), Failure> {
    match given.subcommand() {
        Some(("send", given)) => {
            let args = SendArgs::from_arg_matches(given).map_err(Failure::usage)?;
            in_runtime(send(&args))
        }
        Some(("limits", given)) => {
            let args = limits::LimitsArgs::from_arg_matches(given).map_err(Failure::usage)?;
            in_runtime(limits::run(&args))
        }
        _ => Err(Failure::usage(
            "bench needs to be told what to measure, see gantry bench --help",
        )),
    }
}

fn in_runtime(work: impl Future<Output = anyhow::Result<()>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime
        .context("cannot start the runtime")
        .map_err(Failure::running)?;
    runtime.block_on(work).map_err(Failure::running)
}

async fn send(args: &SendArgs) -> anyhow::Result<()> {
    args.check()?;
    let (what, outcome) = match &args.http {
        Some(addr) => ("rest", rest::measure(addr, args).await?),
        None => {
            let broker = topic::find_broker(args).await?;
            ("remoting", remoting::measure(&broker, args).await?)
        }
    };
    report::print(what, args, &outcome);
    Ok(())
}
