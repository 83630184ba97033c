//! Frames: cutting them out of a stream and writing them.
//!
//! ```text
//! i32 total | u8 kind, u24 header length | header | body      total = 4 + header + body, not itself
//! ```

use bytes::{Buf, BufMut, BytesMut};

use crate::{Command, WireError, header_binary, header_json};

/// The largest frame, with its length field, bytes (RocketMQ NettyDecoder).
pub const FRAME_MAX_BYTES: usize = 16_777_216;

const HEADER_MAX_BYTES: usize = 0x00ff_ffff;

/// Cuts the next whole frame from the front of `buf`; `None` when more bytes are needed. The body
/// shares the buffer's memory.
///
/// # Errors
/// The connection must be closed: the stream cannot be followed further.
pub fn decode(buf: &mut BytesMut) -> Result<Option<Command>, WireError> {
    let Some(total) = announced(buf)? else {
        return Ok(None);
    };
    if buf.len() < total {
        return Ok(None);
    }
    let mut frame = buf.split_to(total).freeze();
    frame.advance(4);
    let word = frame.get_u32();
    let [kind, ..] = word.to_be_bytes();
    let header_len = usize::try_from(word & 0x00ff_ffff).unwrap_or(usize::MAX);
    if header_len > frame.len() {
        return Err(WireError::Frame {
            what: "header is longer than its frame",
        });
    }
    let header = frame.split_to(header_len);
    let mut cmd = match kind {
        0 => match core::str::from_utf8(&header) {
            Ok(text) => header_json::parse(text)?,
            // As Java reads it.
            Err(_) => header_json::parse(&String::from_utf8_lossy(&header))?,
        },
        1 => header_binary::parse(&header)?,
        kind => return Err(WireError::HeaderKind { kind }),
    };
    cmd.body = frame.into();
    Ok(Some(cmd))
}

/// Bytes still missing to the end of the frame at the front of `buf`; 0 when it is whole, at least 1
/// when not even its length is known. For sizing the next read.
///
/// # Errors
/// As [`decode`].
pub fn missing(buf: &BytesMut) -> Result<usize, WireError> {
    Ok(
        announced(buf)?.map_or(4usize.saturating_sub(buf.len()), |total| {
            total.saturating_sub(buf.len())
        }),
    )
}

/// The size of the frame at the front, with its length field.
fn announced(buf: &BytesMut) -> Result<Option<usize>, WireError> {
    let Some(length) = buf.first_chunk::<4>() else {
        return Ok(None);
    };
    let size = 4 + u64::from(u32::from_be_bytes(*length));
    let total = usize::try_from(size).unwrap_or(usize::MAX);
    if total > FRAME_MAX_BYTES {
        return Err(WireError::FrameTooLarge {
            size,
            limit: 16_777_216,
        });
    }
    if total < 8 {
        return Err(WireError::Frame {
            what: "frame is shorter than its header length",
        });
    }
    Ok(Some(total))
}

/// Appends the whole frame, JSON header and body. The frame should fit [`FRAME_MAX_BYTES`], see
/// [`check`]: receivers close the connection on a larger one.
pub fn encode(cmd: &Command, out: &mut BytesMut) {
    encode_head(cmd, out);
    for part in cmd.body.parts() {
        out.extend_from_slice(part);
    }
}

/// Appends everything but the body bytes; the lengths count them. The caller writes the body's parts
/// right after.
pub fn encode_head(cmd: &Command, out: &mut BytesMut) {
    let start = out.len();
    out.reserve(320);
    out.put_u64(0);
    header_json::write(cmd, out);
    let header_len = (out.len() - start).saturating_sub(8);
    let total = header_len + 4 + cmd.body.len();
    if let Some(lengths) = out
        .get_mut(start..)
        .and_then(|bytes| bytes.first_chunk_mut::<8>())
    {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let header_len = u64::try_from(header_len).unwrap_or(u64::MAX);
        *lengths = ((total << 32) | (header_len & 0x00ff_ffff)).to_be_bytes();
    }
}

/// Tells whether the frame of this command is sure to fit.
///
/// # Errors
/// [`WireError::FrameTooLarge`] when the body, or the header written with every byte escaped, may be
/// over the limits.
pub fn check(cmd: &Command) -> Result<(), WireError> {
    let text: usize = cmd
        .ext
        .iter()
        .map(|(name, value)| name.len() + value.len() + 6)
        .sum();
    let text = text + cmd.remark.as_ref().map_or(0, String::len);
    let size = cmd.body.len() + text + 256;
    if size > FRAME_MAX_BYTES || text * 6 + 256 > HEADER_MAX_BYTES {
        return Err(WireError::FrameTooLarge {
            size: u64::try_from(size).unwrap_or(u64::MAX),
            limit: 16_777_216,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestCode, ResponseCode};

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut cmd = Command::request(RequestCode::SendMessageV2)
            .with_ext("b", "T")
            .with_body(vec![7; 100]);
        cmd.opaque = -3;
        let answer = Command::error(ResponseCode::TopicNotExist, "no");
        let mut buf = BytesMut::new();
        encode(&cmd, &mut buf);
        encode(&answer, &mut buf);
        assert_eq!(decode(&mut buf).unwrap().unwrap(), cmd);
        assert_eq!(decode(&mut buf).unwrap().unwrap(), answer);
        assert_eq!(decode(&mut buf).unwrap(), None);
    }

    #[test]
    fn waits_for_every_byte() {
        let cmd = Command::request(RequestCode::HeartBeat).with_body("{}");
        let mut whole = BytesMut::new();
        encode(&cmd, &mut whole);
        let mut buf = BytesMut::new();
        for (i, byte) in whole.iter().enumerate() {
            assert_eq!(decode(&mut buf).unwrap(), None, "{i}");
            assert!(missing(&buf).unwrap() > 0);
            buf.put_u8(*byte);
        }
        assert_eq!(missing(&buf).unwrap(), 0);
        assert_eq!(decode(&mut buf).unwrap(), Some(cmd));
    }

    #[test]
    fn impossible_lengths_are_errors() {
        let check = |bytes: &[u8]| decode(&mut BytesMut::from(bytes)).unwrap_err();
        assert!(matches!(
            check(&[0xff, 0xff, 0xff, 0xff]),
            WireError::FrameTooLarge { .. }
        ));
        assert!(matches!(
            check(b"GET / HTTP/1.1"),
            WireError::FrameTooLarge { .. }
        ));
        assert!(matches!(
            check(&[0, 0, 0, 3, 0, 0, 0]),
            WireError::Frame { .. }
        ));
        assert!(matches!(
            check(&[0, 0, 0, 4, 0, 0, 0, 9]),
            WireError::Frame { .. }
        ));
        assert!(matches!(
            check(&[0, 0, 0, 4, 2, 0, 0, 0]),
            WireError::HeaderKind { kind: 2 }
        ));
    }
}
