//! Answers of one HTTP/2 connection that their client does not take: a stream without window stops no write of the socket.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// Bodies under way on a connection, and since when each waits for its client. As many as there are streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalled(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Stalled {
    /// The body, watched until it is dropped.
    pub(super) fn watch(&self, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let mut open = self.0.lock();
        let id = open.next;
        open.next += 1;
        open.since.insert(id, Instant::now());
        drop(open);
        Body::new(Watch {
            body,
            id,
            stalled: self.clone(),
        })
    }

    /// Since when the body waits whose client took nothing for the longest time.
    pub(super) fn longest(&self) -> Option<Instant> {
        self.0.lock().since.values().min().copied()
    }
}

struct Watch {
    body: Body,
    id: u64,
    stalled: Stalled,
}

impl hyper::body::Body for Watch {
    type Data = Bytes;
    type Error = axum::Error;

    /// Asked only while the stream has room.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(since) = self.stalled.0.lock().since.get_mut(&self.id) {
            *since = Instant::now();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stalled.0.lock().since.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_body_that_waits_longest_counts_until_it_moves_or_ends() {
        let stalled = Stalled::default();
        assert_eq!(stalled.longest(), None);
        drop(stalled.watch(Body::empty()));
        let begin = Instant::now();
        let mut first = stalled.watch(Body::from("x"));
        tokio::time::advance(Duration::from_secs(5)).await;
        let second = stalled.watch(Body::from("y"));
        assert_eq!(stalled.longest(), Some(begin));
        tokio::time::advance(Duration::from_secs(5)).await;
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut first).poll_frame(&mut context).is_ready());
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(5)));
        drop(second);
        assert_eq!(stalled.longest(), Some(begin + Duration::from_secs(10)));
        drop(first);
        assert_eq!(stalled.longest(), None);
    }
}
