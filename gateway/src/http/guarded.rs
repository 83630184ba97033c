//! A response body that keeps a guard until its bytes were handed to the connection.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes and what to do with the guard: dropped untouched where the client went away before the bytes were taken.
pub struct Guarded<G> {
    bytes: Option<Bytes>,
    guard: Option<G>,
    disarm: fn(G),
}

impl<G> Guarded<G> {
    /// `disarm` is called once the bytes were handed to the connection.
    pub fn new(bytes: Bytes, guard: G, disarm: fn(G)) -> Self {
        Self {
            bytes: Some(bytes),
            guard: Some(guard),
            disarm,
        }
    }
}

impl<G: Unpin> Body for Guarded<G> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        if let Some(guard) = self.guard.take() {
            (self.disarm)(guard);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Probe(Arc<AtomicUsize>);
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_guard_fires_only_when_the_bytes_were_not_taken() {
        let fired = Arc::new(AtomicUsize::new(0));
        let body = Guarded::new(
            Bytes::from_static(b"x"),
            Probe(Arc::clone(&fired)),
            std::mem::forget,
        );
        drop(body);
        assert_eq!(fired.load(Ordering::SeqCst), 1);
        let mut body = Guarded::new(
            Bytes::from_static(b"x"),
            Probe(Arc::clone(&fired)),
            std::mem::forget,
        );
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(
            Pin::new(&mut body).poll_frame(&mut context),
            Poll::Ready(Some(Ok(_)))
        ));
        drop(body);
        assert_eq!(fired.load(Ordering::SeqCst), 1);
    }
}
