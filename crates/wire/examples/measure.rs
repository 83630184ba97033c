//! Prints how long the hot paths take: `cargo run --release -p wire --example measure`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program to look at by hand"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use wire::headers::pull::{PullRequest, PullResponse};
use wire::headers::send::{SendRequest, SendResponse};
use wire::message::{
    Properties, PropertiesView, RecordFields, RecordView, encode_record, patch_record,
};
use wire::{Body, Command, Header, RequestCode, ResponseCode, frame};

const ROUNDS: u32 = 1_000;
const SAMPLES: u32 = 2_000;

/// Prints the best of many short samples: other work on the machine disturbs the long ones.
fn measure(name: &str, mut step: impl FnMut()) {
    let mut best = u128::MAX;
    for _ in 0..SAMPLES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            step();
        }
        best = best.min(start.elapsed().as_nanos());
    }
    println!("{name:<44} {:>8.1} ns", best as f64 / f64::from(ROUNDS));
}

fn main() {
    let properties: Properties = [
        (
            "UNIQ_KEY",
            "FD0000000000000000000000000000022D4830946E09941CCFDD0000",
        ),
        ("KEYS", "order-0 customer-0"),
        ("TAGS", "new"),
        ("WAIT", "true"),
        ("amount", "12"),
    ]
    .into_iter()
    .collect();
    let properties = properties.encode();
    let body = Bytes::from(vec![b'x'; 1024]);
    let send = SendRequest {
        producer_group: "producer-group".into(),
        topic: "orders".into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: 4,
        queue_id: 3,
        born_ts_ms: 1_795_976_116_189,
        properties: Some(properties.clone()),
        reconsume_times: Some(0),
        broker_name: Some("broker-a".into()),
        ..SendRequest::default()
    };
    let request = Command::request(RequestCode::SendMessageV2)
        .with_header(&send)
        .with_body(body.clone());
    let mut bytes = BytesMut::new();
    frame::encode(&request, &mut bytes);
    println!("310 frame of {} bytes", bytes.len());

    // A frame costs a copy into a fresh buffer here, so that cost is shown too.
    measure("copy of the 310 frame", || {
        black_box(BytesMut::from(bytes.as_ref()));
    });
    measure("310: frame", || {
        let mut buf = BytesMut::from(bytes.as_ref());
        black_box(frame::decode(&mut buf).unwrap().unwrap());
    });
    measure("310: frame and typed header", || {
        let mut buf = BytesMut::from(bytes.as_ref());
        let cmd = frame::decode(&mut buf).unwrap().unwrap();
        black_box(SendRequest::from_command(&cmd).unwrap());
        black_box(cmd);
    });
    let mut out = BytesMut::with_capacity(1 << 16);
    measure("310: encode the request head", || {
        out.clear();
        frame::encode_head(&request, &mut out);
        black_box(&out);
    });
    measure("310: answer, typed header and frame", || {
        out.clear();
        let answer = Command::response(ResponseCode::Success).with_header(&SendResponse {
            msg_id: "7F0000010000A3B70000000000000000".into(),
            queue_id: 3,
            queue_offset: 123_456,
            transaction_id: Some("FD0000000000000000000000000000022D4830946E09941CCFDD0000".into()),
            region: Some("DefaultRegion".into()),
            trace_on: Some("true".into()),
            durability: Some("flushed".into()),
            stored_at_ms: Some(1_795_976_116_189),
            ..SendResponse::default()
        });
        frame::encode_head(&answer, &mut out);
        black_box(&out);
    });

    let mut pull_bytes = BytesMut::new();
    let pull = PullRequest {
        consumer_group: "group".into(),
        topic: "orders".into(),
        max_msg_nums: 32,
        sys_flag: 2,
        suspend_timeout_ms: 15_000,
        subscription: Some("*".into()),
        expression_type: Some("TAG".into()),
        ..PullRequest::default()
    };
    frame::encode(
        &Command::request(RequestCode::PullMessage).with_header(&pull),
        &mut pull_bytes,
    );
    measure("11: frame and typed header", || {
        let mut buf = BytesMut::from(pull_bytes.as_ref());
        let cmd = frame::decode(&mut buf).unwrap().unwrap();
        black_box(cmd.header::<PullRequest>().unwrap());
    });
    let records: Vec<Bytes> = vec![body.clone(); 32];
    measure("11: answer with 32 records, head only", || {
        out.clear();
        let mut answer = Command::response(ResponseCode::Success).with_remark("FOUND");
        let header = PullResponse {
            next_begin_offset: 32,
            max_offset: 99,
            ..PullResponse::default()
        };
        answer.ext.mark_present();
        header.encode(&mut answer.ext);
        answer.body = Body::Many(records.clone());
        frame::encode_head(&answer, &mut out);
        black_box(&out);
    });

    let fields = RecordFields {
        topic: "orders",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_ts_ms: 1_795_976_116_189,
        born_host: "127.0.0.1:43102".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_offset: 0,
        body: &body,
        properties: properties.as_bytes(),
    };
    let mut record = Vec::with_capacity(4096);
    measure("record of 1 KiB: encode and patch", || {
        record.clear();
        encode_record(black_box(&fields), &mut record).unwrap();
        patch_record(&mut record, 1, 2, 3);
        black_box(&record);
    });
    measure("record of 1 KiB: checksum alone", || {
        black_box(wire::message::record::body_crc(black_box(&body)));
    });
    measure("record of 1 KiB: parse", || {
        black_box(RecordView::parse(black_box(&record)).unwrap());
    });
    measure("properties: parse, add three, encode", || {
        let mut all = Properties::parse(black_box(&properties));
        all.set("MSG_REGION", "DefaultRegion");
        all.set("TRACE_ON", "true");
        all.set("CLUSTER", "DefaultCluster");
        black_box(all.encode());
    });
    measure("properties: one by name, in place", || {
        black_box(PropertiesView::new(black_box(properties.as_bytes())).get("TAGS"));
    });
}
