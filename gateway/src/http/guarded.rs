//! A response body that keeps a guard until its bytes were handed to the connection.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes handed over at a time. The connection asks for more only when it has room, so a client that stops reading a
/// long answer leaves the guard armed.
const PART_BYTES: usize = 64 * 1024;

/// Bytes and what to do with the guard: dropped untouched where the client went away before the last bytes were taken.
pub struct Guarded<G> {
    bytes: Option<Bytes>,
    guard: Option<G>,
    disarm: fn(G),
}

impl<G> Guarded<G> {
    /// `disarm` is called once the last bytes were handed to the connection.
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
        let Some(mut bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        if bytes.len() > PART_BYTES {
            let part = bytes.split_to(PART_BYTES);
            self.bytes = Some(bytes);
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
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

    #[test]
    fn a_long_answer_is_guarded_until_its_last_part() {
        let fired = Arc::new(AtomicUsize::new(0));
        let bytes = Bytes::from(vec![b'x'; 2 * PART_BYTES + 1]);
        let mut context = Context::from_waker(std::task::Waker::noop());
        for (taken, expected) in [(1, 1), (2, 2), (3, 2)] {
            let probe = Probe(Arc::clone(&fired));
            let mut body = Guarded::new(bytes.clone(), probe, std::mem::forget);
            let mut seen = 0;
            for _ in 0..taken {
                let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context)
                else {
                    panic!("a part is missing");
                };
                seen += frame.into_data().unwrap().len();
                assert_eq!(body.size_hint().exact(), Some((bytes.len() - seen) as u64));
            }
            assert_eq!(body.is_end_stream(), taken == 3);
            drop(body);
            assert_eq!(
                fired.load(Ordering::SeqCst),
                expected,
                "{taken} parts taken"
            );
        }
    }
}
