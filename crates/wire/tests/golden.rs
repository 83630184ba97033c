//! Frames, bodies and records recorded from Apache RocketMQ 5.4.0: read, compared, written again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    clippy::let_underscore_must_use,
    clippy::needless_pass_by_value,
    reason = "a test program: what is wrong shall fail loudly"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::body;
use wire::headers::*;
use wire::message::{Properties, RecordScan, RecordView, encode_record, patch_record};
use wire::{Command, ExtFields, Header, RequestCode, frame, json};

fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

struct Frame {
    /// File and place, for messages.
    at: String,
    source: String,
    raw: Vec<u8>,
    decoded: Option<Value>,
    request: bool,
    /// Code of the request, also for answers.
    asked: i32,
}

impl Frame {
    /// Such requests show answers to unusual input, and lack fields that clients send.
    fn hand_made(&self) -> bool {
        self.source.starts_with("raw")
    }
}

fn frames() -> Vec<Frame> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(golden("frames")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let asked = name[..6].parse().unwrap();
        let pairs: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (i, pair) in pairs.iter().enumerate() {
            for side in ["request", "response"] {
                if let Some(raw) = pair[side].as_str() {
                    all.push(Frame {
                        at: format!("{name} pair {i} {side}"),
                        source: pair["source"].as_str().unwrap().to_owned(),
                        raw: hex(raw),
                        decoded: pair.get(format!("{side}Decoded")).cloned(),
                        request: side == "request",
                        asked,
                    });
                }
            }
        }
    }
    assert!(all.len() > 500, "{}", all.len());
    all
}

fn decode(frame: &Frame) -> Command {
    let mut buf = BytesMut::from(frame.raw.as_slice());
    let cmd = frame::decode(&mut buf).unwrap_or_else(|e| panic!("{}: {e}", frame.at));
    assert!(buf.is_empty(), "{}", frame.at);
    cmd.unwrap_or_else(|| panic!("{}: not whole", frame.at))
}

fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_frame_reads_as_recorded() {
    for frame in frames() {
        let cmd = decode(&frame);
        let header = frame.decoded.clone().unwrap_or_else(|| {
            let len = u32::from_be_bytes(frame.raw[4..8].try_into().unwrap()) as usize & 0xff_ffff;
            serde_json::from_slice(&frame.raw[8..8 + len]).unwrap()
        });
        let number = |name: &str| header[name].as_i64().unwrap_or(0);
        let got = (
            i64::from(cmd.code),
            i64::from(cmd.flag),
            i64::from(cmd.version),
            i64::from(cmd.opaque),
        );
        let (code, flag) = (number("code"), number("flag"));
        if header["code"].is_number() && header["opaque"].is_number() {
            assert_eq!(
                got,
                (code, flag, number("version"), number("opaque")),
                "{}",
                frame.at
            );
        }
        let remark = header["remark"]
            .as_str()
            .filter(|r| frame.decoded.is_none() || !r.is_empty());
        assert_eq!(cmd.remark.as_deref(), remark, "{}", frame.at);
        let empty = serde_json::Map::new();
        let fields = header["extFields"].as_object().unwrap_or(&empty);
        for (name, value) in fields.iter().filter(|(_, v)| !v.is_null()) {
            let expected = as_text(value);
            if frame.decoded.is_some() && expected.is_empty() {
                continue;
            }
            assert_eq!(
                cmd.ext.get(name),
                Some(expected.as_str()),
                "{} {name}",
                frame.at
            );
        }
        assert!(cmd.ext.len() <= fields.len(), "{}", frame.at);
        if let Some(language) = header["language"].as_str() {
            assert_eq!(cmd.language.name(), language, "{}", frame.at);
        }
        assert_eq!(cmd.is_response(), !frame.request, "{}", frame.at);
    }
}

