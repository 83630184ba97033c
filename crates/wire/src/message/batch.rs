//! The body of a client batch: entries without topic and queue (RocketMQ MessageDecoder.encodeMessage).
//!
//! ```text
//! i32 size | i32 0 | i32 0 | i32 flag | i32 n, body | i16 n, properties      per entry
//! ```

use super::properties::PROPERTIES_MAX_BYTES;
use super::reader::Reader;
use crate::WireError;

const WHAT: &str = "batch entry";

/// Size of an entry without body and properties, bytes.
const ENTRY_MIN_BYTES: usize = 22;

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// User flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Encoded properties, the last separator may be missing.
    pub properties: &'a [u8],
}

/// Reads all entries.
///
/// # Errors
/// [`WireError::Truncated`], [`WireError::Malformed`] when sizes contradict each other or the batch is
/// empty.
pub fn decode_batch(body: &[u8]) -> Result<Vec<BatchEntry<'_>>, WireError> {
    let malformed = |why| WireError::Malformed { what: WHAT, why };
    let mut at = Reader::new(body, WHAT);
    let mut entries = Vec::new();
    while !at.is_empty() {
        let size = usize::try_from(at.i32()?).map_err(|_| malformed("negative size"))?;
        let size = size
            .checked_sub(4)
            .ok_or_else(|| malformed("size is too small"))?;
        let mut entry = Reader::new(at.take(size)?, WHAT);
        entry.take(8)?;
        let flag = entry.i32()?;
        let body = entry.sized_i32()?;
        let properties = entry.sized_i16()?;
        if !entry.is_empty() {
            return Err(malformed("size is too large"));
        }
        entries.push(BatchEntry {
            flag,
            body,
            properties,
        });
    }
    if entries.is_empty() {
        Err(malformed("no entries"))
    } else {
        Ok(entries)
    }
}

/// Writes a batch body.
///
/// # Errors
/// [`WireError::TooLong`] for a part its length field cannot say.
pub fn encode_batch<'a>(
    entries: impl IntoIterator<Item = BatchEntry<'a>>,
) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    for entry in entries {
        if entry.properties.len() > PROPERTIES_MAX_BYTES {
            return Err(WireError::TooLong {
                what: "properties",
                size: entry.properties.len(),
                limit: PROPERTIES_MAX_BYTES,
            });
        }
        let size = ENTRY_MIN_BYTES + entry.body.len() + entry.properties.len();
        let too_long = || WireError::TooLong {
            what: WHAT,
            size,
            limit: 2_147_483_647,
        };
        out.extend(i32::try_from(size).map_err(|_| too_long())?.to_be_bytes());
        out.extend([0; 8]);
        out.extend(entry.flag.to_be_bytes());
        out.extend(
            i32::try_from(entry.body.len())
                .map_err(|_| too_long())?
                .to_be_bytes(),
        );
        out.extend_from_slice(entry.body);
        out.extend(
            i16::try_from(entry.properties.len())
                .map_err(|_| too_long())?
                .to_be_bytes(),
        );
        out.extend_from_slice(entry.properties);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_cuts_are_errors() {
        let entries = [
            BatchEntry {
                flag: 3,
                body: b"one",
                properties: b"TAGS\x01a",
            },
            BatchEntry {
                flag: 0,
                body: b"",
                properties: b"",
            },
        ];
        let bytes = encode_batch(entries).unwrap();
        assert_eq!(decode_batch(&bytes).unwrap(), entries);
        let first = 22 + 3 + 6;
        for cut in (0..bytes.len()).filter(|cut| *cut != first) {
            assert!(decode_batch(bytes.get(..cut).unwrap()).is_err(), "{cut}");
        }
    }
}
