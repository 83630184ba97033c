//! The JSON grammar as a loop over bytes: finds the end of a value, checks it, never recurses.

use super::{DEPTH_MAX, JSON_VALUE_DEPTH_MAX};
use crate::error::{ApiError, Code};

/// What a value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl Kind {
    pub(super) fn of(first: u8) -> Self {
        match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b't' | b'f' => Self::Bool,
            b'n' => Self::Null,
            _ => Self::Number,
        }
    }

    /// For sentences: "must be a string".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Bool => "a boolean",
            Self::Null => "null",
        }
    }
}

/// Where and why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    at: usize,
    what: &'static str,
}

impl Fault {
    pub(super) fn into_error(self) -> ApiError {
        ApiError::new(
            Code::InvalidJson,
            format!("{} at byte {}", self.what, self.at),
        )
    }
}

fn fault<T>(at: usize, what: &'static str) -> Result<T, Fault> {
    Err(Fault { at, what })
}

/// The first position at or after `at` that is no white space.
pub(super) fn white(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// Envelope levels below which a member `json` is a message body: request, batch list, batch item.
const BODY_LEVEL_MAX: usize = 3;
/// Deepest document: a body inside a batch item.
const STACK: usize = JSON_VALUE_DEPTH_MAX + BODY_LEVEL_MAX + 1;

/// The end of the value that starts at `at`. `envelope` applies the depth limits of a request.
pub(super) fn value(bytes: &[u8], at: usize, envelope: bool) -> Result<usize, Fault> {
    walk(
        bytes,
        at,
        if envelope { DEPTH_MAX } else { STACK },
        envelope,
    )
}

/// As [`value`], for a body that was stored by whomever.
pub(super) fn stored_value(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    walk(bytes, at, JSON_VALUE_DEPTH_MAX, false)
}

fn walk(bytes: &[u8], mut at: usize, base_limit: usize, envelope: bool) -> Result<usize, Fault> {
    let mut in_object = [false; STACK + 1];
    let mut depth = 0_usize;
    let mut limit = base_limit;
    let mut body_level = usize::MAX; // the level whose member `json` is being read
    loop {
        at = white(bytes, at);
        let Some(&first) = bytes.get(at) else {
            return fault(at, "the text ends where a value should stand");
        };
        let opened = match first {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return fault(at, "nested too deeply (64 levels, 127 inside a json value)");
                }
                in_object[depth] = first == b'{';
                at = white(bytes, at + 1);
                true
            }
            b'"' => {
                at = string(bytes, at)?;
                false
            }
            b'-' | b'0'..=b'9' => {
                at = number(bytes, at)?;
                false
            }
            b't' => {
                at = literal(bytes, at, b"true")?;
                false
            }
            b'f' => {
                at = literal(bytes, at, b"false")?;
                false
            }
            b'n' => {
                at = literal(bytes, at, b"null")?;
                false
            }
            _ => return fault(at, "unexpected character"),
        };
        // After a value: close what ends here, or go on to the next member.
        let mut fresh = opened;
        loop {
            if depth == 0 {
                return Ok(at);
            }
            at = white(bytes, at);
            let closer = if in_object[depth] { b'}' } else { b']' };
            match bytes.get(at) {
                Some(&b) if b == closer => {
                    depth -= 1;
                    at += 1;
                    fresh = false;
                    if depth <= body_level && body_level != usize::MAX {
                        body_level = usize::MAX;
                        limit = base_limit;
                    }
                    continue;
                }
                Some(b',') if !fresh => at = white(bytes, at + 1),
                Some(_) if fresh => {}
                Some(_) => return fault(at, "a comma or the end of the list should stand here"),
                None => return fault(at, "the text ends inside a list or object"),
            }
            if in_object[depth] {
                if bytes.get(at) != Some(&b'"') {
                    return fault(at, "a name in quotes should stand here");
                }
                let end = string(bytes, at)?;
                if envelope
                    && body_level == usize::MAX
                    && depth <= BODY_LEVEL_MAX
                    && bytes.get(at..end) == Some(b"\"json\"")
                {
                    body_level = depth;
                    limit = depth + JSON_VALUE_DEPTH_MAX;
                } else if body_level == depth {
                    body_level = usize::MAX;
                    limit = base_limit;
                }
                at = white(bytes, end);
                if bytes.get(at) != Some(&b':') {
                    return fault(at, "a colon should stand here");
                }
                at += 1;
            }
            break;
        }
    }
}

fn literal(bytes: &[u8], at: usize, word: &'static [u8]) -> Result<usize, Fault> {
    if bytes.get(at..at + word.len()) == Some(word) {
        Ok(at + word.len())
    } else {
        fault(at, "unexpected character")
    }
}

/// The position after the closing quote. Escapes are checked by form; surrogates are not looked at.
pub(super) fn string(bytes: &[u8], mut at: usize) -> Result<usize, Fault> {
    at += 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let digits = bytes.get(at + 2..at + 6);
                    if !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) {
                        return fault(at, "\\u needs four hexadecimal digits");
                    }
                    at += 6;
                }
                _ => return fault(at, "unknown escape"),
            },
            Some(0..=0x1F) => {
                return fault(at, "a control character inside a string must be escaped");
            }
            Some(_) => at += 1,
            None => return fault(at, "the text ends inside a string"),
        }
    }
}

fn number(bytes: &[u8], mut at: usize) -> Result<usize, Fault> {
    let digits = |mut at: usize| {
        let start = at;
        while matches!(bytes.get(at), Some(b'0'..=b'9')) {
            at += 1;
        }
        if at == start {
            fault(at, "a digit should stand here")
        } else {
            Ok(at)
        }
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') {
        at + 1
    } else {
        digits(at)?
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits(at)?;
    }
    Ok(at)
}
