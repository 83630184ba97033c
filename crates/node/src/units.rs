//! Sizes and times as they are written in settings: `1GiB`, `64MiB`, `4096`, `30s`, `500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. Written with `KiB`, `MiB`, `GiB`, `TiB`, `B` or none (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// A number of milliseconds. Written with `ms`, `s`, `m`, `h`, `d` or none (milliseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

/// Text that is no size or time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}, such as {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

const SIZES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("", 1),
];
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
    ("", 1),
];

impl ByteSize {
    /// That many bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// `n` times 1,048,576 bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl Millis {
    /// That many milliseconds.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// As the standard library's type.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n * 1000)
    }
}

/// Digits and a unit, nothing else; the unit's case does not matter.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(split)?;
    let number: u64 = digits.parse().ok()?;
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    number.checked_mul(*factor)
}

/// The largest unit that divides the number, so that the text reads back to the same value.
fn print(number: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fit = units
        .iter()
        .find(|(_, factor)| number != 0 && number.is_multiple_of(*factor));
    let (name, factor) = fit.unwrap_or(&("", 1));
    write!(f, "{}{name}", number / factor)
}

macro_rules! unit {
    ($name:ident, $units:ident, $what:literal, $example:literal) => {
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, $units).map(Self).ok_or_else(|| UnitError {
                    text: text.to_owned(),
                    what: $what,
                    example: $example,
                })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(self.0, $units, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a {} such as {}", $what, $example)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$name, E> {
                        Ok($name(value))
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$name, E> {
                        u64::try_from(value)
                            .map($name)
                            .map_err(|_| E::custom("must not be negative"))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_any(Text)
            }
        }
    };
}

unit!(ByteSize, SIZES, "size", "\"64MiB\"");
unit!(Millis, TIMES, "time", "\"30s\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_back() {
        for (text, bytes) in [
            ("1GiB", 1 << 30),
            ("64MiB", 64 << 20),
            ("0", 0),
            ("1500", 1500),
            ("3 KiB", 3072),
            ("7b", 7),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        for (text, ms) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("1500", 1500),
            ("3d", 259_200_000),
        ] {
            let time: Millis = text.parse().unwrap();
            assert_eq!(time.0, ms, "{text}");
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        for bad in [
            "",
            "MiB",
            "-1",
            "1.5GiB",
            "99999999999GiB",
            "1 lightyear",
            "1ß",
        ] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
            assert!(bad.parse::<Millis>().is_err(), "{bad}");
        }
    }
}
