//! JSON bodies of the public API.

/// First byte: which body; the rest is what the client sent.
pub(crate) fn run(data: &[u8]) {
    if let Some((kind, body)) = data.split_first() {
        gateway::fuzzing::rest_body(*kind, body);
    }
}