#[test]
fn every_frame_written_again_reads_the_same() {
    for frame in frames() {
        let cmd = decode(&frame);
        frame::check(&cmd).unwrap();
        let mut out = BytesMut::new();
        frame::encode(&cmd, &mut out);
        let length = u32::from_be_bytes(out[..4].try_into().unwrap()) as usize;
        assert_eq!(length + 4, out.len(), "{}", frame.at);
        if frame.decoded.is_none()
            && frame.source.starts_with("java")
            && frame.source != "java-5.4.0-binary"
        {
            assert_eq!(
                out.len(),
                frame.raw.len(),
                "{}: Java writes the same number of bytes",
                frame.at
            );
        }
        let again = frame::decode(&mut out).unwrap().unwrap();
        assert_eq!(again, cmd, "{}", frame.at);
    }
}

#[test]
fn cut_frames_wait_and_cut_headers_fail() {
    for frame in frames().iter().step_by(5) {
        for cut in 0..frame.raw.len() {
            let mut buf = BytesMut::from(&frame.raw[..cut]);
            assert_eq!(
                frame::decode(&mut buf).unwrap(),
                None,
                "{} at {cut}",
                frame.at
            );
        }
        let len = u32::from_be_bytes(frame.raw[4..8].try_into().unwrap()) as usize & 0xff_ffff;
        for cut in 1..len.saturating_sub(1) {
            let mut bytes = (4 + cut as u32).to_be_bytes().to_vec();
            bytes.extend([frame.raw[4]]);
            bytes.extend(&(cut as u32).to_be_bytes()[1..]);
            bytes.extend(&frame.raw[8..8 + cut]);
            assert!(
                frame::decode(&mut BytesMut::from(bytes.as_slice())).is_err(),
                "{} at {cut}",
                frame.at
            );
        }
    }
}

/// Fields that hooks add to any request.
const ADDED: &[&str] = &[
    "bname",
    "ReqT",
    "Signature",
    "AccessKey",
    "SecurityToken",
    "ns",
    "nsd",
    "oway",
    "OnsChannel",
    "lo",
];

/// Reads the typed header, writes it, and compares every field; fields of the frame that the header
/// does not know must be in `ADDED`.
fn typed<H: Header>(frame: &Frame, cmd: &Command) {
    let header: H = cmd.header().unwrap_or_else(|e| panic!("{}: {e}", frame.at));
    compare(frame, cmd, |ext| header.encode(ext));
}

fn compare(frame: &Frame, cmd: &Command, write: impl FnOnce(&mut ExtFields)) {
    let mut ext = ExtFields::new();
    write(&mut ext);
    for (name, value) in ext.iter() {
        if let Some(original) = cmd.ext.get(name) {
            let same = original == value || (original.is_empty() && frame.hand_made());
            assert!(
                same || as_bool(original) == Some(value),
                "{} {name}: {original} / {value}",
                frame.at
            );
        }
    }
    if !frame.hand_made() {
        for (name, _) in cmd.ext.iter() {
            assert!(
                ext.contains(name) || ADDED.contains(&name),
                "{}: {name} is not kept",
                frame.at
            );
        }
    }
}

fn as_bool(text: &str) -> Option<&'static str> {
    match text {
        "1" | "True" | "TRUE" => Some("true"),
        _ => Some("false"),
    }
}

