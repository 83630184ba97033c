//! The task of one connection: read, decode, call the service, write; and the clocks that end it.

use std::io::IoSlice;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior};
use wire::{Command, ResponseCode, frame};

use crate::Service;
use crate::budget::Reserved;
use crate::connection::{Connection, Looked};
use crate::outbound::{Batch, SLICES_MAX};
use crate::responder::Responder;

/// Peers newer than this (RocketMQ 5.3.1) understand GO_AWAY and resend elsewhere.
const GO_AWAY_ABOVE_VERSION: i32 = 475;
/// Room made for one read: starts small (thousands of idle connections), doubles while reads fill it.
const READ_MIN_BYTES: usize = 4 * 1024;
const READ_MAX_BYTES: usize = 256 * 1024;
/// Rounds before other tasks get their turn.
const ROUNDS_MAX: u32 = 32;
/// How long a drained connection waits for the peer to close its side.
const LINGER: Duration = Duration::from_millis(200);

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    ByPeer,
    Closed,
    Drained,
    Io(std::io::Error),
    BadFrame(wire::WireError),
    Idle,
    FrameTooSlow,
    WriteStalled,
    NoRoom,
}

impl Ended {
    fn log(&self, conn: &Connection) {
        let (peer, id) = (conn.peer(), conn.id());
        match self {
            Self::ByPeer | Self::Closed | Self::Drained => {
                tracing::trace!(%peer, id, why = ?self, "connection ended")
            }
            Self::Idle => tracing::debug!(%peer, id, "idle connection closed"),
            Self::Io(error) => tracing::debug!(%peer, id, %error, "connection broke"),
            Self::BadFrame(error) => {
                tracing::info!(%peer, id, %error, "connection closed for a bad frame")
            }
            Self::FrameTooSlow => {
                tracing::info!(%peer, id, "connection closed: a frame came too slowly")
            }
            Self::NoRoom => {
                tracing::warn!(%peer, id, "connection closed: too many large frames are coming in at once")
            }
            Self::WriteStalled => {
                tracing::info!(%peer, id, "connection closed: the peer stopped reading")
            }
        }
    }
}

/// Owns the socket.
pub(crate) struct Driver {
    conn: Arc<Connection>,
    service: Option<Arc<dyn Service>>,
    stream: TcpStream,
    inbound: BytesMut,
    read_room: usize,
    /// Not reading for the peer's own good: too many answers wait for it.
    paused: bool,
    writing: Batch,
    tick: Interval,
    tick_length: Duration,
    seen: Seen,
    partial: Reserved,
}

/// What has moved since the last tick, and for how long it has not.
#[derive(Debug, Default)]
struct Seen {
    traffic: bool,
    frame: bool,
    wrote: bool,
    idle: Duration,
    partial: Duration,
    stalled: Duration,
}

