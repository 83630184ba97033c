//! ExtFields: the header fields of a request or answer, all of them text, with typed access.

use core::fmt;
use core::ops::Range;

use crate::WireError;

/// Ordered list of `name -> text`. Names and values live in one string, so that a decoded header costs
/// two allocations however many fields it has. A later value for a name replaces the earlier one.
///
/// "Present but empty" (`{}`) and "absent" (null) differ for some clients: see [`ExtFields::is_present`].
#[derive(Clone, Default)]
pub struct ExtFields {
    text: String,
    entries: Vec<Entry>,
    present: bool,
}

#[derive(Clone)]
struct Entry {
    tag: u32,
    key: Range<usize>,
    value: Range<usize>,
}

/// A header with more fields than this is refused: finding one takes a walk over all.
pub(crate) const FIELDS_MAX: usize = 1024;

/// Cheap first comparison of names: length, first and last byte.
fn tag(key: &str) -> u32 {
    let bytes = key.as_bytes();
    let first = bytes.first().copied().unwrap_or(0);
    let last = bytes.last().copied().unwrap_or(0);
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    (len << 16) ^ (u32::from(first) << 8) ^ u32::from(last)
}

impl ExtFields {
    /// No fields, absent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts from header text; ranges given to [`Self::push_range`] point into it.
    pub(crate) fn over(text: &str) -> Self {
        let mut owned = String::with_capacity(text.len() + text.len() / 2 + 64);
        owned.push_str(text);
        Self {
            text: owned,
            entries: Vec::with_capacity(16),
            present: false,
        }
    }

    pub(crate) fn arena(&mut self) -> &mut String {
        &mut self.text
    }

    pub(crate) fn push_range(&mut self, key: Range<usize>, value: Range<usize>) {
        self.present = true;
        let Some(name) = self.text.get(key.clone()) else {
            return;
        };
        let entry = Entry {
            tag: tag(name),
            key,
            value,
        };
        match self.position(name) {
            Some(at) => {
                if let Some(slot) = self.entries.get_mut(at) {
                    *slot = entry;
                }
            }
            None => self.entries.push(entry),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let wanted = tag(name);
        self.entries
            .iter()
            .position(|e| e.tag == wanted && self.text.get(e.key.clone()) == Some(name))
    }

    fn text_of(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The value of a field as it came.
    pub fn get(&self, name: &str) -> Option<&str> {
        let wanted = tag(name);
        self.entries
            .iter()
            .find(|e| e.tag == wanted && self.text.get(e.key.clone()) == Some(name))
            .map(|e| self.text_of(&e.value))
    }

    /// True when the field is there, whatever its value.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Sets a field, replacing an earlier value, and marks the fields present.
    pub fn put(&mut self, name: impl AsRef<str>, value: impl ToExt) {
        let name = name.as_ref();
        let key_start = self.text.len();
        self.text.push_str(name);
        let value_start = self.text.len();
        value.append_to(&mut self.text);
        self.push_range(key_start..value_start, value_start..self.text.len());
    }

    /// Sets a field when there is a value.
    pub fn put_opt<T: ToExt>(&mut self, name: impl AsRef<str>, value: Option<T>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.entries.remove(at);
        }
    }

    /// A field that must be there and parse.
    ///
    /// # Errors
    /// [`WireError::MissingField`], [`WireError::InvalidField`].
    pub fn required<T: FromExt>(&self, field: &'static str) -> Result<T, WireError> {
        let text = self.get(field).ok_or(WireError::MissingField { field })?;
        T::from_ext(text).ok_or_else(|| WireError::invalid(field, T::EXPECTED, text))
    }

    /// A field that may be absent but must parse. An empty text counts as absent unless text is asked for.
    ///
    /// # Errors
    /// [`WireError::InvalidField`].
    pub fn optional<T: FromExt>(&self, field: &'static str) -> Result<Option<T>, WireError> {
        let Some(text) = self.get(field) else {
            return Ok(None);
        };
        match T::from_ext(text) {
            Some(value) => Ok(Some(value)),
            None if text.is_empty() => Ok(None),
            None => Err(WireError::invalid(field, T::EXPECTED, text)),
        }
    }

    /// A switch: `true` in any case or `1` is on, everything else (absent too) is off.
    pub fn bool(&self, field: &str) -> bool {
        self.get(field).and_then(bool::from_ext).unwrap_or(false)
    }

    /// Names and values in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|e| (self.text_of(&e.key), self.text_of(&e.value)))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without fields, present or not.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// False when the header has no `extFields` at all; true for `{}`.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Makes the header carry `extFields` even when empty: answers with a typed header need it.
    pub fn mark_present(&mut self) {
        self.present = true;
    }
}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Same fields with the same values, in any order, and both present or both absent.
impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present
            && self.len() == other.len()
            && self
                .iter()
                .all(|(name, value)| other.get(name) == Some(value))
    }
}