fn typed_request(frame: &Frame, cmd: &Command) {
    use RequestCode as C;
    match cmd.request_code() {
        C::SendMessage
        | C::SendReplyMessage
        | C::SendMessageV2
        | C::SendBatchMessage
        | C::SendReplyMessageV2 => {
            let header = send::SendRequest::from_command(cmd)
                .unwrap_or_else(|e| panic!("{}: {e}", frame.at));
            let long = matches!(cmd.request_code(), C::SendMessage | C::SendReplyMessage);
            compare(frame, cmd, |ext| {
                if long {
                    header.encode_v1(ext)
                } else {
                    header.encode(ext)
                }
            });
        }
        C::PullMessage | C::LitePullMessage => typed::<pull::PullRequest>(frame, cmd),
        C::QueryMessage => typed::<query::QueryMessageRequest>(frame, cmd),
        C::QueryConsumerOffset => typed::<offset::QueryConsumerOffsetRequest>(frame, cmd),
        C::UpdateConsumerOffset => typed::<offset::UpdateConsumerOffsetRequest>(frame, cmd),
        C::UpdateAndCreateTopic => typed::<topic::CreateTopicRequest>(frame, cmd),
        C::GetAllTopicConfig => typed::<topic::AllTopicConfigRequest>(frame, cmd),
        C::SearchOffsetByTimestamp => typed::<offset::SearchOffsetRequest>(frame, cmd),
        C::GetMaxOffset | C::GetMinOffset | C::GetEarliestMsgStoretime => {
            typed::<offset::QueueRequest>(frame, cmd)
        }
        C::ViewMessageById => typed::<query::ViewMessageRequest>(frame, cmd),
        C::UnregisterClient => typed::<client::UnregisterClientRequest>(frame, cmd),
        C::ConsumerSendMsgBack => typed::<send_back::SendBackRequest>(frame, cmd),
        C::EndTransaction => typed::<transaction::EndTransactionRequest>(frame, cmd),
        C::CheckTransactionState => typed::<transaction::CheckTransactionStateRequest>(frame, cmd),
        C::GetConsumerListByGroup | C::NotifyConsumerIdsChanged | C::GetConsumerConnectionList => {
            typed::<client::ConsumerGroupRequest>(frame, cmd);
        }
        C::GetProducerConnectionList => typed::<client::ProducerGroupRequest>(frame, cmd),
        C::PutKvConfig => typed::<kv::PutKvRequest>(frame, cmd),
        C::GetKvConfig | C::DeleteKvConfig => typed::<kv::KvRequest>(frame, cmd),
        C::GetKvlistByNamespace => typed::<kv::KvListRequest>(frame, cmd),
        C::RegisterBroker => typed::<register_broker::RegisterBrokerRequest>(frame, cmd),
        C::UnregisterBroker | C::QueryDataVersion => {
            typed::<register_broker::BrokerRequest>(frame, cmd)
        }
        C::BrokerHeartbeat => typed::<register_broker::BrokerHeartbeatRequest>(frame, cmd),
        C::WipeWritePermOfBroker | C::AddWritePermOfBroker => {
            typed::<register_broker::WritePermRequest>(frame, cmd)
        }
        C::GetBrokerMemberGroup => typed::<register_broker::MemberGroupRequest>(frame, cmd),
        C::GetRouteinfoByTopic => typed::<topic::RouteRequest>(frame, cmd),
        C::GetTopicStatsInfo
        | C::DeleteTopicInBroker
        | C::QueryTopicConsumeByWho
        | C::RegisterTopicInNamesrv => {
            typed::<topic::TopicRequest>(frame, cmd);
        }
        C::DeleteTopicInNamesrv => typed::<topic::DeleteTopicInNamesrvRequest>(frame, cmd),
        C::GetTopicConfig => typed::<topic::GetTopicConfigRequest>(frame, cmd),
        C::GetTopicsByCluster => typed::<topic::TopicsByClusterRequest>(frame, cmd),
        C::GetAllSubscriptiongroupConfig => typed::<group::AllGroupConfigRequest>(frame, cmd),
        C::DeleteSubscriptiongroup => typed::<group::DeleteGroupRequest>(frame, cmd),
        C::GetConsumeStats => typed::<group::ConsumeStatsRequest>(frame, cmd),
        C::GetSubscriptiongroupConfig | C::QueryTopicsByConsumer => {
            typed::<group::GroupRequest>(frame, cmd)
        }
        C::InvokeBrokerToResetOffset | C::ResetConsumerClientOffset => {
            typed::<group::ResetOffsetRequest>(frame, cmd)
        }
        C::InvokeBrokerToGetConsumerStatus | C::GetConsumerStatusFromClient => {
            typed::<group::ConsumerStatusRequest>(frame, cmd);
        }
        C::QueryConsumeTimeSpan | C::QuerySubscriptionByConsumer => {
            typed::<group::GroupTopicRequest>(frame, cmd)
        }
        C::CloneGroupOffset => typed::<group::CloneGroupOffsetRequest>(frame, cmd),
        C::UpdateAndGetGroupForbidden => typed::<group::GroupForbiddenRequest>(frame, cmd),
        C::ViewBrokerStatsData => typed::<group::BrokerStatsRequest>(frame, cmd),
        C::QueryConsumeQueue => typed::<group::QueryConsumeQueueRequest>(frame, cmd),
        C::GetConsumerRunningInfo => typed::<client::ConsumerRunningInfoRequest>(frame, cmd),
        C::ConsumeMessageDirectly => typed::<client::ConsumeDirectlyRequest>(frame, cmd),
        C::PushReplyMessageToClient => typed::<reply::PushReplyRequest>(frame, cmd),
        C::RecallMessage => typed::<reply::RecallRequest>(frame, cmd),
        C::PopMessage => typed::<pop::PopRequest>(frame, cmd),
        C::AckMessage => typed::<pop::AckRequest>(frame, cmd),
        C::PeekMessage => typed::<pop::PeekRequest>(frame, cmd),
        C::ChangeMessageInvisibletime => typed::<pop::ChangeInvisibleRequest>(frame, cmd),
        C::Notification => typed::<pop::NotificationRequest>(frame, cmd),
        C::PollingInfo => typed::<pop::PollingInfoRequest>(frame, cmd),
        _ => {}
    }
}

