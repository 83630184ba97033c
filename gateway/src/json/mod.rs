//! Strict JSON for requests: one level at a time, without recursion, each fault with its JSON pointer.
//!
//! A document is checked once as a whole ([`document`]); after that every [`Raw`] is a slice of it that is known to be
//! well formed, and objects are opened level by level. Values of members named `json` keep their bytes.

mod object;
mod scan;
mod string;

pub use object::{Map, Object};
pub use scan::Kind;

use crate::error::{ApiError, Code};
use std::borrow::Cow;

/// Levels of arrays and objects in an envelope.
pub const DEPTH_MAX: usize = 64;
/// Levels inside the value of a member `json`.
pub const JSON_VALUE_DEPTH_MAX: usize = 127;

/// A well-formed JSON value: its exact bytes, without white space around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

/// Checks a whole document: UTF-8, no BOM, grammar, depth.
///
/// # Errors
/// `invalid_json`, with the position.
pub fn document(bytes: &[u8]) -> Result<Raw<'_>, ApiError> {
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        return Err(ApiError::new(
            Code::InvalidJson,
            "the body starts with a byte order mark; leave it out",
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        ApiError::new(
            Code::InvalidJson,
            format!("the body is not UTF-8 at byte {}", e.valid_up_to()),
        )
    })?;
    let start = scan::white(bytes, 0);
    if start == bytes.len() {
        return Err(ApiError::new(
            Code::InvalidJson,
            "the body is empty; a JSON object is needed",
        ));
    }
    let end = scan::value(bytes, start, true).map_err(|f| f.into_error())?;
    let rest = scan::white(bytes, end);
    if rest != bytes.len() {
        return Err(ApiError::new(
            Code::InvalidJson,
            format!("text after the JSON value at byte {rest}"),
        ));
    }
    Ok(Raw(text.get(start..end).unwrap_or_default()))
}

impl<'a> Raw<'a> {
    /// The exact text.
    #[must_use]
    pub fn text(self) -> &'a str {
        self.0
    }

    /// What kind of value it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        Kind::of(self.0.as_bytes().first().copied().unwrap_or(b'n'))
    }

    /// The decoded text of a string; `None` = not a string.
    ///
    /// # Errors
    /// `invalid_json` for a lone surrogate escape.
    pub fn as_string(self) -> Result<Option<Cow<'a, str>>, ApiError> {
        if self.kind() != Kind::String {
            return Ok(None);
        }
        string::decode(self.0).map(Some)
    }

    /// The value of `true` or `false`; `None` = not a boolean.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The value of a whole number (also written `32.0` or `1e3`) within ±2^53; `None` = anything else.
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        if self.kind() != Kind::Number {
            return None;
        }
        const LIMIT: f64 = 9_007_199_254_740_992.0;
        if let Ok(whole) = self.0.parse::<i64>() {
            return (whole.unsigned_abs() <= 1 << 53).then_some(whole);
        }
        let float = self.0.parse::<f64>().ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be whole and within 2^53"
        )]
        (float.fract() == 0.0 && float.abs() <= LIMIT).then_some(float as i64)
    }

    /// The value of a number; `None` = not a number.
    #[must_use]
    pub fn as_number(self) -> Option<f64> {
        if self.kind() == Kind::Number {
            self.0.parse().ok()
        } else {
            None
        }
    }

    /// The elements of an array, in order; `None` = not an array.
    #[must_use]
    pub fn elements(self) -> Option<Elements<'a>> {
        (self.kind() == Kind::Array).then_some(Elements {
            text: self.0,
            at: 1,
        })
    }
}

/// Iterator over the elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Raw<'a>;
    fn next(&mut self) -> Option<Raw<'a>> {
        let bytes = self.text.as_bytes();
        let start = scan::white(bytes, self.at);
        if bytes.get(start) == Some(&b']') {
            return None;
        }
        let end = scan::value(bytes, start, false).ok()?;
        self.at = scan::white(bytes, end);
        if bytes.get(self.at) == Some(&b',') {
            self.at += 1;
        }
        self.text.get(start..end).map(Raw)
    }
}

/// Appends `text` as a JSON string, quotes included.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    string::write(out, text);
}

/// Appends a well-formed JSON text without the line feeds and carriage returns between its tokens (inside strings they
/// are always escapes).
pub fn write_one_line(out: &mut Vec<u8>, text: &[u8]) {
    if memchr_newline(text) {
        out.extend(text.iter().copied().filter(|b| !matches!(b, b'\n' | b'\r')));
    } else {
        out.extend_from_slice(text);
    }
}

fn memchr_newline(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b'\n' | b'\r'))
}

/// Whether these bytes are one well-formed JSON value (white space around allowed); for stored bodies.
#[must_use]
pub fn is_json(bytes: &[u8]) -> bool {
    if std::str::from_utf8(bytes).is_err() {
        return false;
    }
    let start = scan::white(bytes, 0);
    match scan::stored_value(bytes, start) {
        Ok(end) => scan::white(bytes, end) == bytes.len(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod json_test;
