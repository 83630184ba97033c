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

/// How many bytes [`inflate`] gives, none of them kept; `None` where it fails.
#[must_use]
pub fn inflated_size(packed: &[u8], limit: usize) -> Option<usize> {
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = flate2::read::ZlibDecoder::new(packed).take(bound);
    let size = std::io::copy(&mut bytes, &mut std::io::sink()).ok()?;
    usize::try_from(size).ok().filter(|size| *size <= limit)
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
        assert_eq!(inflated_size(&packed, 5_000), Some(5_000));
        assert_eq!(inflated_size(&packed, 4_999), None);
        assert_eq!(inflated_size(b"no stream", 10), None);
        assert!(matches!(
            inflate(b"no stream", 10, "x"),
            Err(WireError::Malformed { .. })
        ));
    }
}
