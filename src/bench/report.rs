//! The figures, for people or as JSON.

use std::io::Write;
use std::time::Duration;

use super::args::SendArgs;
use super::outcome::Outcome;

/// Writes the report on stdout.
pub(crate) fn print(what: &str, args: &SendArgs, outcome: &Outcome) {
    let text = if args.json {
        json(what, args, outcome)
    } else {
        plain(what, args, outcome)
    };
    std::io::stdout().write_all(text.as_bytes()).ok();
}

struct Figures {
    messages: u64,
    errors: u64,
    per_second: f64,
    mb_per_second: f64,
}

fn figures(args: &SendArgs, outcome: &Outcome) -> Figures {
    let messages = outcome.latency_us.len();
    let per_second = messages as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
    let mb_per_second = per_second * args.size as f64 / 1e6;
    Figures {
        messages,
        errors: outcome.errors.values().sum(),
        per_second,
        mb_per_second,
    }
}

/// Seconds of CPU for a million messages.
fn per_million(cpu: Option<Duration>, messages: u64) -> Option<f64> {
    cpu.filter(|_| messages > 0)
        .map(|cpu| cpu.as_secs_f64() * 1e6 / messages as f64)
}

fn quantiles(outcome: &Outcome) -> [(&'static str, f64); 4] {
    let at = |q: f64| outcome.latency_us.value_at_quantile(q) as f64 / 1000.0;
    [
        ("p50", at(0.5)),
        ("p99", at(0.99)),
        ("p99.9", at(0.999)),
        ("max", outcome.latency_us.max() as f64 / 1000.0),
    ]
}

fn plain(what: &str, args: &SendArgs, outcome: &Outcome) -> String {
    let figures = figures(args, outcome);
    let mut text = format!(
        "{what} send, {} B, {} in flight, {:.1} s\n  {:.0} msg/s   {:.1} MB/s   {} messages   {} errors\n  latency ms",
        args.size,
        args.in_flight,
        outcome.elapsed.as_secs_f64(),
        figures.per_second,
        figures.mb_per_second,
        figures.messages,
        figures.errors
    );
    for (name, ms) in quantiles(outcome) {
        text += &format!("   {name} {ms:.3}");
    }
    text.push('\n');
    for (kind, count) in &outcome.errors {
        text += &format!("  error {kind}: {count}\n");
    }
    for (whose, cpu) in [
        ("server", outcome.server_cpu),
        ("generator", outcome.own_cpu),
    ] {
        if let Some(seconds) = per_million(cpu, figures.messages) {
            text += &format!("  CPU of {whose}: {seconds:.2} s per million messages\n");
        }
    }
    text
}

fn json(what: &str, args: &SendArgs, outcome: &Outcome) -> String {
    let figures = figures(args, outcome);
    let mut text = format!(
        "{{\"what\":\"{what}\",\"size\":{},\"inFlight\":{},\"seconds\":{:.3},\"messages\":{},\"errors\":{},\"perSecond\":{:.1},\"mbPerSecond\":{:.3}",
        args.size,
        args.in_flight,
        outcome.elapsed.as_secs_f64(),
        figures.messages,
        figures.errors,
        figures.per_second,
        figures.mb_per_second
    );
    for (name, ms) in quantiles(outcome) {
        text += &format!(",\"{name}Ms\":{ms:.3}");
    }
    for (whose, cpu) in [
        ("server", outcome.server_cpu),
        ("generator", outcome.own_cpu),
    ] {
        if let Some(seconds) = per_million(cpu, figures.messages) {
            text += &format!(",\"{whose}CpuSecondsPerMillion\":{seconds:.3}");
        }
    }
    text + "}\n"
}
