//! The log: to stderr, text on a terminal and JSON otherwise, filtered by `GANTRY_LOG`.

use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::OnceLock;

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

/// Changes the filter of the log that was started.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The log of this process.
static STARTED: OnceLock<SetFilter> = OnceLock::new();

/// Name and text of the variable that sets the filter, if one does: `GANTRY_LOG`, where unset `RUST_LOG`.
#[must_use]
pub fn variable() -> Option<(&'static str, String)> {
    ["GANTRY_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)))
}

/// Starts logging, once per process. The filter is `GANTRY_LOG`, where unset `RUST_LOG`, else `info`.
///
/// # Errors
/// A filter that cannot be read (naming the variable), or a second call.
pub fn init(format: LogFormat) -> Result<(), String> {
    let filter = match variable() {
        Some((name, text)) => parse(&text).map_err(|error| format!("{name}: {error}"))?,
        None => EnvFilter::new("info"),
    };
    let json = match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr);
    let (started, set): (_, SetFilter) = if json {
        let builder = builder.json().flatten_event(true).with_env_filter(filter);
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        (builder.try_init(), Box::new(set))
    } else {
        let builder = builder.with_ansi(std::io::stderr().is_terminal());
        let builder = builder.with_env_filter(filter).with_filter_reloading();
        let handle = builder.reload_handle();
        let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        (builder.try_init(), Box::new(set))
    };
    started.map_err(|error| format!("cannot start the log: {error}"))?;
    // A second call has failed above.
    STARTED.set(set).ok();
    Ok(())
}

fn parse(text: &str) -> Result<EnvFilter, String> {
    let text = text.trim();
    // The library panics on some others.
    if !text.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        return Err("it has other characters than printable ASCII".to_owned());
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// The same, but that an empty text is none.
fn filter(text: &str) -> Result<EnvFilter, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    parse(text)
}

/// Whether the text is a filter.
///
/// # Errors
/// What is wrong with it.
pub fn check_filter(text: &str) -> Result<(), String> {
    filter(text).map(|_| ())
}

/// Changes the filter of the log of this process from now on. Without a log there is nothing to change.
///
/// # Errors
/// A filter that cannot be read.
pub fn set_filter(text: &str) -> Result<(), String> {
    let filter = filter(text)?;
    match STARTED.get() {
        Some(set) => set(filter),
        None => Ok(()),
    }
}
