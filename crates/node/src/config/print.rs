//! Settings as TOML text with the source of each value beside it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fault::Source;

/// One `key = value  # source` line per leaf; an absent value is a comment. Reads back as a file.
pub(super) fn toml(leaves: &[(String, Value)], sources: &BTreeMap<String, Source>) -> String {
    let lines = leaves.iter().map(|(key, value)| {
        let source = sources.get(key).unwrap_or(&Source::Default);
        let written = match value {
            Value::Null => format!("# {key} is not set"),
            Value::Object(_) => format!("{key} = {{}}"),
            // The scalars and lists used in settings look the same in JSON and TOML.
            other => format!("{key} = {other}"),
        };
        format!("{written:<56} # {source}\n")
    });
    lines.collect()
}
