//! Cursor: the scanner under both readers of liberal JSON (frame headers and bodies).

use core::ops::Range;

use crate::{WireError, scan};

/// How deep arrays and objects may nest.
pub(crate) const DEPTH_MAX: usize = 64;

/// A position in JSON text. White space includes `/* */` and `//` comments.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// A quoted string found in the text: the range between the quotes.
pub(crate) struct Quoted {
    pub(crate) range: Range<usize>,
    pub(crate) escaped: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    pub(crate) fn error(&self, what: &'static str) -> WireError {
        WireError::Json { at: self.at, what }
    }

    /// The next byte, not taken.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes the byte when it is the next one.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let hit = self.peek() == Some(byte);
        if hit {
            self.at += 1;
        }
        hit
    }

    pub(crate) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), WireError> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.error(what))
        }
    }

    /// Skips white space and comments.
    #[inline]
    pub(crate) fn space(&mut self) -> Result<(), WireError> {
        match self.peek() {
            Some(byte) if byte > b' ' && byte != b'/' => Ok(()),
            _ => self.space_slowly(),
        }
    }

    fn space_slowly(&mut self) -> Result<(), WireError> {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0c | 0x08 => self.at += 1,
                b'/' => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), WireError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let skip = if let Some(inner) = rest.strip_prefix("/*") {
            inner.find("*/").map(|end| end + 4)
        } else if rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else {
            None
        };
        self.at += skip.ok_or_else(|| self.error("unexpected slash"))?;
        Ok(())
    }

    /// After a value: takes a comma, or stands at the closing byte. A trailing comma is fine.
    pub(crate) fn comma_or(&mut self, close: u8) -> Result<(), WireError> {
        self.space()?;
        if self.take(b',') {
            return self.space();
        }
        if self.peek() == Some(close) {
            Ok(())
        } else {
            Err(self.error("expected a comma or the end"))
        }
    }

    /// True at `"` or `'`.
    pub(crate) fn at_quote(&self) -> bool {
        matches!(self.peek(), Some(b'"' | b'\''))
    }

    /// Takes a quoted string.
    pub(crate) fn quoted(&mut self) -> Result<Quoted, WireError> {
        let quote = match self.peek() {
            Some(q @ (b'"' | b'\'')) => q,
            _ => return Err(self.error("expected a string")),
        };
        let start = self.at + 1;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let mut escaped = false;
        let mut at = 0;
        while let Some(hit) = scan::quote_or_backslash(rest.get(at..).unwrap_or_default(), quote) {
            at += hit;
            if rest.get(at) == Some(&quote) {
                self.at = start + at + 1;
                return Ok(Quoted {
                    range: start..start + at,
                    escaped,
                });
            }
            escaped = true;
            at += 2;
        }
        Err(self.error("unterminated string"))
    }

    /// Takes a word: number, `true`, `false`, `null`, or an unquoted name.
    pub(crate) fn word(&mut self) -> Result<&'a str, WireError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest
            .bytes()
            .position(|b| {
                !(b.is_ascii_alphanumeric()
                    || matches!(b, b'+' | b'-' | b'.' | b'_' | b'$' | b'%' | b'@'))
            })
            .unwrap_or(rest.len());
        if len == 0 {
            return Err(self.error("expected a value"));
        }
        self.at += len;
        Ok(rest.get(..len).unwrap_or_default())
    }

    /// Takes a whole value of any kind and gives its range.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<Range<usize>, WireError> {
        if depth > DEPTH_MAX {
            return Err(self.error("nested too deep"));
        }
        let start = self.at;
        match self.peek() {
            Some(b'"' | b'\'') => {
                self.quoted()?;
            }
            Some(b'[') => {
                self.at += 1;
                self.space()?;
                while !self.take(b']') {
                    self.skip_value(depth + 1)?;
                    self.comma_or(b']')?;
                }
            }
            Some(b'{') => {
                self.at += 1;
                self.space()?;
                while !self.take(b'}') {
                    self.skip_value(depth + 1)?;
                    self.space()?;
                    self.expect(b':', "expected a colon")?;
                    self.space()?;
                    self.skip_value(depth + 1)?;
                    self.comma_or(b'}')?;
                }
            }
            _ => {
                self.word()?;
            }
        }
        Ok(start..self.at)
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<(), WireError> {
        self.space()?;
        if self.peek().is_none() {
            Ok(())
        } else {
            Err(self.error("text after the value"))
        }
    }
}

/// Appends the text a string stands for. Lone surrogates become U+FFFD, unknown escapes stand for
/// themselves, a cut escape ends the text.
pub(crate) fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = escape.chars();
        match chars.next() {
            Some('u') => out.push(utf16(&mut chars)),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('v') => out.push('\u{b}'),
            Some('0') => out.push('\0'),
            Some('x') => {
                out.push(
                    hex(&mut chars, 2)
                        .and_then(char::from_u32)
                        .unwrap_or('\u{fffd}'),
                );
            }
            Some(other) => out.push(other),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
}

fn hex(chars: &mut core::str::Chars<'_>, digits: usize) -> Option<u32> {
    let text = chars.as_str().get(..digits)?;
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    *chars = chars.as_str().get(digits..)?.chars();
    u32::from_str_radix(text, 16).ok()
}

/// The code point after `\u`, joining a surrogate pair.
fn utf16(chars: &mut core::str::Chars<'_>) -> char {
    let Some(first) = hex(chars, 4) else {
        return '\u{fffd}';
    };
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first).unwrap_or('\u{fffd}');
    }
    let mut ahead = chars.clone();
    if ahead.next() == Some('\\')
        && ahead.next() == Some('u')
        && let Some(second @ 0xdc00..0xe000) = hex(&mut ahead, 4)
    {
        *chars = ahead;
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return char::from_u32(code).unwrap_or('\u{fffd}');
    }
    '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_characters() {
        let check = |raw: &str, expected: &str| {
            let mut out = String::new();
            unescape(raw, &mut out);
            assert_eq!(out, expected, "{raw}");
        };
        check(r"a\u0001b\u0002", "a\u{1}b\u{2}");
        check(r#"\"\\\/\n"#, "\"\\/\n");
        check(r"\ud83d\ude00", "\u{1f600}");
        check(r"\ud83dx", "\u{fffd}x");
        check(r"\u12", "\u{fffd}12");
        check(r"\", "");
        check("\u{e9}\\x41", "\u{e9}A");
    }
}
