//! Options of the load generator.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, Command};

use super::limits::LimitsArgs;

/// The command with its subcommands.
pub(crate) fn command() -> Command {
    Command::new("bench")
        .about("Measure a running broker or gateway, or this machine's own limits")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(SendArgs::augment_args(Command::new("send")))
        .subcommand(LimitsArgs::augment_args(Command::new("limits")))
}

/// Send messages as fast as they are answered (or at --rate), and report
#[derive(Debug, Clone, Args)]
pub(crate) struct SendArgs {
    /// Name server to ask for a broker of the topic
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9876")]
    pub(crate) namesrv: String,
    /// Broker to send to, without asking a name server
    #[arg(long, value_name = "ADDR")]
    pub(crate) broker: Option<String>,
    /// Send over REST to this gateway instead
    #[arg(long, value_name = "ADDR", conflicts_with = "broker")]
    pub(crate) http: Option<String>,
    /// Topic; made if it is missing
    #[arg(long, default_value = "bench")]
    pub(crate) topic: String,
    /// Queues of the topic when it is made, and how many are sent to
    #[arg(long, default_value_t = 8)]
    pub(crate) queues: u32,
    /// Body bytes of a message
    #[arg(long, default_value_t = 1024)]
    pub(crate) size: usize,
    /// Messages sent and not yet answered, over all connections
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Connections; over REST one for each message in flight
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: usize,
    /// Seconds measured
    #[arg(long, default_value_t = 10.0)]
    pub(crate) duration: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 2.0)]
    pub(crate) warmup: f64,
    /// Messages a second at fixed times, instead of as fast as possible; latency then counts from the
    /// time a message was due
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Process whose CPU time is reported per million messages
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Report as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl SendArgs {
    /// Refuses what cannot be measured.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=65_536).contains(&self.in_flight),
            "--in-flight must be 1 to 65536"
        );
        ensure!(
            (1..=self.in_flight).contains(&self.connections),
            "--connections must be 1 to --in-flight"
        );
        ensure!(
            (1..=4 << 20).contains(&self.size),
            "--size must be 1 to 4194304"
        );
        ensure!(
            (1..=1024).contains(&self.queues),
            "--queues must be 1 to 1024"
        );
        ensure!(
            (0.1..=86_400.0).contains(&self.duration),
            "--duration must be 0.1 to 86400"
        );
        ensure!(
            (0.0..=3_600.0).contains(&self.warmup),
            "--warmup must be 0 to 3600"
        );
        ensure!(
            self.rate.is_none_or(|rate| (0.1..=10e6).contains(&rate)),
            "--rate must be 0.1 to 10000000"
        );
        Ok(())
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration)
    }

    pub(crate) fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup)
    }
}
