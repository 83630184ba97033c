//! Unpacking of zlib streams (RFC 1950), with a bound on what they grow to.

use std::io::Read as _;

use crate::WireError;

/// The bytes that were packed. `what` names them in errors.
///
/// # Errors
/// [`WireError::Malformed`] when `packed` is no zlib stream, [`WireError::TooLong`] beyond `limit` bytes.
pub fn inflate(packed: &[u8], limit: usize, what: &'static str) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = flate2::read::ZlibDecoder::new(packed)
        .take(bound)
        .read_to_end(&mut bytes)
        .map_err(|_| WireError::Malformed {
            what,
            why: "not a zlib stream",
        })?;
    if read > limit {
        return Err(WireError::TooLong {
            what,
            size: read,
            limit,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_is_packed_comes_back_up_to_the_limit() {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&[7; 5_000]).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(inflate(&packed, 5_000, "x").unwrap(), [7; 5_000]);
        assert!(matches!(
            inflate(&packed, 4_999, "x"),
            Err(WireError::TooLong { .. })
        ));
        assert!(matches!(
            inflate(b"no stream", 10, "x"),
            Err(WireError::Malformed { .. })
        ));
    }
}
