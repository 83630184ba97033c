//! One level of an object: unknown and repeated names are refused, members are asked for by name and type.

use super::scan::{self, Kind};
use super::{Raw, string};
use crate::error::{ApiError, Code, FieldError};
use std::borrow::Cow;

/// The members of an object whose names are known beforehand.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    pointer: String,
    members: Vec<(&'static str, Raw<'a>)>,
}

/// Unknown names reported in one answer.
const UNKNOWN_REPORTED_MAX: usize = 20;

impl<'a> Object<'a> {
    /// Opens an object at `pointer` (empty for the document).
    ///
    /// # Errors
    /// `invalid_field` if it is no object, `unknown_field` (all of them named), `invalid_json` for a repeated name.
    pub fn open(raw: Raw<'a>, pointer: &str, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut members: Vec<(&'static str, Raw<'a>)> = Vec::with_capacity(known.len().min(8));
        let mut unknown = Vec::new();
        for member in members_of(raw, pointer)? {
            let (name, value) = member?;
            let Some(&name) = known.iter().find(|k| **k == name) else {
                unknown.push(FieldError {
                    pointer: format!("{pointer}/{}", escape(&name)),
                    code: Code::UnknownField.as_str(),
                    detail: nearest(&name, known),
                });
                if unknown.len() == UNKNOWN_REPORTED_MAX {
                    break;
                }
                continue;
            };
            if members.iter().any(|(n, _)| *n == name) {
                return Err(repeated(pointer, name));
            }
            members.push((name, value));
        }
        if !unknown.is_empty() {
            return Err(ApiError::unknown_fields(unknown));
        }
        Ok(Self {
            pointer: pointer.to_owned(),
            members,
        })
    }

    /// The JSON pointer of a member.
    #[must_use]
    pub fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.pointer)
    }

    /// The value of a member; `null` is the same as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Raw<'a>> {
        self.get_or_null(name)
            .filter(|raw| raw.kind() != Kind::Null)
    }

    /// The value of a member, `null` included: for merge patches.
    #[must_use]
    pub fn get_or_null(&self, name: &str) -> Option<Raw<'a>> {
        self.members
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, raw)| *raw)
    }

    /// Whether no member was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A text.
    ///
    /// # Errors
    /// `code` if it is no string, `invalid_json` for a lone surrogate.
    pub fn string(&self, name: &str, code: Code) -> Result<Option<Cow<'a, str>>, ApiError> {
        let Some(raw) = self.get(name) else {
            return Ok(None);
        };
        match raw.as_string()? {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(name, code, Kind::String, raw)),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// `invalid_field` for anything else.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(raw) = self.get(name) else {
            return Ok(None);
        };
        raw.as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(name, Code::InvalidField, Kind::Bool, raw))
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// `code` for anything else.
    pub fn integer(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<i64>,
        code: Code,
    ) -> Result<Option<i64>, ApiError> {
        let Some(raw) = self.get(name) else {
            return Ok(None);
        };
        match raw.as_integer() {
            Some(n) if range.contains(&n) => Ok(Some(n)),
            _ => Err(ApiError::field(
                code,
                self.pointer(name),
                format!(
                    "{name} must be a whole number between {} and {}",
                    range.start(),
                    range.end()
                ),
            )
            .with("limit", *range.end())),
        }
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// `code` for anything else.
    pub fn array(&self, name: &str, code: Code) -> Result<Option<super::Elements<'a>>, ApiError> {
        let Some(raw) = self.get(name) else {
            return Ok(None);
        };
        raw.elements()
            .map(Some)
            .ok_or_else(|| self.wrong(name, code, Kind::Array, raw))
    }

    /// The error "must be X, is Y".
    #[must_use]
    pub fn wrong(&self, name: &str, code: Code, wanted: Kind, got: Raw<'_>) -> ApiError {
        let detail = format!(
            "{name} must be {}, not {}",
            wanted.name(),
            got.kind().name()
        );
        ApiError::field(code, self.pointer(name), detail)
    }
}

/// An object with free names.
#[derive(Debug)]
pub struct Map;

impl Map {
    /// The members in the order given; at most `max`, else `None`.
    ///
    /// # Errors
    /// `invalid_field` if it is no object, `invalid_json` for a repeated name.
    #[expect(clippy::type_complexity, reason = "a list of pairs, or too many")]
    pub fn open<'a>(
        raw: Raw<'a>,
        pointer: &str,
        max: usize,
    ) -> Result<Option<Vec<(Cow<'a, str>, Raw<'a>)>>, ApiError> {
        let mut members: Vec<(Cow<'a, str>, Raw<'a>)> = Vec::new();
        for member in members_of(raw, pointer)? {
            let (name, value) = member?;
            if members.len() == max {
                return Ok(None);
            }
            if members.iter().any(|(n, _)| *n == name) {
                return Err(repeated(pointer, &name));
            }
            members.push((name, value));
        }
        Ok(Some(members))
    }
}

fn repeated(pointer: &str, name: &str) -> ApiError {
    let detail = format!("'{name}' stands twice in one object");
    ApiError::field(
        Code::InvalidJson,
        format!("{pointer}/{}", escape(name)),
        detail,
    )
}

/// `~` and `/` of a name, as RFC 6901 wants them.
fn escape(name: &str) -> String {
    name.chars()
        .take(128)
        .collect::<String>()
        .replace('~', "~0")
        .replace('/', "~1")
}

/// "did you mean", or the list of names.
fn nearest(name: &str, known: &[&'static str]) -> String {
    let close = known.iter().map(|k| (distance(name, k), k)).min();
    match close {
        Some((d, k)) if d <= 2 => format!("did you mean '{k}'?"),
        _ if known.is_empty() => "no field is allowed here".to_owned(),
        _ => format!("allowed here: {}", known.join(", ")),
    }
}

/// Levenshtein distance, capped by length.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

struct Members<'a> {
    text: &'a str,
    at: usize,
}

fn members_of<'a>(raw: Raw<'a>, pointer: &str) -> Result<Members<'a>, ApiError> {
    if raw.kind() == Kind::Object {
        return Ok(Members {
            text: raw.text(),
            at: 1,
        });
    }
    let detail = format!("an object should stand here, not {}", raw.kind().name());
    Err(ApiError::field(Code::InvalidField, pointer, detail))
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<(Cow<'a, str>, Raw<'a>), ApiError>;
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let start = scan::white(bytes, self.at);
        if bytes.get(start) != Some(&b'"') {
            return None;
        }
        let end = scan::string(bytes, start).ok()?;
        let name = match string::decode(self.text.get(start..end)?) {
            Ok(name) => name,
            Err(error) => {
                self.at = bytes.len();
                return Some(Err(error));
            }
        };
        let colon = scan::white(bytes, end);
        let from = scan::white(bytes, colon + 1);
        let to = scan::value(bytes, from, false).ok()?;
        self.at = scan::white(bytes, to);
        if bytes.get(self.at) == Some(&b',') {
            self.at += 1;
        }
        Some(Ok((name, Raw(self.text.get(from..to)?))))
    }
}
