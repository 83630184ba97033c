//! Reads one JSON object of a client frame strictly: known fields once each, values kept as text until asked for.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Deepest nesting of a frame, the object itself included.
pub(super) const DEPTH_MAX: usize = 64;

/// Fields of an object in the order written. Values are checked JSON, not yet looked into.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
    duplicate: Option<String>,
    /// First field beyond [`ENTRIES_MAX`]; no operation knows so many.
    excess: Option<String>,
}

/// Fields kept; more are read and dropped.
const ENTRIES_MAX: usize = 64;

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Fields<'de>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields {
                    entries: Vec::new(),
                    duplicate: None,
                    excess: None,
                };
                while let Some(Key(name)) = map.next_key::<Key<'de>>()? {
                    let value = map.next_value::<&'de RawValue>()?;
                    if fields.find(&name).is_some() {
                        fields.duplicate.get_or_insert_with(|| shortened(&name));
                    }
                    if fields.entries.len() < ENTRIES_MAX {
                        fields.entries.push((name, value));
                    } else {
                        fields.excess.get_or_insert_with(|| shortened(&name));
                    }
                }
                Ok(fields)
            }
        }
        from.deserialize_map(Walk)
    }
}

/// A field name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Why a field cannot be used. `pointer` names it as in RFC 6901.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldFault {
    /// Stable code of REST problems.
    pub(crate) code: &'static str,
    /// What is wrong and what is allowed.
    pub(crate) detail: String,
}

impl FieldFault {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }
    pub(super) fn invalid(name: &str, expected: &str) -> Self {
        Self::new("invalid_field", format!("/{name}: expected {expected}"))
    }
}

impl<'a> Fields<'a> {
    /// The value of a field; `null` is the same as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.find(name).filter(|value| value.get() != "null")
    }

    fn find(&self, name: &str) -> Option<&'a RawValue> {
        self.entries
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// Refuses a field written twice, one not in `known`, and values nested too deeply; the message
    /// of a publish has bounds of its own.
    pub(super) fn check(&self, known: &[&str]) -> Result<(), FieldFault> {
        if let Some(name) = &self.duplicate {
            return Err(FieldFault::new(
                "invalid_json",
                format!("/{name} is written twice"),
            ));
        }
        let unknown = self
            .entries
            .iter()
            .map(|(name, _)| name.as_ref())
            .find(|name| !known.contains(name));
        if let Some(name) = unknown.map(shortened).or_else(|| self.excess.clone()) {
            return Err(FieldFault::new(
                "unknown_field",
                format!("/{name} is not a field of this op ({})", known.join(", ")),
            ));
        }
        if self
            .entries
            .iter()
            .any(|(name, value)| name != "message" && depth(value.get()) >= DEPTH_MAX)
        {
            return Err(FieldFault::new(
                "invalid_json",
                format!("nested more than {DEPTH_MAX} deep"),
            ));
        }
        Ok(())
    }

    /// A string field.
    pub(super) fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, FieldFault> {
        self.get(name)
            .map(|value| read_text(value).ok_or_else(|| FieldFault::invalid(name, "a string")))
            .transpose()
    }

    /// A string field that must be there.
    pub(super) fn required_text(&self, name: &str) -> Result<Cow<'a, str>, FieldFault> {
        self.text(name)?
            .ok_or_else(|| FieldFault::invalid(name, "a string"))
    }

    /// A whole number within `range`.
    pub(super) fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, FieldFault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match serde_json::from_str::<u64>(value.get()) {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(FieldFault::invalid(
                name,
                &format!("a whole number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, FieldFault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.get() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(FieldFault::invalid(name, "true or false")),
        }
    }

    /// A duration such as `1500ms` within `range` (milliseconds); a bare number is refused.
    pub(super) fn duration(
        &self,
        name: &str,
        code: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, FieldFault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let Some(ms) = read_text(value).as_deref().and_then(duration_ms) else {
            return Err(FieldFault::new(
                "invalid_duration",
                format!("/{name}: expected a duration such as \"1500ms\" or \"30s\""),
            ));
        };
        if range.contains(&ms) {
            return Ok(Some(ms));
        }
        Err(FieldFault::new(
            code,
            format!("/{name}: from {}ms to {}ms", range.start(), range.end()),
        ))
    }

    /// An array of strings.
    pub(super) fn texts(&self, name: &str, max: usize) -> Result<Option<Vec<String>>, FieldFault> {
        let Some(values) = self.array(name)? else {
            return Ok(None);
        };
        within(name, values.len(), max)?;
        let texts: Option<Vec<String>> = values
            .into_iter()
            .map(|value| read_text(value).map(Cow::into_owned))
            .collect();
        texts
            .map(Some)
            .ok_or_else(|| FieldFault::invalid(name, "an array of strings"))
    }

    /// An array of objects.
    pub(super) fn objects(
        &self,
        name: &str,
        max: usize,
    ) -> Result<Option<Vec<Fields<'a>>>, FieldFault> {
        let Some(values) = self.array(name)? else {
            return Ok(None);
        };
        within(name, values.len(), max)?;
        let objects: Result<Vec<Fields<'a>>, _> = values
            .into_iter()
            .map(|value| serde_json::from_str(value.get()))
            .collect();
        objects
            .map(Some)
            .map_err(|_| FieldFault::invalid(name, "an array of objects"))
    }

    /// A field that is itself an object.
    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, FieldFault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| FieldFault::invalid(name, "an object"))
    }

    fn array(&self, name: &str) -> Result<Option<Vec<&'a RawValue>>, FieldFault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| FieldFault::invalid(name, "an array"))
    }
}

fn within(name: &str, len: usize, max: usize) -> Result<(), FieldFault> {
    if len == 0 {
        return Err(FieldFault::new(
            "batch_empty",
            format!("/{name}: must not be empty"),
        ));
    }
    if len > max {
        return Err(FieldFault::new(
            "batch_too_large",
            format!("/{name}: {len} given, at most {max}"),
        ));
    }
    Ok(())
}

/// The text of a JSON string; `None` for other values and lone surrogates.
pub(super) fn read_text(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Key<'_>>(value.get())
        .ok()
        .map(|Key(text)| text)
}

/// Milliseconds of `<1 to 9 digits>(ms|s|m|h|d)`.
pub(super) fn duration_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 9 {
        return None;
    }
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? * factor)
}

/// Deepest nesting of checked JSON, counted without recursion.
pub(super) fn depth(json: &str) -> usize {
    let (mut now, mut deepest, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// At most 64 characters of what a client wrote, for an answer.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