impl Driver {
    pub(crate) fn new(
        conn: Arc<Connection>,
        service: Option<Arc<dyn Service>>,
        stream: TcpStream,
        partial: Reserved,
    ) -> Self {
        let tick_length = conn.limits.tick();
        let mut tick =
            tokio::time::interval_at(tokio::time::Instant::now() + tick_length, tick_length);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            conn,
            service,
            stream,
            inbound: BytesMut::new(),
            read_room: READ_MIN_BYTES,
            paused: false,
            writing: Batch::default(),
            tick,
            tick_length,
            seen: Seen::default(),
            partial,
        }
    }

    /// Runs the connection to its end.
    pub(crate) async fn run(mut self) {
        if let Some(service) = &self.service {
            service.opened(&self.conn);
        }
        let ended = std::future::poll_fn(|cx| self.poll(cx)).await;
        ended.log(&self.conn);
        let Self {
            conn,
            service,
            stream,
            ..
        } = self;
        conn.finish();
        if matches!(ended, Ended::Drained) {
            linger(stream).await;
        } else {
            drop(stream);
        }
        if let Some(service) = service {
            service.closed(&conn);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        for _ in 0..ROUNDS_MAX {
            let wrote = match self.write(cx) {
                Ok(wrote) => wrote,
                Err(ended) => return Poll::Ready(ended),
            };
            let read = match self.read(cx) {
                Ok(read) => read,
                Err(ended) => return Poll::Ready(ended),
            };
            if wrote || read {
                continue;
            }
            if self.tick.poll_tick(cx).is_ready() {
                if let Some(ended) = self.on_tick() {
                    return Poll::Ready(ended);
                }
                continue;
            }
            if !self.conn.sleep(cx.waker(), !self.writing.is_done()) {
                continue;
            }
            // Looked at once the waker is in place: whoever changes it from now on wakes the task.
            if self.is_drained() {
                return Poll::Ready(Ended::Drained);
            }
            if !self.paused || self.is_crowded() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_drained(&self) -> bool {
        self.conn.is_draining() && self.conn.unanswered() == 0 && self.conn.waiting_bytes() == 0
    }

    /// Too much waits for the peer to take more requests from it.
    fn is_crowded(&self) -> bool {
        let limits = &self.conn.limits;
        self.conn.waiting_bytes() > limits.outbound_pause_bytes as u64
            || self.conn.unanswered() >= limits.unanswered_max
    }

    /// Writes what is queued; says whether anything moved.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let mut moved = false;
        loop {
            if self.writing.is_done() {
                self.writing.clear();
                match self.conn.take_frames(&mut self.writing) {
                    Looked::Frames => {}
                    Looked::Nothing => return Ok(moved),
                    Looked::Closed => return Err(Ended::Closed),
                }
            } else if self.conn.is_closed() {
                return Err(Ended::Closed);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = self.writing.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..filled]) {
                Poll::Ready(Ok(0)) => return Err(Ended::ByPeer),
                Poll::Ready(Ok(written)) => {
                    self.conn.wrote(written);
                    self.writing.advance(written);
                    self.seen.wrote = true;
                    self.seen.traffic = true;
                    moved = true;
                }
                Poll::Ready(Err(error)) => return Err(Ended::Io(error)),
                Poll::Pending => return Ok(moved),
            }
        }
    }

    /// Reads once and handles every whole frame; says whether anything moved.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        self.paused = self.is_crowded();
        if self.paused {
            return Ok(false);
        }
        self.inbound.reserve(self.read_room);
        match tokio_util::io::poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.inbound) {
            Poll::Ready(Ok(0)) => return Err(Ended::ByPeer),
            Poll::Ready(Ok(count)) => {
                if count >= self.read_room {
                    self.read_room = (self.read_room * 2).min(READ_MAX_BYTES);
                } else if count < self.read_room / 8 {
                    self.read_room = (self.read_room / 2).max(READ_MIN_BYTES);
                }
            }
            Poll::Ready(Err(error)) => return Err(Ended::Io(error)),
            Poll::Pending => return Ok(false),
        }
        self.seen.traffic = true;
        while let Some(cmd) = frame::decode(&mut self.inbound).map_err(Ended::BadFrame)? {
            self.seen.frame = true;
            self.conn.count_received();
            self.handle(cmd);
        }
        self.account_partial()?;
        Ok(true)
    }

    /// Large frames that have not come in whole share a budget with those of other connections.
    fn account_partial(&mut self) -> Result<(), Ended> {
        let held = self.inbound.len();
        if held <= READ_MAX_BYTES {
            if self.partial.release() && self.inbound.is_empty() {
                // The allocation of a large frame is not kept for the small ones after it.
                self.inbound = BytesMut::new();
            }
            return Ok(());
        }
        let announced = self
            .inbound
            .first_chunk()
            .map_or(0, |length| u32::from_be_bytes(*length));
        let announced = usize::try_from(announced).unwrap_or(usize::MAX).max(held);
        if self.partial.reserve(announced) {
            Ok(())
        } else {
            Err(Ended::NoRoom)
        }
    }

    fn handle(&self, cmd: Command) {
        if cmd.is_response() {
            if !self.conn.pending.complete(cmd) {
                tracing::trace!(peer = %self.conn.peer(), "answer nobody waits for");
            }
            return;
        }
        let go_away = self.conn.is_draining() && cmd.version > GO_AWAY_ABOVE_VERSION;
        let code = cmd.code;
        let responder = Responder::new(Arc::clone(&self.conn), &cmd);
        if go_away {
            responder.send(
                Command::response(ResponseCode::GoAway).with_remark("the server is shutting down"),
            );
            return;
        }
        let Some(service) = &self.service else {
            let remark = format!("request type {code} not supported");
            responder
                .send(Command::response(ResponseCode::RequestCodeNotSupported).with_remark(remark));
            return;
        };
        // The service's own state is behind locks that do not poison; the request is answered by
        // its dropped responder.
        if std::panic::catch_unwind(AssertUnwindSafe(|| service.call(cmd, responder))).is_err() {
            tracing::error!(code, peer = %self.conn.peer(), "request handler panicked");
        }
    }

    fn on_tick(&mut self) -> Option<Ended> {
        let length = self.tick_length;
        let more = |still: bool, so_far: Duration| {
            if still {
                so_far + length
            } else {
                Duration::ZERO
            }
        };
        let seen = &mut self.seen;
        seen.idle = more(!seen.traffic, seen.idle);
        seen.partial = more(
            !self.inbound.is_empty() && !seen.frame && !self.paused,
            seen.partial,
        );
        seen.stalled = more(!self.writing.is_done() && !seen.wrote, seen.stalled);
        (seen.traffic, seen.frame, seen.wrote) = (false, false, false);
        let limits = &self.conn.limits;
        if seen.stalled >= limits.write_stall {
            Some(Ended::WriteStalled)
        } else if seen.partial >= limits.frame {
            Some(Ended::FrameTooSlow)
        } else if seen.idle >= limits.idle {
            Some(Ended::Idle)
        } else {
            None
        }
    }
}

/// Says goodbye in the order TCP wants: our end first, then whatever the peer still sends is read
/// and dropped, so that no reset overtakes the answers just written.
async fn linger(mut stream: TcpStream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut scrap = [0_u8; 1024];
    let rest = async { while matches!(stream.read(&mut scrap).await, Ok(1..)) {} };
    tokio::time::timeout(LINGER, rest).await.ok();
}
