//! Reader subscriptions in the session machine: events in, actions out.

use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use serde_json::{Value, json};

use super::action::{Action, Event, Refusal};
use super::frame::requests;
use super::session::{Session, Settings};
use crate::reader::{Chunk, Gap, GapReason, State, Text, Wanted};

struct Rig {
    session: Session,
    now: Monotonic,
    frames: Vec<Value>,
    reads: Vec<Wanted>,
    closed: Option<u16>,
    forgotten: usize,
}

impl Rig {
    /// With the reader `r`, its look-up answered.
    fn new(more: &str) -> Self {
        let hour = Duration::from_secs(3_600);
        let settings = Settings {
            idle: hour,
            grace: hour,
            subscriptions: 3,
        };
        let now = Monotonic::from_millis(1_000);
        let mut rig = Self {
            session: Session::new(settings, now),
            now,
            frames: Vec::new(),
            reads: Vec::new(),
            closed: None,
            forgotten: 0,
        };
        rig.say(&format!(
            r#"{{"op":"subscribe","id":1,"sub":"r","mode":"reader","topic":"t"{more}}}"#
        ));
        rig.event(Event::ReaderOpened {
            sub: 1,
            result: Ok("mqc_0".into()),
        });
        rig
    }

    fn say(&mut self, text: &str) {
        for request in requests(text) {
            self.event(Event::Request(request.unwrap()));
        }
    }

