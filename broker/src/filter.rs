//! Which messages of a topic a member wants: all, or those with one of some tags.

use std::collections::HashSet;

use wire::message::tags;

/// Most tags in one expression.
pub(crate) const TAGS_MAX: usize = 1024;
/// Longest expression, in bytes.
pub(crate) const EXPRESSION_MAX_BYTES: usize = 64 * 1024;

/// A parsed filter expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Everything.
    All,
    /// Messages whose tag has one of these codes. Codes are Java string hashes, so two tags may
    /// share one: a native client compares the text again, leases compare it in the broker.
    Tags {
        /// Hashes, as they stand in queue entries.
        codes: HashSet<i64>,
        /// The texts.
        tags: Vec<String>,
    },
}

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterError {
    /// A kind other than TAG.
    Kind(String),
    /// Too long or too many tags.
    TooLarge,
}

impl Filter {
    /// Parses `A || B`; `*`, an empty text and nothing mean everything.
    ///
    /// # Errors
    /// Kinds that are not served (SQL92), and expressions over the limits.
    pub(crate) fn parse(kind: Option<&str>, expression: Option<&str>) -> Result<Self, FilterError> {
        let kind = kind.unwrap_or("TAG");
        if !kind.is_empty() && !kind.eq_ignore_ascii_case("TAG") {
            return Err(FilterError::Kind(kind.chars().take(32).collect()));
        }
        let text = expression.unwrap_or("*").trim();
        if text.is_empty() || text == "*" {
            return Ok(Self::All);
        }
        if text.len() > EXPRESSION_MAX_BYTES {
            return Err(FilterError::TooLarge);
        }
        let tags: Vec<String> = text
            .split("||")
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        Self::of_tags(tags)
    }

    /// A filter for these tags; none means everything.
    ///
    /// # Errors
    /// Too many tags.
    pub(crate) fn of_tags(tags: Vec<String>) -> Result<Self, FilterError> {
        if tags.is_empty() {
            return Ok(Self::All);
        }
        if tags.len() > TAGS_MAX {
            return Err(FilterError::TooLarge);
        }
        let codes = tags.iter().map(|tag| tags::tags_code(tag)).collect();
        Ok(Self::Tags { codes, tags })
    }

    /// Whether a queue entry with this tag code may match. No false negatives.
    pub(crate) fn may_match(&self, tags_code: i64) -> bool {
        match self {
            Self::All => true,
            Self::Tags { codes, .. } => codes.contains(&tags_code),
        }
    }

    /// Whether a message with this tag matches.
    pub(crate) fn matches(&self, tag: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Tags { tags, .. } => {
                tag.is_some_and(|tag| tags.iter().any(|wanted| wanted == tag))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_split_at_double_bars() {
        assert_eq!(Filter::parse(None, None), Ok(Filter::All));
        assert_eq!(Filter::parse(Some("TAG"), Some("")), Ok(Filter::All));
        assert_eq!(Filter::parse(Some("tag"), Some(" * ")), Ok(Filter::All));
        let filter = Filter::parse(None, Some("A||  B ||")).unwrap();
        assert!(filter.matches(Some("A")) && filter.matches(Some("B")));
        assert!(!filter.matches(Some("C")) && !filter.matches(None));
        assert!(filter.may_match(65));
        assert!(!filter.may_match(0));
        assert!(matches!(
            Filter::parse(Some("SQL92"), Some("a = 1")),
            Err(FilterError::Kind(_))
        ));
    }

    #[test]
    fn tags_that_share_a_hash_are_told_apart_by_text() {
        // "Aa" and "BB" have the same Java hash.
        let filter = Filter::parse(None, Some("Aa")).unwrap();
        assert!(filter.may_match(tags::tags_code("BB")));
        assert!(!filter.matches(Some("BB")));
    }
}
