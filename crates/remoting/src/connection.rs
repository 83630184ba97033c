//! One connection as the rest of the program sees it: a place to queue frames and to await answers.
//! The socket itself belongs to the connection's task (`driver`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use wire::{Command, ResponseCode};

use crate::error::{ErrorKind, RemotingError, SendError};
use crate::limits::Limits;
use crate::outbound::Batch;
use crate::pending::{NoPlace, Pending};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Bit 0 of the frame's flag: this is a response.
const FLAG_RESPONSE: i32 = 1;
/// Bit 1: no response is wanted.
const FLAG_ONEWAY: i32 = 2;
/// How long a caller waits for the connection's task to stop before it says "may have been sent".
const STOP_WAIT: Duration = Duration::from_millis(200);
/// How long a request may still wait to be written once its time is over.
const WRITE_WAIT: Duration = Duration::from_millis(100);
const WRITE_LOOK: Duration = Duration::from_millis(5);
/// A connection on which nothing at all came back for this long after a request counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(1);

/// A connection, of a server or a client. Shared by everyone who sends on it.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    pub(crate) limits: Limits,
    out: Mutex<Out>,
    /// Bytes ever put into a batch; changes only under the lock of `out`.
    queued: AtomicU64,
    /// Bytes the kernel has taken, of `queued`.
    written: AtomicU64,
    /// Frames received; tells a dead connection from a slow answer.
    received: AtomicU64,
    pub(crate) pending: Pending,
    /// Two-way requests of the peer that have no answer yet.
    unanswered: AtomicUsize,
    draining: AtomicBool,
    closed: AtomicBool,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Out {
    batch: Batch,
    /// Present while the task sleeps.
    waker: Option<Waker>,
    closed: bool,
}

/// What the task finds when it looks at the queue.
pub(crate) enum Looked {
    /// The given batch was exchanged for one with frames in it.
    Frames,
    Nothing,
    Closed,
}

