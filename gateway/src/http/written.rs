//! How far an answer is written: bodies whose parts say so as they leave, guards and stalled streams that hear of it.

use super::guarded::Unwritten;
use super::stalled::{Stalled, Waiting};
use axum::body::Body;
use axum::http::Response;
use bytes::{Buf, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Who hears of it.
#[derive(Clone, Debug)]
struct Heard {
    unwritten: Option<Unwritten>,
    waiting: Option<Arc<Waiting>>,
}

/// The body of an answer.
pub(super) struct Written {
    body: Body,
    heard: Heard,
}

/// The same answer; `stalled` are the answers of an HTTP/2 connection.
pub(super) fn follow(mut response: Response<Body>, stalled: Option<&Stalled>) -> Response<Written> {
    let unwritten = response.extensions_mut().remove();
    response.map(|body| {
        let waiting = stalled.filter(|_| !body.is_end_stream());
        let waiting = waiting.map(|stalled| Arc::new(stalled.begin()));
        let heard = Heard { unwritten, waiting };
        Written { body, heard }
    })
}

impl hyper::body::Body for Written {
    type Data = Part;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_ok(|frame| {
            frame.map_data(|bytes| Part {
                bytes,
                heard: self.heard.clone(),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of a body, in the hands of the connection until it is written.
#[derive(Debug)]
pub(super) struct Part {
    bytes: Bytes,
    heard: Heard,
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn chunks_vectored<'a>(&'a self, parts: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(parts)
    }

    /// The connection calls this with what it has written.
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(unwritten) = &self.heard.unwritten {
            unwritten.wrote(count);
        }
        if let Some(waiting) = &self.heard.waiting {
            waiting.moved(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::guarded::guard;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Probe(Arc<AtomicUsize>);
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// An answer on its way; how often its guard has fired.
    fn guarded(bytes: &'static [u8]) -> (Response<Written>, Arc<AtomicUsize>) {
        let fired = Arc::new(AtomicUsize::new(0));
        let mut response = Response::new(Body::empty());
        let probe = Probe(Arc::clone(&fired));
        guard(&mut response, bytes.into(), probe, std::mem::forget);
        (follow(response, None), fired)
    }

    fn part(body: &mut Written) -> Part {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = Pin::new(body).poll_frame(&mut context) else {
            panic!("no part");
        };
        frame.into_data().unwrap()
    }

    #[test]
    fn the_guard_fires_unless_every_byte_is_written() {
        for (taken, expected) in [(None, 1), (Some(0), 1), (Some(2), 1), (Some(3), 0)] {
            let (response, fired) = guarded(b"abc");
            let mut body = response.into_body();
            assert_eq!(body.size_hint().exact(), Some(3));
            let part = taken.map(|taken| {
                let mut part = part(&mut body);
                part.advance(taken);
                part
            });
            drop(body);
            assert_eq!(fired.load(Ordering::SeqCst), usize::from(taken.is_none()));
            drop(part);
            assert_eq!(fired.load(Ordering::SeqCst), expected, "{taken:?} bytes");
        }
    }

    #[test]
    fn an_answer_without_bytes_is_written_with_its_head() {
        let (response, fired) = guarded(b"");
        drop(response);
        assert_eq!(fired.load(Ordering::SeqCst), 0);
    }
}
