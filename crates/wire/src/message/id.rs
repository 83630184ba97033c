//! Offset message ids: upper-case hex of the store host and the commit-log offset (RocketMQ MessageDecoder).

use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::reader::Reader;
use crate::WireError;

const WHAT: &str = "message id";

/// The id of the message stored at this offset: 32 characters for IPv4, 56 for IPv6.
pub fn offset_msg_id(store_host: SocketAddr, physical_offset: i64) -> String {
    let mut id = String::with_capacity(56);
    let mut hex = |bytes: &[u8]| {
        for byte in bytes {
            for nibble in [byte >> 4, byte & 15] {
                id.push(
                    char::from_digit(u32::from(nibble), 16)
                        .unwrap_or('0')
                        .to_ascii_uppercase(),
                );
            }
        }
    };
    match store_host.ip() {
        IpAddr::V4(ip) => hex(&ip.octets()),
        IpAddr::V6(ip) => hex(&ip.octets()),
    }
    hex(&u32::from(store_host.port()).to_be_bytes());
    hex(&physical_offset.to_be_bytes());
    id
}

/// The host and offset in an id.
///
/// # Errors
/// [`WireError::Malformed`] when the text is not such an id: a client's own id, for one.
pub fn parse_offset_msg_id(id: &str) -> Result<(SocketAddr, i64), WireError> {
    let malformed = |why| WireError::Malformed { what: WHAT, why };
    if id.len() != 32 && id.len() != 56 {
        return Err(malformed("length is neither 32 nor 56"));
    }
    let digits: Option<Vec<u8>> = id
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let digits = digits.ok_or_else(|| malformed("not hexadecimal"))?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    let mut at = Reader::new(&bytes, WHAT);
    let ip = if id.len() == 32 {
        IpAddr::V4(Ipv4Addr::from(at.octets::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(at.octets::<16>()?))
    };
    let port = u16::try_from(at.i32()?).map_err(|_| malformed("port is out of range"))?;
    Ok((SocketAddr::new(ip, port), at.i64()?))
}

/// Formats bytes as upper-case hex, for client ids and the like.
pub fn upper_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing into a string cannot fail.
            if write!(text, "{byte:02X}").is_err() {
                text.clear();
            }
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip() {
        let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
        let id = offset_msg_id(host, 0x1234);
        assert_eq!(id, "7F00000100002A9F0000000000001234");
        assert_eq!(parse_offset_msg_id(&id).unwrap(), (host, 0x1234));
        let host: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        let id = offset_msg_id(host, i64::MAX);
        assert_eq!(id.len(), 56);
        assert_eq!(parse_offset_msg_id(&id).unwrap(), (host, i64::MAX));
    }

    #[test]
    fn other_texts_are_refused() {
        for id in [
            "",
            "7F",
            &"G".repeat(32),
            &"F".repeat(32),
            "\u{e9}".repeat(16).as_str(),
        ] {
            assert!(parse_offset_msg_id(id).is_err(), "{id}");
        }
    }
}
