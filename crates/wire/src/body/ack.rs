//! BATCH_ACK_MESSAGE 200151.

use serde::{Deserialize, Serialize};

use super::object;

object! {
    /// Several acknowledgements.
    BatchAckBody {
        /// One entry per pop and queue.
        acks: Vec<BatchAck>,
        /// Broker.
        #[serde(skip_serializing_if = "Option::is_none")]
        broker_name: Option<String>,
    }
}

/// Acknowledged messages of one pop of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchAck {
    /// Which, see [`Self::offsets`].
    #[serde(rename = "b")]
    pub bits: String,
    /// Group.
    #[serde(rename = "c")]
    pub consumer_group: String,
    /// Lease time, ms.
    #[serde(rename = "it")]
    pub invisible_ms: i64,
    /// Pop time, epoch ms.
    #[serde(rename = "pt")]
    pub pop_time_ms: i64,
    /// Queue.
    #[serde(rename = "q")]
    pub queue_id: i32,
    /// `0` normal, `1` and `2` retry topic.
    #[serde(rename = "r")]
    pub retry: String,
    /// Queue of the revive log.
    #[serde(rename = "rq")]
    pub revive_queue_id: i32,
    /// First queue offset of the pop.
    #[serde(rename = "so")]
    pub start_offset: i64,
    /// Topic.
    #[serde(rename = "t")]
    pub topic: String,
}

/// More messages than this cannot come from one pop.
const OFFSETS_MAX: usize = 65_536;

impl BatchAck {
    /// The acknowledged queue offsets: `bits` is the base64 of a little-endian bit set, where bit i
    /// stands for `start_offset + i`. Text that is no base64 has no bits.
    pub fn offsets(&self) -> Vec<i64> {
        let mut offsets = Vec::new();
        let mut offset = self.start_offset;
        for byte in base64_decode(&self.bits).unwrap_or_default() {
            for bit in 0..8 {
                if byte >> bit & 1 == 1 && offsets.len() < OFFSETS_MAX {
                    offsets.push(offset);
                }
                offset = offset.saturating_add(1);
            }
        }
        offsets
    }

    /// The `bits` for these offsets. Those below `start_offset` or too far above are left out.
    pub fn set_offsets(&mut self, offsets: &[i64]) {
        let mut bytes: Vec<u8> = Vec::new();
        for offset in offsets {
            let Ok(bit) = usize::try_from(offset.saturating_sub(self.start_offset)) else {
                continue;
            };
            if bit >= OFFSETS_MAX {
                continue;
            }
            if bytes.len() <= bit / 8 {
                bytes.resize(bit / 8 + 1, 0);
            }
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
        self.bits = base64_encode(&bytes);
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for slot in 0..4 {
            let digit = match group.get(slot) {
                None => 0,
                Some(byte) => ALPHABET.iter().position(|a| a == byte)?,
            };
            word = word << 6 | u32::try_from(digit).ok()?;
        }
        let [_, a, b, c] = word.to_be_bytes();
        match group.len() {
            4 => out.extend([a, b, c]),
            3 => out.extend([a, b]),
            2 => out.push(a),
            _ => return None,
        }
    }
    Some(out)
}

fn base64_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for slot in 0..4usize {
            if slot > group.len() {
                out.push('=');
                continue;
            }
            let digit = word >> (18 - 6 * slot) & 63;
            let digit = usize::try_from(digit)
                .ok()
                .and_then(|d| ALPHABET.get(d))
                .copied()
                .unwrap_or(b'A');
            out.push(char::from(digit));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_name_offsets() {
        let mut ack = BatchAck {
            bits: "AQI=".into(),
            start_offset: 100,
            ..BatchAck::default()
        };
        assert_eq!(ack.offsets(), [100, 109]);
        for offsets in [vec![], vec![100], vec![100, 101, 107, 108, 131], vec![163]] {
            ack.set_offsets(&offsets);
            assert_eq!(ack.offsets(), offsets);
        }
        ack.set_offsets(&[100, 109, 99, i64::MAX]);
        assert_eq!(ack.bits, "AQI=");
        ack.bits = "A".into();
        assert!(ack.offsets().is_empty());
    }
}
