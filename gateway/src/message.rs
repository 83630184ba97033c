//! What a producer may put into a message: parsing and limits, for REST bodies, batch items, headers and sockets.

use crate::error::{ApiError, Code};
use crate::json::{Kind, Map, Object, Raw};
use crate::params::is_reserved_property;
use crate::upstream::{Draft, Durability};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

/// The fields of a message object.
pub const FIELDS: [&str; 16] = [
    "json",
    "text",
    "base64",
    "contentType",
    "tag",
    "keys",
    "orderingKey",
    "properties",
    "delay",
    "deliverAt",
    "ttl",
    "priority",
    "durability",
    "queue",
    "traceparent",
    "idempotencyKey",
];

/// Entries in `properties`.
pub const PROPERTIES_MAX: usize = 128;
/// Names and values of `properties`, in bytes.
pub const PROPERTIES_BYTES_MAX: usize = 16 * 1_024;
/// One value of `properties`, in bytes.
pub const PROPERTY_VALUE_MAX: usize = 4 * 1_024;
const KEYS_MAX: usize = 16;
const KEY_BYTES_MAX: usize = 128;
const TAG_BYTES_MAX: usize = 128;
const ORDERING_KEY_BYTES_MAX: usize = 64;
const CONTENT_TYPE_BYTES_MAX: usize = 255;

/// Standard alphabet, padding optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads a message object of `source` (the request's bytes: a `json` value is a slice of them, never a copy).
/// `pointer` is where the object stands. The message id is left empty.
///
/// # Errors
/// The codes of section "sending"; 501 naming the field for `delay`, `deliverAt`, `ttl`, `priority`, `idempotencyKey`
/// and `durability: replicated`.
pub fn draft(
    raw: Raw<'_>,
    pointer: &str,
    source: &Bytes,
    body_max: usize,
) -> Result<Draft, ApiError> {
    let object = Object::open(raw, pointer, &FIELDS)?;
    draft_of(&object, source, body_max)
}

/// As [`draft`], of an object that is open already.
///
/// # Errors
/// As [`draft`].
pub fn draft_of(object: &Object<'_>, source: &Bytes, body_max: usize) -> Result<Draft, ApiError> {
    crate::later::refuse_fields(object)?;
    let (body, default_type) = body(object, source, body_max)?;
    let mut draft = Draft {
        body,
        ..Draft::default()
    };
    draft.content_type = match object.string("contentType", Code::InvalidField)? {
        Some(text) => check_content_type(&text, &object.pointer("contentType"))?,
        None => default_type.to_owned(),
    };
    if let Some(tag) = object.string("tag", Code::InvalidTag)? {
        draft.tag = Some(check_tag(&tag, &object.pointer("tag"))?);
    }
    if let Some(keys) = object.array("keys", Code::InvalidKey)? {
        for (i, key) in keys.enumerate() {
            let pointer = object.pointer(&format!("keys/{i}"));
            let Some(key) = key.as_string()? else {
                return Err(ApiError::field(
                    Code::InvalidKey,
                    pointer,
                    "a key must be a string",
                ));
            };
            draft.keys.push(check_key(&key, i, &pointer)?);
        }
    }
    if let Some(key) = object.string("orderingKey", Code::InvalidField)? {
        draft.ordering_key = Some(check_ordering_key(&key, &object.pointer("orderingKey"))?);
    }
    if let Some(raw) = object.get("properties") {
        draft.properties = properties(raw, &object.pointer("properties"))?;
    }
    if let Some(text) = object.string("durability", Code::InvalidField)? {
        draft.durability = Some(check_durability(&text, &object.pointer("durability"))?);
    }
    if let Some(raw) = object.get("queue") {
        draft.queue = Some(queue(raw, &object.pointer("queue"))?);
    }
    // Bad trace context is dropped, not refused.
    draft.traceparent = match object.get("traceparent") {
        Some(raw) => raw
            .as_string()?
            .filter(|t| is_traceparent(t))
            .map(|t| t.into_owned()),
        None => None,
    };
    Ok(draft)
}

