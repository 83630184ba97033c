//! Random lives of a socket: whatever happens, credit is kept and every message has exactly one fate.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::action::{Action, Batch, Effect, Event, Opened, Outcome};
use super::frame::{SettleKind, requests};
use super::session::{Session, Settings};
use super::subscription::Item;

/// One step of a random life.
#[derive(Debug, Clone, Copy)]
enum Step {
    Credit(u8),
    /// Answers the oldest open pop with up to this many messages, and one too many where it is odd and full.
    Popped(u8, bool),
    /// Answers a settle request, the n-th open one.
    Settled(u8, u8),
    /// Settles the n-th message the client holds.
    Settle(u8, u8),
    Arrived,
    /// The outbound queue is written up to this many frames.
    Written(u8),
    Wait(u16),
    Unsubscribe(bool),
    Subscribe(u8),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..20_u8).prop_map(Step::Credit),
        8 => (0..70_u8, any::<bool>()).prop_map(|(n, more)| Step::Popped(n, more)),
        6 => (any::<u8>(), 0..6_u8).prop_map(|(n, effect)| Step::Settled(n, effect)),
        6 => (any::<u8>(), 0..3_u8).prop_map(|(n, kind)| Step::Settle(n, kind)),
        3 => Just(Step::Arrived),
        4 => (0..4_u8).prop_map(Step::Written),
        4 => (0..20_000_u16).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Unsubscribe),
        2 => (0..10_u8).prop_map(Step::Subscribe),
        1 => Just(Step::Drain),
    ]
}

/// What the brokers and the client know, beside the machine under test.
struct World {
    session: Session,
    now: Monotonic,
    subs: u32,
    open: bool,
    granted: u64,
    delivered: u64,
    next: u32,
    pops: VecDeque<(u32, u32)>,
    settles: Vec<(u64, SettleKind, Vec<Arc<str>>)>,
    queue: VecDeque<(usize, Vec<Arc<str>>)>,
    /// Messages popped, with how they were given back by the gateway.
    fate: BTreeMap<Arc<str>, Vec<SettleKind>>,
    sent: HashSet<Arc<str>>,
    held: Vec<Arc<str>>,
    /// Settled by the client, reported as ended, or of a subscription ended with `release: false`.
    over: HashSet<Arc<str>>,
    closed: bool,
}

impl World {
    fn new() -> Self {
        let idle = Duration::from_secs(100_000);
        let settings = Settings {
            idle,
            grace: idle,
            subscriptions: 10,
        };
        Self {
            session: Session::new(settings, Monotonic::ZERO),
            now: Monotonic::ZERO,
            subs: 0,
            open: false,
            granted: 0,
            delivered: 0,
            next: 0,
            pops: VecDeque::new(),
            settles: Vec::new(),
            queue: VecDeque::new(),
            fate: BTreeMap::new(),
            sent: HashSet::new(),
            held: Vec::new(),
            over: HashSet::new(),
            closed: false,
        }
    }

    fn say(&mut self, text: &str) {
        let request = requests(text).next().unwrap().unwrap();
        self.event(Event::Request(request));
    }

    fn event(&mut self, event: Event) {
        for action in self.session.handle(event, self.now, 0) {
            match action {
                Action::Send { text, receipts, .. } => self.frame(&text, receipts),
                Action::Pop { sub, max, .. } => {
                    assert!(!self.closed, "no pop on a closing socket");
                    self.pops.push_back((sub, max));
                }
                Action::Settle {
                    token, kind, items, ..
                } => {
                    let receipts: Vec<Arc<str>> =
                        items.into_iter().map(|item| item.receipt).collect();
                    assert!(!receipts.is_empty());
                    if matches!(kind, SettleKind::Release | SettleKind::Suspend) {
                        for receipt in &receipts {
                            self.fate.get_mut(receipt).unwrap().push(kind);
                        }
                    }
                    self.settles.push((token, kind, receipts));
                }
                Action::Close { .. } => self.closed = true,
                Action::Forget { sub } => {
                    // The driver gives back what a late pop brings.
                    self.pops.retain(|(of, _)| *of != sub);
                }
                Action::Open { .. }
                | Action::OpenReader { .. }
                | Action::Read { .. }
                | Action::Wait { .. }
                | Action::Ping
                | Action::Publish { .. } => {}
            }
        }
    }

