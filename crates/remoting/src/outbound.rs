//! Frames on their way to a peer: a batch that small frames are copied into and large bodies are
//! only referred to, and a cursor that writes it in vectored pieces.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use wire::{Body, Command, frame};

use crate::error::SendError;

/// Bodies up to this size are copied next to their header; larger ones are sent from where they
/// are. A copy of 4 KiB costs less than an additional entry of a vectored write.
const COPY_MAX_BYTES: usize = 4096;
/// Entries of one vectored write.
pub(crate) const SLICES_MAX: usize = 64;
/// A batch buffer larger than this is given back instead of being kept for reuse.
const KEEP_BYTES: usize = 256 * 1024;

/// Encoded frames, in order.
///
/// ```text
/// copied: [head1 body1 head2][head3 body3 ...]
/// shared:                 ^ (position, body2)
/// ```
#[derive(Debug, Default)]
pub(crate) struct Batch {
    copied: BytesMut,
    /// Bodies that belong at a position of `copied`, ascending; several may share a position.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
    cursor: Cursor,
}

#[derive(Debug, Default)]
struct Cursor {
    copied: usize,
    shared_index: usize,
    shared_at: usize,
}

impl Batch {
    /// Appends one frame and returns its length in bytes.
    pub(crate) fn push(&mut self, cmd: &Command) -> Result<usize, SendError> {
        let body = cmd.body.len();
        if body > frame::FRAME_MAX_BYTES {
            return Err(SendError::TooLarge);
        }
        let start = self.copied.len();
        frame::encode_head(cmd, &mut self.copied);
        let head = self.copied.len() - start;
        if head + body > frame::FRAME_MAX_BYTES {
            self.copied.truncate(start);
            return Err(SendError::TooLarge);
        }
        match &cmd.body {
            Body::Empty => {}
            Body::One(part) => self.push_part(part),
            Body::Many(parts) => parts.iter().for_each(|part| self.push_part(part)),
        }
        Ok(head + body)
    }

    fn push_part(&mut self, part: &Bytes) {
        if part.len() <= COPY_MAX_BYTES {
            self.copied.extend_from_slice(part);
        } else {
            self.shared.push((self.copied.len(), part.clone()));
            self.shared_bytes += part.len();
        }
    }

    /// Bytes not yet written.
    pub(crate) fn is_done(&self) -> bool {
        self.cursor.copied == self.copied.len() && self.cursor.shared_index == self.shared.len()
    }

    /// Empties the batch for reuse.
    pub(crate) fn clear(&mut self) {
        if self.copied.capacity() > KEEP_BYTES {
            self.copied = BytesMut::new();
        } else {
            self.copied.clear();
        }
        self.shared.clear();
        self.shared_bytes = 0;
        self.cursor = Cursor::default();
    }

    /// The next pieces to write, at most `SLICES_MAX`; returns how many were filled in.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut at, mut index, mut offset) = (
            self.cursor.copied,
            self.cursor.shared_index,
            self.cursor.shared_at,
        );
        let mut filled = 0;
        while filled < SLICES_MAX {
            let stop = self
                .shared
                .get(index)
                .map_or(self.copied.len(), |(position, _)| *position);
            if at < stop {
                out[filled] = IoSlice::new(&self.copied[at..stop]);
                at = stop;
            } else if let Some((_, body)) = self.shared.get(index) {
                out[filled] = IoSlice::new(&body[offset..]);
                index += 1;
                offset = 0;
            } else {
                break;
            }
            filled += 1;
        }
        filled
    }

    /// Moves the cursor over `written` bytes that the kernel has taken.
    pub(crate) fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let stop = self
                .shared
                .get(self.cursor.shared_index)
                .map_or(self.copied.len(), |(position, _)| *position);
            if self.cursor.copied < stop {
                let step = written.min(stop - self.cursor.copied);
                self.cursor.copied += step;
                written -= step;
            } else if let Some((_, body)) = self.shared.get_mut(self.cursor.shared_index) {
                let step = written.min(body.remaining() - self.cursor.shared_at);
                self.cursor.shared_at += step;
                written -= step;
                if self.cursor.shared_at == body.len() {
                    *body = Bytes::new();
                    self.cursor.shared_index += 1;
                    self.cursor.shared_at = 0;
                }
            } else {
                return;
            }
        }
    }
}