fn body(
    object: &Object<'_>,
    source: &Bytes,
    max: usize,
) -> Result<(Bytes, &'static str), ApiError> {
    let (json, text, base64) = (object.get("json"), object.get("text"), object.get("base64"));
    let given = [json, text, base64].iter().flatten().count();
    if given == 0 {
        let detail = "a message needs a body: exactly one of json, text, base64";
        return Err(ApiError::field(
            Code::BodyRequired,
            object.pointer("json"),
            detail,
        ));
    }
    if given > 1 {
        let detail = "a message has exactly one body: json, text or base64, not several";
        return Err(ApiError::field(
            Code::BodyAmbiguous,
            object.pointer("json"),
            detail,
        ));
    }
    let (bytes, default_type) = if let Some(raw) = json {
        (source.slice_ref(raw.text().as_bytes()), "application/json")
    } else if text.is_some() {
        let text = object
            .string("text", Code::InvalidField)?
            .unwrap_or_default();
        let bytes = match text {
            std::borrow::Cow::Borrowed(t) => source.slice_ref(t.as_bytes()),
            std::borrow::Cow::Owned(t) => Bytes::from(t),
        };
        (bytes, "text/plain; charset=utf-8")
    } else {
        let text = object
            .string("base64", Code::InvalidField)?
            .unwrap_or_default();
        let bytes = BASE64.decode(text.as_bytes()).map_err(|e| {
            ApiError::field(
                Code::InvalidField,
                object.pointer("base64"),
                format!("base64 is not in the standard alphabet: {e}"),
            )
        })?;
        (Bytes::from(bytes), "application/octet-stream")
    };
    check_body(bytes.len(), max)?;
    Ok((bytes, default_type))
}

/// Refuses a body over the limit.
///
/// # Errors
/// `message_too_large` with `limit` and `actual`.
pub fn check_body(actual: usize, max: usize) -> Result<(), ApiError> {
    if actual <= max {
        return Ok(());
    }
    let detail = format!("the message body has {actual} bytes; {max} are allowed");
    Err(ApiError::new(Code::MessageTooLarge, detail)
        .with("limit", max)
        .with("actual", actual))
}

fn plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// A content type that can stand in a header.
pub(crate) fn check_content_type(text: &str, pointer: &str) -> Result<String, ApiError> {
    let fine = text.len() <= CONTENT_TYPE_BYTES_MAX
        && text.contains('/')
        && text.bytes().all(|b| (0x20..0x7F).contains(&b));
    if fine && text.trim() == text {
        return Ok(text.to_owned());
    }
    let detail = format!(
        "contentType must look like type/subtype, in ASCII, with at most {CONTENT_TYPE_BYTES_MAX} bytes"
    );
    Err(ApiError::field(Code::InvalidField, pointer, detail))
}

pub(crate) fn check_tag(text: &str, pointer: &str) -> Result<String, ApiError> {
    let fine = !text.is_empty()
        && text.len() <= TAG_BYTES_MAX
        && plain(text)
        && !text.contains('|')
        && text.trim() == text
        && text != "*";
    if fine {
        return Ok(text.to_owned());
    }
    let detail = format!(
        "a tag has 1–{TAG_BYTES_MAX} bytes without control characters, '|' or white space around, and is not '*'"
    );
    Err(ApiError::field(Code::InvalidTag, pointer, detail).with("limit", TAG_BYTES_MAX))
}

pub(crate) fn check_key(text: &str, index: usize, pointer: &str) -> Result<String, ApiError> {
    if index >= KEYS_MAX {
        let detail = format!("a message has at most {KEYS_MAX} keys");
        return Err(ApiError::field(Code::InvalidKey, pointer, detail).with("limit", KEYS_MAX));
    }
    let fine = !text.is_empty()
        && text.len() <= KEY_BYTES_MAX
        && plain(text)
        && !text.contains(char::is_whitespace);
    if fine {
        return Ok(text.to_owned());
    }
    let detail =
        format!("a key has 1–{KEY_BYTES_MAX} bytes without white space or control characters");
    Err(ApiError::field(Code::InvalidKey, pointer, detail).with("limit", KEY_BYTES_MAX))
}

pub(crate) fn check_ordering_key(text: &str, pointer: &str) -> Result<String, ApiError> {
    if !text.is_empty() && text.len() <= ORDERING_KEY_BYTES_MAX && plain(text) {
        return Ok(text.to_owned());
    }
    let detail =
        format!("orderingKey has 1–{ORDERING_KEY_BYTES_MAX} bytes without control characters");
    Err(ApiError::field(Code::InvalidField, pointer, detail).with("limit", ORDERING_KEY_BYTES_MAX))
}

pub(crate) fn check_durability(text: &str, pointer: &str) -> Result<Durability, ApiError> {
    match text {
        "buffered" => Ok(Durability::Buffered),
        "flushed" => Ok(Durability::Flushed),
        "replicated" => {
            let detail =
                "durability 'replicated' is part of the API but not built yet; use flushed";
            Err(ApiError::field(Code::NotImplemented, pointer, detail))
        }
        _ => Err(ApiError::field(
            Code::InvalidField,
            pointer,
            "durability is buffered, flushed or replicated",
        )),
    }
}

