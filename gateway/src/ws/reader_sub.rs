//! One reader subscription of a socket: credit, sequence and what it waits for, as a pure state.

use std::sync::Arc;

use openapi::ws::{RequestId, SubscriptionState};

use super::reader_fields::{OnSlow, ReaderSubscribe};
use super::subscription::CREDIT_MAX;
use crate::reader::{Room, Text, Wanted};

/// What the driver is at for this subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaderPhase {
    /// Looking the topic and the place up.
    Opening,
    /// Nothing.
    Idle,
    /// Waiting for messages.
    Reading,
    /// Waiting for messages that there is no credit for.
    Watching,
}

/// Messages to send.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) text: Arc<Text>,
    /// After them.
    pub(super) cursor: Arc<str>,
    /// Until they are a frame.
    pub(super) _room: Option<Room>,
}

/// State of one reader subscription.
#[derive(Debug)]
pub(super) struct ReaderSub {
    pub(super) spec: ReaderSubscribe,
    /// Answer `subscribe` with this.
    pub(super) open_id: Option<RequestId>,
    pub(super) phase: ReaderPhase,
    pub(super) state: SubscriptionState,
    /// Messages that wait for room in the outbound queue.
    pub(super) ready: Option<Ready>,
    credit: u64,
    bytes: Option<u64>,
    seq: u64,
    /// There was no credit since the last read.
    starved: bool,
}

impl ReaderSub {
    pub(super) fn new(spec: ReaderSubscribe, open_id: Option<RequestId>) -> Self {
        Self {
            open_id,
            phase: ReaderPhase::Opening,
            state: SubscriptionState::Active,
            ready: None,
            credit: spec.credit,
            bytes: None,
            seq: 0,
            starved: spec.credit == 0,
            spec,
        }
    }

    /// Adds credit; false, and nothing added, where it would pass [`CREDIT_MAX`].
    pub(super) fn grant(&mut self, messages: u64, bytes: Option<u64>) -> bool {
        let credit = self.credit.saturating_add(messages);
        if credit > CREDIT_MAX {
            return false;
        }
        self.credit = credit;
        if let Some(bytes) = bytes {
            self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(bytes));
        }
        if self.phase == ReaderPhase::Watching && self.has_credit() {
            self.phase = ReaderPhase::Idle;
        }
        true
    }

    /// Whether a message may be sent.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0 && self.bytes != Some(0)
    }

    /// What to read now: never more than the credit. With none, a reader that is to be closed watches for messages.
    pub(super) fn wish(&mut self, room: bool) -> Option<Wanted> {
        if self.phase != ReaderPhase::Idle || self.ready.is_some() {
            return None;
        }
        if !self.has_credit() {
            self.starved = true;
            if self.spec.on_slow != OnSlow::Close {
                return None;
            }
            self.phase = ReaderPhase::Watching;
            return Some(Wanted {
                max: 0,
                bytes: None,
                skip: false,
            });
        }
        if !room {
            return None;
        }
        self.phase = ReaderPhase::Reading;
        Some(Wanted {
            max: u32::try_from(self.credit).unwrap_or(u32::MAX),
            bytes: self.bytes,
            skip: std::mem::take(&mut self.starved) && self.spec.on_slow == OnSlow::Drop,
        })
    }

    /// The frame of these messages; they take their credit.
    pub(super) fn frame(&mut self, text: &Text, cursor: &str) -> String {
        self.credit = self.credit.saturating_sub(u64::from(text.count));
        self.bytes = self.bytes.map(|left| left.saturating_sub(text.bytes));
        self.starved |= !self.has_credit();
        self.seq += 1;
        // A text cannot fail to be written.
        let sub = serde_json::to_string(&self.spec.sub).unwrap_or_default();
        format!(
            "{{\"op\":\"messages\",\"sub\":{sub},\"seq\":{},\"items\":[{}],\"cursor\":\"{cursor}\",\"credit\":{}}}",
            self.seq, text.items, self.credit
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::BodyFormat;

    fn sub(credit: u64, on_slow: OnSlow) -> ReaderSub {
        let spec = ReaderSubscribe {
            sub: "s\"".into(),
            ns: "default".into(),
            topic: "t".into(),
            from: "latest".into(),
            tag: None,
            credit,
            on_slow,
            max_rate: None,
            latest_by_key: false,
            body_format: BodyFormat::Auto,
        };
        ReaderSub {
            phase: ReaderPhase::Idle,
            ..ReaderSub::new(spec, None)
        }
    }

    fn asked(sub: &mut ReaderSub) -> Option<(u32, bool)> {
        sub.wish(true).map(|w| (w.max, w.skip))
    }

    fn text(count: u32) -> Text {
        Text {
            items: "1,2".into(),
            count,
            bytes: 10,
        }
    }

    #[test]
    fn credit_is_what_may_be_read_and_frames_take_it() {
        let mut sub = sub(3, OnSlow::Block);
        assert!(sub.wish(false).is_none(), "no room");
        assert_eq!(asked(&mut sub), Some((3, false)));
        assert_eq!(asked(&mut sub), None, "one read at a time");
        let frame = sub.frame(&text(2), "c");
        assert_eq!(
            frame,
            r#"{"op":"messages","sub":"s\"","seq":1,"items":[1,2],"cursor":"c","credit":1}"#
        );
        sub.phase = ReaderPhase::Idle;
        assert_eq!(asked(&mut sub), Some((1, false)));
        sub.frame(&text(1), "c");
        sub.phase = ReaderPhase::Idle;
        assert_eq!(asked(&mut sub), None, "no credit");
        assert!(sub.grant(2, Some(0)) && !sub.grant(CREDIT_MAX, None));
        assert_eq!(asked(&mut sub), None, "no bytes");
        assert!(sub.grant(0, Some(5)));
        assert_eq!(asked(&mut sub), Some((2, false)));
    }

    #[test]
    fn without_credit_drop_skips_and_close_watches() {
        let mut drop = sub(0, OnSlow::Drop);
        assert_eq!(asked(&mut drop), None);
        drop.grant(2, None);
        assert_eq!(asked(&mut drop), Some((2, true)));
        drop.frame(&text(1), "c");
        drop.phase = ReaderPhase::Idle;
        assert_eq!(asked(&mut drop), Some((1, false)));
        drop.frame(&text(1), "c");
        drop.phase = ReaderPhase::Idle;
        drop.grant(1, None);
        assert_eq!(
            asked(&mut drop),
            Some((1, true)),
            "there was a time without credit"
        );
        let mut close = sub(0, OnSlow::Close);
        assert_eq!(asked(&mut close), Some((0, false)));
        assert_eq!(
            (close.phase, asked(&mut close)),
            (ReaderPhase::Watching, None)
        );
        close.grant(1, None);
        assert_eq!(asked(&mut close), Some((1, false)));
    }
}
