//! Receipts, cursors and page tokens of the public API, signed with a key that is known here: what is read behind the MAC.

/// First byte: which handle; the rest is what is signed.
pub(crate) fn run(data: &[u8]) {
    if let Some((kind, content)) = data.split_first() {
        gateway::fuzzing::signed(*kind, content);
    }
}
