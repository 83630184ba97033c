//! The processes that run alone.

use std::time::Duration;

use clap::ArgMatches;

use crate::exit::Failure;
use crate::flags;
use crate::process::{Process, run};

const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// Sockets are told to go elsewhere and their leases are given back.
pub(crate) const GATEWAY_STOP_DEADLINE: Duration = Duration::from_secs(25);

/// `gantry namesrv`.
pub(crate) fn namesrv(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process {
        shown: flags::NAMESRV,
        aliases: &[],
        stop_deadline: STOP_DEADLINE,
    };
    run(&process, given, |config: namesrv::Config, ctx| async {
        ctx.ready.expect("namesrv");
        namesrv::run(config, ctx).await.map_err(Failure::running)
    })
}

/// `gantry broker`.
pub(crate) fn broker(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process {
        shown: flags::BROKER,
        aliases: &[],
        stop_deadline: STOP_DEADLINE,
    };
    run(&process, given, |config: broker::Config, ctx| async {
        broker::run(config, ctx).await.map_err(broker_failure)
    })
}

/// `gantry gateway`.
pub(crate) fn gateway(given: &ArgMatches) -> Result<(), Failure> {
    let process = Process {
        shown: flags::GATEWAY,
        aliases: &[],
        stop_deadline: GATEWAY_STOP_DEADLINE,
    };
    run(&process, given, |config: gateway::Config, ctx| async {
        ctx.ready.expect("gateway");
        gateway::run(config, ctx).await.map_err(gateway_failure)
    })
}

/// The gateway says itself what its end means.
pub(crate) fn gateway_failure(error: gateway::RunError) -> Failure {
    let code = error.exit_code();
    Failure::with_code(code, error)
}

/// The broker says itself what its end means.
pub(crate) fn broker_failure(error: broker::Error) -> Failure {
    let code = error.exit_code();
    Failure::with_code(code, error)
}