fn typed_response(frame: &Frame, cmd: &Command) {
    use RequestCode as C;
    let ok = cmd.code == 0;
    match RequestCode::from_code(frame.asked) {
        C::SendMessage
        | C::SendMessageV2
        | C::SendBatchMessage
        | C::SendReplyMessage
        | C::SendReplyMessageV2
            if cmd.ext.contains("msgId") =>
        {
            typed::<send::SendResponse>(frame, cmd);
        }
        C::PullMessage | C::LitePullMessage if [0, 19, 20, 21].contains(&cmd.code) => {
            typed::<pull::PullResponse>(frame, cmd);
        }
        C::QueryMessage if cmd.ext.is_present() && !cmd.ext.is_empty() => {
            typed::<query::QueryMessageResponse>(frame, cmd);
        }
        C::QueryConsumerOffset | C::SearchOffsetByTimestamp | C::GetMaxOffset | C::GetMinOffset
            if ok =>
        {
            typed::<offset::OffsetResponse>(frame, cmd);
        }
        C::GetEarliestMsgStoretime if ok => typed::<offset::TimestampResponse>(frame, cmd),
        C::HeartBeat if ok => typed::<client::HeartbeatResponse>(frame, cmd),
        C::RegisterBroker if ok => typed::<register_broker::RegisterBrokerResponse>(frame, cmd),
        C::QueryDataVersion if ok => typed::<register_broker::QueryDataVersionResponse>(frame, cmd),
        C::WipeWritePermOfBroker if ok => {
            typed::<register_broker::WipeWritePermResponse>(frame, cmd)
        }
        C::AddWritePermOfBroker if ok => typed::<register_broker::AddWritePermResponse>(frame, cmd),
        C::GetKvConfig => typed::<kv::GetKvResponse>(frame, cmd),
        C::GetAllTopicConfig if ok => typed::<topic::AllTopicConfigResponse>(frame, cmd),
        C::GetAllSubscriptiongroupConfig if ok => {
            typed::<group::AllGroupConfigResponse>(frame, cmd)
        }
        C::GetBrokerConfig if ok => typed::<topic::BrokerConfigResponse>(frame, cmd),
        C::RecallMessage if ok => typed::<reply::RecallResponse>(frame, cmd),
        C::PopMessage | C::PeekMessage => typed::<pop::PopResponse>(frame, cmd),
        C::ChangeMessageInvisibletime if ok => typed::<pop::ChangeInvisibleResponse>(frame, cmd),
        C::Notification if ok => typed::<pop::NotificationResponse>(frame, cmd),
        C::PollingInfo if ok => typed::<pop::PollingInfoResponse>(frame, cmd),
        _ => {}
    }
}

#[test]
fn typed_headers_keep_every_field() {
    for frame in frames() {
        let cmd = decode(&frame);
        if !frame.request {
            typed_response(&frame, &cmd);
        } else if cmd.code == frame.asked && !frame.hand_made() {
            typed_request(&frame, &cmd);
        }
    }
}

#[test]
fn hand_made_requests_never_panic() {
    for frame in frames().iter().filter(|f| f.request && f.hand_made()) {
        let cmd = decode(frame);
        let _ = send::SendRequest::from_command(&cmd);
        let _ = cmd.header::<pull::PullRequest>();
        let _ = cmd.header::<pop::PopRequest>();
    }
}

