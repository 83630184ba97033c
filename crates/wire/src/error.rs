//! WireError: why bytes are not a value of the protocol.

use thiserror::Error;

/// Every way in which input can be refused, and the few in which output can.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame announces more bytes than allowed; the connection cannot be used further.
    #[error("frame of {size} bytes is over the limit of {limit}")]
    FrameTooLarge {
        /// Announced size with the length field, bytes.
        size: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// The lengths of the frame contradict each other; the connection cannot be used further.
    #[error("malformed frame: {what}")]
    Frame {
        /// What is wrong, in a few words.
        what: &'static str,
    },
    /// Header kind other than JSON (0) and ROCKETMQ (1).
    #[error("unknown header kind {kind}")]
    HeaderKind {
        /// The kind byte as received.
        kind: u8,
    },
    /// Text that is not (even liberal) JSON.
    #[error("bad json at byte {at}: {what}")]
    Json {
        /// Byte position in the text.
        at: usize,
        /// What was expected or found.
        what: &'static str,
    },
    /// JSON of the wrong shape for the body type.
    #[error("unexpected json shape: {what}")]
    Shape {
        /// What was expected.
        what: String,
    },
    /// A required header field is absent.
    #[error("header field {field} is missing")]
    MissingField {
        /// Name of the field on the wire.
        field: &'static str,
    },
    /// A header field does not parse.
    #[error("header field {field} is not a valid {expected}: {value:?}")]
    InvalidField {
        /// Name of the field on the wire.
        field: &'static str,
        /// What it should have been.
        expected: &'static str,
        /// What came (cut to 64 characters).
        value: String,
    },
    /// The bytes end before the value does.
    #[error("{what} is cut short")]
    Truncated {
        /// The thing that is cut.
        what: &'static str,
    },
    /// A message record, batch, id or receipt that breaks its layout.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// The thing.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A part is longer than its length field (or its documented limit) can say.
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLong {
        /// The part.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A checksum does not match.
    #[error("{what} checksum mismatch: expected {expected:#010x}, computed {actual:#010x}")]
    Checksum {
        /// What was summed.
        what: &'static str,
        /// The sum as sent.
        expected: u32,
        /// The sum as computed.
        actual: u32,
    },
}

impl WireError {
    pub(crate) fn invalid(field: &'static str, expected: &'static str, value: &str) -> Self {
        Self::InvalidField {
            field,
            expected,
            value: value.chars().take(64).collect(),
        }
    }
}
