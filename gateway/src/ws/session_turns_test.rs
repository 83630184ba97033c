//! Turns of the session machine: large messages, a full queue, what is never sent.

use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use serde_json::Value;
use serde_json::value::RawValue;

use super::action::{Action, Batch, Event, Opened};
use super::session_test::Rig;
use super::subscription::Item;
use crate::reader::{Chunk, Text};

/// Answers a pop with everything there was.
fn batch(sub: u32, items: Vec<Item>) -> Event {
    Event::Popped {
        sub,
        result: Ok(Batch {
            items,
            ..Batch::default()
        }),
    }
}

/// A message of so many bytes.
fn large(size: usize) -> Box<RawValue> {
    RawValue::from_string(format!("\"{}\"", "x".repeat(size))).unwrap()
}

#[test]
fn a_full_queue_stops_pops_and_reading_and_ends_slow_consumers() {
    let mut rig = Rig::subscribed(100, "");
    rig.take();
    let big = RawValue::from_string(format!("\"{}\"", "x".repeat(300_000))).unwrap();
    let item = |name: &str, now: Monotonic| Item {
        receipt: name.into(),
        json: big.clone(),
        size: 300_000,
        until: now + Duration::from_secs(30),
        broker: "b".into(),
        held: None,
    };
    let items = ["a", "b", "c", "d"]
        .map(|name| item(name, rig.now))
        .to_vec();
    rig.event(Event::Popped {
        sub: 1,
        result: Ok(Batch {
            items,
            more: true,
            ..Batch::default()
        }),
    });
    let sent = rig
        .actions
        .iter()
        .filter(|action| matches!(action, Action::Send { .. }))
        .count();
    assert_eq!(
        (sent, rig.actions.len()),
        (3, 3),
        "the fourth would pass 1 MiB, and nothing is popped"
    );
    rig.actions.clear();
    rig.wait(9_999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.event(Event::Written {
        bytes: 300_100,
        frames: 1,
    });
    assert_eq!(rig.take().len(), 1);
    rig.wait(10_000);
    assert_eq!(rig.take(), ["close 4001 slow_consumer"]);
}

#[test]
fn a_message_larger_than_the_queue_goes_alone() {
    let mut rig = Rig::subscribed(100, "");
    rig.event(Event::Written {
        bytes: 10_000,
        frames: 1,
    });
    rig.take();
    let big = RawValue::from_string(format!("\"{}\"", "x".repeat(3_000_000))).unwrap();
    let until = rig.now + Duration::from_secs(30);
    let items = ["a", "b"]
        .map(|name| Item {
            receipt: name.into(),
            json: big.clone(),
            size: 3_000_000,
            until,
            broker: "b".into(),
            held: None,
        })
        .to_vec();
    rig.event(Event::Popped {
        sub: 1,
        result: Ok(Batch {
            items,
            more: false,
            ..Batch::default()
        }),
    });
    assert_eq!(rig.frames().len(), 1);
    rig.event(Event::Written {
        bytes: 3_000_200,
        frames: 1,
    });
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn what_was_never_sent_goes_back_before_its_lease_ends() {
    let mut rig = Rig::subscribed(5, "");
    rig.take();
    let mut items = rig.items(&["a", "b"]);
    items[0].until = rig.now;
    rig.event(batch(1, items));
    assert_eq!(
        rig.take(),
        ["wait 1", "Suspend a", "messages b seq 1 credit 4"]
    );

    let mut rig = Rig::subscribed(5, r#","autoExtend":false"#);
    let mut items = rig.items(&["a", "b"]);
    items[0].json = large(800_000);
    for item in &mut items {
        item.until = rig.now + Duration::from_secs(9);
    }
    rig.event(batch(1, items));
    rig.take();
    rig.wait(5_999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1);
    assert_eq!(rig.take(), ["Suspend b"], "it would end before it is sent");
    rig.event(Event::Written {
        bytes: usize::MAX,
        frames: usize::MAX,
    });
    assert_eq!(rig.take(), Vec::<String>::new());
}

/// Nothing goes before a message that needs an empty queue, or it would wait until its lease ends.
#[test]
fn a_large_message_of_a_group_is_overtaken_by_nobody() {
    let mut rig = Rig::new();
    for number in 1..=2 {
        rig.say(&format!(
            r#"{{"op":"subscribe","sub":"g{number}","mode":"group","group":"g","credit":200}}"#
        ));
        rig.event(Event::Opened {
            sub: number,
            result: Ok(Opened {
                invisible_ms: 30_000,
                ..Opened::default()
            }),
        });
    }
    rig.say(r#"{"op":"subscribe","sub":"r","mode":"reader","topic":"t","credit":5}"#);
    rig.event(Event::ReaderOpened {
        sub: 3,
        result: Ok("mqc_0".into()),
    });
    // A frame is on its way to the client.
    rig.say(r#"{"op":"ping"}"#);
    rig.take();
    let mut items = rig.items(&["a"]);
    items[0].json = large(2_000_000);
    rig.event(batch(1, items));
    let items = rig.items(&["b"]);
    rig.event(batch(2, items));
    let text = Text {
        items: "{}".into(),
        count: 1,
        bytes: 1,
    };
    rig.event(Event::Chunk {
        sub: 3,
        result: Ok(Chunk {
            text: Some(Arc::new(text)),
            cursor: Some("mqc_1".into()),
            ..Chunk::default()
        }),
    });
    assert_eq!(rig.frames(), Vec::<Value>::new());
    let written = Event::Written {
        bytes: usize::MAX,
        frames: usize::MAX,
    };
    rig.event(written);
    let subs = |frames: Vec<Value>| frames.iter().map(|f| f["sub"].clone()).collect::<Vec<_>>();
    assert_eq!(subs(rig.frames()), ["g1"]);
    rig.event(Event::Written {
        bytes: usize::MAX,
        frames: usize::MAX,
    });
    assert_eq!(subs(rig.frames()), ["r", "g2"]);
}

#[test]
fn subscriptions_take_turns() {
    let mut rig = Rig::new();
    for (number, name) in [(1, "s"), (2, "u")] {
        rig.say(&format!(
            r#"{{"op":"subscribe","sub":"{name}","mode":"group","group":"g","credit":200,"maxInFlight":200}}"#
        ));
        rig.event(Event::Opened {
            sub: number,
            result: Ok(Opened {
                invisible_ms: 30_000,
                ..Opened::default()
            }),
        });
    }
    assert_eq!(
        rig.take(),
        ["open 1", "pop 1 max 64", "open 2", "pop 2 max 64"]
    );
    rig.popped(&["a"], true);
    assert_eq!(rig.take(), ["messages a seq 1 credit 199", "pop 1 max 64"]);
    let items = rig.items(&["b"]);
    rig.event(Event::Popped {
        sub: 2,
        result: Ok(Batch {
            items,
            more: true,
            ..Batch::default()
        }),
    });
    assert_eq!(rig.take(), ["messages b seq 1 credit 199", "pop 2 max 64"]);
}
