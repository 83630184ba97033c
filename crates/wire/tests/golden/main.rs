//! Frames, bodies and records recorded from Apache RocketMQ 5.4.0: read, compared, written again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    clippy::let_underscore_must_use,
    clippy::needless_pass_by_value,
    reason = "a test program: what is wrong shall fail loudly"
)]

mod bodies;
mod frames;
mod headers;
mod records;

use std::path::PathBuf;

use bytes::BytesMut;
use serde_json::Value;
use wire::{Command, frame};

fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

struct Frame {
    /// File and place, for messages.
    at: String,
    source: String,
    raw: Vec<u8>,
    decoded: Option<Value>,
    request: bool,
    /// Code of the request, also for answers.
    asked: i32,
}

impl Frame {
    /// Such requests show answers to unusual input, and lack fields that clients send.
    fn hand_made(&self) -> bool {
        self.source.starts_with("raw")
    }
}

fn frames() -> Vec<Frame> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(golden("frames")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let asked = name[..6].parse().unwrap();
        let pairs: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (i, pair) in pairs.iter().enumerate() {
            for side in ["request", "response"] {
                if let Some(raw) = pair[side].as_str() {
                    all.push(Frame {
                        at: format!("{name} pair {i} {side}"),
                        source: pair["source"].as_str().unwrap().to_owned(),
                        raw: hex(raw),
                        decoded: pair.get(format!("{side}Decoded")).cloned(),
                        request: side == "request",
                        asked,
                    });
                }
            }
        }
    }
    assert!(all.len() > 500, "{}", all.len());
    all
}

fn decode(frame: &Frame) -> Command {
    let mut buf = BytesMut::from(frame.raw.as_slice());
    let cmd = frame::decode(&mut buf).unwrap_or_else(|e| panic!("{}: {e}", frame.at));
    assert!(buf.is_empty(), "{}", frame.at);
    cmd.unwrap_or_else(|| panic!("{}: not whole", frame.at))
}
