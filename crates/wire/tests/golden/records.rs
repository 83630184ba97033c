//! Message records, POP receipts and batches.

use serde_json::Value;
use wire::headers::pop;
use wire::message::{Properties, RecordScan, RecordView, encode_record, patch_record};

use crate::{decode, frames, golden, hex};

#[test]
fn message_bodies_are_records() {
    let mut seen = 0;
    for frame in frames()
        .iter()
        .filter(|f| !f.request && [11, 12, 33, 361, 200_050, 200_052].contains(&f.asked))
    {
        let cmd = decode(frame);
        if cmd.code == 0 {
            for view in RecordView::each(&cmd.body.to_bytes()) {
                view.unwrap_or_else(|e| panic!("{}: {e}", frame.at))
                    .check_crc()
                    .unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn pop_answers_agree_with_their_messages() {
    for frame in frames().iter().filter(|f| !f.request && f.asked == 200_050) {
        let cmd = decode(frame);
        let pop: pop::PopResponse = cmd.header().unwrap();
        let infos = wire::receipt::parse_message_offsets(
            pop.msg_offset_info.as_deref().unwrap_or_default(),
        )
        .unwrap();
        wire::receipt::parse_start_offsets(pop.start_offset_info.as_deref().unwrap_or_default())
            .unwrap();
        let count: usize = infos.iter().map(|i| i.offsets.len()).sum();
        let body = cmd.body.to_bytes();
        assert_eq!(count, RecordView::each(&body).count(), "{}", frame.at);
        for record in RecordView::each(&body) {
            if let Some(receipt) = record.unwrap().property("POP_CK") {
                assert_eq!(
                    wire::receipt::Receipt::parse(receipt).unwrap().encode(),
                    receipt
                );
            }
        }
    }
    for frame in frames()
        .iter()
        .filter(|f| f.request && [200_051, 200_053].contains(&f.asked))
    {
        if frame.source.starts_with("java") {
            let cmd = decode(frame);
            let text = cmd.ext.get("extraInfo").unwrap();
            assert_eq!(wire::receipt::Receipt::parse(text).unwrap().encode(), text);
        }
    }
}

#[test]
fn batches_hold_their_messages() {
    for frame in frames()
        .iter()
        .filter(|f| f.request && f.asked == 320 && f.source.starts_with("java"))
    {
        let cmd = decode(frame);
        let bytes = cmd.body.to_bytes();
        let entries =
            wire::message::decode_batch(&bytes).unwrap_or_else(|e| panic!("{}: {e}", frame.at));
        let again = wire::message::encode_batch(entries.iter().copied()).unwrap();
        assert_eq!(again, bytes, "{}", frame.at);
    }
}

#[test]
fn stored_records_match_and_are_written_byte_for_byte() {
    let records: Vec<Value> =
        serde_json::from_slice(&std::fs::read(golden("records.json")).unwrap()).unwrap();
    for record in &records {
        let bytes = hex(record["raw"].as_str().unwrap());
        let view = RecordView::parse_checked(&bytes).unwrap();
        let at = format!("record at {}", view.physical_offset);
        let number = |name: &str| record[name].as_i64().unwrap();
        let text = |name: &str| record[name].as_str();
        assert_eq!(view.topic, text("topic").unwrap(), "{at}");
        assert_eq!(i64::from(view.queue_id), number("queueId"), "{at}");
        assert_eq!(view.queue_offset, number("queueOffset"), "{at}");
        assert_eq!(view.physical_offset, number("physicalOffset"), "{at}");
        assert_eq!(view.total_size() as i64, number("size"), "{at}");
        assert_eq!(i64::from(view.flag), number("flag"), "{at}");
        assert_eq!(i64::from(view.sys_flag), number("sysFlag"), "{at}");
        assert_eq!(view.born_ts_ms, number("bornTimestamp"), "{at}");
        assert_eq!(view.store_ts_ms, number("storeTimestamp"), "{at}");
        assert_eq!(
            Some(view.born_host.to_string().as_str()),
            text("bornHost"),
            "{at}"
        );
        assert_eq!(
            Some(view.store_host.to_string().as_str()),
            text("storeHost"),
            "{at}"
        );
        assert_eq!(
            i64::from(view.reconsume_times),
            number("reconsumeTimes"),
            "{at}"
        );
        assert_eq!(
            view.prepared_offset,
            number("preparedTransactionOffset"),
            "{at}"
        );
        assert_eq!(i64::from(view.body_crc), number("bodyCrc"), "{at}");
        assert_eq!(view.body.len() as i64, number("bodyLength"), "{at}");
        assert_eq!(
            (view.tags(), view.keys(), view.uniq_key()),
            (text("tags"), text("keys"), text("uniqKey")),
            "{at}"
        );
        let id = wire::message::id::offset_msg_id(view.store_host, view.physical_offset);
        assert_eq!(Some(id.as_str()), text("offsetMsgId"), "{at}");

        let properties = view.properties().to_owned();
        let expected = record["properties"].as_object().unwrap();
        let filled = expected.values().filter(|value| *value != "").count();
        assert_eq!(properties.len(), filled, "{at}");
        for (name, value) in expected.iter().filter(|(_, value)| *value != "") {
            assert_eq!(properties.get(name), value.as_str(), "{at} {name}");
            assert_eq!(view.property(name), value.as_str(), "{at} {name}");
        }
        let raw = std::str::from_utf8(view.properties_bytes).unwrap();
        assert_eq!(Properties::parse(raw), properties, "{at}");
        if record["propertiesEndWithSeparator"] == true && !raw.contains("\u{1}\u{2}") {
            assert_eq!(properties.encode(), raw, "{at}");
        }

        let mut again = Vec::new();
        encode_record(&view.fields(), &mut again).unwrap();
        patch_record(
            &mut again,
            view.queue_offset,
            view.physical_offset,
            view.store_ts_ms,
        );
        assert_eq!(again, bytes, "{at}");
        assert_eq!(
            RecordScan::at(&bytes),
            RecordScan::Record(bytes.len()),
            "{at}"
        );
        for cut in 0..bytes.len() {
            assert!(
                RecordView::parse(&bytes[..cut]).is_err(),
                "{at} cut at {cut}"
            );
        }
    }
    let blank = std::fs::read(golden("files/log-blank.bin")).unwrap();
    assert_eq!(
        RecordScan::at(&blank),
        RecordScan::Blank(1_048_576 - 913_781)
    );
}
