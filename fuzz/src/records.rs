//! Stored records, their properties, and the batches that producers send.

use wire::inflate::inflate;
use wire::message::{self, Properties, PropertiesView, RecordScan, RecordView};

/// First byte 0: a piece of the log; 1: properties; 2: a batch; 3: a compressed body.
pub(crate) fn run(data: &[u8]) {
    match data {
        [0, log @ ..] => records(log),
        [1, text @ ..] => properties(text),
        [2, body @ ..] => batch(body),
        [3, packed @ ..] => {
            let limit = 1 << 16;
            assert!(inflate(packed, limit, "body").map_or(0, |whole| whole.len()) <= limit);
        }
        _ => {}
    }
}

fn records(bytes: &[u8]) {
    let _kind = RecordScan::at(bytes);
    for view in RecordView::each(bytes).flatten() {
        let _intact = view.check_crc();
        let mut again = Vec::new();
        // A V2 record may hold a topic that fits V1; else the bytes come out as they were.
        assert!(message::encode_record(&view.fields(), &mut again).is_ok());
        assert_eq!(
            RecordView::parse(&again).map(|r| r.topic).ok(),
            Some(view.topic)
        );
        properties(view.properties_bytes);
    }
    let mut copy = bytes.to_vec();
    message::patch_record(&mut copy, 1, 2, 3);
    assert_eq!(copy.len(), bytes.len());
}

fn properties(bytes: &[u8]) {
    let view = PropertiesView::new(bytes);
    let owned = view.to_owned();
    // What is not UTF-8 is shown with replacement characters, and not found by them.
    if let Ok(text) = std::str::from_utf8(bytes) {
        for (name, value) in owned.iter() {
            assert_eq!(view.get(name), Some(value));
        }
        assert_eq!(Properties::parse(text), owned);
        assert_eq!(Properties::parse(&owned.encode()), owned);
    }
}

fn batch(bytes: &[u8]) {
    let Ok(entries) = message::decode_batch(bytes) else {
        return;
    };
    match message::encode_batch(entries.iter().copied()) {
        Ok(again) => assert_eq!(message::decode_batch(&again).ok(), Some(entries)),
        Err(error) => panic!("a batch that was read cannot be written: {error}"),
    }
}
