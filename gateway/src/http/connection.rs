//! A socket with time limits: what hyper does not answer by itself (408) or answers without a body (400, 414, 431).
//!
//! ```text
//! Idle --first byte of a head--> Idle, head running (10 s, then 408) --service called--> Serving
//! Serving --response made--> Answered --flushed--> Idle          101 or HTTP/2: Free (no limits here any more)
//! ```
//!
//! An HTTP/2 connection has the same 10 s from its first byte to its first request; then it is closed without a word.

use super::problem;
use crate::error::{ApiError, Code};
use crate::memory::Budget;
use crate::params::new_ulid;
use axum::http::Method;
use clock::Clock;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// From the first byte of a request to the end of its header block.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Between two requests of a connection, and before the first.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// A client that takes no byte of an answer.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(30);
/// The same while memory for answers is short, and how often that is looked at.
pub(super) const WRITE_TIME_SHORT: Duration = Duration::from_secs(5);

/// What an HTTP/2 connection begins with (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Header lines and bytes of a block that is never too large for the library.
const LINES_FINE: usize = 512;
const BYTES_FINE: usize = 32 * 1_024;

/// Where a connection stands; shared with the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase(Arc<AtomicU8>);

const IDLE: u8 = 0;
const SERVING: u8 = 1;
const ANSWERED: u8 = 2;
const FREE: u8 = 3;

impl Phase {
    pub(super) fn serving(&self) {
        self.move_to(SERVING);
    }

    pub(super) fn answered(&self) {
        self.move_to(ANSWERED);
    }

    /// The socket belongs to another protocol: no limits of this one.
    pub(super) fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    fn move_to(&self, phase: u8) {
        if self.get() != FREE {
            self.0.store(phase, Ordering::Release);
        }
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// The socket.
pub(super) struct Watched {
    stream: TcpStream,
    phase: Phase,
    clock: Arc<dyn Clock>,
    gateway: String,
    /// Largest request body, bytes.
    request_max: usize,
    /// Memory of the answers that clients have yet to take.
    answers: Arc<Budget>,
    /// Bytes of [`PREFACE`] that the connection began with; `None` = it began otherwise.
    preface: Option<usize>,
    /// The connection was ended here: nothing is read any more.
    ended: bool,
    /// When the head that is being read began.
    head_since: Option<Instant>,
    /// Bytes and line feeds read since then.
    head_read: (usize, usize),
    idle_since: Instant,
    write_blocked_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(super) fn new(
        stream: TcpStream,
        phase: Phase,
        clock: Arc<dyn Clock>,
        gateway: String,
        request_max: usize,
        answers: Arc<Budget>,
    ) -> Self {
        let idle_since = Instant::now();
        Self {
            stream,
            phase,
            clock,
            gateway,
            request_max,
            answers,
            preface: Some(0),
            ended: false,
            head_since: None,
            head_read: (0, 0),
            idle_since,
            write_blocked_since: None,
            timer: None,
        }
    }

    /// Ready once `deadline` has passed. One timer serves all limits: it is moved forward only when it fires early.
    fn expired(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        loop {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
    }

    fn is_http2(&self) -> bool {
        self.preface == Some(PREFACE.len())
    }

    /// Whether `new` bytes go on with the preface of HTTP/2.
    fn note_preface(&mut self, new: &[u8]) {
        let Some(rest) = self.preface.and_then(|had| PREFACE.get(had..)) else {
            return;
        };
        let had = PREFACE.len() - rest.len();
        let count = rest.len().min(new.len());
        self.preface = (rest.get(..count) == new.get(..count)).then_some(had + count);
    }

    /// Writes a whole answer as far as the socket takes it now; the connection ends after it.
    fn last_words(&self, error: &ApiError) {
        let request_id = new_ulid(self.clock.now_ms());
        let body = problem::document(error, &Method::GET, "", &request_id);
        let status = error.code().status();
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nmq-request-id: {request_id}\r\n\
             mq-gateway: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or(""),
            body.len(),
            self.gateway,
        );
        let whole = [head.as_bytes(), &body].concat();
        if let Err(error) = self.stream.try_write(&whole) {
            tracing::debug!(%error, "last answer not written");
        }
    }

    /// The library's own bare answer to a head it cannot read: the code we answer instead.
    fn bare_answer(&self, bytes: &[u8]) -> Option<ApiError> {
        if self.phase.get() != IDLE {
            return None;
        }
        let status = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
        Some(match status {
            b"414" => ApiError::new(Code::UriTooLong, "path and query may have 16384 bytes")
                .with("limit", 16_384),
            // The library says the same of a Content-Length beyond all measure.
            b"431" if self.head_read.0 <= BYTES_FINE && self.head_read.1 <= LINES_FINE => {
                let max = self.request_max;
                let detail = format!("a request body may have {max} bytes");
                ApiError::new(Code::RequestTooLarge, detail).with("limit", max)
            }
            b"431" => ApiError::new(
                Code::HeadersTooLarge,
                "the header block may have 32768 bytes",
            )
            .with("limit", 32_768),
            b"400" => ApiError::new(Code::InvalidField, "this is not a well-formed HTTP request"),
            _ => return None,
        })
    }

    fn note_write(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.write_blocked_since = None;
            return result;
        }
        let since = *self.write_blocked_since.get_or_insert_with(Instant::now);
        if self.phase.get() == FREE {
            return Poll::Pending;
        }
        let mut look = since;
        while look < since + WRITE_TIME {
            look += WRITE_TIME_SHORT;
            if !self.expired(look, cx) {
                return Poll::Pending;
            }
            if self.answers.is_short() {
                break;
            }
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let idle = self.phase.get() == IDLE;
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            let new = buf.filled().get(before..).unwrap_or_default();
            if idle && !new.is_empty() {
                if self.head_since.is_none() {
                    self.head_since = Some(Instant::now());
                    self.head_read = (0, 0);
                }
                self.note_preface(new);
                self.head_read.0 += new.len();
                self.head_read.1 += new.iter().filter(|byte| **byte == b'\n').count();
            }
            return Poll::Ready(result);
        }
        if !idle {
            self.head_since = None;
            return Poll::Pending;
        }
        let head_since = self.head_since;
        let deadline = head_since.map_or(self.idle_since + IDLE_TIME, |since| since + HEAD_TIME);
        if !self.expired(deadline, cx) {
            return Poll::Pending;
        }
        if head_since.is_some() && !self.is_http2() {
            let detail = format!(
                "the header block was not complete within {} s",
                HEAD_TIME.as_secs()
            );
            self.last_words(&ApiError::new(Code::RequestTimeout, detail));
        }
        self.phase.free();
        self.ended = true;
        // Nothing was put into the buffer: the library sees the end of the stream.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.bare_answer(buf) {
            self.last_words(&error);
            return Poll::Ready(Ok(buf.len()));
        }
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = bufs.first().and_then(|b| self.bare_answer(b)) {
            self.last_words(&error);
            return Poll::Ready(Ok(bufs.iter().map(|b| b.len()).sum()));
        }
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if self.phase.get() == ANSWERED {
            self.phase.move_to(IDLE);
            self.head_since = None;
            self.idle_since = Instant::now();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