/// Order of keys and array elements does not count; integer-like texts are numbers.
fn normal(value: &json::Value) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(b) => Value::Bool(*b),
        json::Value::Number(n) => Value::String(n.trim_end_matches(".0").to_owned()),
        json::Value::String(s) => Value::String(s.clone()),
        json::Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(normal).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        json::Value::Object(entries) => {
            let sorted: BTreeMap<String, Value> = entries
                .iter()
                .filter(|(_, v)| *v != json::Value::Null)
                .map(|(k, v)| (k.clone(), normal(v)))
                .collect();
            Value::Object(sorted.into_iter().collect())
        }
    }
}

fn contains(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| all.get(key).is_some_and(|found| contains(found, value))),
        (Value::Array(all), Value::Array(part)) => {
            all.len() == part.len() && all.iter().zip(part).all(|(a, p)| contains(a, p))
        }
        _ => all == part,
    }
}

/// Reads the body, writes it as Apache would, and compares the trees.
/// What an older release leaves out may be added.
fn body_round_trip<T: DeserializeOwned + Serialize>(at: &str, bytes: &[u8], old: bool) {
    let value: T = json::from_slice(bytes)
        .unwrap_or_else(|e| panic!("{at}: {e}: {}", String::from_utf8_lossy(bytes)));
    let written = json::to_vec_apache(&value);
    let (given, again) = (json::parse(bytes).unwrap(), json::parse(&written).unwrap());
    if old {
        assert!(contains(&normal(&again), &normal(&given)), "{at}");
    } else {
        assert_eq!(normal(&again), normal(&given), "{at}");
    }
    let standard = json::to_vec(&value);
    let strict: Value = serde_json::from_slice(&standard).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert!(!strict.is_null());
    // What was read from the standard form is the same value.
    let again: T = json::from_slice(&standard).unwrap();
    assert_eq!(json::to_vec_apache(&again), written, "{at}");
}

