//! The log: to stderr, text on a terminal and JSON otherwise, filtered by `GANTRY_LOG`.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("{other:?} is not auto, text or json")),
        }
    }
}

/// Starts logging, once per process. The filter is `GANTRY_LOG`, where unset `RUST_LOG`, else `info`.
///
/// # Errors
/// A filter that cannot be read (naming the variable), or a second call.
pub fn init(format: LogFormat) -> Result<(), String> {
    let variable = ["GANTRY_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)));
    let filter = match &variable {
        Some((name, text)) => {
            EnvFilter::try_new(text).map_err(|error| format!("{name}: {error}"))?
        }
        None => EnvFilter::new("info"),
    };
    let json = match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init()
    };
    started.map_err(|error| format!("cannot start the log: {error}"))
}
