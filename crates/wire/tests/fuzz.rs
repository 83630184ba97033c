//! Every decoder on random bytes and on damaged golden inputs: an answer or an error, never a panic, and
//! whatever was read can be written and read again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    clippy::let_underscore_must_use,
    clippy::needless_pass_by_value,
    reason = "a test program: what is wrong shall fail loudly"
)]

use std::path::PathBuf;

use bolero::check;
use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::body::{self, gantry};
use wire::message::{self, Properties, PropertiesView, RecordScan, RecordView};
use wire::{Command, ExtFields, frame, json, receipt};

/// Runs of each target; an engine that measures coverage may run the same targets for longer.
const RUNS: usize = 3_000;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

/// Recorded frames of one request code, at most 4 KiB each.
fn seeds(prefix: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(prefix)
        {
            let pairs: Vec<serde_json::Value> =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            for side in pairs.iter().flat_map(|p| [&p["request"], &p["response"]]) {
                all.extend(side.as_str().map(hex).filter(|bytes| bytes.len() <= 4096));
            }
        }
    }
    assert!(!all.is_empty(), "{prefix}");
    all.sort();
    all
}

/// Changes some bytes of one seed, or cuts it.
fn damage(seeds: &[Vec<u8>], (pick, edits): &(u16, Vec<(u16, u8)>)) -> Vec<u8> {
    let mut bytes = seeds[usize::from(*pick) % seeds.len()].clone();
    for (at, value) in edits.iter().take(8) {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(*at) % bytes.len();
        match value {
            0 => bytes.truncate(at),
            1..16 => bytes.insert(at, b"{}[]\"':,\\/*0-.e"[usize::from(*value - 1)]),
            value => bytes[at] = *value,
        }
    }
    bytes
}

fn try_frame(bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    // A bound on the work: every whole frame takes at least 8 bytes.
    while let Ok(Some(cmd)) = frame::decode(&mut buf) {
        assert!(frame::check(&cmd).is_ok() || cmd.ext.len() > 1000);
        let mut out = BytesMut::new();
        frame::encode(&cmd, &mut out);
        let again = frame::decode(&mut out).unwrap().unwrap();
        assert_eq!(
            (again.code, again.opaque, again.flag),
            (cmd.code, cmd.opaque, cmd.flag)
        );
        assert_eq!(
            (&again.ext, &again.body, &again.remark),
            (&cmd.ext, &cmd.body, &cmd.remark)
        );
        try_headers(&cmd);
    }
    let _ = frame::missing(&buf);
}

fn try_headers(cmd: &Command) {
    use wire::headers::*;
    if let Ok(header) = send::SendRequest::from_command(cmd) {
        let mut ext = ExtFields::new();
        header.encode_v1(&mut ext);
        assert_eq!(send::SendRequest::decode_v1(&ext).unwrap(), header);
    }
    let _ = cmd.header::<pull::PullRequest>();
    let _ = cmd.header::<pop::PopRequest>();
    let _ = cmd.header::<pop::PopResponse>();
    let _ = cmd.header::<register_broker::RegisterBrokerRequest>();
    let _ = cmd.header::<gantry::PutTopicRequest>();
}

#[test]
fn frames() {
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_frame(bytes));
    let seeds = seeds("0000");
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_frame(&damage(&seeds, edits)));
}

fn framed(kind: u8, header: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(&(header.len() as u32).to_be_bytes()[1..]);
    bytes.extend(header);
    bytes
}

#[test]
fn json_headers() {
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_frame(&framed(0, bytes)));
    let headers: Vec<Vec<u8>> = seeds("000310")
        .iter()
        .filter(|f| f[4] == 0)
        .map(|f| header_of(f))
        .collect();
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_frame(&framed(0, &damage(&headers, edits))));
}

fn header_of(frame: &[u8]) -> Vec<u8> {
    let len = u32::from_be_bytes(frame[4..8].try_into().unwrap()) as usize & 0xff_ffff;
    frame[8..8 + len].to_vec()
}

