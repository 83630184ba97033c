//! Frames on their way to the socket: answers first, then pushes, handed over no faster than the peer takes them.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Sink;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::memory::Held;

/// Bytes handed over before the session hears of it.
const REPORT_BYTES: usize = 32 * 1024;

/// What left the queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) bytes: usize,
    pub(super) frames: usize,
}

#[derive(Debug)]
struct Queued {
    text: Utf8Bytes,
    receipts: Vec<Arc<str>>,
    held: Held,
}

/// The outbound queue of one socket; its bound is kept by the session.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    answers: VecDeque<Queued>,
    pushes: VecDeque<Queued>,
    ping: bool,
    /// In the sink and not reported yet.
    handed: Progress,
    /// Memory of the frames that the sink may hold still, oldest first: at most two.
    in_sink: VecDeque<Held>,
    unflushed: bool,
}

impl Outbound {
    /// `held` is the memory of the text.
    pub(super) fn queue(&mut self, text: String, push: bool, receipts: Vec<Arc<str>>, held: Held) {
        let queued = Queued {
            text: text.into(),
            receipts,
            held,
        };
        if push {
            self.pushes.push_back(queued)
        } else {
            self.answers.push_back(queued)
        }
    }

    pub(super) fn ping(&mut self) {
        self.ping = true;
    }

    pub(super) fn has_work(&self) -> bool {
        self.ping || self.unflushed || !self.answers.is_empty() || !self.pushes.is_empty()
    }

    /// Receipts of messages that never reached the sink; they are forgotten here.
    pub(super) fn take_unwritten(&mut self) -> HashSet<Arc<str>> {
        self.pushes
            .drain(..)
            .flat_map(|queued| queued.receipts)
            .collect()
    }

    /// Hands frames to the sink until it is full or all are flushed. May be dropped at any point and polled again.
    pub(super) fn poll_write<S>(
        &mut self,
        mut sink: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Progress, Error>>
    where
        S: Sink<Message, Error = Error>,
    {
        loop {
            ready!(sink.as_mut().poll_ready(cx))?;
            // Half a socket passes its last frame on when it is ready, which the whole was once it had written the one
            // before.
            if self.in_sink.len() > 1 {
                self.in_sink.pop_front();
            }
            if self.handed.bytes >= REPORT_BYTES {
                return Poll::Ready(Ok(std::mem::take(&mut self.handed)));
            }
            if std::mem::take(&mut self.ping) {
                sink.as_mut().start_send(Message::Ping(Bytes::new()))?;
                self.unflushed = true;
                continue;
            }
            let Some(next) = self.answers.pop_front().or_else(|| self.pushes.pop_front()) else {
                ready!(sink.as_mut().poll_flush(cx))?;
                self.unflushed = false;
                self.in_sink.clear();
                return Poll::Ready(Ok(std::mem::take(&mut self.handed)));
            };
            self.handed.bytes += next.text.len();
            self.handed.frames += 1;
            self.unflushed = true;
            self.in_sink.push_back(next.held);
            sink.as_mut().start_send(Message::Text(next.text))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;
    use futures_util::StreamExt;
    use std::convert::Infallible;

    /// A socket whose peer takes a frame where `open` counts one.
    #[derive(Debug, Default)]
    struct Peer {
        open: usize,
        buffered: bool,
    }

    impl Peer {
        fn poll_written(&mut self) -> Poll<Result<(), Error>> {
            if self.buffered && self.open == 0 {
                return Poll::Pending;
            }
            if std::mem::take(&mut self.buffered) {
                self.open -= 1;
            }
            Poll::Ready(Ok(()))
        }
    }

    impl Sink<Message> for Peer {
        type Error = Error;

        fn poll_ready(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            self.poll_written()
        }

        fn start_send(mut self: Pin<&mut Self>, _: Message) -> Result<(), Error> {
            self.buffered = true;
            Ok(())
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            self.poll_written()
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Ready(Ok(()))
        }
    }

    impl futures_util::Stream for Peer {
        type Item = Infallible;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Infallible>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_frame_is_held_until_it_is_written() {
        let budget = Budget::new(100);
        for taken in 0..=3 {
            let peer = Peer {
                open: taken,
                buffered: false,
            };
            let (mut sink, _stream) = peer.split();
            let mut outbound = Outbound::default();
            for text in ["a", "b", "c"] {
                outbound.queue(text.to_owned(), true, Vec::new(), budget.hold(1));
            }
            let mut context = Context::from_waker(std::task::Waker::noop());
            let done = outbound.poll_write(Pin::new(&mut sink), &mut context);
            assert_eq!(done.is_ready(), taken == 3);
            assert_eq!(budget.used(), 3 - taken);
            drop(outbound);
            assert_eq!(budget.used(), 0);
        }
    }
}
