//! Message JSON: written by hand, so that a stored `json` value keeps its bytes.

use crate::json::{is_json, write_one_line, write_string};
use crate::params::write_time;
use crate::upstream::{Content, Delivery, LastError, Peeked, Record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;

/// How a body is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFormat {
    /// json, else text, else base64, by content type.
    #[default]
    Auto,
    /// Always base64.
    Base64,
    /// Text; base64 where it is not UTF-8.
    Text,
    /// No body.
    None,
}

impl BodyFormat {
    /// Of `auto`, `base64`, `text`, `none`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "base64" => Some(Self::Base64),
            "text" => Some(Self::Text),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// Whether a content type says JSON: `application/json`, `text/json` or any `+json`.
#[must_use]
pub fn is_json_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("text/json")
        || essence.len() > 5
            && essence.as_bytes()[essence.len() - 5..].eq_ignore_ascii_case(b"+json")
}

fn is_text_type(content_type: &str) -> bool {
    content_type
        .as_bytes()
        .get(..5)
        .is_some_and(|t| t.eq_ignore_ascii_case(b"text/"))
}

/// The content type of a body stored without one (by a native client): JSON objects and arrays, other UTF-8, bytes.
#[must_use]
pub fn guess_content_type(body: &[u8]) -> &'static str {
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) && is_json(body) {
        "application/json"
    } else if std::str::from_utf8(body).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    }
}

/// Appends the message object. `one_line` leaves out line feeds between the tokens of a stored `json` value (needed in
/// WebSocket frames, SSE and NDJSON).
pub fn message(out: &mut Vec<u8>, delivery: &Delivery, format: BodyFormat, one_line: bool) {
    out.reserve(600 + delivery.body.len() + delivery.receipt.len());
    let mut object = Members::open(out);
    object.text("messageId", &delivery.message_id);
    object.text("receipt", &delivery.receipt);
    object.text("topic", &delivery.topic);
    object.text_or_null("tag", delivery.tag.as_deref());
    object.texts("keys", &delivery.keys);
    object.text_or_null("orderingKey", delivery.ordering_key.as_deref());
    object.map("properties", &delivery.properties);
    object.text("contentType", &delivery.content_type);
    body(
        &mut object,
        &delivery.body,
        &delivery.content_type,
        format,
        one_line,
    );
    object.number("size", delivery.body.len() as i64);
    object.queue("queue", &delivery.broker, delivery.queue_id);
    object.number("offset", delivery.queue_offset);
    object.time("bornAt", delivery.born_at_ms);
    object.time("storedAt", delivery.stored_at_ms);
    object.time("deliveredAt", delivery.lease.delivered_at_ms);
    object.time("firstDeliveredAt", delivery.first_delivered_at_ms);
    object.time("invisibleUntil", delivery.invisible_until_ms);
    object.number("attempt", i64::from(delivery.lease.attempt));
    object.number("maxAttempts", i64::from(delivery.max_attempts));
    last_error(&mut object, delivery.last_error.as_ref());
    object.number("redriveCount", 0);
    if let Some(traceparent) = &delivery.traceparent {
        object.text("traceparent", traceparent);
    }
    object.close();
}

fn last_error(object: &mut Members<'_>, error: Option<&LastError>) {
    let Some(error) = error else {
        return object.raw("lastError", b"null");
    };
    let mut fields = Members::open(object.member("lastError"));
    fields.text_or_null("code", error.code.as_deref());
    fields.text_or_null("reason", error.reason.as_deref());
    fields.time("at", error.at_ms);
    fields.close();
}

/// Appends a message as a reader gets it: no receipt, no lease.
pub(crate) fn record(
    out: &mut Vec<u8>,
    record: &Record,
    topic: &str,
    format: BodyFormat,
    one_line: bool,
) {
    let content = &record.content;
    out.reserve(500 + content.body.len());
    let mut object = Members::open(out);
    plain(&mut object, content, topic, format, one_line);
    object.queue("queue", &record.broker, record.queue_id);
    object.number("offset", record.offset);
    object.time("bornAt", record.born_at_ms);
    object.time("storedAt", record.stored_at_ms);
    if let Some(traceparent) = &content.traceparent {
        object.text("traceparent", traceparent);
    }
    object.close();
}

/// Appends a message that would be delivered next, as of its first store.
pub(crate) fn peeked(out: &mut Vec<u8>, message: &Peeked, format: BodyFormat) {
    let content = &message.content;
    out.reserve(600 + content.body.len());
    let mut object = Members::open(out);
    plain(&mut object, content, &content.topic, format, false);
    object.queue("queue", &message.broker, content.queue_id);
    object.number("offset", content.queue_offset);
    object.time("bornAt", message.born_at_ms);
    object.time("storedAt", content.stored_at_ms);
    object.number("attempt", i64::from(message.attempt));
    last_error(&mut object, message.last_error.as_ref());
    if let Some(traceparent) = &content.traceparent {
        object.text("traceparent", traceparent);
    }
    object.close();
}

