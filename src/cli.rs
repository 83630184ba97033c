//! The command line: every key of a process's settings is a flag; the common ones are shown in help.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use node::config::{Layers, Settings, flag_name, keys};

use crate::flags::{self, Flag};
use crate::up::UpConfig;

const ABOUT: &str = "A durable message broker that anyone can use with curl.";
const TOP_HELP: &str = "\
Without a command, `up` is run: everything in one process, for a laptop, a test or a small
installation. Try it:

  gantry                       start, and print three curl lines to send, receive and ack
  gantry up --help             its options
  gantry up --print-config     every setting, its value, and where it came from

Settings come from a TOML file (--config), then the environment (GANTRY_FLUSH_MODE), then flags
(--flush-mode); the later wins. The log goes to stderr, filtered by GANTRY_LOG.
Exit codes: 0 clean, 1 failed while running, 2 bad command line or configuration,
3 data directory in use, 4 data directory damaged.";

/// The whole command line.
pub(crate) fn command() -> Command {
    Command::new("gantry")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(TOP_HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(false)
        .subcommand(process::<UpConfig>("up", flags::UP_ABOUT, flags::UP))
        .subcommand(process::<namesrv::Config>(
            "namesrv",
            flags::NAMESRV_ABOUT,
            flags::NAMESRV,
        ))
        .subcommand(process::<broker::Config>(
            "broker",
            flags::BROKER_ABOUT,
            flags::BROKER,
        ))
        .subcommand(process::<gateway::Config>(
            "gateway",
            flags::GATEWAY_ABOUT,
            flags::GATEWAY,
        ))
        .subcommand(crate::bench::command())
}

/// Puts `up` in front of arguments that name no command.
pub(crate) fn with_default_command(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let first = args.get(1).and_then(|arg| arg.to_str());
    let is_command = first.is_some_and(|arg| {
        !arg.starts_with('-') || matches!(arg, "-h" | "--help" | "-V" | "--version")
    });
    if !is_command {
        args.insert(args.len().min(1), OsString::from("up"));
    }
    args
}

/// One process: its common flags with help, all other keys hidden, and what every process takes.
fn process<T: Settings>(name: &'static str, about: &'static str, shown: &[Flag]) -> Command {
    let keys = keys::<T>();
    let hidden = keys
        .iter()
        .filter(|(key, _)| shown.iter().all(|flag| flag.key != key));
    let hidden = hidden.map(|(key, default)| arg(key, default.is_boolean()).hide(true));
    let shown = shown.iter().map(|flag| {
        let switch = keys
            .iter()
            .any(|(key, default)| key == flag.key && default.is_boolean());
        arg(flag.key, switch).value_name(flag.value).help(flag.help)
    });
    Command::new(name)
        .about(about)
        .args(shown)
        .args(hidden)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("Settings as TOML"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Show every setting, its value and where it came from, and exit"),
        )
        .arg(
            Arg::new("ready-file")
                .long("ready-file")
                .value_name("PATH")
                .help("Write the bound addresses there as JSON once everything serves"),
        )
        .arg(
            Arg::new("log-format")
                .long("log-format")
                .value_name("FORMAT")
                .value_parser(["auto", "text", "json"])
                .default_value("auto")
                .help("Log lines on stderr: text on a terminal, JSON otherwise"),
        )
}

/// A switch may stand alone for `true`.
fn arg(key: &str, switch: bool) -> Arg {
    let arg = Arg::new(key.to_owned()).long(flag_name(key));
    if switch {
        arg.num_args(0..=1).default_missing_value("true")
    } else {
        arg
    }
}

/// The layers over a process's defaults, as the command line has them.
pub(crate) fn layers<T: Settings>(given: &ArgMatches, shown: &[Flag]) -> Layers {
    let names = keys::<T>().into_iter().map(|(key, _)| key);
    let aliases = shown.iter().map(|flag| flag.key.to_owned());
    let mut names: Vec<String> = names.chain(aliases).collect();
    names.sort();
    names.dedup();
    let text = |name: String| {
        given
            .try_get_one::<String>(&name)
            .ok()
            .flatten()
            .cloned()
            .map(|text| (name, text))
    };
    let flags = names.into_iter().filter_map(text).collect();
    let file = given.get_one::<String>("config").map(Into::into);
    Layers {
        file,
        flags,
        ..Layers::default()
    }
    .with_process_env()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_up_is_the_default() {
        command().debug_assert();
        let args = |list: &[&str]| with_default_command(list.iter().map(OsString::from));
        assert_eq!(args(&["gantry"]), ["gantry", "up"]);
        assert_eq!(
            args(&["gantry", "--data", "x"]),
            ["gantry", "up", "--data", "x"]
        );
        assert_eq!(args(&["gantry", "--help"]), ["gantry", "--help"]);
        assert_eq!(args(&["gantry", "broker"]), ["gantry", "broker"]);
    }

    /// The shipped file names every key, and what it sets is the default.
    fn check_file<T: Settings>(name: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("config")
            .join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let layers = Layers {
            file: Some(path),
            ..Layers::default()
        };
        let given = match node::config::load::<T>(&layers) {
            Ok(loaded) => loaded.print(),
            // A default may be unusable on purpose; everything else in the file must be known.
            Err(faults) => {
                assert!(faults.0.iter().all(|fault| fault.key == "auth"), "{faults}");
                String::new()
            }
        };
        for (key, default) in keys::<T>() {
            let last = key.rsplit('.').next().unwrap_or(&key);
            let is_there = text.lines().any(|line| {
                line.trim_start_matches("# ")
                    .starts_with(&format!("{last} = "))
            });
            assert!(is_there, "{key} is not in {name}");
            let shown = given.is_empty()
                || default.is_null()
                || given.contains(&format!("{key} = {default}"));
            assert!(shown, "{key} is not at its default {default} in {name}");
        }
    }

    #[test]
    fn the_shipped_files_hold_every_key_with_its_default() {
        check_file::<namesrv::Config>("namesrv.toml");
        check_file::<broker::Config>("broker.toml");
        check_file::<gateway::Config>("gateway.toml");
    }
}
