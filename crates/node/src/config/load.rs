//! Merges the layers and finds every fault.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::fault::{Fault, Faults, Source};
use super::keys::{env_name, flag_name, flatten, keys, nest, overlay, tree};
use super::{Settings, print};

/// What lies over the defaults.
#[derive(Debug, Default)]
pub struct Layers {
    /// `--config FILE`.
    pub file: Option<PathBuf>,
    /// The environment; variables that name no key are not ours and are left alone.
    pub env: Vec<(String, String)>,
    /// Key and text of each flag given.
    pub flags: Vec<(String, String)>,
    /// Short names of nested keys, `flush.mode` for `broker.flush.mode`: good in every layer.
    pub aliases: &'static [(&'static str, &'static str)],
}

impl Layers {
    fn key_of<'a>(&self, name: &'a str) -> &'a str {
        self.aliases
            .iter()
            .find(|(alias, _)| *alias == name)
            .map_or(name, |(_, key)| key)
    }
}

impl Layers {
    /// The process's own environment; variables that are not UTF-8 are left out.
    #[must_use]
    pub fn with_process_env(mut self) -> Self {
        let text = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        self.env = text.collect();
        self
    }
}

/// Settings and where each came from.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The settings, validated.
    pub settings: T,
    /// Keys that are not at their default.
    pub sources: BTreeMap<String, Source>,
}

impl<T: Settings> Loaded<T> {
    /// Every key with its value and source, one TOML line each: what `--print-config` shows.
    #[must_use]
    pub fn print(&self) -> String {
        let mut leaves = Vec::new();
        flatten("", &tree(&self.settings), &mut leaves);
        print::toml(&leaves, &self.sources)
    }
}

/// A value that one layer sets.
struct Given {
    key: String,
    source: Source,
    /// Readings of the value, the likeliest first: text may stand for a number or a list.
    readings: Vec<Value>,
}

/// Merges the layers.
///
/// # Errors
/// Every fault there is: an unreadable file, unknown keys, values of the wrong kind, and whatever
/// `validate` finds.
pub fn load<T: Settings>(layers: &Layers) -> Result<Loaded<T>, Faults> {
    let known: BTreeMap<String, Value> = keys::<T>().into_iter().collect();
    let mut faults = Vec::new();
    let mut given = Vec::new();
    if let Some(path) = &layers.file {
        match read_file(path) {
            Ok(values) => given.extend(values.into_iter().map(|value| {
                let key = layers.key_of(&value.key).to_owned();
                Given { key, ..value }
            })),
            Err(fault) => faults.push(fault),
        }
    }
    let default_of = |key: &str| known.get(key).unwrap_or(&Value::Null);
    for name in known
        .keys()
        .map(String::as_str)
        .chain(layers.aliases.iter().map(|(alias, _)| *alias))
    {
        let (variable, key) = (env_name(name), layers.key_of(name));
        if let Some((_, text)) = layers.env.iter().find(|(present, _)| *present == variable) {
            let readings = readings(text, default_of(key));
            given.push(Given {
                key: key.to_owned(),
                source: Source::Env(variable),
                readings,
            });
        }
    }
    for (name, text) in &layers.flags {
        let key = layers.key_of(name);
        let source = Source::Flag(format!("--{}", flag_name(name)));
        given.push(Given {
            key: key.to_owned(),
            source,
            readings: readings(text, default_of(key)),
        });
    }

    let defaults = tree(&T::default());
    let mut merged = defaults.clone();
    let mut sources = BTreeMap::new();
    for Given {
        key,
        source,
        readings,
    } in given
    {
        // Alone over the defaults, so that each fault is found by itself.
        match pick::<T>(&defaults, &key, readings) {
            Ok(value) => {
                overlay(&mut merged, nest(&key, value));
                sources.insert(key, source);
            }
            Err(message) => faults.push(Fault {
                key,
                message,
                source: Some(source),
            }),
        }
    }
    let mut settings: Option<T> = serde_json::from_value(merged)
        .map_err(|error| {
            if faults.is_empty() {
                faults.push(Fault::new("", error.to_string()));
            }
        })
        .ok();
    if let Some(settings) = &mut settings {
        settings.derive();
        faults.extend(settings.validate().into_iter().map(|fault| {
            let source = fault
                .source
                .clone()
                .or_else(|| sources.get(&fault.key).cloned());
            Fault { source, ..fault }
        }));
    }
    match settings {
        Some(settings) if faults.is_empty() => Ok(Loaded { settings, sources }),
        _ => Err(Faults(faults)),
    }
}

/// The first reading that the settings accept, or why the likeliest is not accepted.
fn pick<T: Settings>(defaults: &Value, key: &str, readings: Vec<Value>) -> Result<Value, String> {
    let mut first = None;
    for value in readings {
        let mut trial = defaults.clone();
        overlay(&mut trial, nest(key, value.clone()));
        match serde_json::from_value::<T>(trial) {
            Ok(_) => return Ok(value),
            Err(error) => first = first.or(Some(explain(&error.to_string(), &value))),
        }
    }
    Err(first.unwrap_or_else(|| "no value".to_owned()))
}

/// The standard library's message about an address names neither the value nor a right one.
fn explain(error: &str, value: &Value) -> String {
    if error == "invalid socket address syntax" {
        format!("{value} is not an address, such as \"127.0.0.1:8080\"")
    } else {
        error.to_owned()
    }
}

/// What a text from the environment or a flag may mean, given the default's kind.
fn readings(text: &str, default: &Value) -> Vec<Value> {
    let scalar = || {
        serde_json::from_str::<Value>(text.trim())
            .ok()
            .filter(|v| v.is_number() || v.is_boolean())
    };
    let list = || {
        let parts = text
            .split([',', ';'])
            .map(str::trim)
            .filter(|part| !part.is_empty());
        Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
    };
    let plain = Value::String(text.to_owned());
    match default {
        Value::Array(_) => vec![list()],
        Value::Bool(_) | Value::Number(_) => scalar().into_iter().chain([plain]).collect(),
        Value::Null => std::iter::once(plain)
            .chain(scalar())
            .chain([list()])
            .collect(),
        Value::String(_) | Value::Object(_) => vec![plain],
    }
}

fn read_file(path: &PathBuf) -> Result<Vec<Given>, Fault> {
    let name = path.display().to_string();
    let fault = |message: String| Fault {
        key: String::new(),
        message,
        source: Some(Source::File(name.clone())),
    };
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| fault(error.to_string()))?;
    let tree = serde_json::to_value(table).map_err(|error| fault(error.to_string()))?;
    let mut leaves = Vec::new();
    flatten("", &tree, &mut leaves);
    let given = leaves.into_iter().filter(|(key, _)| !key.is_empty());
    Ok(given
        .map(|(key, value)| Given {
            key,
            source: Source::File(name.clone()),
            readings: vec![value],
        })
        .collect())
}