fn typed_body(frame: &Frame, cmd: &Command) -> bool {
    use RequestCode as C;
    let bytes = cmd.body.to_bytes();
    let code = RequestCode::from_code(frame.asked);
    let check: fn(&str, &[u8], bool) = match (code, frame.request) {
        (C::HeartBeat, true) => body_round_trip::<body::HeartbeatData>,
        (C::CheckClientConfig, true) => body_round_trip::<body::CheckClientRequest>,
        (C::LockBatchMq | C::UnlockBatchMq, true) => body_round_trip::<body::LockBatchRequest>,
        (C::LockBatchMq, false) => body_round_trip::<body::LockBatchResponse>,
        (C::GetConsumerListByGroup, false) => body_round_trip::<body::ConsumerIdList>,
        (C::GetAllConsumerOffset, false) => body_round_trip::<body::ConsumerOffsets>,
        (C::RegisterBroker, true) => body_round_trip::<body::RegisterBody>,
        (C::RegisterBroker | C::GetKvlistByNamespace | C::GetBrokerRuntimeInfo, false) => {
            body_round_trip::<body::KvTable>
        }
        (C::GetAllTopicConfig, false) => body_round_trip::<body::TopicConfigTable>,
        (C::GetTopicConfig, false) => body_round_trip::<body::TopicConfig>,
        (C::QueryDataVersion, _) => body_round_trip::<body::DataVersion>,
        (C::GetRouteinfoByTopic, false) => body_round_trip::<body::TopicRouteData>,
        (C::GetBrokerClusterInfo, false) => body_round_trip::<body::ClusterInfo>,
        (C::GetBrokerMemberGroup, false) => body_round_trip::<body::route::BrokerMemberGroupBody>,
        (C::UpdateAndCreateSubscriptiongroup, true) | (C::GetSubscriptiongroupConfig, false) => {
            body_round_trip::<body::SubscriptionGroupConfig>
        }
        (C::GetAllSubscriptiongroupConfig, false) => body_round_trip::<body::GroupConfigTable>,
        (C::UpdateAndGetGroupForbidden, false) => body_round_trip::<body::GroupForbidden>,
        (C::GetTopicStatsInfo, false) => body_round_trip::<body::TopicStatsTable>,
        (C::GetConsumerConnectionList, false) => body_round_trip::<body::ConsumerConnection>,
        (C::GetProducerConnectionList, false) => body_round_trip::<body::ProducerConnection>,
        (C::GetAllProducerInfo, false) => body_round_trip::<body::connection::ProducerTable>,
        (C::GetConsumeStats, false) => body_round_trip::<body::ConsumeStats>,
        (C::QueryTopicConsumeByWho, false) => body_round_trip::<body::GroupList>,
        (
            C::GetAllTopicListFromNameserver
            | C::GetTopicsByCluster
            | C::GetSystemTopicListFromNs
            | C::GetSystemTopicListFromBroker
            | C::QueryTopicsByConsumer,
            false,
        ) => body_round_trip::<body::TopicList>,
        (C::InvokeBrokerToResetOffset, false) => body_round_trip::<body::ResetOffsets>,
        (C::InvokeBrokerToGetConsumerStatus | C::GetConsumerStatusFromClient, false) => {
            body_round_trip::<body::ConsumerStatus>
        }
        (C::QueryCorrectionOffset, false) => body_round_trip::<body::offsets::CorrectionOffsets>,
        (C::ViewBrokerStatsData, false) => body_round_trip::<body::stats::BrokerStatsData>,
        (C::QueryConsumeQueue, false) => body_round_trip::<body::inspect::QueueEntries>,
        (C::QuerySubscriptionByConsumer, false) => {
            body_round_trip::<body::inspect::GroupSubscription>
        }
        (C::ConsumeMessageDirectly, false) => {
            body_round_trip::<body::inspect::ConsumeDirectlyResult>
        }
        (C::QueryAssignment, true) => body_round_trip::<body::QueryAssignmentRequest>,
        (C::QueryAssignment, false) => body_round_trip::<body::QueryAssignmentResponse>,
        (C::SetMessageRequestMode, true) => body_round_trip::<body::SetRequestMode>,
        (C::GetAllMessageRequestMode, false) => body_round_trip::<body::RequestModes>,
        (C::BatchAckMessage, true) => body_round_trip::<body::BatchAckBody>,
        _ => return false,
    };
    check(
        &frame.at,
        &bytes,
        frame.request && !frame.source.starts_with("java-5"),
    );
    true
}

#[test]
fn bodies_come_out_as_apache_wrote_them() {
    let mut seen = 0;
    for frame in frames() {
        let cmd = decode(&frame);
        let from_apache = !frame.request || !frame.hand_made();
        let answered = frame.request || cmd.code == 0;
        if !cmd.body.is_empty() && from_apache && answered {
            seen += usize::from(typed_body(&frame, &cmd));
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn register_bodies_match_their_sum() {
    for frame in frames()
        .iter()
        .filter(|f| f.asked == 103 && f.request && !f.hand_made())
    {
        let cmd = decode(frame);
        let header: register_broker::RegisterBrokerRequest = cmd.header().unwrap();
        let bytes = cmd.body.to_bytes();
        body::register::check_crc32(header.body_crc32, &bytes).unwrap();
        let body = body::RegisterBody::decode(&bytes, cmd.version, header.compressed).unwrap();
        assert!(
            !body
                .topic_config_serialize_wrapper
                .topic_config_table
                .is_empty(),
            "{}",
            frame.at
        );
    }
}

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

#[test]
fn store_files_are_bodies_too() {
    let file = |name: &str| std::fs::read(golden("files").join(name)).unwrap();
    body_round_trip::<body::TopicConfigTable>("topics.json", &file("topics.json"), false);
    body_round_trip::<body::GroupConfigTable>(
        "subscriptionGroup.json",
        &file("subscriptionGroup.json"),
        false,
    );
    body_round_trip::<body::ConsumerOffsets>(
        "consumerOffset.json",
        &file("consumerOffset.json"),
        false,
    );
    body_round_trip::<body::RequestModes>(
        "messageRequestMode.json",
        &file("messageRequestMode.json"),
        false,
    );
}
