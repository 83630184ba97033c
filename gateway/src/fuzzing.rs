//! The readers of requests, opened to the fuzz targets: each takes anything and must not panic.

use std::io::{self, Cursor, Read, Write};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::error::Code;
use crate::json;
use crate::page::PageKeys;
use crate::params::{self, Query};
use crate::receipt::ReceiptKeys;
use crate::upstream::Scope;
use crate::{message, rest, ws};

/// Message body limit, bytes.
const BODY_MAX: usize = 1 << 20;
/// Frames read of one input.
const FRAMES_MAX: usize = 10_000;

fn keys() -> ReceiptKeys {
    ReceiptKeys::new(&[(1, [7; 32])])
}

/// Durations, times, names, queries, receipts and page tokens; forged handles must not verify.
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
}

/// A body of the API: message, batch of settlements, topic, group, subscription.
pub fn rest_body(kind: u8, body: &[u8]) {
    // A body is a slice of what was read.
    let source = Bytes::copy_from_slice(body);
    let Ok(raw) = json::document(&source) else {
        return;
    };
    match kind {
        0 => drop(message::draft(raw, "", &source, BODY_MAX)),
        kind => rest::read_body(kind, raw),
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
        WebSocket::from_raw_socket(Peer(Cursor::new(bytes)), Role::Server, Some(config));
    for _ in 0..FRAMES_MAX {
        match socket.read() {
            Ok(Message::Text(text)) => ws::take_text(&text),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// A peer that says what is in the input and takes everything.
struct Peer<'a>(Cursor<&'a [u8]>);

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