impl Connection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr, limits: Limits) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            peer,
            local,
            pending: Pending::new(limits.in_flight_max),
            limits,
            out: Mutex::new(Out::default()),
            queued: AtomicU64::new(0),
            written: AtomicU64::new(0),
            received: AtomicU64::new(0),
            unanswered: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: CancellationToken::new(),
        }
    }

    /// Unique within the process, never reused.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the other side.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Address of this side.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether the connection has ended or is about to.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection; what is queued and not yet written is dropped. Any thread.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let waker = {
            let mut out = self.out.lock();
            out.closed = true;
            out.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Resolves when the connection's task has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Queues a request that gets no answer. Any thread.
    ///
    /// # Errors
    /// `Closed`; `Slow` when the peer has not read what was queued before (the connection is closed
    /// for it); `TooLarge`.
    pub fn send_oneway(&self, mut cmd: Command) -> Result<(), SendError> {
        cmd.flag |= FLAG_ONEWAY;
        self.push(&cmd).map(|_| ())
    }

    /// Sends a request and waits for its answer, whatever its code.
    ///
    /// # Errors
    /// See [`ErrorKind`]; `written` says whether the peer may have seen the request. A request that
    /// timed out and cannot be written closes the connection, so that it is never sent late; so does
    /// one of a second or more after which nothing at all was received.
    pub async fn invoke(&self, cmd: Command, timeout: Duration) -> Result<Command, RemotingError> {
        self.exchange(cmd, timeout, true).await
    }

    /// As [`Connection::invoke`], for a peer that may be slow to answer and silent meanwhile: a
    /// consumer that is asked to consume. Silence does not close the connection.
    ///
    /// # Errors
    /// See [`Connection::invoke`].
    pub async fn ask(&self, cmd: Command, timeout: Duration) -> Result<Command, RemotingError> {
        self.exchange(cmd, timeout, false).await
    }

    async fn exchange(
        &self,
        mut cmd: Command,
        timeout: Duration,
        silence_is_death: bool,
    ) -> Result<Command, RemotingError> {
        let mut place = self.pending.place().map_err(|why| match why {
            NoPlace::Full => self.error(ErrorKind::Refused, false, "too many requests in flight"),
            NoPlace::Closed => self.error(ErrorKind::Closed, false, "connection has ended"),
        })?;
        cmd.opaque = place.opaque;
        let received_before = self.received.load(Ordering::Relaxed);
        let start = self.push(&cmd).map_err(|why| match why {
            SendError::Closed => self.error(ErrorKind::Closed, false, "connection has ended"),
            SendError::Slow => self.error(ErrorKind::Refused, false, "peer reads too slowly"),
            SendError::TooLarge => self.error(ErrorKind::TooLarge, false, "frame exceeds 16 MiB"),
        })?;
        drop(cmd);
        match tokio::time::timeout(timeout, &mut place.answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.error(
                ErrorKind::Closed,
                self.wrote_past(start),
                "before the answer came",
            )),
            Err(_) => {
                let sent = self.sent_after_all(start).await;
                let silent = self.received.load(Ordering::Relaxed) == received_before;
                if !sent || (silence_is_death && silent && timeout >= DEAD_AFTER) {
                    self.close();
                }
                let sent = sent || !self.stopped_before(start).await;
                let detail = format!("after {} ms", timeout.as_millis());
                Err(self.error(ErrorKind::Timeout, sent, detail))
            }
        }
    }

    /// Gives a healthy connection the time to write what a short deadline overtook, so that it is
    /// not closed for it.
    async fn sent_after_all(&self, start: u64) -> bool {
        let mut waited = Duration::ZERO;
        while !self.wrote_past(start) && waited < WRITE_WAIT && !self.is_closed() {
            tokio::time::sleep(WRITE_LOOK).await;
            waited += WRITE_LOOK;
        }
        self.wrote_past(start)
    }

    /// Whether the task has certainly stopped without having written anything past `start`.
    async fn stopped_before(&self, start: u64) -> bool {
        tokio::time::timeout(STOP_WAIT, self.ended()).await.is_ok() && !self.wrote_past(start)
    }

    fn wrote_past(&self, start: u64) -> bool {
        self.written.load(Ordering::Acquire) > start
    }

    fn error(&self, kind: ErrorKind, written: bool, detail: impl Into<String>) -> RemotingError {
        RemotingError::new(kind, self.peer, written, detail)
    }

    /// Queues a response; a response too large for a frame becomes a short error instead.
    pub(crate) fn respond(&self, mut response: Command, opaque: i32) {
        response.opaque = opaque;
        response.flag |= FLAG_RESPONSE;
        let sent = self.push(&response);
        if sent == Err(SendError::TooLarge) {
            let mut short =
                Command::response(ResponseCode::SystemError).with_remark("response exceeds 16 MiB");
            short.opaque = opaque;
            short.flag |= FLAG_RESPONSE;
            self.push(&short).ok();
        }
    }

    /// Appends a frame; returns the position of its first byte among all bytes ever queued.
    fn push(&self, cmd: &Command) -> Result<u64, SendError> {
        let (waker, result) = {
            let mut out = self.out.lock();
            if out.closed {
                return Err(SendError::Closed);
            }
            let start = self.queued.load(Ordering::Relaxed);
            let length = out.batch.push(cmd)?;
            let end = start + length as u64;
            self.queued.store(end, Ordering::Release);
            let waiting = end - self.written.load(Ordering::Relaxed);
            let slow = waiting > self.limits.outbound_max_bytes as u64;
            if slow {
                out.closed = true;
                self.closed.store(true, Ordering::Release);
            }
            (
                out.waker.take(),
                if slow {
                    Err(SendError::Slow)
                } else {
                    Ok(start)
                },
            )
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    // ---- the task's side ----

    /// Exchanges `spare` (which must be empty) for the queued frames, if there are any.
    pub(crate) fn take_frames(&self, spare: &mut Batch) -> Looked {
        let mut out = self.out.lock();
        out.waker = None;
        if out.closed {
            return Looked::Closed;
        }
        if out.batch.is_done() {
            return Looked::Nothing;
        }
        std::mem::swap(&mut out.batch, spare);
        Looked::Frames
    }

    /// Leaves a waker for the next `push` or `close`; `false` when there is something to do now.
    /// `busy` says that the task still has a batch of its own to write, so new frames can wait.
    pub(crate) fn sleep(&self, waker: &Waker, busy: bool) -> bool {
        let mut out = self.out.lock();
        if out.closed || (!busy && !out.batch.is_done()) {
            return false;
        }
        match &mut out.waker {
            Some(present) => present.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Release);
    }

    /// Bytes queued and not yet taken by the kernel.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        self.queued.load(Ordering::Acquire).saturating_sub(written)
    }

    pub(crate) fn count_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Acquire)
    }

    pub(crate) fn count_request(&self) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
    }

    /// Called after the answer was queued; wakes a task that waits for this very count.
    pub(crate) fn count_answer(&self) {
        let before = self.unanswered.fetch_sub(1, Ordering::AcqRel);
        if before >= self.limits.unanswered_max || self.is_draining() {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = self.out.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the peer is being sent away: new requests are refused, the rest is finished.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Sends the peer away once everything it asked is answered.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.wake();
    }

    /// The task's last act: nothing is written after this.
    pub(crate) fn finish(&self) {
        self.closed.store(true, Ordering::Release);
        {
            let mut out = self.out.lock();
            out.closed = true;
            out.batch.clear();
            out.waker = None;
        }
        self.pending.close();
        self.ended.cancel();
    }
}
