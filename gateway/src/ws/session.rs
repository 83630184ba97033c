//! The machine of one socket: events in, actions out; same state, event and time give the same actions.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use openapi::ws::{LeaseState, RequestId, ServerFrame};

use super::action::{Action, Event, Target};
use super::frame::{Publish, SettleItem, SettleKind};
use super::heartbeat::{Beat, Heartbeat};
use super::reader_sub::ReaderSub;
use super::subscription::{Due, Phase, Subscription, TURN_BYTES};

/// Bytes in the outbound queue; a larger message goes alone.
pub(super) const QUEUE_BYTES: usize = 1024 * 1024;
/// Frames in the outbound queue.
pub(super) const QUEUE_FRAMES: usize = 1_000;
/// Above this no more messages are popped.
const POP_BELOW_BYTES: usize = 256 * 1024;
/// Requests upstream that are not answered yet; at this many the socket is not read.
const OUTSTANDING_MAX: usize = 256;
/// A full queue that nothing leaves for this long ends the socket.
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// Close codes of the protocol.
pub(super) mod close {
    pub(in super::super) const RESTART: u16 = 1012;
    pub(in super::super) const TOO_BIG: u16 = 1009;
    pub(in super::super) const HEARTBEAT: u16 = 4000;
    pub(in super::super) const SLOW_CONSUMER: u16 = 4001;
    pub(in super::super) const PROTOCOL_ERROR: u16 = 4500;
}

/// Times and bounds of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Silence before a ping.
    pub(super) idle: Duration,
    /// Silence after a ping before the socket is dead.
    pub(super) grace: Duration,
    /// Subscriptions at a time.
    pub(super) subscriptions: usize,
}

/// Who waits for an answer from upstream.
#[derive(Debug)]
pub(super) enum Pending {
    Client {
        sub: u32,
        name: String,
        id: Option<RequestId>,
        receipts: Vec<Arc<str>>,
    },
    Extension {
        sub: u32,
        receipts: Vec<Arc<str>>,
    },
    Unsubscribe {
        id: Option<RequestId>,
    },
    GiveBack,
    Publish {
        id: Option<RequestId>,
        lane: Option<Lane>,
    },
}

/// A lease of a subscription that is over, with a request of the client still on its way.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) target: Arc<Target>,
    /// Released so when the request leaves it alive; `None` where its frame never reached the socket: suspended.
    pub(super) after_ms: Option<u64>,
}

/// Sends that must keep their order: topic and ordering key.
pub(super) type Lane = (String, String, String);

/// A send that waits for its turn in a lane.
pub(super) type QueuedSend = (Option<RequestId>, Box<Publish>);

/// What the turn of a subscription came to.
enum Given {
    Turn,
    Nothing,
    /// Its next message waits for room.
    NoRoom,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) settings: Settings,
    pub(super) subs: BTreeMap<u32, Subscription>,
    pub(super) readers: BTreeMap<u32, ReaderSub>,
    pub(super) names: HashMap<String, u32>,
    pub(super) pending: HashMap<u64, Pending>,
    /// Sends waiting for an earlier one of the same lane; present while one is out.
    pub(super) lanes: HashMap<Lane, VecDeque<QueuedSend>>,
    pub(super) orphans: HashMap<Arc<str>, Orphan>,
    pub(super) next_sub: u32,
    next_token: u64,
    /// Subscription after which the next turn begins.
    last_turn: u32,
    /// Reader that sent last.
    pub(super) last_sent: u32,
    /// A group had a turn while messages of a reader waited for room.
    overtaken: bool,
    /// A subscription whose next message waits for room.
    held_up: Option<u32>,
    heart: Heartbeat,
    queued_bytes: usize,
    queued_frames: usize,
    /// Last time something left the queue or it was empty.
    moved_at: Monotonic,
    draining: Option<Monotonic>,
    closing: bool,
    pub(super) ended: bool,
    pub(super) wall_ms: u64,
    pub(super) out: Vec<Action>,
}

impl Session {
    pub(super) fn new(settings: Settings, now: Monotonic) -> Self {
        Self {
            heart: Heartbeat::new(settings.idle, settings.grace, now),
            settings,
            subs: BTreeMap::new(),
            readers: BTreeMap::new(),
            names: HashMap::new(),
            pending: HashMap::new(),
            lanes: HashMap::new(),
            orphans: HashMap::new(),
            next_sub: 1,
            next_token: 1,
            last_turn: 0,
            last_sent: 0,
            overtaken: false,
            held_up: None,
            queued_bytes: 0,
            queued_frames: 0,
            moved_at: now,
            draining: None,
            closing: false,
            ended: false,
            wall_ms: 0,
            out: Vec::new(),
        }
    }

