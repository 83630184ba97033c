//! What the machine itself allows, measured in the same way: the ceilings to hold a broker against.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clock::{Clock, SystemClock};
use hdrhistogram::Histogram;
use remoting::{Responder, Server, ServerOptions, Service};
use wire::{Command, ResponseCode};

use super::args::SendArgs;
use super::remoting::measure;

/// Measure what the machine itself allows: disk sync, group commit, loopback
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitsArgs {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Bytes of one record
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Records that share one sync, and requests in flight
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Seconds for each figure
    #[arg(long, default_value_t = 3.0)]
    duration: f64,
}

/// Measures and prints.
pub(crate) async fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=65_536).contains(&args.in_flight),
        "--in-flight must be 1 to 65536"
    );
    anyhow::ensure!(
        (1..=4 << 20).contains(&args.size),
        "--size must be 1 to 4194304"
    );
    anyhow::ensure!(
        (0.1..=600.0).contains(&args.duration),
        "--duration must be 0.1 to 600"
    );
    for records in [1, args.in_flight] {
        let sync = args.clone();
        let figures = tokio::task::spawn_blocking(move || sync_loop(&sync, records)).await??;
        say(
            &format!("pwrite + fdatasync, {records} x {} B", args.size),
            &figures,
        );
    }
    let echo = echo(args).await?;
    say(
        &format!(
            "remoting echo, {} B, {} in flight",
            args.size, args.in_flight
        ),
        &echo,
    );
    Ok(())
}

struct Figures {
    per_second: f64,
    latency_us: Histogram<u64>,
}

fn say(what: &str, figures: &Figures) {
    let at = |q: f64| figures.latency_us.value_at_quantile(q) as f64 / 1000.0;
    let (p50, p99, max) = (at(0.5), at(0.99), figures.latency_us.max() as f64 / 1000.0);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{what:<44} {:>10.0} /s   ms p50 {p50:.3} p99 {p99:.3} max {max:.3}",
        figures.per_second
    )
    .ok();
}

/// Group commit without a broker: `records` at a time into a file that is already allocated.
fn sync_loop(args: &LimitsArgs, records: usize) -> anyhow::Result<Figures> {
    const FILE_BYTES: u64 = 64 << 20;
    let path = args
        .dir
        .join(format!("gantry-bench-{}.tmp", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    // The open handle keeps the file; its name is not needed, whatever happens.
    std::fs::remove_file(&path)?;
    let group = vec![b'x'; args.size * records];
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let clock = SystemClock::new();
    let mut latency_us = Histogram::new_with_bounds(1, 3_600_000_000, 3)?;
    let (start, mut at, mut groups) = (clock.monotonic(), 0, 0_u64);
    let length = Duration::from_secs_f64(args.duration);
    while clock.monotonic().since(start) < length {
        let before = clock.monotonic();
        file.write_all_at(&group, at)?;
        file.sync_data()?;
        latency_us
            .saturating_record(u64::try_from(clock.monotonic().since(before).as_micros())?.max(1));
        groups += 1;
        at += group.len() as u64;
        if at + group.len() as u64 > FILE_BYTES {
            at = 0;
        }
    }
    let seconds = clock.monotonic().since(start).as_secs_f64();
    Ok(Figures {
        per_second: groups as f64 * records as f64 / seconds,
        latency_us,
    })
}

/// Answers every send as a broker would, and stores nothing.
struct Echo;

impl Service for Echo {
    fn call(&self, _: Command, to: Responder) {
        let fields = [
            ("queueId", "1"),
            (
                "transactionId",
                "FD00000000000000000000000000000272D630946E09941292290002",
            ),
            ("msgId", "7F0000020000A3B7000000000000021B"),
            ("TRACE_ON", "true"),
            ("MSG_REGION", "DefaultRegion"),
            ("queueOffset", "0"),
        ];
        let mut answer = Command::response(ResponseCode::Success);
        for (name, value) in fields {
            answer.ext.put(name, value);
        }
        to.send(answer);
    }
}

async fn echo(args: &LimitsArgs) -> anyhow::Result<Figures> {
    let server = Server::bind(
        ServerOptions::new(([127, 0, 0, 1], 0).into()),
        Arc::new(Echo),
    )?;
    let load = SendArgs {
        namesrv: String::new(),
        broker: None,
        http: None,
        topic: "bench".to_owned(),
        queues: 1,
        size: args.size,
        in_flight: args.in_flight,
        connections: 1,
        duration: args.duration,
        warmup: 0.5,
        rate: None,
        pid: None,
        json: false,
    };
    let outcome = measure(&server.local_addr().to_string(), &load).await?;
    server.shutdown(Duration::from_secs(1)).await;
    let per_second = outcome.latency_us.len() as f64 / outcome.elapsed.as_secs_f64();
    Ok(Figures {
        per_second,
        latency_us: outcome.latency_us,
    })
}
