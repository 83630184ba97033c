//! The session machine: events in, actions out, with no socket and no broker.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::action::{Action, Adopted, Batch, Effect, Event, Opened, Outcome, Refusal};
use super::frame::{SettleKind, requests};
use super::session::{Session, Settings};
use super::subscription::Item;

/// A session, its time, and all it wanted so far.
pub(super) struct Rig {
    pub(super) session: Session,
    pub(super) now: Monotonic,
    pub(super) actions: Vec<Action>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_idle(Duration::from_secs(25))
    }

    pub(super) fn with_idle(idle: Duration) -> Self {
        let settings = Settings {
            idle,
            grace: Duration::from_secs(10),
            subscriptions: 3,
        };
        let now = Monotonic::from_millis(1_000);
        Self {
            session: Session::new(settings, now),
            now,
            actions: Vec::new(),
        }
    }

    /// With the open subscription `s` (number 1), this much credit and no heartbeat in the way.
    pub(super) fn subscribed(credit: u64, more: &str) -> Self {
        let mut rig = Self::with_idle(Duration::from_secs(3_600));
        rig.say(&format!(
            r#"{{"op":"subscribe","id":1,"sub":"s","mode":"group","group":"g","topic":"t","credit":{credit}{more}}}"#
        ));
        rig.event(Event::Opened {
            sub: 1,
            result: Ok(Opened {
                invisible_ms: 30_000,
                lag: 5,
                ..Opened::default()
            }),
        });
        rig
    }

    pub(super) fn event(&mut self, event: Event) {
        let actions = self.session.handle(event, self.now, 77);
        self.actions.extend(actions);
    }

    pub(super) fn say(&mut self, text: &str) {
        for request in requests(text) {
            self.event(Event::Request(request.unwrap()));
        }
    }

    /// Moves time on in the steps the machine asks for.
    pub(super) fn wait(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            let next = self
                .session
                .wake_at()
                .max(self.now + Duration::from_millis(1));
            if next > end {
                break;
            }
            self.now = next;
            self.event(Event::Tick);
        }
        self.now = end;
        self.event(Event::Tick);
    }

    pub(super) fn items(&self, names: &[&str]) -> Vec<Item> {
        let until = self.now + Duration::from_secs(30);
        let json =
            |name: &&str| RawValue::from_string(format!("{{\"receipt\":\"{name}\"}}")).unwrap();
        names
            .iter()
            .map(|name| Item {
                receipt: Arc::from(*name),
                json: json(name),
                size: 10,
                until,
                broker: "b".into(),
                held: None,
            })
            .collect()
    }

    /// Answers the outstanding pop of subscription 1.
    pub(super) fn popped(&mut self, names: &[&str], more: bool) {
        let items = self.items(names);
        self.event(Event::Popped {
            sub: 1,
            result: Ok(Batch {
                items,
                more,
                ..Batch::default()
            }),
        });
    }

    /// Everything wanted since the last look.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.actions)
            .into_iter()
            .map(|action| brief(&action))
            .collect()
    }

    /// The text frames among it.
    pub(super) fn frames(&mut self) -> Vec<Value> {
        let texts = std::mem::take(&mut self.actions).into_iter();
        texts
            .filter_map(|action| {
                if let Action::Send { text, .. } = action {
                    Some(serde_json::from_str(&text).unwrap())
                } else {
                    None
                }
            })
            .collect()
    }

    /// Token and receipts of the last settle action.
    pub(super) fn last_settle(&self) -> (u64, SettleKind, Vec<String>) {
        let found = self.actions.iter().rev().find_map(|action| match action {
            Action::Settle {
                token, kind, items, ..
            } => Some((
                *token,
                *kind,
                items.iter().map(|item| item.receipt.to_string()).collect(),
            )),
            _ => None,
        });
        found.unwrap()
    }

    pub(super) fn settled(&mut self, token: u64, outcomes: Vec<Outcome>) {
        self.event(Event::Settled { token, outcomes });
    }
}

fn outcome(effect: Effect) -> Outcome {
    let code = match effect {
        Effect::Gone => Some("receipt_gone"),
        Effect::Limit => Some("lease_limit_reached"),
        Effect::Unchanged => Some("broker_unavailable"),
        Effect::Over | Effect::Released | Effect::Extended { .. } => None,
    };
    let refusal = code.map(|code| Refusal {
        code,
        detail: String::new(),
        retryable: false,
    });
    Outcome {
        effect,
        json: RawValue::from_string("{\"status\":\"x\"}".into()).unwrap(),
        refusal,
    }
}

