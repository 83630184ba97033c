//! Record layout: positions, round trips, cuts.

use super::*;

fn fields<'a>(topic: &'a str, born_host: &str, store_host: &str) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id: 3,
        flag: 7,
        sys_flag: 0x301,
        born_ts_ms: 1_700_000_000_000,
        born_host: born_host.parse().unwrap(),
        store_host: store_host.parse().unwrap(),
        reconsume_times: 2,
        prepared_offset: 99,
        body: b"hello",
        properties: b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
    }
}

#[test]
fn records_come_back_as_they_were() {
    let long = "x".repeat(200);
    for topic in ["T", "", &"t".repeat(127), &long, "\u{4e2d}"] {
        for (born, store) in [
            ("1.2.3.4:5", "127.0.0.1:10911"),
            ("[::1]:65535", "1.1.1.1:1"),
            ("1.1.1.1:0", "[2001::2]:9"),
            ("[::1]:1", "[::2]:2"),
        ] {
            let given = fields(topic, born, store);
            let mut bytes = Vec::new();
            encode_record(&given, &mut bytes).unwrap();
            assert_eq!(bytes.len(), record_size(&given));
            patch_record(&mut bytes, 11, 22, 33);
            let view = RecordView::parse_checked(&bytes).unwrap();
            assert_eq!(
                (view.queue_offset, view.physical_offset, view.store_ts_ms),
                (11, 22, 33)
            );
            assert_eq!((view.topic, view.body), (topic, b"hello".as_slice()));
            assert_eq!(
                (view.born_host, view.store_host),
                (given.born_host, given.store_host)
            );
            assert_eq!(
                (view.tags(), view.keys(), view.uniq_key()),
                (Some("a"), Some("k1 k2"), Some("U"))
            );
            assert_eq!(
                (view.v2, view.reconsume_times, view.prepared_offset),
                (topic.len() > 127, 2, 99)
            );
            let mut again = Vec::new();
            encode_record(&view.fields(), &mut again).unwrap();
            patch_record(&mut again, 11, 22, 33);
            assert_eq!(again, bytes);
            assert_eq!(RecordScan::at(&bytes), RecordScan::Record(bytes.len()));
        }
    }
}

#[test]
fn fixed_positions_are_apaches() {
    let mut bytes = Vec::new();
    encode_record(&fields("T", "1.2.3.4:5", "127.0.0.1:10911"), &mut bytes).unwrap();
    assert_eq!(bytes.get(4..8).unwrap(), [0xda, 0xa3, 0x20, 0xa7]);
    assert_eq!(bytes.get(48..56).unwrap(), [1, 2, 3, 4, 0, 0, 0, 5]);
    assert_eq!(
        bytes.get(84..93).unwrap(),
        [0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o']
    );
    assert_eq!(
        bytes.len(),
        RECORD_MIN_BYTES + 1 + 5 + fields("T", "1.1.1.1:1", "1.1.1.1:1").properties.len()
    );
}

#[test]
fn cuts_and_damage_are_errors() {
    let mut bytes = Vec::new();
    encode_record(&fields("T", "1.2.3.4:5", "[::1]:10911"), &mut bytes).unwrap();
    for cut in 0..bytes.len() {
        assert!(
            RecordView::parse(bytes.get(..cut).unwrap()).is_err(),
            "{cut}"
        );
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            *damaged.get_mut(at).unwrap() ^= 1 << bit;
            assert!(RecordView::parse(&damaged).is_err() || at >= 8, "{at}");
        }
    }
    *bytes.get_mut(101).unwrap() ^= 1;
    assert!(matches!(
        RecordView::parse_checked(&bytes),
        Err(WireError::Checksum { .. }) | Err(WireError::Malformed { .. })
    ));
}

#[test]
fn too_long_parts_are_refused() {
    let topic = "t".repeat(40_000);
    let properties = vec![b'p'; 32_768];
    let mut out = Vec::new();
    assert!(encode_record(&fields(&topic, "1.1.1.1:1", "1.1.1.1:1"), &mut out).is_err());
    let mut long = fields("T", "1.1.1.1:1", "1.1.1.1:1");
    long.properties = &properties;
    assert!(encode_record(&long, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn the_end_of_the_log_is_seen() {
    assert_eq!(RecordScan::at(&[0; 16]), RecordScan::End);
    assert_eq!(RecordScan::at(&[0, 0, 0]), RecordScan::End);
    let mut blank = 500i32.to_be_bytes().to_vec();
    blank.extend(MAGIC_BLANK.to_be_bytes());
    assert_eq!(RecordScan::at(&blank), RecordScan::Blank(500));
}

#[test]
fn a_body_of_several_records_is_walked() {
    let mut bytes = Vec::new();
    for topic in ["A", "B", "C"] {
        encode_record(&fields(topic, "1.1.1.1:1", "1.1.1.1:1"), &mut bytes).unwrap();
    }
    let topics: Vec<_> = RecordView::each(&bytes).map(|v| v.unwrap().topic).collect();
    assert_eq!(topics, ["A", "B", "C"]);
    bytes.pop();
    assert!(RecordView::each(&bytes).last().unwrap().is_err());
}
