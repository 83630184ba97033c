//! Description and labels of topics and groups, and the `label` that lists are filtered by.

use crate::error::{ApiError, Code};
use crate::json::{Kind, Map, Raw};
use crate::params::Query;
use std::collections::BTreeMap;

/// Most labels of a topic or group.
pub(super) const LABELS_MAX: usize = 32;
const NAME_MAX: usize = 64;
const TEXT_MAX: usize = 256;

/// A description or the value of a label.
///
/// # Errors
/// `invalid_field` with `limit`.
pub(super) fn check_text(text: &str, pointer: &str) -> Result<String, ApiError> {
    // Attributes travel in a text of name=value pairs.
    if text.len() <= TEXT_MAX
        && !text
            .chars()
            .any(|c| c.is_control() || matches!(c, ',' | '=' | '+'))
    {
        return Ok(text.to_owned());
    }
    let detail = format!("at most {TEXT_MAX} bytes, without control characters, comma, = and +");
    Err(ApiError::field(Code::InvalidField, pointer, detail).with("limit", TEXT_MAX))
}

/// The labels of a body; `None` = the label goes.
///
/// # Errors
/// `invalid_field` for too many, a name or a value out of range.
pub(super) fn read(
    raw: Raw<'_>,
    pointer: &str,
) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let mut out = BTreeMap::new();
    for (name, value) in Map::open(raw, pointer, LABELS_MAX)?.ok_or_else(|| too_many(pointer))? {
        let at = format!("{pointer}/{name}");
        if !is_name(&name) {
            return Err(ApiError::field(
                Code::InvalidField,
                at,
                "a label name is 1–64 letters, digits, _ - .",
            ));
        }
        let value = match (value.kind(), value.as_string()?) {
            (Kind::Null, _) => None,
            (_, Some(text)) => Some(check_text(&text, &at)?),
            (kind, None) => {
                return Err(ApiError::field(
                    Code::InvalidField,
                    at,
                    format!("a label is a string, not {}", kind.name()),
                ));
            }
        };
        out.insert(name.into_owned(), value);
    }
    Ok(out)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// There would be more than [`LABELS_MAX`].
pub(super) fn too_many(pointer: &str) -> ApiError {
    let detail = format!("at most {LABELS_MAX} labels");
    ApiError::field(Code::InvalidField, pointer, detail).with("limit", LABELS_MAX)
}

/// `label=team` (has it, whatever its value) or `label=team=billing`.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    /// Name of the label.
    pub(super) name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Filter<'a> {
    /// That of a list; `None` where it has none.
    ///
    /// # Errors
    /// `invalid_field`.
    pub(super) fn read(query: &'a Query) -> Result<Option<Self>, ApiError> {
        let Some(text) = query.get("label") else {
            return Ok(None);
        };
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        if is_name(name) {
            return Ok(Some(Self { name, value }));
        }
        Err(ApiError::field(
            Code::InvalidField,
            "?label",
            "label is a name, as in label=team, or a name and a value, as in label=team=billing",
        ))
    }

    /// Whether something fits that has this value under the name, if any.
    pub(super) fn fits(&self, found: Option<&String>) -> bool {
        found.is_some_and(|found| self.value.is_none_or(|value| value == found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_name_with_or_without_a_value() {
        let fits = |text: &str, found: Option<&str>| {
            let query = Query::parse(Some(text), &["label"]).unwrap();
            let filter = Filter::read(&query).map(Option::unwrap);
            filter.map(|f| (f.name.to_owned(), f.fits(found.map(str::to_owned).as_ref())))
        };
        let team = |fits: bool| Ok(("team".to_owned(), fits));
        let ok = |got: Result<(String, bool), ApiError>| got.map_err(|error| error.code());
        assert_eq!(ok(fits("label=team", Some("a"))), team(true));
        assert_eq!(ok(fits("label=team", None)), team(false));
        assert_eq!(ok(fits("label=team=a", Some("a"))), team(true));
        assert_eq!(ok(fits("label=team%3Da", Some("b"))), team(false));
        assert_eq!(ok(fits("label=team=", Some(""))), team(true));
        for bad in ["label=", "label==a", "label=te+am"] {
            assert_eq!(ok(fits(bad, None)), Err(Code::InvalidField), "{bad}");
        }
    }
}
