//! What a WebSocket client sends: raw frames, and the objects in them.

/// First byte 0: bytes of the socket after the handshake; else: the text of one frame.
pub(crate) fn run(data: &[u8]) {
    match data {
        [0, stream @ ..] => gateway::fuzzing::socket(stream),
        [_, text @ ..] => {
            if let Ok(text) = std::str::from_utf8(text) {
                gateway::fuzzing::socket_text(text);
            }
        }
        [] => {}
    }
}