fn queue(raw: Raw<'_>, pointer: &str) -> Result<(String, i32), ApiError> {
    let object = Object::open(raw, pointer, &["broker", "id"])?;
    let broker = object.string("broker", Code::InvalidField)?;
    let id = object.integer("id", 0..=65_535, Code::InvalidField)?;
    match (broker, id.and_then(|id| i32::try_from(id).ok())) {
        (Some(broker), Some(id)) => Ok((broker.into_owned(), id)),
        _ => Err(ApiError::field(
            Code::InvalidField,
            pointer,
            "queue needs broker and id",
        )),
    }
}

fn properties(raw: Raw<'_>, pointer: &str) -> Result<Vec<(String, String)>, ApiError> {
    let Some(members) = Map::open(raw, pointer, PROPERTIES_MAX)? else {
        return Err(too_many_properties(pointer));
    };
    let mut checked = PropertyList::default();
    for (name, value) in members {
        let at = format!("{pointer}/{name}");
        match (value.kind(), value.as_string()?) {
            (Kind::Null, _) => {}
            (_, Some(value)) => checked.add(&name, &value, &at)?,
            (kind, None) => {
                let detail = format!("a property is a string, not {}", kind.name());
                return Err(ApiError::field(Code::InvalidField, at, detail));
            }
        }
    }
    Ok(checked.list)
}

fn too_many_properties(pointer: &str) -> ApiError {
    let detail = format!("at most {PROPERTIES_MAX} properties");
    ApiError::field(Code::PropertiesTooLarge, pointer, detail).with("limit", PROPERTIES_MAX)
}

/// Collects properties within the limits.
#[derive(Debug, Default)]
pub(crate) struct PropertyList {
    pub(crate) list: Vec<(String, String)>,
    bytes: usize,
}

