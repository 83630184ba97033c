//! The signing keys of a cluster, and short signed texts (page tokens, cursors) made with them.
//!
//! ```text
//! base64url( key number varint | payload | MAC 8 )
//! ```
//! The MAC is the first 8 bytes of HMAC-SHA-256 under a key of the purpose, which is derived from the signing key.

use crate::db::signing_keys::SigningKey;
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;
use std::sync::Arc;

/// Bytes of a MAC at the end of a signed text.
pub(crate) const MAC_BYTES: usize = 8;
/// Longer texts are none of ours: a cursor over thousands of queues is the longest.
const TEXT_MAX: usize = 65_536;

/// One key, ready for use.
#[derive(Clone)]
pub(crate) struct Key {
    /// Unique in the cluster, > 0.
    pub(crate) number: u64,
    signs: bool,
    pub(crate) mac: Hmac<Sha256>,
    /// Keys derived from it, by purpose.
    derived: Arc<Mutex<Vec<Derived>>>,
}

type Derived = (&'static str, Hmac<Sha256>);

/// The keys all gateways of a metadata store share. Signs with the newest that may sign, verifies with any; the set is
/// replaced while requests run, when the store has new ones.
pub struct KeyRing(ArcSwap<Vec<Key>>);

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<u64> = self.0.load().iter().map(|k| k.number).collect();
        f.debug_tuple("KeyRing").field(&numbers).finish()
    }
}

impl KeyRing {
    /// Keys, oldest first. With none, nothing verifies.
    #[must_use]
    pub fn new(keys: &[SigningKey]) -> Self {
        Self(ArcSwap::from_pointee(ready(keys)))
    }

    /// Uses these keys from now on.
    pub fn replace(&self, keys: &[SigningKey]) {
        self.0.store(Arc::new(ready(keys)));
    }

    /// The key that signs now.
    pub(crate) fn newest(&self) -> Option<Key> {
        let keys = self.0.load();
        keys.iter().rev().find(|k| k.signs).cloned()
    }

    /// The key of a number.
    pub(crate) fn find(&self, number: u64) -> Option<Key> {
        self.0.load().iter().find(|k| k.number == number).cloned()
    }
}

fn ready(keys: &[SigningKey]) -> Vec<Key> {
    let ready = |key: &SigningKey| {
        Some(Key {
            number: key.number,
            signs: key.signs,
            mac: Hmac::new_from_slice(&key.secret).ok()?,
            derived: Arc::default(),
        })
    };
    keys.iter().filter_map(ready).collect()
}

/// The MAC of some bytes, cut to [`MAC_BYTES`].
pub(crate) fn tag(mac: &Hmac<Sha256>, bytes: &[u8]) -> [u8; MAC_BYTES] {
    let full = mac.clone().chain_update(bytes).finalize().into_bytes();
    let mut tag = [0; MAC_BYTES];
    tag.copy_from_slice(&full[..MAC_BYTES]);
    tag
}

/// Whether this is the MAC of some bytes, told without showing by time where it differs.
pub(crate) fn verifies(mac: &Hmac<Sha256>, bytes: &[u8], tag: &[u8; MAC_BYTES]) -> bool {
    let mac = mac.clone().chain_update(bytes);
    mac.verify_truncated_left(tag).is_ok()
}

/// Signs texts of one purpose; a text of another purpose does not open.
#[derive(Clone)]
pub struct Signer {
    ring: Arc<KeyRing>,
    purpose: &'static str,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Signer").field(&self.purpose).finish()
    }
}

impl Signer {
    /// A signer with the keys of this ring.
    #[must_use]
    pub fn new(ring: &Arc<KeyRing>, purpose: &'static str) -> Self {
        Self {
            ring: Arc::clone(ring),
            purpose,
        }
    }

    /// The signed text of a payload.
    #[must_use]
    pub fn seal(&self, payload: &[u8]) -> String {
        let Some(key) = self.ring.newest() else {
            return String::new(); // opens nowhere
        };
        let mut bytes = Vec::with_capacity(payload.len() + 12);
        varint(&mut bytes, key.number);
        bytes.extend_from_slice(payload);
        let tag = tag(&self.derived(&key), &bytes);
        bytes.extend_from_slice(&tag);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The payload of a text this cluster has signed for this purpose.
    #[must_use]
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (signed, mac) = bytes.split_last_chunk()?;
        let mut payload = signed;
        let key = self.ring.find(read_varint(&mut payload)?)?;
        verifies(&self.derived(&key), signed, mac).then(|| payload.to_vec())
    }

    fn derived(&self, key: &Key) -> Hmac<Sha256> {
        let mut known = key.derived.lock();
        if let Some((_, mac)) = known.iter().find(|(of, _)| *of == self.purpose) {
            return mac.clone();
        }
        let secret = key
            .mac
            .clone()
            .chain_update(self.purpose.as_bytes())
            .finalize()
            .into_bytes();
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..secret.len()].copy_from_slice(&secret);
        let mac = Hmac::<Sha256>::new(&block);
        known.push((self.purpose, mac.clone()));
        mac
    }
}

/// Appends a number, 7 bits a byte, low ones first.
pub(crate) fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7F) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number off the front; none where it is cut off or does not fit.
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for shift in (0..64).step_by(7) {
        let (b, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(b & 0x7F);
        if shift == 63 && part > 1 {
            return None;
        }
        n |= part << shift;
        if *b < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64, signs: bool) -> SigningKey {
        SigningKey {
            number,
            secret: [number as u8; 32],
            signs,
        }
    }

    #[test]
    fn the_newest_that_may_sign_signs_and_all_verify() {
        let old = Signer::new(&Arc::new(KeyRing::new(&[key(1, true)])), "page");
        let ring = Arc::new(KeyRing::new(&[key(1, true), key(2, true), key(3, false)]));
        let new = Signer::new(&ring, "page");
        assert_eq!(new.open(&old.seal(b"a")).as_deref(), Some(&b"a"[..]));
        let text = new.seal(b"b");
        assert_eq!(old.open(&text), None, "signed with key 2");
        let second = Signer::new(&Arc::new(KeyRing::new(&[key(2, true)])), "page");
        assert_eq!(second.open(&text).as_deref(), Some(&b"b"[..]));
        ring.replace(&[key(3, true)]);
        assert_eq!(new.open(&text), None, "key 2 is gone");
        let third = Signer::new(&Arc::new(KeyRing::new(&[key(3, false)])), "page");
        assert_eq!(third.open(&new.seal(b"c")).as_deref(), Some(&b"c"[..]));
    }

    #[test]
    fn another_purpose_or_a_changed_bit_opens_nothing() {
        let ring = Arc::new(KeyRing::new(&[key(7, true)]));
        let (page, cursor) = (Signer::new(&ring, "page"), Signer::new(&ring, "cursor"));
        let text = page.seal(b"payload");
        assert_eq!(cursor.open(&text), None);
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(page.open(&URL_SAFE_NO_PAD.encode(changed)), None, "{bit}");
        }
        for none in ["", "A", "AAAAAAAAAAAA", "?", &"A".repeat(TEXT_MAX + 1)] {
            assert_eq!(page.open(none), None, "{none}");
        }
    }
}
