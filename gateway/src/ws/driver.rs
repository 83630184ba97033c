//! One task a socket: feeds frames, answers and time to the session and carries out what it wants.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use futures_util::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use openapi::ws::{ServerFrame, SocketLimits};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::action::{Action, Event};
use super::frame::{self, IN_FLIGHT_MAX, Malformed, Op, Request, Subscribe};
use super::jobs::{self, Done, Feed, Wanted};
use super::line::Socket;
use super::outbound::{Outbound, Progress};
use super::reader_fields::ReaderSubscribe;
use super::reader_jobs::{self, Reading};
use super::reader_session::TURNS;
use super::session::{Session, Settings, close};
use crate::memory::{Held, Whose};
use crate::params::{format_duration, format_time};
use crate::state::AppState;
use crate::upstream::{Member, Presence};

/// Largest inbound frame, bytes.
pub(crate) const FRAME_MAX: usize = 1024 * 1024;
/// Objects in one text frame.
const OBJECTS_MAX: usize = 1_000;
/// Sockets are served this long after draining began.
const DRAIN: Duration = Duration::from_secs(20);
/// Clients spread their reconnects over this.
const RECONNECT_WITHIN: &str = "5s";
/// A closing peer gets this long to take the last frames, and again to answer the close.
const FAREWELL: Duration = Duration::from_secs(2);
/// What was asked of the brokers before the end is awaited this long.
const AFTERLIFE: Duration = Duration::from_secs(30);

type WebSocket = Socket<TokioIo<Upgraded>>;
type Job = Pin<Box<dyn Future<Output = Done> + Send>>;
type Arrival = Pin<Box<dyn Future<Output = (Utf8Bytes, Held)> + Send>>;

/// How the conversation ended.
enum End {
    /// The client closed it.
    Clean,
    /// The connection broke.
    Broken,
    /// This side closes it.
    Close { code: u16, reason: &'static str },
}

struct Driver {
    state: AppState,
    session: Session,
    /// Name of the socket in logs and welcome.
    name: String,
    /// The socket as a member; each subscription is one under a label of its own.
    member: Member,
    base: Instant,
    outbound: Outbound,
    /// A text frame that waits for memory; one at most.
    arriving: FuturesUnordered<Arrival>,
    /// Objects of the last text frame that are not handled yet.
    backlog: VecDeque<Result<Request, Malformed>>,
    /// Memory of the last text frame.
    held: Option<Arc<Held>>,
    jobs: FuturesUnordered<Job>,
    feeds: HashMap<u32, Arc<Feed>>,
    readers: HashMap<u32, Reading>,
    /// Taken by readers that bring messages.
    turns: Arc<Semaphore>,
    /// While they are here, the brokers hear of the subscriptions.
    presences: HashMap<u32, Presence>,
    closing: Option<(u16, &'static str)>,
    drained: bool,
}

/// Serves a socket until it has ended and everything asked for before is answered.
pub(super) async fn run(socket: WebSocket, state: AppState, name: String, member: Member) {
    let base = Instant::now();
    let config = &state.config.ws;
    let settings = Settings {
        idle: config.idle.duration(),
        grace: config.grace.duration(),
        subscriptions: config.subscriptions,
    };
    let driver = Driver {
        session: Session::new(settings, Monotonic::ZERO),
        name,
        member,
        base,
        outbound: Outbound::default(),
        arriving: FuturesUnordered::new(),
        backlog: VecDeque::new(),
        held: None,
        jobs: FuturesUnordered::new(),
        feeds: HashMap::new(),
        readers: HashMap::new(),
        turns: Arc::new(Semaphore::new(TURNS)),
        presences: HashMap::new(),
        closing: None,
        drained: false,
        state,
    };
    driver.run(socket).await;
}

impl Driver {
    async fn run(mut self, socket: WebSocket) {
        let (mut sink, mut stream) = socket.split();
        self.welcome();
        let end = self.converse(&mut sink, &mut stream).await;
        tracing::debug!(session = self.name, "socket ends");
        match end {
            End::Clean => {
                self.ended(true);
                tokio::join!(timeout(FAREWELL, sink.flush()), self.outlive())
                    .0
                    .ok();
            }
            End::Broken => {
                drop((sink, stream));
                self.ended(false);
                self.outbound = Outbound::default();
                self.outlive().await;
            }
            End::Close { code, reason } => {
                tracing::debug!(session = self.name, code, reason, "closed by the gateway");
                if matches!(code, close::HEARTBEAT | close::SLOW_CONSUMER) {
                    // Nobody listens: the time to resume is not spent on words.
                    self.ended(false);
                    let mut outbound = Outbound::default();
                    let last = farewell(&mut sink, &mut stream, &mut outbound, code, reason);
                    tokio::join!(last, self.outlive());
                    return;
                }
                self.arriving.clear();
                let (said, done) = {
                    let goodbye = say_goodbye(&mut sink, &mut self.outbound, code, reason);
                    beside(&mut self.jobs, goodbye).await
                };
                self.ended(false);
                for done in done {
                    self.done(done);
                }
                let heard = async {
                    if said {
                        hear_out(&mut stream, code).await;
                    }
                };
                tokio::join!(heard, self.outlive());
            }
        }
    }

