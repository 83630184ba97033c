//! Searches for the few bytes that end a run of plain JSON text, eight bytes at a time.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of the first byte of `word` (in memory order) that equals `byte` is set, none below it.
fn equal(word: u64, byte: u8) -> u64 {
    let v = word ^ (LOW * u64::from(byte));
    v.wrapping_sub(LOW) & !v & HIGH
}

/// The same for the first byte below 0x20.
fn control(word: u64) -> u64 {
    word.wrapping_sub(LOW * 0x20) & !word & HIGH
}

/// Position of the first hit: `marks` sees eight bytes, `is` one.
#[inline]
fn first(bytes: &[u8], marks: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let mut rest = bytes;
    let mut at = 0;
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let found = marks(u64::from_le_bytes(*head));
        if found != 0 {
            return usize::try_from(found.trailing_zeros() / 8)
                .ok()
                .map(|i| at + i);
        }
        at += 8;
        rest = tail;
    }
    rest.iter().position(|b| is(*b)).map(|i| at + i)
}

/// The first `quote` or backslash.
pub(crate) fn quote_or_backslash(bytes: &[u8], quote: u8) -> Option<usize> {
    first(
        bytes,
        |word| equal(word, quote) | equal(word, b'\\'),
        |b| b == quote || b == b'\\',
    )
}

/// The first byte that a JSON string must escape.
pub(crate) fn to_escape(bytes: &[u8]) -> Option<usize> {
    first(
        bytes,
        |word| control(word) | equal(word, b'"') | equal(word, b'\\'),
        |b| b < 0x20 || b == b'"' || b == b'\\',
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_plain_search_finds() {
        for len in 0..40 {
            for at in 0..len {
                for hit in [b'"', b'\\', 0, 0x1f] {
                    for fill in [b' ', b'a', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                        let mut bytes = vec![fill; len];
                        *bytes.get_mut(at).unwrap() = hit;
                        assert_eq!(to_escape(&bytes), Some(at));
                        let expected = (hit == b'"' || hit == b'\\').then_some(at);
                        assert_eq!(quote_or_backslash(&bytes, b'"'), expected);
                    }
                }
            }
            assert_eq!(to_escape(&vec![b'!'; len]), None);
        }
    }
}
