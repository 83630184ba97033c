//! Writing JSON: numbers and strings into headers, and bodies with the keys of Apache's encoder.

use std::io;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

/// How map keys that are not strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStyle {
    /// `{"0":…}` and `{"{\"topic\":\"T\"}":…}`: valid JSON.
    Standard,
    /// `{0:…}` and `{{"topic":"T"}:…}`: what Apache writes and its tools parse.
    Apache,
    /// `{"0":…}` and `{{"topic":"T"}:…}`.
    QuotedIntegers,
}

pub(crate) fn to_vec<T: Serialize>(value: &T, keys: KeyStyle) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let formatter = Keys {
        style: keys,
        key: Key::None,
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => out,
        // Writing into memory cannot fail, and no body has keys that are not text or numbers.
        Err(_) => b"{}".to_vec(),
    }
}

/// First character of a key whose text is itself JSON; never written.
pub(crate) const OBJECT_KEY: char = '\0';

/// Where in a key the writer stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    /// Not in a key.
    None,
    /// The opening quote has been held back.
    Pending,
    /// In a quoted key.
    Quoted,
    /// In a key without quotes, its escapes undone.
    Raw,
}

struct Keys {
    style: KeyStyle,
    key: Key,
}

impl Keys {
    fn open_quote<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.key == Key::Pending {
            self.key = Key::Quoted;
            out.write_all(b"\"")?;
        }
        Ok(())
    }

    fn integer<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.key == Key::Pending {
            if self.style == KeyStyle::Apache {
                self.key = Key::Raw;
            } else {
                self.open_quote(out)?;
            }
        }
        Ok(())
    }
}

macro_rules! integers {
    ($($method:ident $t:ty),*) => {$(
        fn $method<W: ?Sized + io::Write>(&mut self, out: &mut W, value: $t) -> io::Result<()> {
            self.integer(out)?;
            CompactFormatter.$method(out, value)
        }
    )*};
}

impl Formatter for Keys {
    integers!(write_i8 i8, write_i16 i16, write_i32 i32, write_i64 i64, write_u8 u8, write_u16 u16,
        write_u32 u32, write_u64 u64);

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.key = Key::Pending;
        CompactFormatter.begin_object_key(out, first)
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.key = Key::None;
        Ok(())
    }

    fn begin_string<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.key == Key::Pending {
            Ok(())
        } else {
            out.write_all(b"\"")
        }
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open_quote(out)?;
        if self.key == Key::Raw {
            Ok(())
        } else {
            out.write_all(b"\"")
        }
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.open_quote(out)?;
        out.write_all(fragment.as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        if self.key == Key::Pending && matches!(escape, CharEscape::AsciiControl(0)) {
            if self.style == KeyStyle::Standard {
                return self.open_quote(out);
            }
            self.key = Key::Raw;
            return Ok(());
        }
        self.open_quote(out)?;
        if self.key == Key::Raw {
            return match escape {
                CharEscape::Quote => out.write_all(b"\""),
                CharEscape::ReverseSolidus => out.write_all(b"\\"),
                other => CompactFormatter.write_char_escape(out, other),
            };
        }
        CompactFormatter.write_char_escape(out, escape)
    }
}

/// Decimal digits of `n`, at the end of the buffer.
fn digits(n: u64, buffer: &mut [u8; 20]) -> usize {
    let mut rest = n;
    let mut used = 0;
    for slot in buffer.iter_mut().rev() {
        *slot = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    used
}

/// Appends a whole number of up to 64 bits.
pub(crate) fn push_integer(n: i128, out: &mut String) {
    if n < 0 {
        out.push('-');
    }
    let mut buffer = [0; 20];
    let used = digits(
        u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX),
        &mut buffer,
    );
    for digit in buffer.iter().skip(20 - used) {
        out.push(char::from(*digit));
    }
}

/// Appends a whole number.
pub(crate) fn put_integer(n: i64, out: &mut BytesMut) {
    if n < 0 {
        out.put_u8(b'-');
    }
    let mut buffer = [0; 20];
    let used = digits(n.unsigned_abs(), &mut buffer);
    out.put_slice(buffer.get(20 - used..).unwrap_or_default());
}

/// Appends a quoted string with the escapes JSON needs.
pub(crate) fn put_string(text: &str, out: &mut BytesMut) {
    out.put_u8(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = crate::scan::to_escape(rest) {
        let (plain, tail) = rest.split_at(at);
        out.put_slice(plain);
        let Some((special, after)) = tail.split_first() else {
            break;
        };
        put_escape(*special, out);
        rest = after;
    }
    out.put_slice(rest);
    out.put_u8(b'"');
}

fn put_escape(byte: u8, out: &mut BytesMut) {
    let short = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x08 => b"\\b",
        0x0c => b"\\f",
        _ => {
            let hex = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
            out.put_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            return;
        }
    };
    out.put_slice(short);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_at_the_edges() {
        let check = |n: i64| {
            let mut text = String::new();
            push_integer(i128::from(n), &mut text);
            assert_eq!(text, n.to_string());
            let mut bytes = BytesMut::new();
            put_integer(n, &mut bytes);
            assert_eq!(bytes, n.to_string().as_bytes());
        };
        for n in [0, 1, -1, 9, 10, i64::MAX, i64::MIN, 1_700_000_000_000] {
            check(n);
        }
        let mut text = String::new();
        push_integer(i128::from(u64::MAX), &mut text);
        assert_eq!(text, u64::MAX.to_string());
    }
}
