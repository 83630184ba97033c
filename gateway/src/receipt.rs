//! Receipts: the signed, URL-safe text of a lease, the only thing a client needs to settle a message anywhere.
//!
//! ```text
//! mqr_ base64url( version 1 | key number varint | group hash 8 | topic len+bytes | broker len+bytes
//!                 | queue id | queue offset | lease id | attempt | delivered at ms (varints) | MAC 8 )
//! ```
//! The MAC is the first 8 bytes of HMAC-SHA-256 over everything before it. Any gateway of the cluster has the keys.

use crate::db::signing_keys::SigningKey;
use crate::signing::{KeyRing, Signer, read_varint, tag, varint, verifies};
use crate::upstream::{Lease, Scope};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::sync::Arc;

const PREFIX: &str = "mqr_";
const VERSION: u8 = 1;
/// Longer texts are no receipts: topic ≤ 255, broker ≤ 255, five varints, framing, in base64.
const TEXT_MAX: usize = 1_024;

/// Why a receipt was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptError {
    /// Not ours, or changed.
    Invalid,
    /// Of another group.
    WrongGroup,
}

/// Makes and reads receipts with the signing keys of the cluster.
#[derive(Clone, Debug)]
pub struct ReceiptKeys {
    ring: Arc<KeyRing>,
}

impl ReceiptKeys {
    /// Receipts signed with the keys of this ring.
    #[must_use]
    pub fn of(ring: &Arc<KeyRing>) -> Self {
        Self {
            ring: Arc::clone(ring),
        }
    }

    /// Keys by number (unique, > 0), oldest first; all may sign. With none, nothing verifies.
    #[must_use]
    pub fn new(keys: &[(u64, [u8; 32])]) -> Self {
        let key = |&(number, secret): &(u64, [u8; 32])| SigningKey {
            number,
            secret,
            signs: true,
        };
        let keys: Vec<SigningKey> = keys.iter().map(key).collect();
        Self::of(&Arc::new(KeyRing::new(&keys)))
    }

    /// Keys made up now: receipts end with this process. For tests.
    #[must_use]
    pub fn random() -> Self {
        let mut secret = [0_u8; 32];
        match getrandom::fill(&mut secret) {
            Ok(()) => Self::new(&[(1, secret)]),
            Err(_) => Self::new(&[]),
        }
    }

    /// Signs texts of another purpose with the same keys.
    #[must_use]
    pub fn signer(&self, purpose: &'static str) -> Signer {
        Signer::new(&self.ring, purpose)
    }

    /// The receipt of a lease.
    #[must_use]
    pub fn encode(&self, scope: &Scope, group: &str, lease: &Lease) -> String {
        self.sign(
            scope,
            group,
            80 + lease.topic.len() + lease.broker.len(),
            |out| {
                text(out, &lease.topic);
                text(out, &lease.broker);
                varint(out, zigzag(i64::from(lease.queue_id)));
                varint(out, zigzag(lease.queue_offset));
                varint(out, lease.lease_id);
                varint(out, u64::from(lease.attempt));
                varint(out, zigzag(lease.delivered_at_ms));
            },
        )
    }

    /// The receipt of a group whose lease is what `write` writes, `bytes` in all or few more.
    pub(crate) fn sign(
        &self,
        scope: &Scope,
        group: &str,
        bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> String {
        let mut out = Vec::with_capacity(bytes);
        let key = self.ring.newest();
        out.push(VERSION);
        varint(&mut out, key.as_ref().map_or(0, |k| k.number));
        out.extend_from_slice(&group_hash(scope, group));
        write(&mut out);
        if let Some(key) = key {
            let tag = tag(&key.mac, &out);
            out.extend_from_slice(&tag);
        }
        let mut receipt = String::with_capacity(PREFIX.len() + out.len() * 4 / 3 + 4);
        receipt.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&out, &mut receipt);
        receipt
    }

    /// The lease of a receipt of this group.
    ///
    /// # Errors
    /// [`ReceiptError::Invalid`] for anything this cluster has not signed, [`ReceiptError::WrongGroup`] for a receipt
    /// of another group.
    pub fn decode(&self, scope: &Scope, group: &str, receipt: &str) -> Result<Lease, ReceiptError> {
        self.read(scope, group, receipt)
            .unwrap_or(Err(ReceiptError::Invalid))
    }

