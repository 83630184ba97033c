//! The ROCKETMQ binary header: read only, since answers are always JSON (as Apache's are).
//!
//! ```text
//! i16 code | u8 language | i16 version | i32 opaque | i32 flag | i32 n, remark | i32 n, fields
//! field    i16 n, name | i32 n, value
//! ```

use crate::ext::FIELDS_MAX;
use crate::message::reader::Reader;
use crate::{Body, Command, ExtFields, Language, WireError};

const WHAT: &str = "binary header";

/// Reads a binary header. Zero-length texts count as absent, as in Java.
pub(crate) fn parse(bytes: &[u8]) -> Result<Command, WireError> {
    let mut at = Reader::new(bytes, WHAT);
    let code = i32::from(at.i16()?);
    let language = Language::from_ordinal(at.u8()?);
    let version = i32::from(at.i16()?);
    let opaque = at.i32()?;
    let flag = at.i32()?;
    let remark = at.sized_i32()?;
    let remark = (!remark.is_empty()).then(|| String::from_utf8_lossy(remark).into_owned());
    let block = at.sized_i32()?;
    let mut ext = ExtFields::new();
    let mut fields = Reader::new(block, WHAT);
    while !fields.is_empty() {
        if ext.len() >= FIELDS_MAX {
            return Err(WireError::Frame {
                what: "too many extra fields",
            });
        }
        let name = fields.sized_i16()?;
        let value = fields.sized_i32()?;
        if !name.is_empty() && !value.is_empty() {
            ext.put(
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value).as_ref(),
            );
        }
        ext.mark_present();
    }
    Ok(Command {
        code,
        language,
        version,
        opaque,
        flag,
        remark,
        ext,
        body: Body::Empty,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_and_stops_at_cuts() {
        let mut bytes = vec![0, 105, 9, 1, 0x90, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 1, b'r'];
        bytes.extend([0, 0, 0, 12, 0, 5]);
        bytes.extend(b"topic");
        bytes.extend([0, 0, 0, 1, b'T']);
        let cmd = parse(&bytes).unwrap();
        assert_eq!(
            (cmd.code, cmd.version, cmd.opaque, cmd.flag),
            (105, 400, 7, 2)
        );
        assert_eq!(cmd.language, Language::Go);
        assert_eq!(cmd.remark.as_deref(), Some("r"));
        assert_eq!(cmd.ext.get("topic"), Some("T"));
        for cut in 0..bytes.len() {
            assert!(parse(bytes.get(..cut).unwrap()).is_err(), "{cut}");
        }
    }
}