impl Eq for ExtFields {}

/// A typed set of header fields: the request or response header of one code.
pub trait Header: Sized {
    /// Reads the fields.
    ///
    /// # Errors
    /// [`WireError::MissingField`], [`WireError::InvalidField`], naming the field.
    fn decode(ext: &ExtFields) -> Result<Self, WireError>;

    /// Writes the fields.
    fn encode(&self, ext: &mut ExtFields);
}

/// A value that can be written as a header field.
pub trait ToExt {
    /// Appends the text form.
    fn append_to(&self, out: &mut String);
}

/// A value that can be read from a header field.
pub trait FromExt: Sized {
    /// What the text should be, for error messages.
    const EXPECTED: &'static str;

    /// `None` when the text is no such value.
    fn from_ext(text: &str) -> Option<Self>;
}

impl<T: ToExt + ?Sized> ToExt for &T {
    fn append_to(&self, out: &mut String) {
        (**self).append_to(out);
    }
}

impl ToExt for str {
    fn append_to(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl ToExt for String {
    fn append_to(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl FromExt for String {
    const EXPECTED: &'static str = "text";
    fn from_ext(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl ToExt for bool {
    fn append_to(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

/// As Java reads it, and `1` (the C++ client): everything else is false.
impl FromExt for bool {
    const EXPECTED: &'static str = "boolean";
    fn from_ext(text: &str) -> Option<Self> {
        Some(text == "1" || text.eq_ignore_ascii_case("true"))
    }
}

macro_rules! integers {
    ($($t:ty => $expected:literal),*) => {$(
        impl ToExt for $t {
            fn append_to(&self, out: &mut String) {
                crate::json::write::push_integer(i128::from(*self), out);
            }
        }
        impl FromExt for $t {
            const EXPECTED: &'static str = $expected;
            fn from_ext(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

integers!(i8 => "8-bit number", u8 => "8-bit number", i16 => "16-bit number", u16 => "16-bit number",
    i32 => "32-bit number", u32 => "32-bit number", i64 => "64-bit number", u64 => "64-bit number");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_value_replaces_the_earlier_one() {
        let mut ext = ExtFields::new();
        assert!(!ext.is_present());
        ext.put("a", 1i32);
        ext.put("b", "x");
        ext.put("a", i64::MIN);
        assert_eq!(ext.len(), 2);
        assert_eq!(ext.get("a"), Some("-9223372036854775808"));
        ext.remove("a");
        assert_eq!(ext.get("a"), None);
        assert!(ext.is_present());
    }

    #[test]
    fn typed_reads_name_the_field() {
        let mut ext = ExtFields::new();
        ext.put("n", "12x");
        ext.put("e", "");
        ext.put("t", "TRUE");
        ext.put("one", 1u8);
        assert_eq!(
            ext.required::<i32>("q"),
            Err(WireError::MissingField { field: "q" })
        );
        assert!(matches!(
            ext.required::<i64>("n"),
            Err(WireError::InvalidField { field: "n", .. })
        ));
        assert_eq!(ext.optional::<i64>("e"), Ok(None));
        assert_eq!(ext.optional::<String>("e"), Ok(Some(String::new())));
        assert!(ext.bool("t") && ext.bool("one") && !ext.bool("n") && !ext.bool("zz"));
    }
}
