//! What the session does for its reader subscriptions.

use std::ops::Bound;
use std::sync::Arc;

use openapi::ws::{OkBody, RequestId, ServerFrame, SubscriptionState};

use super::action::{Action, Refusal};
use super::reader_fields::{OnSlow, ReaderSubscribe};
use super::reader_sub::{ReaderPhase, ReaderSub, Ready};
use super::session::{QUEUE_BYTES, QUEUE_FRAMES, Session, close};
use super::subscription::TURN_BYTES;
use crate::reader::{Chunk, GapReason, State};

/// Chunks of readers that wait for room in the outbound queue at a time.
pub(super) const TURNS: usize = QUEUE_BYTES / TURN_BYTES;

impl Session {
    /// A new reader subscription whose name and number were checked.
    pub(super) fn add_reader(&mut self, number: u32, id: Option<RequestId>, spec: ReaderSubscribe) {
        self.out.push(Action::OpenReader {
            sub: number,
            spec: Box::new(spec.clone()),
        });
        self.readers.insert(number, ReaderSub::new(spec, id));
    }

    /// The reader subscription of this name.
    pub(super) fn reader(&mut self, name: &str) -> Option<(u32, &mut ReaderSub)> {
        let number = *self.names.get(name)?;
        self.readers.get_mut(&number).map(|sub| (number, sub))
    }

    pub(super) fn reader_opened(&mut self, number: u32, result: Result<Arc<str>, Refusal>) {
        let Some(sub) = self.readers.get_mut(&number) else {
            return;
        };
        let (id, name) = (sub.open_id.take(), sub.spec.sub.clone());
        match result {
            Ok(cursor) => {
                sub.phase = ReaderPhase::Idle;
                let cursor = cursor.to_string();
                self.succeed(id, OkBody::Reading { sub: name, cursor });
            }
            Err(refusal) => {
                self.end_reader(number);
                self.end_with(id, name, refusal);
            }
        }
    }

    /// Ends a reader subscription; nothing has to be given back.
    pub(super) fn end_reader(&mut self, number: u32) {
        if let Some(sub) = self.readers.remove(&number) {
            self.names.remove(&sub.spec.sub);
            self.out.push(Action::Forget { sub: number });
        }
    }

    /// Answer to [`Action::Read`].
    pub(super) fn chunk(&mut self, number: u32, result: Result<Chunk, Refusal>) {
        let Some(sub) = self.readers.get_mut(&number) else {
            return;
        };
        let (name, watched) = (sub.spec.sub.clone(), sub.phase == ReaderPhase::Watching);
        sub.phase = ReaderPhase::Idle;
        let chunk = match result {
            Ok(chunk) => chunk,
            Err(refusal) => {
                self.end_reader(number);
                return self.end_with(None, name, refusal);
            }
        };
        if watched && chunk.state.is_none() {
            if sub.spec.on_slow == OnSlow::Close && !sub.has_credit() {
                self.close(close::SLOW_CONSUMER, "slow_consumer");
            }
            return;
        }
        if let (Some(text), Some(cursor)) = (chunk.text, chunk.cursor) {
            sub.ready = Some(Ready {
                text,
                cursor,
                _room: chunk.room,
            });
        }
        if let Some(state) = chunk.state {
            self.reader_state(number, state);
        }
        for gap in chunk.gaps {
            self.send(&ServerFrame::ReaderGap {
                sub: name.clone(),
                reason: match gap.reason {
                    GapReason::Slow => "slow",
                    GapReason::Rate => "rate",
                    GapReason::Retention => "retention",
                }
                .to_owned(),
                skipped: gap.skipped,
                exact: (!gap.exact).then_some(false),
                from: gap.from.to_string(),
                to: gap.to.to_string(),
            });
        }
    }

    fn reader_state(&mut self, number: u32, state: State) {
        let (state, detail) = match state {
            State::Active => (SubscriptionState::Active, String::new()),
            State::Partial(brokers) => {
                let detail = format!("cannot read from {}", brokers.join(", "));
                (SubscriptionState::Partial, detail)
            }
            State::Deleted(why) => (SubscriptionState::Deleted, why.to_owned()),
        };
        let Some(sub) = self.readers.get_mut(&number) else {
            return;
        };
        sub.state = state;
        let sub = sub.spec.sub.clone();
        self.send(&ServerFrame::Status { sub, state, detail });
        if state == SubscriptionState::Deleted {
            self.end_reader(number);
        }
    }

    /// Sends what is ready as far as there is room, reader by reader; whether anything was sent.
    pub(super) fn send_ready(&mut self) -> bool {
        let mut sent = false;
        while let Some(number) = self.next_ready() {
            let (bytes, frames) = self.queued();
            let fits =
                |len: usize| frames == 0 || (frames < QUEUE_FRAMES && bytes + len <= QUEUE_BYTES);
            let Some(sub) = self.readers.get_mut(&number) else {
                break;
            };
            // One that does not fit is not overtaken by smaller ones.
            let Some(ready) = sub.ready.take_if(|r| fits(r.text.items.len())) else {
                break;
            };
            let frame = sub.frame(&ready.text, &ready.cursor);
            self.push_text(frame);
            (self.last_sent, sent) = (number, true);
        }
        sent
    }

    /// The reader whose messages are sent next.
    fn next_ready(&self) -> Option<u32> {
        let behind = (Bound::Excluded(self.last_sent), Bound::Unbounded);
        let mut from_there = self.readers.range(behind).chain(&self.readers);
        let next = from_there.find(|(_, sub)| sub.ready.is_some());
        next.map(|(number, _)| *number)
    }

    /// Readers whose messages wait for room.
    pub(super) fn ready(&self) -> usize {
        let readers = self.readers.values();
        readers.filter(|sub| sub.ready.is_some()).count()
    }

    /// Asks for what the credit of the readers allows. However many wait, few bring messages at a time: each has to
    /// have one of [`TURNS`].
    pub(super) fn ask_readers(&mut self) {
        if self.is_draining() {
            return;
        }
        let room = !self.is_full();
        for (number, sub) in &mut self.readers {
            if let Some(wanted) = sub.wish(room) {
                self.out.push(Action::Read {
                    sub: *number,
                    wanted,
                });
            }
        }
    }
}
