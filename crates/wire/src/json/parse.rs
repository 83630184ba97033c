//! The tolerant JSON reader: text to a tree, with bounded depth.

use super::Value;
use super::write::OBJECT_KEY;
use crate::WireError;
use crate::cursor::{Cursor, DEPTH_MAX, unescape};

/// A peer's body with more values than this is refused: each takes many times its text in memory.
pub(crate) const VALUES_MAX: usize = 2_000_000;

pub(crate) fn parse(text: &str, values_max: usize) -> Result<Value, WireError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = Cursor::new(text);
    at.space()?;
    let mut left = values_max;
    let value = value(&mut at, 0, &mut left)?;
    at.end()?;
    Ok(value)
}

fn value(at: &mut Cursor<'_>, depth: usize, left: &mut usize) -> Result<Value, WireError> {
    *left = left
        .checked_sub(1)
        .ok_or_else(|| at.error("too many values"))?;
    if depth > DEPTH_MAX {
        return Err(at.error("nested too deep"));
    }
    match at.peek() {
        Some(b'{') => object(at, depth, left),
        Some(b'[') => {
            at.take(b'[');
            at.space()?;
            let mut items = Vec::new();
            while !at.take(b']') {
                items.push(value(at, depth + 1, left)?);
                at.comma_or(b']')?;
            }
            Ok(Value::Array(items))
        }
        Some(b'"' | b'\'') => Ok(Value::String(string(at)?)),
        _ => word(at),
    }
}

fn object(at: &mut Cursor<'_>, depth: usize, left: &mut usize) -> Result<Value, WireError> {
    at.take(b'{');
    at.space()?;
    let mut entries = Vec::new();
    while !at.take(b'}') {
        let key = match at.peek() {
            Some(b'"' | b'\'') => string(at)?,
            Some(b'{' | b'[') => {
                let range = at.skip_value(depth + 1)?;
                at.slice(range).to_owned()
            }
            _ => at.word()?.to_owned(),
        };
        if key.starts_with(OBJECT_KEY) {
            return Err(at.error("a key begins with NUL"));
        }
        at.space()?;
        at.expect(b':', "expected a colon")?;
        at.space()?;
        entries.push((key, value(at, depth + 1, left)?));
        at.comma_or(b'}')?;
    }
    Ok(Value::Object(entries))
}

fn string(at: &mut Cursor<'_>) -> Result<String, WireError> {
    let quoted = at.quoted()?;
    let raw = at.slice(quoted.range);
    if !quoted.escaped {
        return Ok(raw.to_owned());
    }
    let mut text = String::with_capacity(raw.len());
    unescape(raw, &mut text);
    Ok(text)
}

fn word(at: &mut Cursor<'_>) -> Result<Value, WireError> {
    match at.word()? {
        "null" | "undefined" | "NaN" => Ok(Value::Null),
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        number if is_number(number) => Ok(Value::Number(number.to_owned())),
        // Java writes a type suffix on some numbers.
        number => match number.strip_suffix(['L', 'l', 'D', 'F', 'S', 'B']) {
            Some(bare) if is_number(bare) => Ok(Value::Number(bare.to_owned())),
            _ => Err(at.error("not a json value")),
        },
    }
}

/// Not `inf` and the like, which Rust takes for numbers.
fn is_number(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{VALUES_MAX, Value};

    fn parse(text: &str) -> Result<Value, crate::WireError> {
        super::parse(text, VALUES_MAX)
    }

    #[test]
    fn loose_forms_are_read() {
        let tree =
            parse("{0:'a', {\"topic\":\"T\"}:[1,2.5,-3,], \"n\":null, k:true, /*x*/ \"s\":{}}\n")
                .unwrap();
        assert_eq!(tree.get("0"), Some(&Value::String("a".into())));
        assert!(
            matches!(tree.get("{\"topic\":\"T\"}"), Some(Value::Array(items)) if items.len() == 3)
        );
        assert_eq!(tree.get("n"), Some(&Value::Null));
        assert_eq!(tree.get("k"), Some(&Value::Bool(true)));
        assert_eq!(tree.get("s"), Some(&Value::Object(Vec::new())));
    }

    #[test]
    fn broken_text_is_an_error() {
        for text in [
            "",
            "{",
            "[",
            "\"",
            "{a}",
            "{\"a\":}",
            "[1 2]",
            "{} {}",
            "abc",
            "inf",
            "-infinity",
            "infD",
            "nanL",
            "{{:1}",
            "-",
            "/",
            // Written, such a key would be taken for JSON text.
            "{\"\\u0000a\":1}",
            "{\"\0a\":1}",
            "{\0a:1}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("[{}]", "0,".repeat(VALUES_MAX + 1))).is_err());
    }
}
