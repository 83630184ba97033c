//! Frames: header fields, lengths, cuts.

use bytes::BytesMut;
use serde_json::Value;
use wire::frame;

use crate::{decode, frames};

fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_frame_reads_as_recorded() {
    for frame in frames() {
        let cmd = decode(&frame);
        let header = frame.decoded.clone().unwrap_or_else(|| {
            let len = u32::from_be_bytes(frame.raw[4..8].try_into().unwrap()) as usize & 0xff_ffff;
            serde_json::from_slice(&frame.raw[8..8 + len]).unwrap()
        });
        let number = |name: &str| header[name].as_i64().unwrap_or(0);
        let got = (
            i64::from(cmd.code),
            i64::from(cmd.flag),
            i64::from(cmd.version),
            i64::from(cmd.opaque),
        );
        let (code, flag) = (number("code"), number("flag"));
        if header["code"].is_number() && header["opaque"].is_number() {
            assert_eq!(
                got,
                (code, flag, number("version"), number("opaque")),
                "{}",
                frame.at
            );
        }
        let remark = header["remark"]
            .as_str()
            .filter(|r| frame.decoded.is_none() || !r.is_empty());
        assert_eq!(cmd.remark.as_deref(), remark, "{}", frame.at);
        let empty = serde_json::Map::new();
        let fields = header["extFields"].as_object().unwrap_or(&empty);
        for (name, value) in fields.iter().filter(|(_, v)| !v.is_null()) {
            let expected = as_text(value);
            if frame.decoded.is_some() && expected.is_empty() {
                continue;
            }
            assert_eq!(
                cmd.ext.get(name),
                Some(expected.as_str()),
                "{} {name}",
                frame.at
            );
        }
        assert!(cmd.ext.len() <= fields.len(), "{}", frame.at);
        if let Some(language) = header["language"].as_str() {
            assert_eq!(cmd.language.name(), language, "{}", frame.at);
        }
        assert_eq!(cmd.is_response(), !frame.request, "{}", frame.at);
    }
}

#[test]
fn every_frame_written_again_reads_the_same() {
    for frame in frames() {
        let cmd = decode(&frame);
        frame::check(&cmd).unwrap();
        let mut out = BytesMut::new();
        frame::encode(&cmd, &mut out);
        let length = u32::from_be_bytes(out[..4].try_into().unwrap()) as usize;
        assert_eq!(length + 4, out.len(), "{}", frame.at);
        if frame.decoded.is_none()
            && frame.source.starts_with("java")
            && frame.source != "java-5.4.0-binary"
        {
            assert_eq!(
                out.len(),
                frame.raw.len(),
                "{}: Java writes the same number of bytes",
                frame.at
            );
        }
        let again = frame::decode(&mut out).unwrap().unwrap();
        assert_eq!(again, cmd, "{}", frame.at);
    }
}

#[test]
fn cut_frames_wait_and_cut_headers_fail() {
    for frame in frames().iter().step_by(5) {
        for cut in 0..frame.raw.len() {
            let mut buf = BytesMut::from(&frame.raw[..cut]);
            assert_eq!(
                frame::decode(&mut buf).unwrap(),
                None,
                "{} at {cut}",
                frame.at
            );
        }
        let len = u32::from_be_bytes(frame.raw[4..8].try_into().unwrap()) as usize & 0xff_ffff;
        for cut in 1..len.saturating_sub(1) {
            let mut bytes = (4 + cut as u32).to_be_bytes().to_vec();
            bytes.extend([frame.raw[4]]);
            bytes.extend(&(cut as u32).to_be_bytes()[1..]);
            bytes.extend(&frame.raw[8..8 + cut]);
            assert!(
                frame::decode(&mut BytesMut::from(bytes.as_slice())).is_err(),
                "{} at {cut}",
                frame.at
            );
        }
    }
}
