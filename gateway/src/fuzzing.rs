//! The readers of requests, opened to the fuzz targets: each takes anything and must not panic.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::error::Code;
use crate::json;
use crate::page::PageKeys;
use crate::params::{self, Query};
use crate::reader::{Cursor, Origin, TagFilter, Until};
use crate::receipt::ReceiptKeys;
use crate::signing::Signer;
use crate::upstream::Scope;
use crate::{message, rest, ws};

/// Message body limit, bytes.
const BODY_MAX: usize = 1 << 20;
/// Frames read of one input.
const FRAMES_MAX: usize = 10_000;

fn keys() -> ReceiptKeys {
    ReceiptKeys::new(&[(1, [7; 32])])
}

fn cursor_keys() -> Signer {
    keys().signer("cursor")
}

/// Durations, times, names, queries, tags, where readers begin and end, receipts, cursors and page tokens; forged
/// handles must not verify.
pub fn texts(text: &str) {
    if let Some(ms) = params::parse_duration(text) {
        assert_eq!(
            params::parse_duration(&params::format_duration(ms)),
            Some(ms)
        );
    }
    if let Some(at) = params::parse_time(text) {
        assert_eq!(params::parse_time(&params::format_time(at)), Some(at));
    }
    drop(params::check_topic(text));
    drop(params::check_group(text));
    drop(params::check_namespace(text));
    drop(Query::parse(
        Some(text),
        &["topic", "max", "wait", "receipt"],
    ));
    let receipts = keys();
    assert!(receipts.decode(&Scope, "group", text).is_err());
    assert!(PageKeys::of(&receipts).decode("list", text, 0).is_err());
    let cursors = cursor_keys();
    let from = Origin::parse(&cursors, "topic", text, "?from");
    assert!(!matches!(from, Ok(Origin::Cursor(_))));
    let to = Until::parse(&cursors, "topic", text, "?to");
    assert!(!matches!(to, Ok(Until::Cursor(_))));
    if let Ok(Some(filter)) = TagFilter::parse(text, "?tag") {
        let again = TagFilter::parse(filter.expression(), "?tag");
        assert_eq!(again.ok().flatten(), Some(filter));
    }
}

/// What stands behind a MAC that fits: 0 the lease of a receipt, 1 the place of a cursor, 2 the position of a page
/// token, 3 all of what is sealed in a cursor, 4 the same of a page token.
pub fn signed(kind: u8, content: &[u8]) {
    match kind {
        0 => receipt(content),
        1 => cursor(&Cursor::sign(&cursor_keys(), "topic", content)),
        2 => page_token(&PageKeys::of(&keys()).sign("list", content, 1)),
        3 => cursor(&format!("mqc_{}", cursor_keys().seal(content))),
        4 => page_token(&keys().signer("page token").seal(content)),
        _ => {}
    }
}

fn receipt(content: &[u8]) {
    let keys = keys();
    let signed = keys.sign(&Scope, "group", content.len(), |out| {
        out.extend_from_slice(content);
    });
    if let Ok(lease) = keys.decode(&Scope, "group", &signed) {
        let again = keys.encode(&Scope, "group", &lease);
        assert_eq!(keys.decode(&Scope, "group", &again), Ok(lease));
        assert!(keys.decode(&Scope, "other", &again).is_err());
    }
}

fn cursor(text: &str) {
    let keys = cursor_keys();
    if let Ok(read) = Cursor::decode(&keys, "topic", text, "?from") {
        let again = read.encode(&keys, "topic");
        assert!(Cursor::decode(&keys, "other", &again, "?from").is_err());
        let from = Origin::parse(&keys, "topic", &again, "?from");
        assert_eq!(from.ok(), Some(Origin::Cursor(read.clone())));
        let to = Until::parse(&keys, "topic", &again, "?to");
        assert_eq!(to.ok(), Some(Until::Cursor(read)));
    }
}

fn page_token(text: &str) {
    let keys = PageKeys::of(&keys());
    if let Ok(position) = keys.decode("list", text, 0) {
        let again = keys.encode("list", &position, 0);
        assert_eq!(keys.decode("list", &again, 0).ok(), Some(position));
        assert!(keys.decode("other", &again, 0).is_err());
    }
}

/// Headers of a send whose body is the payload, a `name:value` in each line.
pub fn raw_headers(lines: &[u8]) {
    rest::read_headers(lines);
}

/// A body of the API: message, batch of messages or settlements, topic, group, subscription.
pub fn rest_body(kind: u8, body: &[u8]) {
    // A body is a slice of what was read.
    let source = Bytes::copy_from_slice(body);
    let Ok(raw) = json::document(&source) else {
        return;
    };
    match kind {
        0 => drop(message::draft(raw, "", &source, BODY_MAX)),
        kind => rest::read_body(kind, raw, &source, BODY_MAX),
    }
    assert!(json::is_json(body) || raw.text().len() <= body.len());
    drop(raw.as_string());
    let _number = (raw.as_integer(), raw.as_number(), raw.as_bool());
    let _known = json::Object::open(raw, "", &["a"]).map_err(|e| e.code() == Code::Internal);
}

/// The objects of one text frame, run through a session.
pub fn socket_text(text: &str) {
    ws::take_text(text);
}

/// Bytes of a socket after its handshake, with the bounds of the real one.
pub fn socket(bytes: &[u8]) {
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_message_size(Some(ws::FRAME_MAX))
        .max_frame_size(Some(ws::FRAME_MAX));
    let mut socket =
        WebSocket::from_raw_socket(Peer(io::Cursor::new(bytes)), Role::Server, Some(config));
    for _ in 0..FRAMES_MAX {
        match socket.read() {
            Ok(Message::Text(text)) => ws::take_text(&text),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// A peer that says what is in the input and takes everything.
struct Peer<'a>(io::Cursor<&'a [u8]>);

impl Read for Peer<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