    fn frame(&mut self, text: &str, receipts: Vec<Arc<str>>) {
        let frame: Value = serde_json::from_str(text).unwrap();
        if frame["op"] == "messages" {
            let count = frame["items"].as_array().unwrap().len();
            self.delivered += count as u64;
            assert!(
                self.delivered <= self.granted,
                "{} delivered, {} granted",
                self.delivered,
                self.granted
            );
            assert_eq!(count, receipts.len());
            assert_eq!(
                frame["credit"].as_u64().unwrap(),
                self.granted - self.delivered
            );
            for receipt in &receipts {
                assert!(self.sent.insert(Arc::clone(receipt)), "{receipt} twice");
            }
        }
        if frame["op"] == "lease" {
            for receipt in frame["receipts"].as_array().unwrap() {
                let receipt: Arc<str> = receipt.as_str().unwrap().into();
                assert!(
                    self.sent.contains(&receipt),
                    "only delivered leases are told"
                );
                self.over.insert(receipt);
            }
        }
        self.queue.push_back((text.len(), receipts));
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Subscribe(credit) if !self.open && !self.closed => {
                self.granted = u64::from(credit);
                self.delivered = 0;
                self.say(&format!(r#"{{"op":"subscribe","sub":"s","mode":"group","group":"g","credit":{credit},"maxInFlight":40,"maxProcessing":"50s"}}"#));
                if !self.session.is_draining() {
                    self.subs += 1;
                    self.open = true;
                    self.event(Event::Opened {
                        sub: self.subs,
                        result: Ok(Opened {
                            invisible_ms: 10_000,
                            ..Opened::default()
                        }),
                    });
                }
            }
            Step::Credit(n) if self.open => {
                self.granted += u64::from(n);
                self.say(&format!(r#"{{"op":"credit","sub":"s","messages":{n}}}"#));
            }
            Step::Popped(n, more) => self.popped(n, more),
            Step::Settled(n, effect) if !self.settles.is_empty() => {
                let (token, kind, receipts) =
                    self.settles.remove(usize::from(n) % self.settles.len());
                self.settled(token, kind, &receipts, effect);
            }
            Step::Settle(n, kind) if self.open && !self.held.is_empty() => {
                let receipt = Arc::clone(&self.held[usize::from(n) % self.held.len()]);
                let op = ["ack", "nack", "extend"][usize::from(kind)];
                self.say(&format!(
                    r#"{{"op":"{op}","id":1,"sub":"s","receipts":["{receipt}"]}}"#
                ));
            }
            Step::Arrived => self.event(Event::Arrived { sub: self.subs }),
            Step::Written(n) => {
                let count = usize::from(n).min(self.queue.len());
                let mut bytes = 0;
                for (size, receipts) in self.queue.drain(..count) {
                    bytes += size;
                    self.held.extend(receipts);
                }
                self.event(Event::Written {
                    bytes,
                    frames: count,
                });
            }
            Step::Wait(ms) => {
                self.now = self.now + Duration::from_millis(u64::from(ms));
                self.event(Event::Tick);
            }
            Step::Unsubscribe(release) if self.open => {
                self.open = false;
                if !release {
                    self.over.extend(self.sent.iter().cloned());
                }
                self.say(&format!(
                    r#"{{"op":"unsubscribe","id":2,"sub":"s","release":{release}}}"#
                ));
            }
            Step::Drain => self.event(Event::Drain {
                deadline: self.now + Duration::from_secs(20),
                deadline_text: String::new(),
                reconnect_within: String::new(),
            }),
            _ => {}
        }
    }

    fn popped(&mut self, n: u8, more: bool) {
        let Some((sub, max)) = self.pops.pop_front() else {
            return;
        };
        // A broker that gives one too many is survived, too.
        let count = u32::from(n).min(max + u32::from(n % 2));
        let until = self.now + Duration::from_secs(10);
        let items: Vec<Item> = (0..count)
            .map(|_| {
                self.next += 1;
                let receipt: Arc<str> = format!("r{}", self.next).into();
                self.fate.insert(Arc::clone(&receipt), Vec::new());
                let json =
                    RawValue::from_string(format!("\"{}\"", "x".repeat(usize::from(n) * 500)))
                        .unwrap();
                Item {
                    receipt,
                    json,
                    size: 10,
                    until,
                    broker: "b".into(),
                    held: None,
                }
            })
            .collect();
        self.event(Event::Popped {
            sub,
            result: Ok(Batch {
                items,
                more,
                ..Batch::default()
            }),
        });
    }

    fn settled(&mut self, token: u64, kind: SettleKind, receipts: &[Arc<str>], effect: u8) {
        let effect = match (kind, effect) {
            (_, 0) => Effect::Unchanged,
            (_, 1) => Effect::Gone,
            (SettleKind::Extend, 2) => Effect::Limit,
            (SettleKind::Extend, _) => Effect::Extended { visible_ms: 10_000 },
            (SettleKind::Release | SettleKind::Suspend, _) => Effect::Released,
            (SettleKind::Ack | SettleKind::Nack, _) => Effect::Over,
        };
        if matches!(effect, Effect::Gone | Effect::Over)
            || kind == SettleKind::Extend && effect == Effect::Limit
        {
            self.over.extend(receipts.iter().cloned());
        }
        let outcome = Outcome {
            effect,
            json: RawValue::from_string("{}".into()).unwrap(),
            refusal: None,
        };
        self.event(Event::Settled {
            token,
            outcomes: vec![outcome; receipts.len()],
        });
    }

    /// Ends the socket and lets everything be answered.
    fn end(&mut self, clean: bool) {
        let unwritten: HashSet<Arc<str>> = self
            .queue
            .drain(..)
            .flat_map(|(_, receipts)| receipts)
            .collect();
        self.closed = true;
        // An unsubscribe releases what is in frames that are still on their way.
        let before: HashSet<Arc<str>> = self
            .fate
            .iter()
            .filter(|(_, fate)| !fate.is_empty())
            .map(|(receipt, _)| Arc::clone(receipt))
            .collect();
        self.event(Event::Ended {
            clean,
            unwritten: unwritten.clone(),
        });
        let mut rounds = 0;
        while let Some((token, kind, receipts)) = self.settles.pop() {
            self.settled(token, kind, &receipts, 5);
            rounds += 1;
            assert!(rounds < 10_000);
        }
        assert!(self.session.is_done());
        for (receipt, given_back) in &self.fate {
            assert!(given_back.len() <= 1, "{receipt}: {given_back:?}");
            match given_back.first() {
                Some(SettleKind::Suspend) => {
                    assert!(
                        !self.sent.contains(receipt) || unwritten.contains(receipt),
                        "{receipt} was delivered"
                    )
                }
                Some(_) => assert!(
                    self.sent.contains(receipt)
                        && (before.contains(receipt) || !unwritten.contains(receipt)),
                    "{receipt} never left"
                ),
                None => assert!(
                    self.over.contains(receipt) || !self.sent.contains(receipt),
                    "{receipt} is forgotten"
                ),
            }
        }
    }
}

/// Lives by `steps`, after a subscribe with a credit of five.
fn live(steps: impl IntoIterator<Item = Step>, clean: bool) {
    let mut world = World::new();
    world.apply(Step::Subscribe(5));
    for step in steps {
        world.apply(step);
    }
    world.end(clean);
}

#[test]
fn a_message_that_never_left_is_not_counted_though_its_extension_outlives_the_subscription() {
    let steps = [
        Step::Popped(1, false),
        Step::Wait(956),
        Step::Wait(5_711),
        Step::Unsubscribe(true),
    ];
    for clean in [false, true] {
        live(steps, clean);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credit_is_kept_and_every_message_has_one_fate(steps in prop::collection::vec(step(), 1..120), clean in any::<bool>()) {
        live(steps, clean);
    }

    #[test]
    fn no_text_breaks_the_reader(text in "\\PC*") {
        requests(&text).for_each(drop);
    }

    #[test]
    fn no_damaged_frame_breaks_the_reader(at in any::<prop::sample::Index>(), byte in any::<char>()) {
        let whole = r#"{"op":"subscribe","id":1,"sub":"s","mode":"group","group":"g","invisibleFor":"30s","resume":{"receipts":["a"]}}"#;
        let mut text: Vec<char> = whole.chars().collect();
        let at = at.index(text.len());
        text[at] = byte;
        requests(&text.iter().collect::<String>()).for_each(drop);
        requests(whole.get(..at).unwrap_or_default()).for_each(drop);
    }
}
