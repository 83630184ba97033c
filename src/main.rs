//! The one binary: `gantry up | namesrv | broker | gateway`.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod exit;
mod flags;
mod process;
mod roles;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = cli::command().get_matches_from(cli::with_default_command(std::env::args_os()));
    let done = match matches.subcommand() {
        Some(("up", given)) => up::main(given),
        Some(("namesrv", given)) => roles::namesrv(given),
        Some(("broker", given)) => roles::broker(given),
        Some(("gateway", given)) => roles::gateway(given),
        Some(("bench", given)) => bench::main(given),
        other => Err(exit::Failure::usage(format!(
            "no such command: {:?}",
            other.map(|(name, _)| name)
        ))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
