//! JSON bodies: liberal reading, and writing exactly as Apache RocketMQ does.

mod de;
mod parse;
mod value;
pub(crate) mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::WireError;

pub use de::ShapeError;
pub use value::Value;
pub use write::KeyStyle;

/// Reads a body. Accepted beyond JSON: single quotes, trailing commas, comments, unquoted and integer
/// keys, objects as keys (the key becomes its JSON text), numbers and booleans as strings, enums as
/// names in any case or as ordinals. Unknown fields are ignored, `null` is a default where the type
/// has one.
///
/// # Errors
/// [`WireError::Json`] for bad text, [`WireError::Shape`] for the wrong shape.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let text = String::from_utf8_lossy(bytes);
    T::deserialize(parse::parse(&text)?).map_err(|e| WireError::Shape { what: e.0 })
}

/// Reads the text into a tree.
///
/// # Errors
/// [`WireError::Json`].
pub fn parse(bytes: &[u8]) -> Result<Value, WireError> {
    parse::parse(&String::from_utf8_lossy(bytes))
}

/// Writes a body with integer keys quoted and object keys as escaped strings: standard JSON.
pub fn to_vec<T: Serialize>(value: &T) -> Vec<u8> {
    write::to_vec(value, KeyStyle::Standard)
}

/// Writes a body in the form Apache's own encoder gives it: `{0:"a"}` and `{{"topic":"T"}:1}`.
pub fn to_vec_apache<T: Serialize>(value: &T) -> Vec<u8> {
    write::to_vec(value, KeyStyle::Apache)
}
