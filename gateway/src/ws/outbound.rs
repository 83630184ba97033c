//! Frames on their way to the socket: answers first, then pushes, handed over no faster than the peer takes them.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes};
use futures_util::Sink;

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
    _held: Held,
}

/// The outbound queue of one socket; its bound is kept by the session.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    answers: VecDeque<Queued>,
    pushes: VecDeque<Queued>,
    ping: bool,
    /// In the sink and not reported yet.
    handed: Progress,
    unflushed: bool,
}

impl Outbound {
    /// `held` is the memory of the text.
    pub(super) fn queue(&mut self, text: String, push: bool, receipts: Vec<Arc<str>>, held: Held) {
        let queued = Queued {
            text: text.into(),
            receipts,
            _held: held,
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
                return Poll::Ready(Ok(std::mem::take(&mut self.handed)));
            };
            self.handed.bytes += next.text.len();
            self.handed.frames += 1;
            self.unflushed = true;
            sink.as_mut().start_send(Message::Text(next.text))?;
        }
    }
}
