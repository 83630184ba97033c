//! JSON bodies of the public API, and the headers of a send whose body is the payload.

/// First byte 9: headers; else which body; the rest is what the client sent.
pub(crate) fn run(data: &[u8]) {
    match data {
        [9, lines @ ..] => gateway::fuzzing::raw_headers(lines),
        [kind, body @ ..] => gateway::fuzzing::rest_body(*kind, body),
        [] => {}
    }
}