    fn event(&mut self, event: Event) {
        for action in self.session.handle(event, self.now, 7) {
            match action {
                Action::Send { text, .. } => self.frames.push(serde_json::from_str(&text).unwrap()),
                Action::Read { wanted, .. } => self.reads.push(wanted),
                Action::Close { code, .. } => self.closed = Some(code),
                Action::Forget { .. } => self.forgotten += 1,
                Action::OpenReader { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn chunk(&mut self, sub: u32, chunk: Chunk) {
        self.event(Event::Chunk {
            sub,
            result: Ok(chunk),
        });
    }

    /// So many messages of so many encoded bytes.
    fn messages(&mut self, sub: u32, count: u32, size: usize) {
        let items = vec!["1"; count as usize].join(",") + &" ".repeat(size);
        let text = Text {
            items,
            count,
            bytes: u64::from(count) * 10,
        };
        self.chunk(
            sub,
            Chunk {
                text: Some(Arc::new(text)),
                cursor: Some("mqc_1".into()),
                ..Chunk::default()
            },
        );
    }

    fn reads(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.reads)
            .iter()
            .map(|w| w.max)
            .collect()
    }

    fn frames(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.frames)
    }

    /// The peer takes everything.
    fn written(&mut self) {
        self.event(Event::Written {
            bytes: usize::MAX,
            frames: usize::MAX,
        });
    }
}

#[test]
fn a_reader_reads_by_its_credit_one_read_at_a_time() {
    let mut rig = Rig::new(r#","credit":3"#);
    assert_eq!(
        rig.frames(),
        [json!({"op":"ok","id":1,"sub":"r","cursor":"mqc_0"})]
    );
    assert_eq!(rig.reads(), [3]);
    rig.say(r#"{"op":"credit","sub":"r","messages":2}"#);
    assert!(rig.reads().is_empty());
    rig.messages(1, 2, 0);
    assert_eq!(
        rig.frames(),
        [json!({"op":"messages","sub":"r","seq":1,"items":[1,1],"cursor":"mqc_1","credit":3})]
    );
    assert_eq!(rig.reads(), [3]);
    rig.messages(1, 3, 0);
    assert_eq!(rig.frames()[0]["credit"], 0);
    assert!(rig.reads().is_empty(), "no credit, no read");
    rig.say(r#"{"op":"credit","sub":"r","messages":1,"bytes":5}"#);
    assert_eq!(rig.reads(), [1]);
    rig.say(r#"{"op":"unsubscribe","id":2,"sub":"r"}"#);
    rig.messages(1, 1, 0);
    assert_eq!(
        rig.frames(),
        [json!({"op":"ok","id":2,"released":0})],
        "what comes late is nobody's"
    );
    assert_eq!(rig.forgotten, 1);
}

#[test]
fn gaps_and_states_come_before_messages() {
    let mut rig = Rig::new(r#","credit":3,"onSlow":"drop""#);
    rig.frames();
    rig.chunk(
        1,
        Chunk {
            gaps: vec![Gap {
                reason: GapReason::Rate,
                skipped: 7,
                exact: false,
                from: "mqc_1".into(),
                to: "mqc_8".into(),
            }],
            text: Some(Arc::new(Text {
                items: "1".into(),
                count: 1,
                bytes: 1,
            })),
            cursor: Some("mqc_9".into()),
            ..Chunk::default()
        },
    );
    let frames = rig.frames();
    assert_eq!(
        frames[0],
        json!({"op":"gap","sub":"r","reason":"rate","skipped":7,"exact":false,"from":"mqc_1","to":"mqc_8"})
    );
    assert_eq!(frames[1]["op"], "messages");
    rig.chunk(
        1,
        Chunk {
            state: Some(State::Partial(vec!["broker-b".into()])),
            ..Chunk::default()
        },
    );
    assert_eq!(
        rig.frames(),
        [json!({"op":"status","sub":"r","state":"partial","detail":"cannot read from broker-b"})]
    );
    rig.chunk(
        1,
        Chunk {
            state: Some(State::Deleted("gone")),
            ..Chunk::default()
        },
    );
    assert_eq!(rig.frames()[0]["state"], "deleted");
    rig.say(r#"{"op":"credit","id":5,"sub":"r","messages":1}"#);
    assert_eq!(rig.frames()[0]["code"], "unknown_sub", "it has ended");
}

#[test]
fn without_credit_a_reader_that_asked_so_is_closed_by_the_next_message() {
    let mut rig = Rig::new(r#","credit":1,"onSlow":"close""#);
    assert_eq!(rig.reads(), [1]);
    rig.messages(1, 1, 0);
    assert_eq!(rig.reads(), [0], "it watches");
    rig.say(r#"{"op":"credit","sub":"r","messages":1}"#);
    assert_eq!(rig.reads(), [1]);
    rig.messages(1, 1, 0);
    assert_eq!(rig.reads(), [0]);
    rig.chunk(1, Chunk::default());
    assert_eq!(rig.closed, Some(4001));
}

#[test]
fn a_full_outbound_queue_is_not_filled_further() {
    let mut rig = Rig::new(r#","credit":1000"#);
    rig.reads();
    rig.messages(1, 1, 300 * 1024);
    assert!(rig.reads().is_empty(), "over a quarter of the queue waits");
    rig.written();
    assert_eq!(rig.reads(), [999]);
    // Larger than the queue: it goes when the queue is empty.
    rig.say(r#"{"op":"ping","id":3}"#);
    rig.frames();
    rig.messages(1, 1, 2 * 1024 * 1024);
    assert!(rig.frames().is_empty());
    rig.written();
    assert_eq!(rig.frames()[0]["seq"], 2);
}

#[test]
fn a_reader_waits_however_many_wait_already() {
    let mut rig = Rig::new(r#","credit":5"#);
    rig.session.settings.subscriptions = 9;
    for sub in 2..=9 {
        rig.say(&format!(
            r#"{{"op":"subscribe","sub":"{sub}","mode":"reader","topic":"t","credit":5}}"#
        ));
        rig.event(Event::ReaderOpened {
            sub,
            result: Ok("mqc_0".into()),
        });
    }
    assert_eq!(rig.reads().len(), 9);
}

#[test]
fn messages_larger_than_the_room_left_are_not_overtaken_for_ever() {
    let mut rig = Rig::new(r#","credit":5"#);
    for sub in [2, 3] {
        rig.say(&format!(
            r#"{{"op":"subscribe","sub":"{sub}","mode":"reader","topic":"t","credit":5}}"#
        ));
        rig.event(Event::ReaderOpened {
            sub,
            result: Ok("mqc_0".into()),
        });
    }
    rig.frames();
    rig.messages(1, 1, 900 * 1024);
    rig.messages(2, 1, 2 * 1024 * 1024);
    rig.messages(3, 1, 10);
    let subs = |frames: Vec<Value>| frames.iter().map(|f| f["sub"].clone()).collect::<Vec<_>>();
    assert_eq!(subs(rig.frames()), ["r"]);
    rig.event(Event::Written {
        bytes: 500 * 1024,
        frames: 0,
    });
    assert!(rig.frames().is_empty(), "the large one is next");
    rig.written();
    assert_eq!(subs(rig.frames()), ["2"]);
    rig.written();
    assert_eq!(subs(rig.frames()), ["3"]);
}

#[test]
fn a_refused_reader_frees_its_name_and_the_bound_counts_readers() {
    let mut rig = Rig::new("");
    rig.event(Event::Chunk {
        sub: 1,
        result: Err(Refusal {
            code: "internal",
            detail: "x".into(),
            retryable: false,
        }),
    });
    let last = rig.frames().pop().unwrap();
    assert_eq!(
        (&last["code"], &last["fatal"]),
        (&json!("internal"), &json!(true))
    );
    for sub in ["r", "a", "b"] {
        rig.say(&format!(
            r#"{{"op":"subscribe","sub":"{sub}","mode":"reader","topic":"t"}}"#
        ));
    }
    assert!(rig.frames().is_empty());
    rig.say(r#"{"op":"subscribe","sub":"c","mode":"reader","topic":"t"}"#);
    assert_eq!(rig.frames()[0]["code"], "too_many_subscriptions");
    rig.say(r#"{"op":"subscribe","sub":"a","mode":"reader","topic":"t"}"#);
    assert_eq!(rig.frames()[0]["code"], "already_subscribed");
}