/// What the producer gave.
fn plain(
    object: &mut Members<'_>,
    content: &Content,
    topic: &str,
    format: BodyFormat,
    one_line: bool,
) {
    object.text("messageId", &content.message_id);
    object.text("topic", topic);
    object.text_or_null("tag", content.tag.as_deref());
    object.texts("keys", &content.keys);
    object.text_or_null("orderingKey", content.ordering_key.as_deref());
    object.map("properties", &content.properties);
    object.text("contentType", &content.content_type);
    body(
        object,
        &content.body,
        &content.content_type,
        format,
        one_line,
    );
    object.number("size", content.body.len() as i64);
}

/// Adds `json`, `text` or `base64`.
pub(crate) fn body(
    object: &mut Members<'_>,
    bytes: &[u8],
    content_type: &str,
    format: BodyFormat,
    one_line: bool,
) {
    let utf8 = || std::str::from_utf8(bytes).ok();
    match format {
        BodyFormat::None => {}
        BodyFormat::Auto if is_json_type(content_type) && is_json(bytes) => {
            let out = object.member("json");
            if one_line {
                write_one_line(out, bytes)
            } else {
                out.extend_from_slice(bytes)
            }
        }
        BodyFormat::Auto if is_text_type(content_type) && utf8().is_some() => {
            object.text("text", utf8().unwrap_or_default())
        }
        BodyFormat::Text if utf8().is_some() => object.text("text", utf8().unwrap_or_default()),
        BodyFormat::Auto | BodyFormat::Text | BodyFormat::Base64 => {
            let out = object.member("base64");
            out.push(b'"');
            let from = out.len();
            out.resize(from + bytes.len().div_ceil(3) * 4, 0);
            let used = STANDARD.encode_slice(bytes, &mut out[from..]).unwrap_or(0);
            out.truncate(from + used);
            out.push(b'"');
        }
    }
}

/// Writes the members of one object, commas included.
#[derive(Debug)]
pub struct Members<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Members<'a> {
    /// Begins an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes the name of a member; its value must follow.
    pub fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, name: &str, value: &[u8]) {
        self.member(name).extend_from_slice(value);
    }

    /// A text.
    pub fn text(&mut self, name: &str, value: &str) {
        write_string(self.member(name), value);
    }

    /// A text or null.
    pub fn text_or_null(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, b"null"),
        }
    }

    /// A whole number.
    pub fn number(&mut self, name: &str, value: i64) {
        let out = self.member(name);
        // Writing to a Vec cannot fail.
        drop(write!(out, "{value}"));
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.raw(name, if value { b"true" } else { b"false" });
    }

    /// An RFC 3339 time.
    pub fn time(&mut self, name: &str, epoch_ms: i64) {
        let out = self.member(name);
        out.push(b'"');
        write_time(out, epoch_ms);
        out.push(b'"');
    }

    /// A time or null.
    pub fn time_or_null(&mut self, name: &str, epoch_ms: Option<i64>) {
        match epoch_ms {
            Some(ms) => self.time(name, ms),
            None => self.raw(name, b"null"),
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &str, values: &[String]) {
        let out = self.member(name);
        out.push(b'[');
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_string(out, value);
        }
        out.push(b']');
    }

    /// An object of texts.
    pub fn map(&mut self, name: &str, values: &[(String, String)]) {
        let out = self.member(name);
        out.push(b'{');
        for (i, (key, value)) in values.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_string(out, key);
            out.push(b':');
            write_string(out, value);
        }
        out.push(b'}');
    }

    /// `{"broker":…,"id":…}`
    pub fn queue(&mut self, name: &str, broker: &str, id: i32) {
        let out = self.member(name);
        let mut queue = Members::open(out);
        queue.text("broker", broker);
        queue.number("id", i64::from(id));
        queue.close();
    }

    /// Ends the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8], content_type: &str, format: BodyFormat) -> String {
        let mut out = Vec::new();
        let mut object = Members::open(&mut out);
        body(&mut object, bytes, content_type, format, false);
        object.close();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bodies_are_shown_by_type_and_never_lost() {
        let auto = BodyFormat::Auto;
        assert_eq!(
            shown(b"{ \"a\":1.0 }", "application/json", auto),
            r#"{"json":{ "a":1.0 }}"#
        );
        assert_eq!(
            shown(b"{\"a\":1", "application/json", auto),
            r#"{"base64":"eyJhIjox"}"#
        );
        assert_eq!(
            shown(b"1", "application/vnd.x+json; v=1", auto),
            r#"{"json":1}"#
        );
        assert_eq!(
            shown("é\n".as_bytes(), "text/plain", auto),
            "{\"text\":\"é\\n\"}"
        );
        assert_eq!(shown(b"\xff", "text/plain", auto), r#"{"base64":"/w=="}"#);
        assert_eq!(shown(b"a", "image/png", auto), r#"{"base64":"YQ=="}"#);
        assert_eq!(
            shown(b"a", "image/png", BodyFormat::Text),
            r#"{"text":"a"}"#
        );
        assert_eq!(shown(b"a", "image/png", BodyFormat::None), "{}");
        assert_eq!(shown(b"", "text/plain", auto), r#"{"text":""}"#);
    }

    #[test]
    fn a_stored_value_fits_one_line() {
        let mut out = Vec::new();
        write_one_line(&mut out, b"{\n \"a\":\r\n1}");
        assert_eq!(out, b"{ \"a\":1}");
    }
}
