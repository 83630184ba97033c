//! What the session does for its reader subscriptions.

use std::sync::Arc;

use openapi::ws::{OkBody, RequestId, ServerFrame, SubscriptionState};

use super::action::{Action, Refusal};
use super::reader_fields::{OnSlow, ReaderSubscribe};
use super::reader_sub::{ReaderPhase, ReaderSub};
use super::session::{QUEUE_BYTES, QUEUE_FRAMES, Session, close};
use super::subscription::TURN_BYTES;
use crate::reader::{Chunk, GapReason, State};

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
            sub.ready = Some((text, cursor));
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

    /// Sends what is ready as far as there is room, then asks for what the credit allows.
    pub(super) fn serve_readers(&mut self) {
        let numbers: Vec<u32> = self.readers.keys().copied().collect();
        for number in &numbers {
            self.send_ready(*number);
        }
        if self.is_draining() {
            return;
        }
        // Whoever read last comes last.
        let after = numbers.partition_point(|n| *n <= self.last_reader);
        for number in numbers[after..].iter().chain(&numbers[..after]) {
            let room = self.has_room();
            let Some(sub) = self.readers.get_mut(number) else {
                continue;
            };
            if let Some(wanted) = sub.wish(room) {
                if wanted.max > 0 {
                    self.last_reader = *number;
                }
                self.out.push(Action::Read {
                    sub: *number,
                    wanted,
                });
            }
        }
    }

    fn send_ready(&mut self, number: u32) {
        let (bytes, frames) = self.queued();
        let Some(sub) = self.readers.get_mut(&number) else {
            return;
        };
        let fits = |len: usize| frames < QUEUE_FRAMES && bytes + len <= QUEUE_BYTES;
        if let Some((text, cursor)) = sub
            .ready
            .take_if(|(t, _)| frames == 0 || fits(t.items.len()))
        {
            let frame = sub.frame(&text, &cursor);
            self.push_text(frame);
        }
    }

    /// Reads under way, each of which may bring [`TURN_BYTES`].
    pub(super) fn reading(&self) -> usize {
        let busy = |sub: &&ReaderSub| sub.phase == ReaderPhase::Reading || sub.ready.is_some();
        self.readers.values().filter(busy).count()
    }

    fn has_room(&self) -> bool {
        let (bytes, _) = self.queued();
        !self.is_full() && bytes + (self.reading() + 1) * TURN_BYTES <= QUEUE_BYTES
    }
}
