//! A frame encoded once, whose correlation id is patched for each send; and the opposite for answers.

use bytes::{Bytes, BytesMut};
use wire::{Command, RequestCode, frame};

/// Correlation ids of a connection start here: ten digits, whatever is added.
pub(crate) const FIRST_OPAQUE: u32 = 1_000_000_000;
const DIGITS: usize = 10;

/// One request frame.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    frame: Bytes,
    opaque_at: usize,
}

impl Template {
    /// SEND_MESSAGE_V2 with the fields a Java producer sends.
    pub(crate) fn send(
        topic: &str,
        queue: u32,
        queues: u32,
        body: &[u8],
        born_ms: u64,
    ) -> Option<Self> {
        let properties = "UNIQ_KEY\u{1}FD000000000000000000000000000002BE7C30946E09000000000001\u{2}WAIT\u{1}true";
        let fields: [(&str, &str); 13] = [
            ("a", "gantry_bench"),
            ("b", topic),
            ("c", "TBW102"),
            ("d", &queues.to_string()),
            ("e", &queue.to_string()),
            ("f", "0"),
            ("g", &born_ms.to_string()),
            ("h", "0"),
            ("i", properties),
            ("j", "0"),
            ("k", "false"),
            ("m", "false"),
            ("n", ""),
        ];
        let mut cmd = Command::request(RequestCode::SendMessageV2).with_body(body.to_vec());
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            cmd.ext.put(name, *value);
        }
        cmd.opaque = i32::try_from(FIRST_OPAQUE).ok()?;
        let mut frame = BytesMut::new();
        frame::encode(&cmd, &mut frame);
        let wanted = format!("\"opaque\":{FIRST_OPAQUE}");
        let found = frame
            .windows(wanted.len())
            .position(|window| window == wanted.as_bytes())?;
        Some(Self {
            frame: frame.freeze(),
            opaque_at: found + wanted.len() - DIGITS,
        })
    }

    /// Appends the frame with the `n`th correlation id (`n` below 1,147,483,648).
    pub(crate) fn append(&self, n: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let mut number = FIRST_OPAQUE + n;
        let at = start + self.opaque_at;
        for digit in out[at..at + DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
    }
}

/// The part of an answer that is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) n: u32,
    pub(crate) code: u32,
}

/// Takes one answer off the front of `bytes`, if there is a whole one: its length and its numbers.
/// The inner value is none for a frame that is no answer to one of our sends.
pub(crate) fn take_answer(bytes: &[u8]) -> Option<(usize, Option<Answer>)> {
    let length = usize::try_from(u32::from_be_bytes(*bytes.first_chunk::<4>()?)).ok()? + 4;
    let frame = bytes.get(..length)?;
    let header = frame.get(4..8).map_or(0, |b| {
        usize::from(b[1]) << 16 | usize::from(b[2]) << 8 | usize::from(b[3])
    });
    let header = frame.get(8..8 + header).unwrap_or_default();
    let answer = number_after(header, b"\"opaque\":").and_then(|opaque| {
        Some(Answer {
            n: opaque.checked_sub(FIRST_OPAQUE)?,
            code: number_after(header, b"\"code\":")?,
        })
    });
    Some((length, answer))
}

fn number_after(text: &[u8], name: &[u8]) -> Option<u32> {
    let at = text.windows(name.len()).position(|window| window == name)? + name.len();
    let digits = text
        .get(at..)?
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number: Option<u32>, digit| {
        number
            .unwrap_or(0)
            .checked_mul(10)?
            .checked_add(u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ResponseCode;

    #[test]
    fn a_patched_frame_decodes_and_its_answer_is_recognised() {
        let template = Template::send("T", 3, 8, b"hello", 7).unwrap();
        let mut out = Vec::new();
        template.append(0, &mut out);
        template.append(123_456, &mut out);
        let mut bytes = BytesMut::from(out.as_slice());
        for n in [0, 123_456] {
            let cmd = frame::decode(&mut bytes).unwrap().unwrap();
            assert_eq!(cmd.opaque, 1_000_000_000 + n);
            assert_eq!((cmd.ext.get("b"), cmd.ext.get("e")), (Some("T"), Some("3")));
            assert_eq!(cmd.body.to_bytes(), "hello");
        }
        let mut answer = Command::response(ResponseCode::SystemBusy).with_remark("busy");
        answer.opaque = 1_000_000_042;
        let mut bytes = BytesMut::new();
        frame::encode(&answer, &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(take_answer(&bytes[..cut]), None);
        }
        assert_eq!(
            take_answer(&bytes),
            Some((bytes.len(), Some(Answer { n: 42, code: 2 })))
        );
        assert_eq!(take_answer(&[0, 0, 0, 4, 0, 0, 0, 0]), Some((8, None)));
    }
}
