//! JSON bodies and store files: read, written again, compared as trees.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::headers::register_broker;
use wire::{Command, RequestCode, body, json};

use crate::{Frame, decode, frames, golden};

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