    /// The first frame of the socket.
    pub(super) fn greet(&mut self, welcome: &ServerFrame) -> Vec<Action> {
        self.send(welcome);
        std::mem::take(&mut self.out)
    }

    /// Takes one event; `wall_ms` only dates pings. The actions are to be carried out in order.
    pub(super) fn handle(&mut self, event: Event, now: Monotonic, wall_ms: u64) -> Vec<Action> {
        self.wall_ms = wall_ms;
        match event {
            Event::Request(request) => {
                self.heart.heard(now);
                if !self.closing {
                    self.request(request, now);
                }
            }
            Event::Malformed(reason) => self.close(close::PROTOCOL_ERROR, reason),
            Event::Traffic => self.heart.heard(now),
            Event::Opened { sub, result } => self.opened(sub, result, now),
            Event::ReaderOpened { sub, result } => self.reader_opened(sub, result),
            Event::Chunk { sub, result } => self.chunk(sub, result),
            Event::Popped { sub, result } => self.popped(sub, result, now),
            Event::NotPopped { sub } => {
                if let Some(sub) = self.subs.get_mut(&sub) {
                    sub.not_popped(now);
                }
            }
            Event::Arrived { sub } => {
                if let Some(sub) = self.subs.get_mut(&sub) {
                    sub.arrived(now);
                }
            }
            Event::Settled { token, outcomes } => self.settled(token, outcomes, now),
            Event::Published { token, result } => self.published(token, result),
            Event::Written { bytes, frames } => {
                self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
                self.queued_frames = self.queued_frames.saturating_sub(frames);
                self.moved_at = now;
            }
            Event::Drain {
                deadline,
                deadline_text,
                reconnect_within,
            } => self.drain(deadline, deadline_text, reconnect_within),
            Event::Ended { clean, unwritten } => self.end(clean, &unwritten),
            Event::Tick => {}
        }
        self.advance(now);
        std::mem::take(&mut self.out)
    }

    /// Whether the next inbound frame may be taken; false holds the peer back.
    pub(super) fn can_read(&self) -> bool {
        let waiting: usize = self
            .subs
            .values()
            .map(|sub| sub.deferred.len())
            .sum::<usize>()
            + self.lanes.values().map(VecDeque::len).sum::<usize>();
        self.queued_bytes < QUEUE_BYTES
            && self.queued_frames < QUEUE_FRAMES
            && self.pending.len() + waiting < OUTSTANDING_MAX
    }

    /// Whether everything asked for before the end has been answered.
    pub(super) fn is_done(&self) -> bool {
        self.ended && self.pending.is_empty()
    }

    /// When to hand in a [`Event::Tick`] at the latest.
    pub(super) fn wake_at(&self) -> Monotonic {
        if self.ended {
            return Monotonic::MAX;
        }
        let mut at = self.heart.next();
        if self.is_full() {
            at = at.min(self.moved_at + SLOW_AFTER);
        }
        if let Some(deadline) = self.draining {
            at = at.min(deadline);
        }
        let may_pop = self.pops_left() > 0;
        for sub in self.subs.values() {
            if may_pop && let Some(wish) = sub.wishes_at() {
                at = at.min(wish);
            }
            at = sub.look_at().map_or(at, |look| at.min(look));
        }
        at
    }

    /// Bytes and frames in the outbound queue.
    pub(super) fn queued(&self) -> (usize, usize) {
        (self.queued_bytes, self.queued_frames)
    }

    pub(super) fn is_full(&self) -> bool {
        self.queued_bytes >= POP_BELOW_BYTES || self.queued_frames >= QUEUE_FRAMES
    }

    /// Pops that there is room for.
    fn pops_left(&self) -> usize {
        if self.closing || self.draining.is_some() || self.is_full() {
            return 0;
        }
        let popping = |sub: &&Subscription| matches!(sub.phase, Phase::Popping(_));
        let under_way = self.subs.values().filter(popping).count();
        let free = QUEUE_BYTES.saturating_sub(self.queued_bytes);
        (free / TURN_BYTES).saturating_sub(under_way + self.ready())
    }