    fn read(
        &self,
        scope: &Scope,
        group: &str,
        receipt: &str,
    ) -> Option<Result<Lease, ReceiptError>> {
        if receipt.len() > TEXT_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(receipt.strip_prefix(PREFIX)?).ok()?;
        let (signed, mac) = bytes.split_last_chunk()?;
        let mut at = Reader { bytes: signed };
        if at.byte()? != VERSION {
            return None;
        }
        let number = at.varint()?;
        let key = self.ring.find(number)?;
        if !verifies(&key.mac, signed, mac) {
            return None;
        }
        let hash = at.take(8)?;
        let wrong_group = hash != group_hash(scope, group);
        let lease = Lease {
            topic: at.text()?,
            broker: at.text()?,
            queue_id: i32::try_from(unzigzag(at.varint()?)).ok()?,
            queue_offset: unzigzag(at.varint()?),
            lease_id: at.varint()?,
            attempt: u32::try_from(at.varint()?).ok()?,
            delivered_at_ms: unzigzag(at.varint()?),
        };
        if !at.bytes.is_empty() {
            return None;
        }
        Some(if wrong_group {
            Err(ReceiptError::WrongGroup)
        } else {
            Ok(lease)
        })
    }
}

fn group_hash(_scope: &Scope, group: &str) -> [u8; 8] {
    let full = Sha256::new()
        .chain_update(b"default\0default\0")
        .chain_update(group.as_bytes())
        .finalize();
    let mut short = [0; 8];
    short.copy_from_slice(&full[..8]);
    short
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn zigzag(n: i64) -> u64 {
    (n.cast_unsigned() << 1) ^ (n >> 63).cast_unsigned()
}

pub(crate) fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

/// Reads what [`varint`] and [`text`] wrote; every method answers `None` at a wrong or missing byte.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        read_varint(&mut self.bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.varint()?).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lease() -> Lease {
        Lease {
            broker: "broker-a".into(),
            topic: "orders".into(),
            queue_id: 3,
            queue_offset: 1204,
            lease_id: 77,
            attempt: 1,
            delivered_at_ms: 1_795_969_821_123,
        }
    }

    #[test]
    fn another_group_or_key_is_refused() {
        let keys = ReceiptKeys::random();
        let receipt = keys.encode(&Scope, "billing", &lease());
        assert_eq!(keys.decode(&Scope, "billing", &receipt), Ok(lease()));
        assert_eq!(
            keys.decode(&Scope, "other", &receipt),
            Err(ReceiptError::WrongGroup)
        );
        assert_eq!(
            ReceiptKeys::random().decode(&Scope, "billing", &receipt),
            Err(ReceiptError::Invalid)
        );
        let rotated = ReceiptKeys::new(&[(1, [1; 32]), (2, [2; 32])]);
        let old = ReceiptKeys::new(&[(1, [1; 32])]).encode(&Scope, "g", &lease());
        assert_eq!(rotated.decode(&Scope, "g", &old), Ok(lease()));
    }

    #[test]
    fn any_changed_bit_is_invalid() {
        let keys = ReceiptKeys::random();
        let receipt = keys.encode(&Scope, "billing", &lease());
        let bytes = URL_SAFE_NO_PAD
            .decode(receipt.trim_start_matches(PREFIX))
            .unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let text = format!("mqr_{}", URL_SAFE_NO_PAD.encode(&changed));
            assert_eq!(
                keys.decode(&Scope, "billing", &text),
                Err(ReceiptError::Invalid),
                "bit {bit}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_lease_reads_back(
            topic in "[ -~]{0,200}", broker in "\\PC{0,40}", queue_id: i32, queue_offset: i64, lease_id: u64, attempt: u32, at: i64,
        ) {
            let keys = ReceiptKeys::new(&[(u64::MAX, [3; 32])]);
            let lease = Lease { broker, topic, queue_id, queue_offset, lease_id, attempt, delivered_at_ms: at };
            let receipt = keys.encode(&Scope, "g", &lease);
            prop_assert!(receipt.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_eq!(keys.decode(&Scope, "g", &receipt), Ok(lease));
        }

        #[test]
        fn any_text_is_an_answer(text in "\\PC{0,300}") {
            prop_assert!(ReceiptKeys::random().decode(&Scope, "g", &text).is_err());
        }
    }
}