    /// From here on every lease is on its way back.
    fn ended(&mut self, clean: bool) {
        self.arriving.clear();
        self.backlog.clear();
        self.held = None;
        let unwritten = self.outbound.take_unwritten();
        self.handle(Event::Ended { clean, unwritten });
    }

    fn welcome(&mut self) {
        let config = &self.state.config.ws;
        let limits = SocketLimits {
            max_frame: FRAME_MAX,
            max_subscriptions: config.subscriptions,
            max_in_flight: IN_FLIGHT_MAX,
        };
        let frame = ServerFrame::Welcome {
            session: self.name.clone(),
            gateway: self.state.gateway_id.clone(),
            heartbeat: format_duration(config.idle.millis()),
            limits,
            auth: None,
            time: format_time(self.wall_ms()),
        };
        let actions = self.session.greet(&frame);
        self.carry_out(actions);
    }

    async fn converse(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        stream: &mut SplitStream<WebSocket>,
    ) -> End {
        let mut wake_at = self.instant(self.session.wake_at());
        let mut sleep: Pin<Box<Sleep>> = Box::pin(sleep_until(wake_at));
        let draining = self.state.draining.clone();
        loop {
            self.read_backlog();
            if let Some((code, reason)) = self.closing {
                return End::Close { code, reason };
            }
            let next = self.instant(self.session.wake_at());
            if next != wake_at {
                wake_at = next;
                sleep.as_mut().reset(wake_at);
            }
            let (may_write, may_read) = (
                self.outbound.has_work(),
                self.backlog.is_empty() && self.arriving.is_empty() && self.session.can_read(),
            );
            let outbound = &mut self.outbound;
            tokio::select! {
                written = std::future::poll_fn(|cx| outbound.poll_write(Pin::new(&mut *sink), cx)), if may_write => match written {
                    Ok(Progress { bytes, frames }) => self.handle(Event::Written { bytes, frames }),
                    Err(_) => return End::Broken,
                },
                frame = stream.next(), if may_read => match frame {
                    Some(Ok(Message::Text(text))) => self.arrived(text),
                    Some(Ok(Message::Binary(_))) => self.handle(Event::Malformed("binary frames need mq.v1.bin")),
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => self.handle(Event::Traffic),
                    Some(Ok(Message::Close(_))) => return End::Clean,
                    Some(Err(error)) => return broken(&error),
                    None => return End::Broken,
                },
                Some((text, held)) = self.arriving.next(), if !self.arriving.is_empty() => self.text(&text, held),
                Some(done) = self.jobs.next(), if !self.jobs.is_empty() => self.done(done),
                () = sleep.as_mut() => self.handle(if self.arriving.is_empty() {
                    Event::Tick
                } else {
                    // The peer is not listened to: its silence means nothing.
                    Event::Traffic
                }),
                () = draining.cancelled(), if !self.drained => self.drain(),
            }
        }
    }

    /// Takes memory for a text frame; the socket is not read while there is none.
    fn arrived(&mut self, text: Utf8Bytes) {
        let bodies = &self.state.bodies;
        let room = bodies.take(Whose::Socket(&self.name), text.len());
        if let Some(held) = room.now_or_never() {
            return self.text(&text, held);
        }
        let (bodies, name) = (Arc::clone(bodies), self.name.clone());
        self.arriving.push(Box::pin(async move {
            let held = bodies.take(Whose::Socket(&name), text.len()).await;
            (text, held)
        }));
    }

    fn text(&mut self, text: &Utf8Bytes, held: Held) {
        self.held = Some(Arc::new(held));
        let mut count = 0;
        for request in frame::requests(text) {
            count += 1;
            if count > OBJECTS_MAX {
                self.backlog
                    .push_back(Err(Malformed("more than 1000 objects in a text frame")));
                return;
            }
            self.backlog.push_back(request);
        }
    }

    /// Hands over what the session can take of the last text frame.
    fn read_backlog(&mut self) {
        while self.session.can_read() && self.closing.is_none() {
            match self.backlog.pop_front() {
                None => {
                    self.held = None;
                    return;
                }
                Some(Ok(mut request)) => {
                    if let Ok(Op::Publish(publish)) = &mut request.op {
                        publish.held = self.held.clone();
                    }
                    self.handle(Event::Request(request));
                }
                Some(Err(Malformed(reason))) => self.handle(Event::Malformed(reason)),
            }
        }
    }

