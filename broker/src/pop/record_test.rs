//! Records of lease facts read back, foreign and broken ones are passed over.

use super::*;

fn events(group: &str, topic: &str, queue_id: i32, event: Event) -> Option<Record> {
    Some(Record::Events {
        group: group.into(),
        events: vec![QueueEvent {
            topic: topic.into(),
            queue_id,
            event,
        }],
    })
}

#[test]
fn a_check_point_reads_back_and_keeps_the_keys_of_apache() {
    let point = CheckPoint {
        group: "g",
        topic: "T",
        queue_id: 1,
        epoch: 2,
        pop_time_ms: 1_795_975_491_417,
        invisible_ms: 11_000,
        next: 9,
        messages: &[(5, 1), (7, 3)],
        member: Some(&"curl".into()),
    };
    let draft = point.draft("broker-a").unwrap();
    assert_eq!(draft.key, "T@1@5@g@1795975491417@broker-a@ck");
    let text = String::from_utf8(draft.body.clone()).unwrap();
    assert!(text.starts_with(
        r#"{"bm":0,"bn":"broker-a","c":"g","d":[0,2],"it":11000,"n":2,"pt":1795975491417,"q":1,"ro":0,"so":5,"t":"T""#
    ));
    assert_eq!(
        decode(draft.tag, &draft.body, 400),
        events("g", "T", 1, point.event(400))
    );
}

#[test]
fn acks_of_one_check_point_take_the_form_of_apache() {
    let id = LeaseId::new(1, 400);
    let ack = |offset| Change {
        offset,
        id,
        what: What::Acked,
    };
    let mut part = Part {
        topic: "T".into(),
        queue_id: 0,
        check_point: Some((5, 77)),
        changes: vec![ack(6)],
    };
    let draft = settle_draft("g", "b", 90, std::slice::from_ref(&part)).unwrap();
    assert_eq!(
        (draft.tag, draft.key.as_str()),
        (TAG_ACK, "T@0@6@g@77@b@ack")
    );
    let settled = |changes| events("g", "T", 0, Event::Settled { at_ms: 90, changes });
    assert_eq!(decode(draft.tag, &draft.body, 1), settled(vec![ack(6)]));
    part.changes.push(ack(8));
    let draft = settle_draft("g", "b", 90, &[part]).unwrap();
    assert_eq!(draft.tag, TAG_BATCH_ACK);
    assert_eq!(
        decode(draft.tag, &draft.body, 1),
        settled(vec![ack(6), ack(8)])
    );
}

#[test]
fn every_kind_of_change_reads_back() {
    let fault = Fault {
        code: Some("E1".into()),
        reason: Some("x\n\"y".into()),
        at_ms: 50,
    };
    let silent = Fault {
        at_ms: 51,
        ..Fault::default()
    };
    let kinds = [
        What::Acked,
        What::Visible(70),
        What::Adopted(71, "other".into()),
        What::Nacked(80, fault.clone()),
        What::Nacked(80, silent.clone()),
        What::Suspended,
        What::Dead(DeadCause::MaxAttempts, silent),
        What::Dead(DeadCause::Rejected, fault),
        What::Dropped,
    ];
    let changes: Vec<Change> = kinds
        .into_iter()
        .zip(0..)
        .map(|(what, offset)| Change {
            offset,
            id: LeaseId(offset + 9),
            what,
        })
        .collect();
    let part = |topic: &str, changes: &[Change]| Part {
        topic: topic.into(),
        queue_id: 2,
        check_point: None,
        changes: changes.to_vec(),
    };
    let draft = settle_draft(
        "g",
        "b",
        60,
        &[part("T", &changes), part("R", &changes[..1])],
    )
    .unwrap();
    let event = |topic: &str, changes: &[Change]| QueueEvent {
        topic: topic.into(),
        queue_id: 2,
        event: Event::Settled {
            at_ms: 60,
            changes: changes.to_vec(),
        },
    };
    let expected = Record::Events {
        group: "g".into(),
        events: vec![event("T", &changes), event("R", &changes[..1])],
    };
    assert_eq!(decode(draft.tag, &draft.body, 1), Some(expected));
}

#[test]
fn positions_and_deletions_read_back() {
    let draft = position_draft("g", "T", 3, 40, true, 9).unwrap();
    assert_eq!(
        decode(draft.tag, &draft.body, 1),
        events(
            "g",
            "T",
            3,
            Event::Positioned {
                next: 40,
                void: true,
                at_ms: 9
            }
        )
    );
    let draft = forget_draft(Some("g"), None, 9).unwrap();
    assert_eq!(
        decode(draft.tag, &draft.body, 1),
        Some(Record::Forget {
            group: Some("g".into()),
            topic: None
        })
    );
}

#[test]
fn foreign_and_broken_records_are_passed_over() {
    let apache = br#"{"bm":0,"bn":"b","c":"g","d":[0,1],"it":11000,"n":2,"pt":1,"q":0,"reviveTime":2,"ro":0,"so":0,"t":"T"}"#;
    assert_eq!(decode(TAG_CK, apache, 1), None);
    for tag in [
        TAG_CK,
        TAG_ACK,
        TAG_BATCH_ACK,
        TAG_SETTLE,
        TAG_POSITION,
        TAG_FORGET,
        "other",
    ] {
        for body in [&b""[..], b"{", b"[]", b"\xff", br#"{"so":-1}"#] {
            assert_eq!(decode(tag, body, 1), None);
        }
    }
}
