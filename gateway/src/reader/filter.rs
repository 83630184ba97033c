//! Tags a reader wants, compared as texts: two tags may share the hash that the broker looks at.

use crate::error::{ApiError, Code};
use crate::message::check_tag;

/// Tags of one filter.
const TAGS_MAX: usize = 64;

/// `a||b`: messages with one of these tags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TagFilter {
    tags: Vec<String>,
    expression: String,
}

impl TagFilter {
    /// Reads `a||b`; `*` is everything, `None`.
    ///
    /// # Errors
    /// `invalid_tag`, pointing at `pointer`.
    pub(crate) fn parse(text: &str, pointer: &str) -> Result<Option<Self>, ApiError> {
        if text.trim() == "*" {
            return Ok(None);
        }
        let mut tags = Vec::new();
        for part in text.split("||") {
            let tag = check_tag(part.trim(), pointer)?;
            if !tags.contains(&tag) {
                tags.push(tag);
            }
            if tags.len() > TAGS_MAX {
                let detail = format!("at most {TAGS_MAX} tags, joined by ||");
                return Err(ApiError::field(Code::InvalidTag, pointer, detail)
                    .with("limit", TAGS_MAX as u64));
            }
        }
        tags.sort();
        let expression = tags.join("||");
        Ok(Some(Self { tags, expression }))
    }

    /// As the broker reads it; equal filters have equal texts.
    pub(crate) fn expression(&self) -> &str {
        &self.expression
    }

    /// Whether a message with this tag is wanted.
    pub(crate) fn matches(&self, tag: Option<&str>) -> bool {
        tag.is_some_and(|tag| self.tags.iter().any(|t| t == tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_as_texts() {
        let filter = TagFilter::parse("b || Aa||b", "?tag").unwrap().unwrap();
        assert_eq!(filter.expression(), "Aa||b");
        assert!(filter.matches(Some("Aa")) && filter.matches(Some("b")));
        // The same hash as "Aa".
        assert!(!filter.matches(Some("BB")) && !filter.matches(None));
        assert_eq!(TagFilter::parse("*", "?tag").unwrap(), None);
        for bad in ["", "a||", "a|b", "a||*"] {
            let error = TagFilter::parse(bad, "?tag").unwrap_err();
            assert_eq!(error.code(), Code::InvalidTag, "{bad}");
        }
    }
}