    fn drain(&mut self) {
        self.drained = true;
        let deadline = self.now() + DRAIN;
        let deadline_ms = self.wall_ms() + i64::try_from(DRAIN.as_millis()).unwrap_or(0);
        self.handle(Event::Drain {
            deadline,
            deadline_text: format_time(deadline_ms),
            reconnect_within: RECONNECT_WITHIN.to_owned(),
        });
    }

    /// The socket is gone; what was asked of the brokers is still awaited, so that an ack sent just before counts. The
    /// rest is given up.
    async fn outlive(&mut self) {
        let deadline = Instant::now() + AFTERLIFE;
        while !self.session.is_done() {
            tokio::select! {
                Some(done) = self.jobs.next(), if !self.jobs.is_empty() => self.done(done),
                () = sleep_until(deadline) => break,
            }
        }
        self.jobs.clear();
    }

    fn handle(&mut self, event: Event) {
        let wall_ms = u64::try_from(self.wall_ms()).unwrap_or(0);
        let actions = self.session.handle(event, self.now(), wall_ms);
        self.carry_out(actions);
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Opened { sub, result } => {
                let result = result.map_err(|error| jobs::refusal(&error));
                let result = result.map(|(opened, presence)| {
                    // Where it is over already nobody needs to hear of it.
                    if self.feeds.contains_key(&sub) {
                        self.presences.insert(sub, presence);
                    }
                    opened
                });
                self.handle(Event::Opened { sub, result });
            }
            Done::Event(event) => self.handle(event),
            Done::Nothing => {}
            Done::ReaderOpened { sub, result } => {
                let result = match (result, self.readers.get_mut(&sub)) {
                    (Err(error), _) => Err(jobs::refusal(&error)),
                    (Ok(_), None) => return,
                    (Ok(opened), Some(reading)) => {
                        let (feed, cursor) = *opened;
                        reading.opened(feed);
                        Ok(cursor)
                    }
                };
                self.handle(Event::ReaderOpened { sub, result });
            }
            Done::Popped {
                sub,
                result: Err(error),
                ..
            } => self.handle(Event::Popped {
                sub,
                result: Err(jobs::refusal(&error)),
            }),
            Done::Popped {
                sub,
                asked,
                held,
                result: Ok(mut popped),
            } => {
                // Where the subscription is over, dropping the result gives the messages back uncounted.
                let Some(feed) = self.feeds.get(&sub) else {
                    return;
                };
                let deliveries = popped.take();
                let asked = self.monotonic(asked);
                let batch = jobs::batch(&deliveries, &popped, feed.format, asked, held);
                self.handle(Event::Popped {
                    sub,
                    result: Ok(batch),
                });
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send {
                    text,
                    push,
                    receipts,
                } => {
                    let held = self.state.answers.hold(text.len());
                    self.outbound.queue(text, push, receipts, held);
                }
                Action::Ping => self.outbound.ping(),
                Action::Close { code, reason } => self.closing = Some((code, reason)),
                Action::Open { sub, spec } => self.open(sub, spec),
                Action::Forget { sub } => {
                    self.presences.remove(&sub);
                    if let Some(feed) = self.feeds.remove(&sub) {
                        feed.over.cancel();
                    }
                    if let Some(reading) = self.readers.remove(&sub) {
                        reading.end();
                    }
                }
                Action::OpenReader { sub, spec } => self.open_reader(sub, spec),
                Action::Read { sub, wanted } => {
                    let reading = self.readers.get_mut(&sub);
                    if let Some(job) = reading.and_then(|r| r.read(sub, wanted)) {
                        self.jobs.push(Box::pin(job));
                    }
                }
                Action::Pop {
                    sub,
                    max,
                    bytes,
                    invisible_ms,
                    limit,
                    holds,
                } => {
                    let wanted = Wanted {
                        sub,
                        max,
                        bytes,
                        invisible_ms,
                        limit,
                        holds,
                    };
                    self.with_feed(sub, |state, feed| Box::pin(jobs::pop(state, feed, wanted)));
                }
                Action::Wait { sub } => {
                    self.with_feed(sub, |state, feed| Box::pin(jobs::wait(state, feed, sub)))
                }
                Action::Settle {
                    token,
                    target,
                    kind,
                    items,
                } => {
                    let (state, member) = (self.state.clone(), self.member(target.number));
                    self.jobs.push(Box::pin(async move {
                        jobs::settle(state, token, target, kind, items, &member.label).await
                    }));
                }
                Action::Publish { token, publish } => {
                    self.jobs
                        .push(Box::pin(jobs::publish(self.state.clone(), token, publish)))
                }
            }
        }
    }

