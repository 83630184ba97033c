//! The JSON header: read liberally, as Apache brokers do, and written strictly.

use bytes::{BufMut, BytesMut};

use crate::cursor::{Cursor, unescape};
use crate::ext::FIELDS_MAX;
use crate::json::write::{put_integer, put_string};
use crate::{Body, Command, ExtFields, Language, WireError};

/// Reads header text. Unknown keys are skipped; numbers may be quoted; any extra field value that is
/// not a string is kept as its JSON text; nulls are left out.
pub(crate) fn parse(text: &str) -> Result<Command, WireError> {
    let mut at = Cursor::new(text);
    let mut cmd = Command {
        code: 0,
        language: Language::Unknown,
        version: 0,
        opaque: 0,
        flag: 0,
        remark: None,
        ext: ExtFields::over(text),
        body: Body::Empty,
    };
    at.space()?;
    at.expect(b'{', "expected an object")?;
    at.space()?;
    while !at.take(b'}') {
        let key = at.quoted()?;
        let mut plain = String::new();
        let key = if key.escaped {
            unescape(at.slice(key.range), &mut plain);
            plain.as_str()
        } else {
            at.slice(key.range)
        };
        at.space()?;
        at.expect(b':', "expected a colon")?;
        at.space()?;
        match key {
            "code" => cmd.code = integer(&mut at)?,
            "version" => cmd.version = integer(&mut at)?,
            "opaque" => cmd.opaque = integer(&mut at)?,
            "flag" => cmd.flag = integer(&mut at)?,
            "language" => cmd.language = language(&mut at)?,
            "remark" => cmd.remark = text_value(&mut at)?,
            "extFields" => ext_fields(&mut at, &mut cmd.ext)?,
            _ => {
                at.skip_value(0)?;
            }
        }
        at.comma_or(b'}')?;
    }
    at.end()?;
    Ok(cmd)
}

/// `105`, `"105"`, `105.0`; null is 0.
fn integer(at: &mut Cursor<'_>) -> Result<i32, WireError> {
    let text = if at.at_quote() {
        let quoted = at.quoted()?;
        at.slice(quoted.range).trim()
    } else {
        at.word()?
    };
    if text == "null" || text.is_empty() {
        return Ok(0);
    }
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit()) => whole,
        _ => text,
    };
    whole
        .parse()
        .map_err(|_| at.error("expected a 32-bit number"))
}

fn language(at: &mut Cursor<'_>) -> Result<Language, WireError> {
    if at.at_quote() {
        let quoted = at.quoted()?;
        return Ok(Language::from_name(at.slice(quoted.range)));
    }
    at.skip_value(0)?;
    Ok(Language::Unknown)
}

/// A string, or the JSON text of another value; null is none.
fn text_value(at: &mut Cursor<'_>) -> Result<Option<String>, WireError> {
    if at.at_quote() {
        let quoted = at.quoted()?;
        let raw = at.slice(quoted.range);
        let mut text = String::with_capacity(raw.len());
        unescape(raw, &mut text);
        return Ok(Some(text));
    }
    let range = at.skip_value(0)?;
    let text = at.slice(range);
    Ok((text != "null").then(|| text.to_owned()))
}

fn ext_fields(at: &mut Cursor<'_>, ext: &mut ExtFields) -> Result<(), WireError> {
    if !at.take(b'{') {
        return match at.word()? {
            "null" => Ok(()),
            _ => Err(at.error("expected an object")),
        };
    }
    ext.mark_present();
    at.space()?;
    while !at.take(b'}') {
        if ext.len() >= FIELDS_MAX {
            return Err(at.error("too many extra fields"));
        }
        let key = string_range(at, ext)?;
        at.space()?;
        at.expect(b':', "expected a colon")?;
        at.space()?;
        if at.at_quote() {
            let value = string_range(at, ext)?;
            ext.push_range(key, value);
        } else {
            let value = at.skip_value(0)?;
            if at.slice(value.clone()) != "null" {
                ext.push_range(key, value);
            }
        }
        at.comma_or(b'}')?;
    }
    Ok(())
}

