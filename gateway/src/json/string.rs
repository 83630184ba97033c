//! JSON strings: decoding that refuses lone surrogates, and writing.

use crate::error::{ApiError, Code};
use std::borrow::Cow;

/// Decodes a checked string, quotes included.
pub(super) fn decode(quoted: &str) -> Result<Cow<'_, str>, ApiError> {
    let inner = quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or_default();
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        let mut used = at + 2;
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (c, length) = unicode(rest, at)?;
                out.push(c);
                used = at + length;
            }
            other => out.push(char::from(other)),
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// The character of `\uXXXX` (or a pair of them) at `at`, and how many bytes it takes.
fn unicode(text: &str, at: usize) -> Result<(char, usize), ApiError> {
    let unit = |at: usize| {
        text.get(at + 2..at + 6)
            .and_then(|h| u32::from_str_radix(h, 16).ok())
            .unwrap_or(0)
    };
    let lone = || ApiError::new(Code::InvalidJson, "a string holds half of a surrogate pair");
    let high = unit(at);
    match high {
        0xD800..=0xDBFF => {
            if text.get(at + 6..at + 8) != Some("\\u") {
                return Err(lone());
            }
            let low = unit(at + 6);
            if !(0xDC00..=0xDFFF).contains(&low) {
                return Err(lone());
            }
            let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            char::from_u32(code).map(|c| (c, 12)).ok_or_else(lone)
        }
        0xDC00..=0xDFFF => Err(lone()),
        code => char::from_u32(code).map(|c| (c, 6)).ok_or_else(lone),
    }
}

/// Appends `text` with quotes and escapes.
pub(super) fn write(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &b) in bytes.iter().enumerate() {
        let short: &[u8] = match b {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1F => b"",
            _ => continue,
        };
        out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
        from = at + 1;
        if short.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(b >> 4)]);
            out.push(HEX[usize::from(b & 15)]);
        } else {
            out.extend_from_slice(short);
        }
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    out.push(b'"');
}