    /// Everything that follows from time and state alone.
    fn advance(&mut self, now: Monotonic) {
        if self.ended {
            return;
        }
        if self.queued_frames == 0 {
            self.moved_at = now;
        }
        if !self.can_read() {
            // The peer is not listened to: its silence means nothing.
            self.heart.heard(now);
        }
        if !self.closing {
            match self.heart.beat(now) {
                Beat::Nothing => {}
                Beat::Ping => {
                    self.out.push(Action::Ping);
                    self.send(&ServerFrame::Ping { t: self.wall_ms });
                }
                Beat::Dead => self.close(close::HEARTBEAT, "heartbeat"),
            }
            if self.is_full() && now >= self.moved_at + SLOW_AFTER {
                self.close(close::SLOW_CONSUMER, "slow_consumer");
            }
            let idle =
                self.subs.values().all(|sub| sub.in_flight() == 0) && self.pending.is_empty();
            if self
                .draining
                .is_some_and(|deadline| now >= deadline || (idle && self.queued_frames == 0))
            {
                self.close(close::RESTART, "restart");
            }
        }
        self.tend_leases(now);
        if !self.closing {
            self.take_turns(now);
            self.ask_readers();
            self.pop(now);
        }
        if self
            .out
            .iter()
            .any(|action| matches!(action, Action::Send { .. }))
        {
            self.heart.said(now);
        }
    }

