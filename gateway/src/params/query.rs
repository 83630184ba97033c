//! Query strings: every parameter known, given once, of the right form.

use super::parse_duration;
use crate::error::{ApiError, Code, FieldError};
use std::borrow::Cow;

/// The parameters of one request.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(&'static str, String)>,
}

impl Query {
    /// Reads `a=b&c=d` (percent-encoded, `+` is a space).
    ///
    /// # Errors
    /// `unknown_field` for a name that is not `known`, `invalid_field` for one given twice or badly encoded.
    pub fn parse(text: Option<&str>, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        let mut unknown = Vec::new();
        for part in text
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
        {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bad = |name: &str| {
                ApiError::field(
                    Code::InvalidField,
                    format!("?{name}"),
                    format!("parameter '{name}' is not percent-encoded UTF-8"),
                )
            };
            let name = decode(name).ok_or_else(|| bad("?"))?;
            let Some(&name) = known.iter().find(|k| name == **k) else {
                let allowed = if known.is_empty() {
                    "no parameter is allowed here".to_owned()
                } else {
                    format!("allowed here: {}", known.join(", "))
                };
                let short: String = name.chars().take(100).collect();
                unknown.push(FieldError {
                    pointer: format!("?{short}"),
                    code: Code::UnknownField.as_str(),
                    detail: allowed,
                });
                if unknown.len() == 20 {
                    break;
                }
                continue;
            };
            if pairs.iter().any(|(n, _)| *n == name) {
                return Err(ApiError::field(
                    Code::InvalidField,
                    format!("?{name}"),
                    format!("parameter '{name}' is given twice"),
                ));
            }
            pairs.push((name, decode(value).ok_or_else(|| bad(name))?.into_owned()));
        }
        if unknown.is_empty() {
            Ok(Self { pairs })
        } else {
            Err(ApiError::unknown_fields(unknown))
        }
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_str())
    }

    /// A whole number in `range`, or `default`.
    ///
    /// # Errors
    /// `code` with `limit`.
    pub fn integer(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
        code: Code,
    ) -> Result<u64, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let digits =
            !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(n) if digits && range.contains(&n) => Ok(n),
            _ => {
                let (low, high) = (range.start(), range.end());
                let detail = if low == high {
                    format!("{name} may only be {low} here; leave it out")
                } else {
                    format!("{name} must be a whole number between {low} and {high}")
                };
                Err(ApiError::field(code, format!("?{name}"), detail).with("limit", *range.end()))
            }
        }
    }

    /// `true` or `false`; absent = false.
    ///
    /// # Errors
    /// `invalid_field`.
    pub fn boolean(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::field(
                Code::InvalidField,
                format!("?{name}"),
                format!("{name} must be true or false"),
            )),
        }
    }

    /// A duration in ms within `range`.
    ///
    /// # Errors
    /// `invalid_duration` for what is no duration, `code` with `limit` for what is out of range.
    pub fn duration(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        code: Code,
    ) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        duration_in(text, name, &format!("?{name}"), range, code).map(Some)
    }
}

/// A duration in ms within `range`; the fault names field, limit and form.
///
/// # Errors
/// As [`Query::duration`].
pub(crate) fn duration_in(
    text: &str,
    name: &str,
    pointer: &str,
    range: std::ops::RangeInclusive<u64>,
    code: Code,
) -> Result<u64, ApiError> {
    let Some(ms) = parse_duration(text) else {
        let detail = format!("{name} must be a duration such as 1500ms, 30s, 5m, 12h or 3d");
        return Err(ApiError::field(Code::InvalidDuration, pointer, detail));
    };
    if range.contains(&ms) {
        return Ok(ms);
    }
    let (low, high) = (
        super::format_duration(*range.start()),
        super::format_duration(*range.end()),
    );
    Err(ApiError::field(
        code,
        pointer,
        format!("{name} must be between {low} and {high}"),
    )
    .with("limit", high))
}

/// Percent-decoding with `+` as space; `None` for bad escapes or bad UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    percent_decode(text.replace('+', " ").as_bytes()).map(Cow::Owned)
}

/// Percent-decoding of a header or query value; `None` for bad escapes or bad UTF-8.
pub(crate) fn percent_decode(bytes: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        if b == b'%' {
            let digit = |b: &u8| {
                char::from(*b)
                    .to_digit(16)
                    .and_then(|d| u8::try_from(d).ok())
            };
            out.push(digit(bytes.get(at + 1)?)? * 16 + digit(bytes.get(at + 2)?)?);
            at += 3;
        } else {
            out.push(b);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

/// Percent-encoding for a header value: everything but unreserved and a few harmless characters.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:@/?".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_repeated_and_broken_parameters_are_refused() {
        let code = |t: &str| Query::parse(Some(t), &["max", "wait"]).map_err(|e| e.code());
        assert_eq!(code("maxx=1").unwrap_err(), Code::UnknownField);
        assert_eq!(code("max=1&max=2").unwrap_err(), Code::InvalidField);
        assert_eq!(code("max=%zz").unwrap_err(), Code::InvalidField);
        assert_eq!(code("max=%ff").unwrap_err(), Code::InvalidField);
        let query = code("&max=%31+&wait").unwrap();
        assert_eq!(
            (query.get("max"), query.get("wait")),
            (Some("1 "), Some(""))
        );
        assert!(query.integer("max", 1..=2, 1, Code::InvalidMax).is_err());
    }

    proptest! {
        #[test]
        fn percent_encoding_reads_back(text in any::<String>()) {
            prop_assert_eq!(percent_decode(percent_encode(&text).as_bytes()), Some(text));
        }
    }
}