fn brief(action: &Action) -> String {
    match action {
        Action::Send { text, .. } => {
            let frame: Value = serde_json::from_str(text).unwrap();
            let receipts: Vec<&str> = frame["items"]
                .as_array()
                .map(|items| {
                    items
                        .iter()
                        .filter_map(|item| item["receipt"].as_str())
                        .collect()
                })
                .unwrap_or_default();
            match frame["op"].as_str().unwrap() {
                "messages" => {
                    format!(
                        "messages {} seq {} credit {}",
                        receipts.join("+"),
                        frame["seq"],
                        frame["credit"]
                    )
                }
                "error" => format!(
                    "error {} fatal {}",
                    frame["code"].as_str().unwrap(),
                    frame["fatal"]
                ),
                "status" => format!("status {}", frame["state"].as_str().unwrap()),
                "lease" => format!(
                    "lease {} {}",
                    frame["receipts"],
                    frame["state"].as_str().unwrap()
                ),
                op => op.to_owned(),
            }
        }
        Action::OpenReader { sub, .. } => format!("open reader {sub}"),
        Action::Read { sub, wanted } => format!("read {sub} max {}", wanted.max),
        Action::Ping => "ping!".into(),
        Action::Open { sub, .. } => format!("open {sub}"),
        Action::Pop { sub, max, .. } => format!("pop {sub} max {max}"),
        Action::Wait { sub } => format!("wait {sub}"),
        Action::Forget { sub } => format!("forget {sub}"),
        Action::Settle { kind, items, .. } => {
            let receipts: Vec<&str> = items.iter().map(|item| item.receipt.as_ref()).collect();
            let after = items
                .first()
                .and_then(|item| item.invisible_ms)
                .map(|ms| format!(" {ms}ms"))
                .unwrap_or_default();
            format!("{kind:?} {}{after}", receipts.join("+"))
        }
        Action::Publish { publish, .. } => format!("publish {}", publish.topic),
        Action::Close { code, reason } => format!("close {code} {reason}"),
    }
}

