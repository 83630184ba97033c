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
/// [`WireError::Json`] for bad text or more than two million values, [`WireError::Shape`] for the wrong
/// shape.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    typed(bytes, parse::VALUES_MAX)
}

/// The same without a bound on the number of values: for files that this process wrote itself.
///
/// # Errors
/// As [`from_slice`].
pub fn from_own_file<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    typed(bytes, usize::MAX)
}

fn typed<T: DeserializeOwned>(bytes: &[u8], values_max: usize) -> Result<T, WireError> {
    let text = String::from_utf8_lossy(bytes);
    T::deserialize(parse::parse(&text, values_max)?).map_err(|e| WireError::Shape { what: e.0 })
}

/// Reads the text into a tree.
///
/// # Errors
/// [`WireError::Json`].
pub fn parse(bytes: &[u8]) -> Result<Value, WireError> {
    parse::parse(&String::from_utf8_lossy(bytes), parse::VALUES_MAX)
}

/// Writes a body with integer keys quoted and object keys as escaped strings: standard JSON.
pub fn to_vec<T: Serialize>(value: &T) -> Vec<u8> {
    write::to_vec(value, KeyStyle::Standard)
}

/// Writes a body in the form Apache's own encoder gives it: `{0:"a"}` and `{{"topic":"T"}:1}`.
pub fn to_vec_apache<T: Serialize>(value: &T) -> Vec<u8> {
    write::to_vec(value, KeyStyle::Apache)
}