#[test]
fn binary_headers() {
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_frame(&framed(1, bytes)));
    let headers: Vec<Vec<u8>> = seeds("0000")
        .iter()
        .filter(|f| f[4] == 1)
        .map(|f| header_of(f))
        .collect();
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_frame(&framed(1, &damage(&headers, edits))));
}

fn try_record(bytes: &[u8]) {
    let _ = RecordScan::at(bytes);
    for view in RecordView::each(bytes).flatten() {
        let _ = view.check_crc();
        let mut again = Vec::new();
        // A V2 record may hold a topic that fits V1; else the bytes must come out as they were.
        message::encode_record(&view.fields(), &mut again).unwrap();
        assert_eq!(RecordView::parse(&again).unwrap().topic, view.topic);
        try_properties(view.properties_bytes);
    }
    let mut copy = bytes.to_vec();
    message::patch_record(&mut copy, 1, 2, 3);
    assert_eq!(copy.len(), bytes.len());
}

#[test]
fn records() {
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_record(bytes));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records.json");
    let records: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let seeds: Vec<Vec<u8>> = records
        .iter()
        .map(|r| hex(r["raw"].as_str().unwrap()))
        .collect();
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_record(&damage(&seeds, edits)));
}

fn try_properties(bytes: &[u8]) {
    let view = PropertiesView::new(bytes);
    let owned = view.to_owned();
    for (name, value) in owned.iter() {
        assert_eq!(view.get(name), Some(value));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(Properties::parse(text), owned);
        assert_eq!(Properties::parse(&owned.encode()), owned);
    }
}

#[test]
fn properties() {
    check!().with_iterations(RUNS).for_each(|bytes: &[u8]| {
        try_properties(bytes);
        // Few distinct bytes make many entries.
        let dense: Vec<u8> = bytes
            .iter()
            .map(|b| [1, 2, b'a', b'b'][usize::from(*b % 4)])
            .collect();
        try_properties(&dense);
    });
}

#[test]
fn batches() {
    let try_batch = |bytes: &[u8]| {
        if let Ok(entries) = message::decode_batch(bytes) {
            let again = message::encode_batch(entries.iter().copied()).unwrap();
            assert_eq!(message::decode_batch(&again).unwrap(), entries);
        }
    };
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_batch(bytes));
    let entry = |body| message::BatchEntry {
        flag: 1,
        body,
        properties: b"a\x01b\x02",
    };
    let seeds = [message::encode_batch([entry(b"one"), entry(b""), entry(b"three")]).unwrap()];
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_batch(&damage(&seeds, edits)));
}

#[test]
fn receipts_and_ids() {
    let try_text = |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        if let Ok(receipt) = receipt::Receipt::parse(text) {
            assert_eq!(receipt::Receipt::parse(&receipt.encode()).unwrap(), receipt);
        }
        let _ = receipt::parse_start_offsets(text);
        let _ = receipt::parse_message_offsets(text);
        let _ = receipt::parse_leases(text);
        if let Ok((host, offset)) = message::id::parse_offset_msg_id(text) {
            assert_eq!(
                message::id::offset_msg_id(host, offset),
                text.to_ascii_uppercase()
            );
        }
        let mut ack = body::BatchAck {
            bits: text.to_owned(),
            ..Default::default()
        };
        let offsets = ack.offsets();
        ack.set_offsets(&offsets);
        assert_eq!(ack.offsets(), offsets);
    };
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_text(bytes));
    let seeds: Vec<Vec<u8>> = [
        "0 1795975491417 11000 3 0 broker-a 2 17",
        "0 0 5,6;1 1 0",
        "2 1 2 77 4 5;0 1 2 3 4 5",
        "7F00000100002A9F0000000000001234",
        "AQI=",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect();
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_text(&damage(&seeds, edits)));
}

#[test]
fn register_bodies() {
    let try_body = |bytes: &[u8]| {
        for (version, compressed) in [(493, false), (493, true), (36, false)] {
            if let Ok(body) = body::RegisterBody::decode(bytes, version, compressed) {
                let again = body::RegisterBody::decode(&body.encode(), 493, false).unwrap();
                assert_eq!(again, body);
            }
        }
    };
    check!()
        .with_iterations(RUNS)
        .for_each(|bytes: &[u8]| try_body(bytes));
    let mut topic = body::TopicConfig::new("T", 4, 6);
    topic
        .attributes
        .insert("message.type".into(), "FIFO".into());
    let given = body::RegisterBody::new(body::TopicConfigTable::with_mappings(
        Default::default(),
        [topic],
    ));
    let seeds = [given.encode(), given.encode_deflated().unwrap()];
    check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| try_body(&damage(&seeds, edits)));
}

