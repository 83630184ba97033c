//! The names of a key in each layer, and the list of keys of a settings type.

use serde_json::Value;

use super::Settings;

/// `flush.mode` → `GANTRY_FLUSH_MODE`.
#[must_use]
pub fn env_name(key: &str) -> String {
    format!(
        "GANTRY_{}",
        key.replace(['.', '-'], "_").to_ascii_uppercase()
    )
}

/// `flush.mode` → `flush-mode`; written with two dashes before it.
#[must_use]
pub fn flag_name(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

/// Every key of the settings, in the order of their declaration, with its default. A value that
/// has no default (an absent `Option`) is null.
#[must_use]
pub fn keys<T: Settings>() -> Vec<(String, Value)> {
    let mut out = Vec::new();
    flatten("", &tree(&T::default()), &mut out);
    out
}

/// Settings as a tree of objects.
pub(super) fn tree<T: Settings>(settings: &T) -> Value {
    // Settings are plain structures with text keys; they always serialise.
    serde_json::to_value(settings).unwrap_or(Value::Null)
}

/// Leaves of a tree; an empty object (a map without entries) is a leaf.
pub(super) fn flatten(at: &str, tree: &Value, out: &mut Vec<(String, Value)>) {
    match tree {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let key = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                flatten(&key, value, out);
            }
        }
        leaf => out.push((at.to_owned(), leaf.clone())),
    }
}

/// A tree that holds one value at a key.
pub(super) fn nest(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |inner, name| {
        Value::Object(std::iter::once((name.to_owned(), inner)).collect())
    })
}

/// Lays `top` over `base`; objects merge, everything else replaces.
pub(super) fn overlay(base: &mut Value, top: Value) {
    match (base, top) {
        (Value::Object(base), Value::Object(top)) => {
            for (name, value) in top {
                overlay(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (base, top) => *base = top,
    }
}
