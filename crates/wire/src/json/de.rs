//! The lenient deserializer over a tree: text for numbers, names or ordinals for enums, null for defaults.

use core::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, VariantAccess, Visitor};

use super::Value;

/// What did not fit.
#[derive(Debug)]
pub struct ShapeError(pub(crate) String);

use ShapeError as Error;

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl IntoDeserializer<'_, Error> for Value {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    fn unexpected(&self, expected: &str) -> Error {
        Error(format!("expected {expected}, found {}", self.kind()))
    }

    /// A whole number from a number, a string or a boolean; fractions are cut.
    fn integer(&self) -> Result<i128, Error> {
        let text = match self {
            Self::Number(text) | Self::String(text) => text.trim(),
            Self::Bool(b) => return Ok(i128::from(*b)),
            Self::Null => return Ok(0),
            Self::Array(_) | Self::Object(_) => return Err(self.unexpected("a number")),
        };
        if let Ok(number) = text.parse::<i64>() {
            return Ok(i128::from(number));
        }
        if let Ok(number) = text.parse::<u64>() {
            return Ok(i128::from(number));
        }
        match text.parse::<f64>() {
            // 2^63: what a double can say without leaving the range of i64.
            Ok(number) if number.abs() < 9.2e18 =>
            {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "checked to lie inside the range"
                )]
                Ok(i128::from(number as i64))
            }
            _ => Err(self.unexpected("a 64-bit number")),
        }
    }

    fn float(&self) -> Result<f64, Error> {
        match self {
            Self::Number(text) | Self::String(text) => match text.trim().parse() {
                Ok(number) if f64::is_finite(number) => Ok(number),
                _ => Err(self.unexpected("a number that a double can hold")),
            },
            Self::Null => Ok(0.0),
            Self::Bool(_) | Self::Array(_) | Self::Object(_) => Err(self.unexpected("a number")),
        }
    }

    fn boolean(&self) -> Result<bool, Error> {
        match self {
            Self::Bool(b) => Ok(*b),
            Self::Null => Ok(false),
            Self::Number(text) => Ok(text != "0"),
            Self::String(text) => Ok(text == "1" || text.eq_ignore_ascii_case("true")),
            Self::Array(_) | Self::Object(_) => Err(self.unexpected("a boolean")),
        }
    }

    fn text(self) -> Result<String, Error> {
        match self {
            Self::String(text) | Self::Number(text) => Ok(text),
            Self::Bool(b) => Ok(b.to_string()),
            Self::Null => Ok(String::new()),
            Self::Array(_) | Self::Object(_) => Err(self.unexpected("a string")),
        }
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $t:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.integer()?;
            let number = <$t>::try_from(number)
                .map_err(|_| Error(format!("{number} is out of range of {}", stringify!($t))))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(b) => visitor.visit_bool(b),
            Self::Number(ref text) => {
                if let Ok(number) = text.parse::<i64>() {
                    visitor.visit_i64(number)
                } else if let Ok(number) = text.parse::<u64>() {
                    visitor.visit_u64(number)
                } else {
                    visitor.visit_f64(self.float()?)
                }
            }
            Self::String(text) => visitor.visit_string(text),
            Self::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Object(entries) => visitor.visit_map(MapDeserializer::new(
                entries.into_iter().map(|(k, v)| (Key(k), v)),
            )),
        }
    }

    integers!(deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64);

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.boolean()?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_none(),
            Self::Bool(_)
            | Self::Number(_)
            | Self::String(_)
            | Self::Array(_)
            | Self::Object(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Null => visitor.visit_seq(SeqDeserializer::new(core::iter::empty::<Value>())),
            // Java's reference to an object seen before: its content is not needed.
            Self::Object(_) if self.get("$ref").is_some() => {
                visitor.visit_seq(SeqDeserializer::new(core::iter::empty::<Value>()))
            }
            Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Object(_) => {
                Err(self.unexpected("an array"))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entries = match self {
            Self::Object(_) if self.get("$ref").is_some() => Vec::new(),
            Self::Object(entries) => entries,
            Self::Null => Vec::new(),
            Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => {
                return Err(self.unexpected("an object"));
            }
        };
        visitor.visit_map(MapDeserializer::new(
            entries.into_iter().map(|(k, v)| (Key(k), v)),
        ))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut entries = match self {
            Self::Object(entries) => entries,
            Self::Null => Vec::new(),
            Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => {
                return Err(self.unexpected("an object"));
            }
        };
        // A repeated field: the last one counts.
        let mut seen = std::collections::HashSet::new();
        entries.reverse();
        entries.retain(|(key, _)| seen.insert(key.clone()));
        visitor.visit_map(MapDeserializer::new(
            entries.into_iter().map(|(k, v)| (Key(k), v)),
        ))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let name = match self {
            Self::String(ref text) | Self::Number(ref text) => variant(text.trim(), variants),
            Self::Null | Self::Bool(_) | Self::Array(_) | Self::Object(_) => {
                return Err(self.unexpected("a name"));
            }
        };
        let name = name.ok_or_else(|| Error(format!("expected one of {variants:?}")))?;
        visitor.visit_enum(Variant(name))
    }

    serde::forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// A name in any case, or the ordinal.
fn variant(text: &str, variants: &'static [&'static str]) -> Option<&'static str> {
    if let Ok(ordinal) = text.parse::<usize>() {
        return variants.get(ordinal).copied();
    }
    variants
        .iter()
        .find(|name| name.eq_ignore_ascii_case(text))
        .copied()
}

/// A map key: text that also serves as a number.
struct Key(String);

impl IntoDeserializer<'_, Error> for Key {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! key_integers {
    ($($method:ident $visit:ident $t:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.0.trim().parse::<$t>().map_err(|_| Error(format!("key {:?} is not a number", self.0)))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for Key {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    key_integers!(deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64);

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 u8 u16 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct Variant(&'static str);

impl<'de> de::EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: de::value::StrDeserializer<'_, Error> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Error;
    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(Error("a name has no content".to_owned()))
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error("a name has no content".to_owned()))
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(Error("a name has no content".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::json::from_slice;

    /// Written again, infinity would be null.
    #[test]
    fn a_number_beyond_a_double_is_refused() {
        assert_eq!(from_slice::<f64>(b"+1e300").unwrap(), 1e300);
        for text in ["1e400", "\"-1e400\"", "\"inf\"", "\"NaN\""] {
            assert!(from_slice::<f64>(text.as_bytes()).is_err(), "{text}");
        }
        let any = from_slice::<serde_json::Value>(b"[1e400]").unwrap_err();
        assert!(any.to_string().contains("a double can hold"), "{any}");
    }
}
