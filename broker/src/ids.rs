//! Client-style message ids for producers that send none, and a cheap sequence for spreading.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use wire::message::id::upper_hex;
use wire::message::tags::java_string_hash;

/// Milliseconds of 31 days: ids repeat after that at the earliest, as RocketMQ's do.
const MONTH_MS: u64 = 31 * 24 * 3600 * 1000;

/// Makes ids in the form of RocketMQ 5.4.0 `MessageClientIDSetter`.
#[derive(Debug)]
pub(crate) struct Ids {
    prefix: Vec<u8>,
    counter: AtomicU64,
}

impl Ids {
    /// Ids of this process at this address.
    pub(crate) fn new(host: SocketAddr, now_ms: u64) -> Self {
        let mut prefix = match host.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let [_, _, high, low] = std::process::id().to_be_bytes();
        prefix.extend([high, low]);
        prefix.extend(java_string_hash(&format!("{host}/{now_ms}")).to_be_bytes());
        Self {
            prefix,
            counter: AtomicU64::new(now_ms & 0xffff),
        }
    }

    /// A new id.
    pub(crate) fn next(&self, now_ms: u64) -> String {
        let mut bytes = self.prefix.clone();
        let in_month = u32::try_from(now_ms % MONTH_MS).unwrap_or(u32::MAX);
        bytes.extend(in_month.to_be_bytes());
        let [.., high, low] = self.sequence().to_be_bytes();
        bytes.extend([high, low]);
        upper_hex(&bytes)
    }

    /// A number that differs from the last one.
    pub(crate) fn sequence(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_32_characters_and_differ() {
        let ids = Ids::new("127.0.0.1:1".parse().unwrap(), 7);
        let (a, b) = (ids.next(1_700_000_000_000), ids.next(1_700_000_000_000));
        assert_eq!(a.len(), 32);
        assert_ne!(a, b);
        assert!(a.starts_with("7F000001"));
    }
}