    fn tend_leases(&mut self, now: Monotonic) {
        let ids: Vec<u32> = self
            .subs
            .iter()
            .filter(|(_, sub)| sub.look_at().is_some_and(|at| now >= at))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(sub) = self.subs.get_mut(&id) else {
                continue;
            };
            let Due {
                extend,
                ended,
                unsent,
            } = sub.due(now);
            let (name, target) = (sub.spec.sub.clone(), Arc::clone(&sub.target));
            self.tell_ended(&name, &ended);
            self.give_back(
                Pending::GiveBack,
                &target,
                SettleKind::Suspend,
                unsent,
                None,
            );
            if !extend.is_empty() {
                let receipts = extend
                    .iter()
                    .map(|item| Arc::clone(&item.receipt))
                    .collect();
                self.settle(
                    Pending::Extension { sub: id, receipts },
                    &target,
                    SettleKind::Extend,
                    extend,
                );
            }
        }
    }

    /// `lease` frames, one a state.
    pub(super) fn tell_ended(&mut self, sub: &str, ended: &[(Arc<str>, LeaseState)]) {
        for state in [LeaseState::Expired, LeaseState::Lost, LeaseState::Limit] {
            let receipts: Vec<String> = ended
                .iter()
                .filter(|(_, of)| *of == state)
                .map(|(receipt, _)| receipt.to_string())
                .collect();
            if !receipts.is_empty() {
                self.send(&ServerFrame::Lease {
                    sub: sub.to_owned(),
                    receipts,
                    state,
                });
            }
        }
    }

    /// Messages of readers and of groups in turn: those of readers that wait for more room than there is are overtaken
    /// once, those of groups not at all.
    fn take_turns(&mut self, now: Monotonic) {
        if let Some(id) = self.held_up.take() {
            match self.give(id, now) {
                Given::NoRoom => {
                    self.held_up = Some(id);
                    return;
                }
                Given::Turn => self.overtaken = true,
                Given::Nothing => {}
            }
        }
        if self.send_ready() {
            self.overtaken = false;
        }
        let waiting = self.ready() > 0;
        if !(waiting && self.overtaken) {
            let frames = self.queued_frames;
            self.deliver(now);
            self.overtaken = waiting && self.queued_frames > frames;
        }
    }

    /// One turn a subscription, round robin, while the queue has room.
    fn deliver(&mut self, now: Monotonic) {
        let mut quiet = 0;
        while quiet < self.subs.len() {
            let Some(id) = self.after(self.last_turn) else {
                return;
            };
            match self.give(id, now) {
                Given::NoRoom => {
                    self.held_up = Some(id);
                    return;
                }
                Given::Nothing => quiet += 1,
                Given::Turn => quiet = 0,
            }
        }
    }

    /// The turn of a subscription.
    fn give(&mut self, id: u32, now: Monotonic) -> Given {
        let Some(sub) = self.subs.get_mut(&id) else {
            return Given::Nothing;
        };
        self.last_turn = id;
        let Some(size) = sub.next_size() else {
            return Given::Nothing;
        };
        let room = self.queued_frames == 0
            || (self.queued_frames < QUEUE_FRAMES
                && self.queued_bytes + size.max(TURN_BYTES) <= QUEUE_BYTES);
        if !room {
            return Given::NoRoom;
        }
        let Some(turn) = sub.turn(now) else {
            return Given::Nothing;
        };
        let frame = ServerFrame::Messages {
            sub: sub.spec.sub.clone(),
            seq: turn.seq,
            items: turn.items,
            cursor: None,
            credit: turn.credit,
        };
        self.push(&frame, true, turn.receipts);
        Given::Turn
    }

    /// The subscription whose turn follows that of `id`.
    fn after(&self, id: u32) -> Option<u32> {
        self.subs
            .range(id.saturating_add(1)..)
            .next()
            .or_else(|| self.subs.iter().next())
            .map(|(id, _)| *id)
    }

    fn pop(&mut self, now: Monotonic) {
        let (mut id, mut left) = (self.last_turn, self.pops_left());
        for _ in 0..self.subs.len() {
            if left == 0 {
                return;
            }
            let Some(next) = self.after(id) else { return };
            id = next;
            let Some(sub) = self.subs.get_mut(&id) else {
                return;
            };
            let invisible_ms = sub.invisible_ms();
            if let Some(wish) = sub.wish(now) {
                sub.popping(wish.max, now);
                left -= 1;
                self.out.push(Action::Pop {
                    sub: id,
                    max: wish.max,
                    bytes: wish.bytes,
                    invisible_ms,
                    limit: sub.spec.max_in_flight,
                    holds: sub.holds(),
                });
            }
        }
    }

    fn drain(&mut self, deadline: Monotonic, deadline_text: String, reconnect_within: String) {
        if self.closing || self.draining.is_some() {
            return;
        }
        self.draining = Some(deadline);
        self.send(&ServerFrame::Drain {
            reconnect_within,
            deadline: deadline_text,
            reason: "restart".to_owned(),
        });
        let ids: Vec<u32> = self.subs.keys().copied().collect();
        for id in ids {
            self.suspend_unsent(id);
        }
    }

    /// Popped messages that are in no frame yet go back, attempt not counted.
    pub(super) fn suspend_unsent(&mut self, id: u32) {
        let Some(sub) = self.subs.get_mut(&id) else {
            return;
        };
        let (unsent, target) = (sub.take_unsent(), Arc::clone(&sub.target));
        self.give_back(
            Pending::GiveBack,
            &target,
            SettleKind::Suspend,
            unsent,
            None,
        );
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    pub(super) fn close(&mut self, code: u16, reason: &'static str) {
        if !self.closing {
            self.closing = true;
            self.out.push(Action::Close { code, reason });
        }
    }

    /// The socket is gone: every lease is given back as its end demands.
    fn end(&mut self, clean: bool, unwritten: &HashSet<Arc<str>>) {
        self.closing = true;
        self.ended = true;
        self.readers.clear();
        for (receipt, orphan) in &mut self.orphans {
            if unwritten.contains(receipt) {
                orphan.after_ms = None;
            }
        }
        let ids: Vec<u32> = self.subs.keys().copied().collect();
        for id in ids {
            let window = self
                .subs
                .get(&id)
                .map_or(0, |sub| sub.spec.resume_window_ms);
            let after = Some(if clean { 0 } else { window });
            if let Some((delivered, target)) = self.finish(id, after, unwritten) {
                self.give_back(
                    Pending::GiveBack,
                    &target,
                    SettleKind::Release,
                    delivered,
                    after,
                );
            }
        }
    }

    /// Settles on the gateway's own account.
    pub(super) fn give_back(
        &mut self,
        pending: Pending,
        target: &Arc<Target>,
        kind: SettleKind,
        receipts: Vec<Arc<str>>,
        after_ms: Option<u64>,
    ) {
        if !receipts.is_empty() {
            let items = receipts
                .into_iter()
                .map(|receipt| SettleItem {
                    invisible_ms: after_ms,
                    ..SettleItem::bare(receipt)
                })
                .collect();
            self.settle(pending, target, kind, items);
        }
    }

    pub(super) fn settle(
        &mut self,
        pending: Pending,
        target: &Arc<Target>,
        kind: SettleKind,
        items: Vec<SettleItem>,
    ) {
        let token = self.token(pending);
        self.out.push(Action::Settle {
            token,
            target: Arc::clone(target),
            kind,
            items,
        });
    }

    pub(super) fn token(&mut self, pending: Pending) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.pending.insert(token, pending);
        token
    }

    /// Queues a frame that is no messages: an answer where it has an id, else a push.
    pub(super) fn send(&mut self, frame: &ServerFrame) {
        let push = !matches!(
            frame,
            ServerFrame::Ok { .. }
                | ServerFrame::Error { id: Some(_), .. }
                | ServerFrame::Pong { .. }
        );
        self.push(frame, push, Vec::new());
    }

    fn push(&mut self, frame: &ServerFrame, push: bool, receipts: Vec<Arc<str>>) {
        if self.ended {
            return;
        }
        // Plain structs of text and checked JSON cannot fail to be written.
        let Ok(text) = serde_json::to_string(frame) else {
            return;
        };
        self.queue(text, push, receipts);
    }

    /// Queues a push that is written already.
    pub(super) fn push_text(&mut self, text: String) {
        if !self.ended {
            self.queue(text, true, Vec::new());
        }
    }

    fn queue(&mut self, text: String, push: bool, receipts: Vec<Arc<str>>) {
        self.queued_bytes += text.len();
        self.queued_frames += 1;
        self.out.push(Action::Send {
            text,
            push,
            receipts,
        });
    }
}
