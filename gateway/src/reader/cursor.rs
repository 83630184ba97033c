//! Cursors: the signed, URL-safe text of a place in a topic, the next offset of every queue. Any gateway serves it.
//!
//! ```text
//! mqc_ seal( version 1 | topic hash 8 | floor kind | floor | brokers | per broker: name, epoch, queues, next offsets )
//! ```
//! Numbers are varints, so 1,024 queues with offsets below 2^35 take about 7 KB. The floor is there where a backward
//! read goes on: it says where that read ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{ApiError, Code};
use crate::receipt::{Reader, text, unzigzag, zigzag};
use crate::signing::{Signer, varint};

const PREFIX: &str = "mqc_";
/// First byte of the content.
const VERSION: u8 = 1;
/// Brokers of one cursor.
const BROKERS_MAX: u64 = 10_000;
/// Queues of one broker (as the broker's own bound).
const QUEUES_MAX: u64 = 65_536;

/// What a cursor knows of one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// When the topic was made there; another value = another topic.
    pub(crate) epoch: u64,
    /// Next offset by queue id.
    pub(crate) next: Vec<i64>,
}

/// Where a backward read ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// At the oldest message kept.
    Earliest,
    /// At the first message stored at this time or later, epoch ms.
    Time(i64),
    /// At these offsets.
    At(BTreeMap<Arc<str>, Held>),
}

/// A place in a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// By broker name. A broker that is not there is read from its beginning.
    pub(crate) brokers: BTreeMap<Arc<str>, Held>,
    /// Set by backward reads.
    pub(crate) floor: Option<Floor>,
}

impl Cursor {
    /// The signed text.
    pub(crate) fn encode(&self, keys: &Signer, topic: &str) -> Arc<str> {
        let mut place = Vec::new();
        match &self.floor {
            None => place.push(0),
            Some(Floor::Earliest) => place.push(1),
            Some(Floor::Time(ms)) => {
                place.push(2);
                varint(&mut place, zigzag(*ms));
            }
            Some(Floor::At(brokers)) => {
                place.push(3);
                write(&mut place, brokers);
            }
        }
        write(&mut place, &self.brokers);
        Self::sign(keys, topic, &place)
    }

    /// The signed text of a place that is written down.
    pub(crate) fn sign(keys: &Signer, topic: &str, place: &[u8]) -> Arc<str> {
        let content = [&[VERSION][..], &topic_hash(topic), place].concat();
        format!("{PREFIX}{}", keys.seal(&content)).into()
    }

    /// Whether a text claims to be a cursor.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The place of a cursor of this topic.
    ///
    /// # Errors
    /// `invalid_cursor`; `pointer` names the field.
    pub(crate) fn decode(
        keys: &Signer,
        topic: &str,
        text: &str,
        pointer: &str,
    ) -> Result<Self, ApiError> {
        let wrong = |detail: &str| ApiError::field(Code::InvalidCursor, pointer, detail);
        let signed = text.strip_prefix(PREFIX);
        let bytes = signed
            .and_then(|text| keys.open(text))
            .filter(|bytes| bytes.first() == Some(&VERSION))
            .ok_or_else(|| wrong("this cursor was not given by this cluster or was changed"))?;
        let mut at = Reader { bytes: &bytes[1..] };
        if at.take(8).is_none_or(|hash| hash != topic_hash(topic)) {
            return Err(wrong("this cursor belongs to another topic"));
        }
        read(&mut at).ok_or_else(|| wrong("this cursor cannot be read"))
    }
}

fn write(out: &mut Vec<u8>, brokers: &BTreeMap<Arc<str>, Held>) {
    varint(out, brokers.len() as u64);
    for (name, held) in brokers {
        text(out, name);
        varint(out, held.epoch);
        varint(out, held.next.len() as u64);
        for next in &held.next {
            varint(out, u64::try_from(*next).unwrap_or(0));
        }
    }
}