fn try_json<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = json::from_slice::<T>(bytes) {
        for written in [json::to_vec(&value), json::to_vec_apache(&value)] {
            match json::from_slice::<T>(&written) {
                Ok(again) => assert_eq!(json::to_vec(&again), json::to_vec(&value)),
                Err(e) => panic!("{e}: {}", String::from_utf8_lossy(&written)),
            }
        }
    }
}

macro_rules! json_bodies {
    ($($name:ident: $type:ty = $code:literal $(or $text:literal)?,)*) => {$(
        #[test]
        fn $name() {
            let mut bodies: Vec<Vec<u8>> = vec![$($text.into())?];
            if !$code.is_empty() {
                for frame in seeds($code) {
                    let header = u32::from_be_bytes(frame[4..8].try_into().unwrap()) as usize & 0xff_ffff;
                    bodies.push(frame[8 + header..].to_vec());
                }
                bodies.retain(|body| body.first() == Some(&b'{'));
            }
            check!().with_iterations(RUNS / 10).for_each(|bytes: &[u8]| try_json::<$type>(bytes));
            check!().with_iterations(RUNS).with_type().for_each(|edits| try_json::<$type>(&damage(&bodies, edits)));
        }
    )*};
}

json_bodies! {
    heartbeat: body::HeartbeatData = "000034",
    check_client: body::CheckClientRequest = "000046",
    lock: body::LockBatchRequest = "000041",
    lock_answer: body::LockBatchResponse = "000041",
    members: body::ConsumerIdList = "000038",
    consumer_offsets: body::ConsumerOffsets = "000043",
    register_json: body::RegisterBody = "000103",
    kv_table: body::KvTable = "000219",
    topic_config: body::TopicConfig = "000351",
    topic_table: body::TopicConfigTable = "000103",
    data_version: body::DataVersion = "000322",
    route: body::TopicRouteData = "000105",
    cluster: body::ClusterInfo = "000106",
    member_group: body::route::BrokerMemberGroupBody = "000901",
    group_config: body::SubscriptionGroupConfig = "000200",
    group_table: body::GroupConfigTable = "000352" or r#"{"subscriptionGroupTable":{"g":{"groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1]}}}}}"#,
    topic_stats: body::TopicStatsTable = "000202",
    consumers: body::ConsumerConnection = "000203",
    producers: body::ProducerConnection = "000204",
    consume_stats: body::ConsumeStats = "000208",
    reset_offsets: body::ResetOffsets = "000222" or r#"{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}"#,
    consumer_status: body::ConsumerStatus = "000223",
    batch_ack: body::BatchAckBody = "200151",
    assignment: body::QueryAssignmentResponse = "000400",
    assignment_request: body::QueryAssignmentRequest = "000400",
    request_mode: body::SetRequestMode = "000401",
    topic_detail: gantry::TopicDetail = "" or r#"{"topic":"t","version":1,"readQueues":4,"attributes":{"a":"b"},"queues":[{"id":0}]}"#,
    group_detail: gantry::GroupDetail = "" or r#"{"group":"g","spec":{"backoff":{"kind":"list","delaysMs":[1,2]}},"subscriptions":[{"topic":"t"}]}"#,
    group_lag: gantry::GroupLag = "" or r#"{"queues":[{"topic":"t","queueId":1}],"dlqOpen":3,"oldestReadyAtMs":4}"#,
    settle: gantry::SettleRequest = "" or r#"{"items":[{"topic":"t","queueId":0,"queueOffset":5,"leaseId":9,"op":"nack","delayMs":10}]}"#,
    settled: gantry::SettleResponse = "" or r#"{"results":[{"status":"deadLettered","late":true}]}"#,
}
