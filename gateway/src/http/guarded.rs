//! Answers with a guard that ends with their bytes: let go where the connection has written them all, left to fire
//! where it has not.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of an answer that the connection has yet to write; an extension of the response.
#[derive(Clone, Debug)]
pub(super) struct Unwritten(Arc<AtomicUsize>);

impl Unwritten {
    /// The connection has written some.
    pub(super) fn wrote(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

struct Guarded<G> {
    bytes: Bytes,
    unwritten: Unwritten,
    guard: Option<G>,
    disarm: fn(G),
}

impl<G> AsRef<[u8]> for Guarded<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<G> Drop for Guarded<G> {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        if self.unwritten.0.load(Ordering::Acquire) == 0 {
            (self.disarm)(guard);
        }
    }
}

/// Gives the answer a body with a guard, which lives as long as the bytes: however little a client lets the connection
/// write, and whoever holds them meanwhile. `disarm` takes the guard where all bytes were written, or there are none;
/// else it is dropped as it is.
pub(crate) fn guard<G: Send + 'static>(
    response: &mut Response,
    bytes: Bytes,
    guard: G,
    disarm: fn(G),
) {
    let unwritten = Unwritten(Arc::new(AtomicUsize::new(bytes.len())));
    response.extensions_mut().insert(unwritten.clone());
    *response.body_mut() = Body::from(Bytes::from_owner(Guarded {
        bytes,
        unwritten,
        guard: Some(guard),
        disarm,
    }));
}
