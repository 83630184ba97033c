//! What a put-back and a dead letter look like.

use std::net::Ipv4Addr;

use super::*;
use crate::pop::lease::{DeadCause, Hold};
use wire::message::record::{encode_record, patch_record};

fn host() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 10_911))
}

fn stored(topic: &str, reconsume_times: i32, properties: &str) -> Vec<u8> {
    let fields = RecordFields {
        topic,
        queue_id: 3,
        flag: 7,
        sys_flag: 1,
        born_ts_ms: 5,
        born_host: host(),
        store_host: host(),
        reconsume_times,
        prepared_offset: 0,
        body: b"body",
        properties: properties.as_bytes(),
    };
    let mut record = Vec::new();
    encode_record(&fields, &mut record).unwrap();
    patch_record(&mut record, 9, 4_000, 1_234);
    record
}

fn lease() -> Lease {
    Lease {
        id: LeaseId::new(1, 77),
        pop_time_ms: 500,
        visible_at_ms: 600,
        attempt: 1,
        start: 9,
        hold: Hold::Held,
        member: None,
    }
}

fn again(put_back: &PutBack, old: &[u8]) -> Vec<u8> {
    let old = RecordView::parse(old).unwrap();
    let mut record = Vec::new();
    encode_record(&put_back.fields(&old, host()), &mut record).unwrap();
    record
}

#[test]
fn a_retry_keeps_the_message_and_names_the_lease_it_ends() {
    let old = stored(
        "T",
        0,
        "TAGS\u{1}a\u{2}UNIQ_KEY\u{1}U1\u{2}k\u{1}v\u{2}WAIT\u{1}true\u{2}",
    );
    let fault = Fault {
        code: Some("E1".into()),
        reason: Some("why".into()),
        at_ms: 550,
    };
    let fate = Fate::Retry {
        counted: true,
        fault: Some(fault),
    };
    let put_back = build(
        "g",
        "T",
        &RecordView::parse(&old).unwrap(),
        &lease(),
        &fate,
        None,
        600,
    )
    .unwrap();
    let record = again(&put_back, &old);
    let view = RecordView::parse(&record).unwrap();
    assert_eq!(
        (view.topic, view.queue_id, view.reconsume_times, view.body),
        ("%RETRY%g+T", 0, 1, &b"body"[..])
    );
    assert_eq!((view.flag, view.sys_flag, view.born_ts_ms), (7, 1, 5));
    let expected = [
        ("TAGS", "a"),
        ("UNIQ_KEY", "U1"),
        ("k", "v"),
        ("RETRY_TOPIC", "T"),
        ("ORIGIN_GROUP", "g"),
        ("1ST_POP_TIME", "500"),
    ];
    for (name, value) in expected.into_iter().chain([
        ("__ORIGIN", "3 9 1234"),
        ("__ERR_CODE", "E1"),
        ("__ERR_REASON", "why"),
    ]) {
        assert_eq!(view.property(name), Some(value), "{name}");
    }
    assert_eq!(view.property("WAIT"), None);
    let (group, end, event) = end_of(&view).unwrap();
    assert_eq!(
        (group, end.id, end.queue_id, end.offset, end.topic),
        ("g", lease().id, 3, 9, "T")
    );
    assert_eq!(
        event,
        Event::Returned {
            offset: 9,
            id: lease().id,
            dead: false,
            at_ms: 0
        }
    );
}

#[test]
fn a_second_retry_keeps_the_first_origin_and_a_suspended_one_its_count() {
    let old = stored(
        "%RETRY%g+T",
        1,
        "RETRY_TOPIC\u{1}T\u{2}__ORIGIN\u{1}0 1 2\u{2}1ST_POP_TIME\u{1}400\u{2}__LEASE\u{1}1 2 3 T\u{2}",
    );
    let fate = Fate::Retry {
        counted: false,
        fault: None,
    };
    let put_back = build(
        "g",
        "%RETRY%g+T",
        &RecordView::parse(&old).unwrap(),
        &lease(),
        &fate,
        None,
        600,
    )
    .unwrap();
    let record = again(&put_back, &old);
    let view = RecordView::parse(&record).unwrap();
    assert_eq!((view.topic, view.reconsume_times), ("%RETRY%g+T", 1));
    assert_eq!(
        (view.property("__ORIGIN"), view.property("1ST_POP_TIME")),
        (Some("0 1 2"), Some("400"))
    );
    assert_eq!(end_of(&view).unwrap().1.topic, "%RETRY%g+T");
}

#[test]
fn a_dead_letter_says_where_it_came_from_and_why() {
    let old = stored("T", 2, "UNIQ_KEY\u{1}U1\u{2}");
    let fate = Fate::Dead {
        cause: DeadCause::MaxAttempts,
        fault: None,
    };
    let put_back = build(
        "g",
        "T",
        &RecordView::parse(&old).unwrap(),
        &lease(),
        &fate,
        None,
        600,
    )
    .unwrap();
    let record = again(&put_back, &old);
    let view = RecordView::parse(&record).unwrap();
    assert_eq!((view.topic, view.reconsume_times), ("%DLQ%g", 3));
    for (name, value) in [
        ("DLQ_ORIGIN_TOPIC", "T"),
        ("DLQ_ORIGIN_MESSAGE_ID", "U1"),
        ("__DEAD_CAUSE", "maxAttempts"),
        ("__DEAD_AT", "600"),
    ] {
        assert_eq!(view.property(name), Some(value), "{name}");
    }
    assert!(matches!(
        end_of(&view).unwrap().2,
        Event::Returned { dead: true, .. }
    ));
}

#[test]
fn long_properties_lose_words_before_the_lease() {
    let old = stored(
        "T",
        0,
        &format!(
            "big\u{1}{}\u{2}MSG_REGION\u{1}DefaultRegion\u{2}",
            "x".repeat(32_300)
        ),
    );
    let fault = Fault {
        code: None,
        reason: Some("y".repeat(2_000)),
        at_ms: 550,
    };
    let fate = Fate::Retry {
        counted: true,
        fault: Some(fault),
    };
    let put_back = build(
        "g",
        "T",
        &RecordView::parse(&old).unwrap(),
        &lease(),
        &fate,
        None,
        600,
    )
    .unwrap();
    let record = again(&put_back, &old);
    let view = RecordView::parse(&record).unwrap();
    assert_eq!(view.property("__ERR_REASON"), None);
    assert_eq!(view.property("big").unwrap().len(), 32_300);
    assert!(end_of(&view).is_some());
}

#[test]
fn ordinary_messages_end_nothing() {
    let record = stored("T", 0, "__LEASE\u{1}1 2 3 T\u{2}ORIGIN_GROUP\u{1}g\u{2}");
    assert!(end_of(&RecordView::parse(&record).unwrap()).is_none());
    for text in ["", "1", "1 2 3", "a 2 3 T", "-1 2 3 T"] {
        assert_eq!(LeaseEnd::parse(text), None);
    }
}