fn read(at: &mut Reader<'_>) -> Option<Cursor> {
    let floor = match at.byte()? {
        0 => None,
        1 => Some(Floor::Earliest),
        2 => Some(Floor::Time(unzigzag(at.varint()?))),
        3 => Some(Floor::At(read_brokers(at)?)),
        _ => return None,
    };
    let brokers = read_brokers(at)?;
    at.bytes.is_empty().then_some(Cursor { brokers, floor })
}

fn read_brokers(at: &mut Reader<'_>) -> Option<BTreeMap<Arc<str>, Held>> {
    let count = at.varint().filter(|n| *n <= BROKERS_MAX)?;
    let mut brokers = BTreeMap::new();
    for _ in 0..count {
        let name: Arc<str> = at.text()?.into();
        let epoch = at.varint()?;
        let queues = at.varint().filter(|n| *n <= QUEUES_MAX)?;
        let next = (0..queues).map(|_| i64::try_from(at.varint()?).ok());
        let next = next.collect::<Option<Vec<i64>>>()?;
        brokers.insert(name, Held { epoch, next });
    }
    Some(brokers)
}

fn topic_hash(topic: &str) -> [u8; 8] {
    let full = Sha256::new()
        .chain_update(b"default\0default\0")
        .chain_update(topic.as_bytes())
        .finalize();
    let mut short = [0; 8];
    short.copy_from_slice(&full[..8]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::ReceiptKeys;
    use proptest::prelude::*;

    fn keys() -> Signer {
        ReceiptKeys::random().signer("cursor")
    }

    fn place(brokers: &[(&str, u64, &[i64])]) -> Cursor {
        let held = |epoch, next: &[i64]| Held {
            epoch,
            next: next.to_vec(),
        };
        Cursor {
            brokers: brokers
                .iter()
                .map(|(name, epoch, next)| (Arc::from(*name), held(*epoch, next)))
                .collect(),
            floor: None,
        }
    }

    fn code(of: &Signer, topic: &str, text: &str) -> Code {
        Cursor::decode(of, topic, text, "?from").unwrap_err().code()
    }

    #[test]
    fn a_cursor_reads_back_for_its_topic_and_its_cluster_alone() {
        let ours = keys();
        let mut cursor = place(&[("a", 5, &[1, 2]), ("b", 6, &[0, i64::MAX])]);
        for floor in [
            None,
            Some(Floor::Earliest),
            Some(Floor::Time(-5)),
            Some(Floor::At(cursor.brokers.clone())),
        ] {
            cursor.floor = floor;
            let text = cursor.encode(&ours, "t");
            assert!(text.starts_with("mqc_") && Cursor::is_meant(&text));
            assert_eq!(
                Cursor::decode(&ours, "t", &text, "?from").ok(),
                Some(cursor.clone())
            );
            assert_eq!(code(&ours, "u", &text), Code::InvalidCursor);
            assert_eq!(code(&keys(), "t", &text), Code::InvalidCursor);
        }
    }

    #[test]
    fn any_changed_character_is_invalid() {
        let ours = keys();
        let text = place(&[("broker-a", 1_795_969_821_123, &[7, 8, 9])]).encode(&ours, "t");
        for at in 4..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(code(&ours, "t", &changed), Code::InvalidCursor, "{at}");
        }
    }

    #[test]
    fn a_thousand_queues_take_seven_kilobytes() {
        let next = [20_000_000_000_i64; 256];
        let names = ["broker-a", "broker-b", "broker-c", "broker-d"];
        let brokers: Vec<(&str, u64, &[i64])> = names
            .iter()
            .map(|n| (*n, 1_795_969_821_123, &next[..]))
            .collect();
        let text = place(&brokers).encode(&keys(), "t");
        assert!(text.len() < 7_200, "{}", text.len());
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "\\PC{0,300}") {
            let ours = keys();
            let text = format!("mqc_{text}");
            prop_assert!(Cursor::decode(&ours, "t", &text, "?from").is_err());
        }

        #[test]
        fn any_signed_content_is_an_answer(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let ours = keys();
            let whole = [vec![VERSION], topic_hash("t").to_vec(), content].concat();
            drop(Cursor::decode(&ours, "t", &format!("{PREFIX}{}", ours.seal(&whole)), "?from"));
        }
    }
}