impl PropertyList {
    /// Adds one.
    ///
    /// # Errors
    /// `reserved_property`, `invalid_field`, `properties_too_large`.
    pub(crate) fn add(&mut self, name: &str, value: &str, pointer: &str) -> Result<(), ApiError> {
        if is_reserved_property(name) {
            let detail = format!("'{name}' is used by the broker itself; choose another name");
            return Err(ApiError::field(Code::ReservedProperty, pointer, detail));
        }
        let bytes = name.as_bytes();
        let named = bytes
            .first()
            .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
            && bytes.len() <= 64
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !named {
            let detail = "a property name is a letter or _, then letters, digits, _ . -, 64 in all";
            return Err(ApiError::field(Code::InvalidField, pointer, detail));
        }
        if value.is_empty() || value.contains(['\u{1}', '\u{2}', '\0']) {
            let detail = "a property value is not empty and holds no U+0000, U+0001 or U+0002, which the stored form cannot carry";
            return Err(ApiError::field(Code::InvalidField, pointer, detail));
        }
        if self.list.len() == PROPERTIES_MAX {
            return Err(too_many_properties(pointer));
        }
        self.bytes += name.len() + value.len();
        let over = if value.len() > PROPERTY_VALUE_MAX {
            Some((PROPERTY_VALUE_MAX, value.len(), "one property value"))
        } else if self.bytes > PROPERTIES_BYTES_MAX {
            Some((PROPERTIES_BYTES_MAX, self.bytes, "all properties together"))
        } else {
            None
        };
        if let Some((limit, actual, what)) = over {
            let detail = format!("{what}: {actual} bytes, {limit} are allowed");
            return Err(ApiError::field(Code::PropertiesTooLarge, pointer, detail)
                .with("limit", limit)
                .with("actual", actual));
        }
        self.list.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, not all zero (W3C Trace Context, version 00).
#[must_use]
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, n: usize| {
        part.len() == n
            && part
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    matches!(parts.as_slice(), ["00", trace, span, flags]
        if hex(trace, 32) && hex(span, 16) && hex(flags, 2) && trace.contains(|c| c != '0') && span.contains(|c| c != '0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document;

    fn read(text: &str) -> Result<Draft, ApiError> {
        let source = Bytes::copy_from_slice(text.as_bytes());
        draft(document(&source)?, "", &source, 64)
    }

    fn refused(text: &str) -> (&'static str, String) {
        let error = read(text).unwrap_err();
        let pointer = error
            .fault()
            .errors
            .first()
            .map(|e| e.pointer.clone())
            .unwrap_or_default();
        (error.code().as_str(), pointer)
    }

    #[test]
    fn a_message_has_exactly_one_body() {
        assert_eq!(refused(r#"{"json":1,"text":"x"}"#).0, "body_ambiguous");
        assert_eq!(refused(r#"{"tag":"x"}"#).0, "body_required");
        assert_eq!(refused(r#"{"json":null}"#).0, "body_required");
        assert_eq!(
            refused(r#"{"json":1,"tagg":"x"}"#),
            ("unknown_field", "/tagg".into())
        );
        assert_eq!(
            &read(r#"{"json": {"b": 1.50, "a":1e3} }"#).unwrap().body[..],
            br#"{"b": 1.50, "a":1e3}"#
        );
        assert_eq!(
            &read(r#"{"json":null,"text":"h\u0069"}"#).unwrap().body[..],
            b"hi"
        );
        assert_eq!(read(r#"{"text":""}"#).unwrap().body.len(), 0);
        for text in ["Aw==", "Aw"] {
            assert_eq!(
                &read(&format!(r#"{{"base64":"{text}"}}"#)).unwrap().body[..],
                [3]
            );
        }
    }

    #[test]
    fn each_field_has_its_own_code() {
        for (text, code, pointer) in [
            (r#"{"text":1}"#, "invalid_field", "/text"),
            (r#"{"text":"\ud800"}"#, "invalid_json", ""),
            (r#"{"base64":"*"}"#, "invalid_field", "/base64"),
            (r#"{"json":1,"tag":5}"#, "invalid_tag", "/tag"),
            (r#"{"json":1,"tag":""}"#, "invalid_tag", "/tag"),
            (r#"{"json":1,"tag":"a||b"}"#, "invalid_tag", "/tag"),
            (r#"{"json":1,"keys":"a"}"#, "invalid_key", "/keys"),
            (
                r#"{"json":1,"keys":["ok","a b"]}"#,
                "invalid_key",
                "/keys/1",
            ),
            (
                r#"{"json":1,"orderingKey":""}"#,
                "invalid_field",
                "/orderingKey",
            ),
            (
                r#"{"json":1,"properties":{"TAGS":"x"}}"#,
                "reserved_property",
                "/properties/TAGS",
            ),
            (
                r#"{"json":1,"properties":{"__x":"x"}}"#,
                "reserved_property",
                "/properties/__x",
            ),
            (
                r#"{"json":1,"properties":{"a b":"x"}}"#,
                "invalid_field",
                "/properties/a b",
            ),
            (
                r#"{"json":1,"properties":{"a":1}}"#,
                "invalid_field",
                "/properties/a",
            ),
            (
                r#"{"json":1,"properties":{"a":"x","a":"y"}}"#,
                "invalid_json",
                "/properties/a",
            ),
            (
                r#"{"json":1,"durability":"none"}"#,
                "invalid_field",
                "/durability",
            ),
            (
                r#"{"json":1,"durability":"replicated"}"#,
                "not_implemented",
                "/durability",
            ),
            (r#"{"json":1,"delay":"3s"}"#, "not_implemented", "/delay"),
            (r#"{"json":1,"priority":3}"#, "not_implemented", "/priority"),
            (
                r#"{"json":1,"contentType":"x\ny/z"}"#,
                "invalid_field",
                "/contentType",
            ),
            (
                r#"{"json":1,"queue":{"broker":"a"}}"#,
                "invalid_field",
                "/queue",
            ),
            ("[]", "invalid_field", ""),
        ] {
            assert_eq!(refused(text), (code, pointer.to_owned()), "{text}");
        }
        let over = format!(r#"{{"text":"{}"}}"#, "x".repeat(65));
        assert_eq!(refused(&over).0, "message_too_large");
        let many: Vec<String> = (0..129).map(|i| format!(r#""p{i}":"x""#)).collect();
        assert_eq!(
            refused(&format!(
                r#"{{"json":1,"properties":{{{}}}}}"#,
                many.join(",")
            ))
            .0,
            "properties_too_large"
        );
        let long = format!(
            r#"{{"json":1,"properties":{{"a":"{}"}}}}"#,
            "x".repeat(4097)
        );
        assert_eq!(refused(&long).0, "properties_too_large");
    }

    #[test]
    fn bad_trace_context_is_dropped() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            read(&format!(r#"{{"json":1,"traceparent":"{good}"}}"#))
                .unwrap()
                .traceparent
                .as_deref(),
            Some(good)
        );
        assert_eq!(
            read(r#"{"json":1,"traceparent":"x"}"#).unwrap().traceparent,
            None
        );
        assert_eq!(
            read(r#"{"json":1,"traceparent":7}"#).unwrap().traceparent,
            None
        );
    }
}