#[test]
fn never_more_messages_than_credit() {
    let mut rig = Rig::subscribed(2, "");
    assert_eq!(rig.take(), ["open 1", "ok", "pop 1 max 2"]);
    rig.popped(&["a", "b"], true);
    assert_eq!(rig.take(), ["messages a+b seq 1 credit 0"]);
    rig.say(r#"{"op":"credit","sub":"s","messages":1}"#);
    assert_eq!(rig.take(), ["pop 1 max 1"]);
    rig.popped(&["c", "d"], true);
    assert_eq!(
        rig.take(),
        ["Suspend d", "messages c seq 2 credit 0"],
        "a message too many goes back uncounted"
    );
    rig.say(r#"{"op":"credit","sub":"s","messages":0}"#);
    assert_eq!(rig.take(), Vec::<String>::new());
}

#[test]
fn credit_given_while_a_pop_is_out_is_kept_for_the_next() {
    let mut rig = Rig::subscribed(1, "");
    rig.say(r#"{"op":"credit","sub":"s","messages":2}"#);
    rig.take();
    rig.popped(&["a"], true);
    assert_eq!(rig.take(), ["messages a seq 1 credit 2", "pop 1 max 2"]);
}

#[test]
fn too_much_credit_is_refused_and_changes_nothing() {
    let mut rig = Rig::subscribed(10_000, "");
    rig.take();
    rig.say(r#"{"op":"credit","sub":"s","messages":1}"#);
    assert_eq!(rig.take(), ["error credit_overflow fatal false"]);
    rig.say(r#"{"op":"subscribe","sub":"u","mode":"group","group":"g","credit":10001}"#);
    assert_eq!(rig.take(), ["error credit_overflow fatal false"]);
    rig.say(r#"{"op":"credit","sub":"u","messages":1}"#);
    assert_eq!(rig.take(), ["error unknown_sub fatal false"]);
}

#[test]
fn in_flight_is_bounded_and_an_ack_makes_room() {
    let mut rig = Rig::subscribed(10, r#","maxInFlight":2"#);
    rig.popped(&["a", "b"], true);
    assert_eq!(
        rig.take(),
        ["open 1", "ok", "pop 1 max 2", "messages a+b seq 1 credit 8"]
    );
    rig.say(r#"{"op":"ack","id":9,"sub":"s","receipts":["a"]}"#);
    let (token, ..) = rig.last_settle();
    assert_eq!(rig.take(), ["Ack a"]);
    rig.settled(token, vec![outcome(Effect::Over)]);
    assert_eq!(rig.take(), ["ok", "pop 1 max 1"]);
}

/// What was settled through another gateway is known to the brokers alone: a full subscription asks them each second,
/// and goes on at once while that brings something.
#[test]
fn a_full_subscription_asks_the_brokers_whether_it_still_is() {
    let mut rig = Rig::subscribed(10, r#","maxInFlight":2"#);
    rig.popped(&["a", "b"], true);
    rig.take();
    rig.wait(999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1);
    let asked = rig.actions.iter().find_map(|action| match action {
        Action::Pop { limit, holds, .. } => Some((*limit, holds.clone())),
        _ => None,
    });
    assert_eq!(asked, Some((2, [(Arc::from("b"), 2)].into())));
    assert_eq!(rig.take(), ["pop 1 max 8"]);
    let full = Batch {
        full: true,
        ..Batch::default()
    };
    rig.event(Event::Popped {
        sub: 1,
        result: Ok(full),
    });
    assert_eq!(rig.take(), Vec::<String>::new(), "no wait: there is enough");
    rig.wait(1_000);
    assert_eq!(rig.take(), ["pop 1 max 8"]);
    rig.popped(&["c"], false);
    assert_eq!(rig.take(), ["wait 1", "messages c seq 2 credit 7"]);
}

/// The brokers may count more than this socket knows of: it asks again as soon as something is settled.
#[test]
fn a_bound_that_only_the_brokers_reach_is_no_busy_loop() {
    let mut rig = Rig::subscribed(10, r#","maxInFlight":5"#);
    rig.popped(&["a"], true);
    rig.take();
    let full = || Event::Popped {
        sub: 1,
        result: Ok(Batch {
            full: true,
            ..Batch::default()
        }),
    };
    rig.event(full());
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1_000);
    assert_eq!(rig.take(), ["pop 1 max 4"]);
    rig.event(full());
    rig.say(r#"{"op":"ack","sub":"s","receipts":["a"]}"#);
    let (token, ..) = rig.last_settle();
    rig.take();
    rig.settled(token, vec![outcome(Effect::Over)]);
    assert_eq!(rig.take(), ["pop 1 max 5"]);
}

#[test]
fn unread_messages_that_retention_deleted_are_told() {
    let mut rig = Rig::subscribed(10, "");
    rig.take();
    let gap = crate::upstream::Gap {
        topic: "t".into(),
        broker: "b".into(),
        queue_id: 3,
        from: 10,
        to: 25,
    };
    rig.event(Event::Popped {
        sub: 1,
        result: Ok(Batch {
            gaps: vec![gap],
            ..Batch::default()
        }),
    });
    assert_eq!(
        rig.frames(),
        [
            json!({"op":"gap","sub":"s","reason":"retention","topic":"t","queue":{"broker":"b","id":3},
                "skipped":15,"from":10,"to":25})
        ]
    );
}

#[test]
fn a_byte_budget_is_kept_but_one_large_message_goes_alone() {
    let mut rig = Rig::subscribed(0, "");
    rig.say(r#"{"op":"credit","sub":"s","messages":5,"bytes":15}"#);
    rig.popped(&["a", "b"], true);
    assert_eq!(
        rig.take(),
        ["open 1", "ok", "pop 1 max 5", "messages a seq 1 credit 4"],
        "10 of 15 bytes; b waits"
    );
    rig.say(r#"{"op":"credit","sub":"s","messages":0,"bytes":5}"#);
    assert_eq!(rig.take(), ["messages b seq 2 credit 3"]);

    let mut rig = Rig::subscribed(0, "");
    rig.say(r#"{"op":"credit","sub":"s","messages":5,"bytes":3}"#);
    rig.popped(&["a"], false);
    assert_eq!(
        rig.take(),
        [
            "open 1",
            "ok",
            "pop 1 max 5",
            "wait 1",
            "messages a seq 1 credit 4"
        ]
    );
}

#[test]
fn nothing_there_waits_and_an_arrival_pops_once_linger_is_over() {
    let mut rig = Rig::subscribed(5, r#","linger":"100ms""#);
    rig.popped(&[], false);
    assert_eq!(rig.take(), ["open 1", "ok", "pop 1 max 5", "wait 1"]);
    rig.wait(1_000);
    rig.event(Event::Arrived { sub: 1 });
    assert_eq!(rig.take(), ["pop 1 max 5"], "the last pop was long ago");
    rig.popped(&["a"], false);
    rig.event(Event::Arrived { sub: 1 });
    assert_eq!(rig.take(), ["wait 1", "messages a seq 1 credit 4"]);
    rig.wait(99);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1);
    assert_eq!(rig.take(), ["pop 1 max 4"]);
}

#[test]
fn leases_are_extended_at_two_thirds_until_processing_took_too_long() {
    let mut rig = Rig::subscribed(1, r#","maxProcessing":"40s""#);
    rig.popped(&["a"], false);
    rig.take();
    rig.wait(19_999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1);
    let (token, ..) = rig.last_settle();
    assert_eq!(
        rig.take(),
        ["Extend a 20000ms"],
        "never beyond the end of processing"
    );
    rig.settled(
        token,
        vec![outcome(Effect::Extended { visible_ms: 20_000 })],
    );
    rig.wait(20_000);
    assert_eq!(rig.take(), [r#"lease ["a"] limit"#]);
}

#[test]
fn without_auto_extend_a_lease_just_ends() {
    let mut rig = Rig::subscribed(1, r#","autoExtend":false"#);
    rig.popped(&["a"], false);
    rig.take();
    rig.wait(20_000);
    rig.wait(10_000);
    assert_eq!(rig.take(), [r#"lease ["a"] expired"#]);
}

#[test]
fn an_extension_that_finds_the_lease_gone_says_lost_and_a_failed_one_is_repeated() {
    let mut rig = Rig::subscribed(2, "");
    rig.popped(&["a", "b"], false);
    rig.wait(20_000);
    let (token, _, receipts) = rig.last_settle();
    rig.take();
    let outcomes = receipts
        .iter()
        .map(|name| {
            outcome(if name == "a" {
                Effect::Gone
            } else {
                Effect::Unchanged
            })
        })
        .collect();
    rig.settled(token, outcomes);
    assert_eq!(rig.take(), [r#"lease ["a"] lost"#]);
    rig.wait(1_000);
    assert_eq!(rig.take(), ["Extend b 30000ms"]);
}

#[test]
fn a_settled_message_is_not_extended_and_its_own_answer_wins_over_a_lost_extension() {
    let mut rig = Rig::subscribed(1, "");
    rig.popped(&["a"], false);
    rig.wait(20_000);
    let (extension, ..) = rig.last_settle();
    rig.say(r#"{"op":"ack","id":2,"sub":"s","receipts":["a"]}"#);
    let (ack, ..) = rig.last_settle();
    rig.take();
    rig.settled(extension, vec![outcome(Effect::Gone)]);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.settled(ack, vec![outcome(Effect::Over)]);
    assert_eq!(rig.take(), ["ok"]);
    rig.wait(24_000);
    assert_eq!(rig.take(), Vec::<String>::new());
}

#[test]
fn requests_about_one_receipt_keep_their_order() {
    let mut rig = Rig::subscribed(2, "");
    rig.popped(&["a", "b"], false);
    rig.take();
    rig.say("{\"op\":\"extend\",\"id\":2,\"sub\":\"s\",\"receipts\":[\"a\"]}\n{\"op\":\"ack\",\"id\":3,\"sub\":\"s\",\"receipts\":[\"a\"]}");
    rig.say(r#"{"op":"ack","id":4,"sub":"s","receipts":["b"]}"#);
    let (extend, ..) = rig.last_settle();
    assert_eq!(rig.take(), ["Extend a"]);
    rig.settled(
        extend,
        vec![outcome(Effect::Extended { visible_ms: 30_000 })],
    );
    assert_eq!(rig.take(), ["ok", "Ack a", "Ack b"]);
}

#[test]
fn one_reply_an_id_and_a_failure_is_told_without_one() {
    let mut rig = Rig::subscribed(3, "");
    rig.popped(&["a", "b"], false);
    rig.take();
    rig.say(r#"{"op":"ack","sub":"s","receipts":["a"]}"#);
    let (token, ..) = rig.last_settle();
    rig.take();
    rig.settled(token, vec![outcome(Effect::Over)]);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.say(r#"{"op":"ack","sub":"s","receipts":["a","b"]}"#);
    let (token, ..) = rig.last_settle();
    rig.take();
    rig.settled(token, vec![outcome(Effect::Over), outcome(Effect::Gone)]);
    let frames = rig.frames();
    assert_eq!(
        (frames.len(), &frames[0]["code"], &frames[0]["sub"]),
        (1, &json!("receipt_gone"), &json!("s"))
    );
    assert_eq!(frames[0]["results"].as_array().unwrap().len(), 2);
}

#[test]
fn unsubscribe_gives_back_what_was_delivered_and_suspends_the_rest() {
    let mut rig = Rig::subscribed(2, r#","maxInFlight":9"#);
    rig.say(r#"{"op":"credit","sub":"s","messages":0,"bytes":10}"#);
    rig.popped(&["a", "b"], true);
    rig.take();
    rig.say(r#"{"op":"unsubscribe","id":7,"sub":"s"}"#);
    let (token, ..) = rig.last_settle();
    assert_eq!(rig.take(), ["Suspend b", "forget 1", "Release a 0ms"]);
    rig.settled(token, vec![outcome(Effect::Released)]);
    assert_eq!(rig.frames(), [json!({"op":"ok","id":7,"released":1})]);
    rig.say(r#"{"op":"unsubscribe","id":8,"sub":"s"}"#);
    assert_eq!(rig.take(), ["error unknown_sub fatal false"]);
}

#[test]
fn a_clean_end_releases_at_once_and_another_after_the_resume_window() {
    for (clean, release) in [(true, "Release a 0ms"), (false, "Release a 5000ms")] {
        let mut rig = Rig::subscribed(3, "");
        rig.popped(&["a", "b", "c"], true);
        rig.say(r#"{"op":"ack","sub":"s","receipts":["c"]}"#);
        let (token, ..) = rig.last_settle();
        rig.take();
        rig.event(Event::Ended {
            clean,
            unwritten: HashSet::from([Arc::from("b")]),
        });
        assert_eq!(
            rig.take(),
            ["Suspend b", "forget 1", release],
            "c is being acked and left alone"
        );
        assert!(!rig.session.is_done());
        for token in [token, token + 1, token + 2] {
            rig.settled(token, vec![outcome(Effect::Over)]);
        }
        assert!(rig.session.is_done());
        assert_eq!(rig.take(), Vec::<String>::new());
    }
}

/// An extension on its way could undo the release that overtakes it: the release waits for its answer.
#[test]
fn a_lease_that_is_being_extended_at_the_end_is_released_after_the_answer() {
    for (effect, expected) in [
        (
            Effect::Extended { visible_ms: 30_000 },
            vec!["Release a 5000ms"],
        ),
        (Effect::Unchanged, vec!["Release a 5000ms"]),
        (Effect::Gone, vec![]),
    ] {
        let mut rig = Rig::subscribed(2, "");
        rig.popped(&["a"], false);
        rig.wait(20_000);
        let (token, kind, _) = rig.last_settle();
        assert_eq!(kind, SettleKind::Extend);
        rig.take();
        rig.event(Event::Ended {
            clean: false,
            unwritten: HashSet::new(),
        });
        assert_eq!(rig.take(), ["forget 1"]);
        rig.settled(token, vec![outcome(effect)]);
        assert_eq!(rig.take(), expected, "{effect:?}");
    }
}

#[test]
fn adopted_receipts_count_as_in_flight_and_are_extended() {
    let mut rig = Rig::new();
    rig.say(r#"{"op":"subscribe","id":1,"sub":"s","mode":"group","group":"g","credit":5,"maxInFlight":2,"resume":{"receipts":["a","b"]}}"#);
    let opened = Opened {
        adopted: vec![Adopted {
            receipt: "a".into(),
            broker: "b".into(),
        }],
        gone: vec!["b".into()],
        lag: 2,
        invisible_ms: 30_000,
    };
    rig.event(Event::Opened {
        sub: 1,
        result: Ok(opened),
    });
    let frames: Vec<Value> = rig.frames();
    assert_eq!(
        frames,
        [json!({"op":"ok","id":1,"sub":"s","adopted":["a"],"gone":["b"],"lag":2})]
    );
    rig.popped(&[], false);
    rig.wait(20_000);
    assert_eq!(rig.take(), ["wait 1", "Extend a 30000ms"]);
}

#[test]
fn a_refused_subscribe_leaves_the_name_free() {
    let mut rig = Rig::new();
    rig.say(r#"{"op":"subscribe","id":1,"sub":"s","mode":"group","group":"g"}"#);
    let refusal = Refusal {
        code: "group_not_found",
        detail: String::new(),
        retryable: false,
    };
    rig.event(Event::Opened {
        sub: 1,
        result: Err(refusal),
    });
    assert_eq!(
        rig.take(),
        ["open 1", "forget 1", "error group_not_found fatal true"]
    );
    for (name, expected) in [
        ("s", "open 2"),
        ("s", "error already_subscribed fatal false"),
        ("t", "open 3"),
        ("u", "open 4"),
        ("v", "error too_many_subscriptions fatal false"),
    ] {
        rig.say(&format!(
            r#"{{"op":"subscribe","id":1,"sub":"{name}","mode":"group","group":"g"}}"#
        ));
        assert_eq!(rig.take(), [expected], "{name}");
    }
}

#[test]
fn pause_is_told_once_and_asked_about_again() {
    let mut rig = Rig::subscribed(1, "");
    rig.take();
    let paused = || Event::Popped {
        sub: 1,
        result: Ok(Batch {
            paused: true,
            ..Batch::default()
        }),
    };
    rig.event(paused());
    assert_eq!(rig.take(), ["status paused"]);
    rig.wait(1_000);
    assert_eq!(rig.take(), ["pop 1 max 1"]);
    rig.event(paused());
    rig.wait(1_000);
    rig.popped(&["a"], false);
    assert_eq!(
        rig.take(),
        ["pop 1 max 1", "status active", "messages a seq 1 credit 0"]
    );
}

#[test]
fn a_pop_for_which_there_is_no_memory_is_repeated_and_tells_nothing() {
    let mut rig = Rig::subscribed(1, "");
    rig.take();
    let partial = Batch {
        partial: vec!["b".into()],
        more: true,
        ..Batch::default()
    };
    rig.event(Event::Popped {
        sub: 1,
        result: Ok(partial),
    });
    assert_eq!(rig.take(), ["status partial", "pop 1 max 1"]);
    rig.event(Event::NotPopped { sub: 1 });
    assert_eq!(rig.take(), ["pop 1 max 1"]);
}

#[test]
fn a_failed_pop_is_told_once_and_repeated_unless_it_is_final() {
    let refusal = |code, retryable| Event::Popped {
        sub: 1,
        result: Err(Refusal {
            code,
            detail: String::new(),
            retryable,
        }),
    };
    let mut rig = Rig::subscribed(1, "");
    rig.take();
    rig.event(refusal("too_many_inflight", true));
    assert_eq!(rig.take(), ["error too_many_inflight fatal false"]);
    rig.wait(500);
    rig.event(refusal("too_many_inflight", true));
    assert_eq!(rig.take(), ["pop 1 max 1"]);
    rig.wait(1_000);
    rig.event(refusal("broker_unavailable", true));
    assert_eq!(rig.take(), ["pop 1 max 1", "status partial"]);
    rig.wait(2_000);
    rig.event(refusal("group_not_found", false));
    assert_eq!(rig.take(), ["pop 1 max 1", "status deleted", "forget 1"]);

    let mut rig = Rig::subscribed(1, "");
    rig.take();
    rig.event(refusal("group_mode_conflict", false));
    assert_eq!(
        rig.take(),
        ["forget 1", "error group_mode_conflict fatal true"]
    );
}

#[test]
fn a_silent_peer_is_pinged_and_then_closed_with_4000() {
    let mut rig = Rig::new();
    rig.wait(24_999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.wait(1);
    assert_eq!(rig.take(), ["ping!", "ping"]);
    rig.event(Event::Traffic);
    rig.wait(25_000);
    assert_eq!(
        rig.take(),
        ["ping!", "ping"],
        "a pong of the protocol is enough"
    );
    rig.wait(10_000);
    assert_eq!(rig.take(), ["close 4000 heartbeat"]);
}

#[test]
fn sends_with_one_ordering_key_go_one_after_the_other() {
    let mut rig = Rig::new();
    let publish = |topic: &str, key: &str| {
        format!(
            r#"{{"op":"publish","id":"{topic}","topic":"{topic}","message":{{"text":"x"{key}}}}}"#
        )
    };
    let key = r#","orderingKey":"k""#;
    rig.say(
        &[
            publish("t", key),
            publish("t", key),
            publish("u", key),
            publish("t", ""),
        ]
        .join("\n"),
    );
    assert_eq!(rig.take(), ["publish t", "publish u", "publish t"]);
    let members = std::collections::BTreeMap::from([("offset".to_owned(), json!(7))]);
    rig.event(Event::Published {
        token: 1,
        result: Ok(members),
    });
    assert_eq!(rig.take(), ["ok", "publish t"]);
    let refusal = Refusal {
        code: "topic_not_found",
        detail: "d".into(),
        retryable: false,
    };
    rig.event(Event::Published {
        token: 4,
        result: Err(refusal),
    });
    assert_eq!(rig.take(), ["error topic_not_found fatal false"]);
}

#[test]
fn drain_stops_pops_suspends_what_is_unsent_and_closes_when_all_is_settled() {
    let mut rig = Rig::subscribed(5, "");
    rig.popped(&["a"], true);
    rig.event(Event::Written {
        bytes: 10_000,
        frames: 9,
    });
    rig.take();
    let deadline = rig.now + Duration::from_secs(20);
    rig.event(Event::Drain {
        deadline,
        deadline_text: "T".into(),
        reconnect_within: "5s".into(),
    });
    rig.event(Event::Written {
        bytes: 10_000,
        frames: 1,
    });
    assert_eq!(rig.take(), ["drain"]);
    rig.popped(&["b"], true);
    assert_eq!(rig.take(), ["Suspend b"], "a pop that was under way");
    rig.say(r#"{"op":"subscribe","id":1,"sub":"x","mode":"group","group":"g"}"#);
    assert_eq!(rig.take(), ["error draining fatal false"]);
    rig.say(r#"{"op":"ack","id":2,"sub":"s","receipts":["a"]}"#);
    let (ack, ..) = rig.last_settle();
    rig.settled(ack - 1, vec![outcome(Effect::Released)]);
    rig.settled(ack, vec![outcome(Effect::Over)]);
    rig.event(Event::Written {
        bytes: 10_000,
        frames: 9,
    });
    assert_eq!(rig.take(), ["Ack a", "ok", "close 1012 restart"]);
}

#[test]
fn drain_ends_at_its_deadline() {
    let mut rig = Rig::subscribed(5, "");
    rig.popped(&["a"], true);
    let deadline = rig.now + Duration::from_secs(20);
    rig.event(Event::Drain {
        deadline,
        deadline_text: "T".into(),
        reconnect_within: "5s".into(),
    });
    rig.take();
    rig.wait(20_000);
    assert!(rig.take().contains(&"close 1012 restart".to_owned()));
    assert!(!rig.session.is_done(), "the socket has not ended yet");
}

#[test]
fn a_malformed_frame_closes_with_4500_and_later_requests_are_ignored() {
    let mut rig = Rig::new();
    rig.event(Event::Malformed("not JSON"));
    rig.say(r#"{"op":"ping","id":1}"#);
    assert_eq!(rig.take(), ["close 4500 not JSON"]);
}

#[test]
fn ping_is_answered_with_what_it_carried() {
    let mut rig = Rig::new();
    rig.say(r#"{"op":"ping","t":5}"#);
    assert_eq!(rig.frames(), [json!({"op":"pong","t":5})]);
}

#[test]
fn too_many_open_requests_hold_the_peer_back() {
    let mut rig = Rig::subscribed(0, "");
    for n in 0..256 {
        assert!(rig.session.can_read(), "{n}");
        rig.say(&format!(
            r#"{{"op":"ack","id":{n},"sub":"s","receipts":["r"]}}"#
        ));
    }
    assert!(!rig.session.can_read());
}