    fn open(&mut self, sub: u32, spec: Box<Subscribe>) {
        let feed = Feed {
            group: spec.group.clone(),
            topic: spec.topic.clone(),
            member: self.member(sub),
            format: spec.body_format,
            over: CancellationToken::new(),
        };
        let feed = Arc::new(feed);
        self.feeds.insert(sub, Arc::clone(&feed));
        let opening = super::open::open(self.state.clone(), feed, sub, spec);
        self.jobs.push(Box::pin(opening));
    }

    /// What the brokers know a subscription by: leases are counted for it alone.
    fn member(&self, sub: u32) -> Member {
        Member {
            label: format!("{}.{sub}", self.member.label),
            ..self.member.clone()
        }
    }

    fn open_reader(&mut self, sub: u32, spec: Box<ReaderSubscribe>) {
        self.readers.insert(sub, Reading::default());
        let job = reader_jobs::open(self.state.clone(), Arc::clone(&self.turns), sub, spec);
        self.jobs.push(Box::pin(job));
    }

    fn with_feed(&mut self, sub: u32, job: impl FnOnce(AppState, Arc<Feed>) -> Job) {
        if let Some(feed) = self.feeds.get(&sub) {
            self.jobs.push(job(self.state.clone(), Arc::clone(feed)));
        }
    }

    fn now(&self) -> Monotonic {
        self.monotonic(Instant::now())
    }

    fn monotonic(&self, at: Instant) -> Monotonic {
        let since = at.saturating_duration_since(self.base);
        Monotonic::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn instant(&self, at: Monotonic) -> Instant {
        // Far enough for "never", near enough for the timer.
        self.base
            + Duration::from_nanos(at.as_nanos())
                .min(self.base.elapsed() + Duration::from_secs(86_400))
    }

    fn wall_ms(&self) -> i64 {
        i64::try_from(self.state.clock.now_ms()).unwrap_or(i64::MAX)
    }
}

/// What `last` comes to, and the jobs that ended beside it: one that nobody polls would hold up those behind it in a line
/// for memory.
async fn beside<T>(
    jobs: &mut FuturesUnordered<Job>,
    last: impl Future<Output = T>,
) -> (T, Vec<Done>) {
    tokio::pin!(last);
    let mut ended = Vec::new();
    loop {
        tokio::select! {
            last = &mut last => return (last, ended),
            Some(done) = jobs.next(), if !jobs.is_empty() => ended.push(done),
        }
    }
}

/// The close frame and the peer's answer to it, each within [`FAREWELL`].
async fn farewell(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    outbound: &mut Outbound,
    code: u16,
    reason: &'static str,
) {
    if say_goodbye(sink, outbound, code, reason).await {
        hear_out(stream, code).await;
    }
}

/// What is queued and the close frame, within [`FAREWELL`]; whether they were taken.
async fn say_goodbye(
    sink: &mut SplitSink<WebSocket, Message>,
    outbound: &mut Outbound,
    code: u16,
    reason: &'static str,
) -> bool {
    let said = timeout(FAREWELL, async {
        while outbound.has_work() {
            std::future::poll_fn(|cx| outbound.poll_write(Pin::new(&mut *sink), cx)).await?;
        }
        let reason = Utf8Bytes::from_static(reason);
        sink.send(Message::Close(Some(CloseFrame {
            code: code.into(),
            reason,
        })))
        .await
    });
    matches!(said.await, Ok(Ok(())))
}

/// Reads until the peer has closed too: unread bytes would reset the connection before the peer has read the reason.
async fn hear_out(stream: &mut SplitStream<WebSocket>, code: u16) {
    let heard = timeout(FAREWELL, async {
        while matches!(stream.next().await, Some(Ok(_))) {}
    })
    .await;
    if heard.is_ok() && code == close::TOO_BIG {
        tokio::time::sleep(FAREWELL / 2).await;
    }
}

/// What a failed read means: too large a frame and bytes that are no frame are answered, the rest is a lost connection.
fn broken(error: &tungstenite::Error) -> End {
    match error {
        tungstenite::Error::Capacity(_) => End::Close {
            code: close::TOO_BIG,
            reason: "a frame may have 1048576 bytes",
        },
        tungstenite::Error::Utf8(_) => End::Close {
            code: close::PROTOCOL_ERROR,
            reason: "text frames are UTF-8",
        },
        tungstenite::Error::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => End::Broken,
        tungstenite::Error::Protocol(_) => End::Close {
            code: close::PROTOCOL_ERROR,
            reason: "not a WebSocket frame",
        },
        _ => End::Broken,
    }
}