/// The range of the string's text in the arena, which starts with a copy of the header: a plain string
/// is already there, an escaped one is appended.
fn string_range(
    at: &mut Cursor<'_>,
    ext: &mut ExtFields,
) -> Result<core::ops::Range<usize>, WireError> {
    let quoted = at.quoted()?;
    if !quoted.escaped {
        return Ok(quoted.range);
    }
    let start = ext.arena().len();
    unescape(at.slice(quoted.range), ext.arena());
    Ok(start..ext.arena().len())
}

/// Writes the header as Java does: keys in alphabetical order, absent parts left out, every extra
/// field a string.
pub(crate) fn write(cmd: &Command, out: &mut BytesMut) {
    out.put_slice(b"{\"code\":");
    put_integer(i64::from(cmd.code), out);
    if cmd.ext.is_present() {
        out.put_slice(b",\"extFields\":{");
        let mut comma = false;
        for (name, value) in cmd.ext.iter() {
            if comma {
                out.put_u8(b',');
            }
            comma = true;
            put_string(name, out);
            out.put_u8(b':');
            put_string(value, out);
        }
        out.put_u8(b'}');
    }
    out.put_slice(b",\"flag\":");
    put_integer(i64::from(cmd.flag), out);
    out.put_slice(b",\"language\":\"");
    out.put_slice(cmd.language.name().as_bytes());
    out.put_slice(b"\",\"opaque\":");
    put_integer(i64::from(cmd.opaque), out);
    if let Some(remark) = &cmd.remark {
        out.put_slice(b",\"remark\":");
        put_string(remark, out);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    put_integer(i64::from(cmd.version), out);
    out.put_u8(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cmd: &Command) -> String {
        let mut out = BytesMut::new();
        write(cmd, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn reads_what_apache_reads() {
        let check = |text: &str, code: i32, topic: Option<&str>| {
            let cmd = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((cmd.code, cmd.ext.get("topic")), (code, topic), "{text}");
        };
        check(
            r#"{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,"version":0}"#,
            105,
            Some("T"),
        );
        check(
            "{'code':'105','extFields':{'topic':'T',},}\n",
            105,
            Some("T"),
        );
        check(
            r#"{"code":105.0,/* c */"extFields":{"topic":5} }"#,
            105,
            Some("5"),
        );
        check(
            r#"{"extFields":{"topic":{"a":[1,"x"]}}}"#,
            0,
            Some(r#"{"a":[1,"x"]}"#),
        );
        check(
            r#"{"extFields":{"topic":null},"language":7,"zzz":[{}]}"#,
            0,
            None,
        );
        check(r#"{"extFields":{"topic":true}}"#, 0, Some("true"));
        check(
            r#"{"extFields":{"to\u0070ic":"a\u0001b"}}"#,
            0,
            Some("a\u{1}b"),
        );
        check("{}", 0, None);
    }

    #[test]
    fn refuses_what_apache_refuses() {
        for text in [
            "",
            "{",
            "[]",
            "{code:1}",
            "{} x",
            r#"{"opaque":2147483648}"#,
            r#"{"code":"x"}"#,
            r#"{"a"}"#,
            r#"{"a":"#,
            "{\"a\":'}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let many: String = (0..2000).map(|i| format!("\"k{i}\":1,")).collect();
        assert!(parse(&format!("{{\"extFields\":{{{many}}}}}")).is_err());
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn writes_what_java_writes() {
        let mut cmd = parse(r#"{"code":105,"extFields":{"topic":"T"},"language":"JAVA"}"#).unwrap();
        assert_eq!(
            written(&cmd),
            r#"{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}"#
        );
        cmd.ext = ExtFields::new();
        cmd.remark = Some("a\u{1}\"\\\n\u{e9}".into());
        assert_eq!(
            written(&cmd),
            "{\"code\":105,\"flag\":0,\"language\":\"JAVA\",\"opaque\":0,\"remark\":\"a\\u0001\\\"\\\\\\n\u{e9}\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}"
        );
    }

    #[test]
    fn present_and_absent_fields_differ() {
        assert!(parse(r#"{"extFields":{}}"#).unwrap().ext.is_present());
        assert!(!parse(r#"{"extFields":null}"#).unwrap().ext.is_present());
    }
}
