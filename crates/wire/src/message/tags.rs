//! Tag hashes: what a consume queue entry carries to filter by tag.

/// Java's `String.hashCode`: over UTF-16 units, wrapping at 32 bits.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// The tag hash of a message, sign-extended; 0 without a tag.
pub fn tags_code(tag: &str) -> i64 {
    i64::from(java_string_hash(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_javas() {
        let check = |text: &str, hash: i32| assert_eq!(java_string_hash(text), hash, "{text}");
        check("", 0);
        check("A", 65);
        check("hello", 99_162_322);
        check("TagA", 2_598_919);
        check("polygenelubricants", i32::MIN);
        check("\u{1f600}", 1_772_899);
    }
}
