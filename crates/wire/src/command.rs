//! Command: one request or answer, without its frame (RocketMQ RemotingCommand).

use bytes::{Bytes, BytesMut};

use crate::{ExtFields, Header, Language, RequestCode, ResponseCode, WireError, version};

/// Flag bit of an answer.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit of a request that must never be answered.
pub const FLAG_ONEWAY: i32 = 2;
/// Longest error text of an answer, in characters.
pub const ERROR_MAX_CHARS: usize = 1024;

/// One frame's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// A [`RequestCode`], or a [`ResponseCode`] when the flag says answer.
    pub code: i32,
    /// The sender's language.
    pub language: Language,
    /// The sender's MQVersion ordinal, see [`version`].
    pub version: i32,
    /// Correlation id, copied into the answer.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`] and [`FLAG_ONEWAY`]; other bits are ignored.
    pub flag: i32,
    /// Text for people; on answers the error text.
    pub remark: Option<String>,
    /// The header fields.
    pub ext: ExtFields,
    /// The bytes after the header.
    pub body: Body,
}

impl Command {
    fn bare(code: i32, flag: i32) -> Self {
        Self {
            code,
            language: Language::default(),
            version: version::OURS,
            opaque: 0,
            flag,
            remark: None,
            ext: ExtFields::new(),
            body: Body::Empty,
        }
    }

    /// A request that expects an answer. The sender sets `opaque`.
    pub fn request(code: RequestCode) -> Self {
        Self::bare(code.code(), 0)
    }

    /// A request that expects none.
    pub fn oneway(code: RequestCode) -> Self {
        Self::bare(code.code(), FLAG_ONEWAY)
    }

    /// An answer. Whoever sends it copies `opaque` from the request.
    pub fn response(code: ResponseCode) -> Self {
        Self::bare(code.code(), FLAG_RESPONSE)
    }

    /// An answer with an error text, which may repeat what a peer said: cut to [`ERROR_MAX_CHARS`].
    pub fn error(code: ResponseCode, remark: impl Into<String>) -> Self {
        let mut remark = remark.into();
        if let Some((cut, _)) = remark.char_indices().nth(ERROR_MAX_CHARS) {
            remark.truncate(cut);
        }
        Self::response(code).with_remark(remark)
    }

    /// The same with this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with this remark.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = Some(remark.into());
        self
    }

    /// The same with the fields of this header added.
    #[must_use]
    pub fn with_header(mut self, header: &impl Header) -> Self {
        self.ext.mark_present();
        header.encode(&mut self.ext);
        self
    }

    /// The same with one more header field.
    #[must_use]
    pub fn with_ext(mut self, name: impl AsRef<str>, value: impl crate::ToExt) -> Self {
        self.ext.put(name, value);
        self
    }

    /// The typed header.
    ///
    /// # Errors
    /// As [`Header::decode`].
    pub fn header<H: Header>(&self) -> Result<H, WireError> {
        H::decode(&self.ext)
    }

    /// True for an answer.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// True for a request that must not be answered.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The code read as a request's.
    pub fn request_code(&self) -> RequestCode {
        RequestCode::from_code(self.code)
    }

    /// The code read as an answer's.
    pub fn response_code(&self) -> ResponseCode {
        ResponseCode::from_code(self.code)
    }
}

/// Body bytes, in one piece or several. Pieces are written after each other without a copy.
#[derive(Debug, Clone, Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// One piece.
    One(Bytes),
    /// Pieces in order, for example the records of a pull answer.
    Many(Vec<Bytes>),
}

impl Body {
    /// All bytes of all pieces.
    pub fn len(&self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        match self {
            Self::Empty => [].as_slice(),
            Self::One(bytes) => core::slice::from_ref(bytes),
            Self::Many(parts) => parts.as_slice(),
        }
        .iter()
    }

    /// The body in one piece; copies only when there are several.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::One(bytes) => bytes.clone(),
            Self::Many(parts) => match parts.as_slice() {
                [] => Bytes::new(),
                [one] => one.clone(),
                several => {
                    let mut joined = BytesMut::with_capacity(self.len());
                    for part in several {
                        joined.extend_from_slice(part);
                    }
                    joined.freeze()
                }
            },
        }
    }
}

/// Equal when the bytes are, however they are cut.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Body {}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::One(bytes)
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(parts: Vec<Bytes>) -> Self {
        Self::Many(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_compare_by_bytes() {
        let one = Body::from(b"abcd".to_vec());
        let many = Body::from(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")]);
        assert_eq!(one, many);
        assert_eq!(many.len(), 4);
        assert_eq!(many.to_bytes(), "abcd");
        assert_eq!(Body::from(Vec::<u8>::new()), Body::Empty);
        assert!(Body::Many(Vec::new()).is_empty());
    }

    #[test]
    fn error_texts_are_bounded() {
        let answer = Command::error(ResponseCode::SystemError, "ü".repeat(5_000));
        assert_eq!(answer.remark.unwrap(), "ü".repeat(ERROR_MAX_CHARS));
    }

    #[test]
    fn flags_follow_the_kind() {
        assert!(Command::response(ResponseCode::Success).is_response());
        assert!(Command::oneway(RequestCode::HeartBeat).is_oneway());
        let request = Command::request(RequestCode::PullMessage);
        assert!(!request.is_oneway() && !request.is_response());
        assert_eq!(request.request_code(), RequestCode::PullMessage);
    }
}
