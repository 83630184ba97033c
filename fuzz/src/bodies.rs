//! JSON bodies of the remoting protocol: each type of `wire` reads its own writing; those that only the broker reads.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::body::{self, gantry};
use wire::json;

macro_rules! types {
    ($($type:ty),* $(,)?) => {
        const TYPES: &[fn(&[u8])] = &[$( json_body::<$type> ,)* broker::fuzzing::request_body];
    };
}

types! {
    body::HeartbeatData,
    body::CheckClientRequest,
    body::LockBatchRequest,
    body::LockBatchResponse,
    body::ConsumerIdList,
    body::ConsumerOffsets,
    body::RegisterBody,
    body::KvTable,
    body::TopicConfig,
    body::TopicConfigTable,
    body::DataVersion,
    body::TopicRouteData,
    body::ClusterInfo,
    body::route::BrokerMemberGroupBody,
    body::SubscriptionGroupConfig,
    body::GroupConfigTable,
    body::TopicStatsTable,
    body::ConsumerConnection,
    body::ProducerConnection,
    body::ConsumeStats,
    body::ResetOffsets,
    body::ConsumerStatus,
    body::BatchAckBody,
    body::QueryAssignmentResponse,
    body::QueryAssignmentRequest,
    body::SetRequestMode,
    gantry::TopicDetail,
    gantry::GroupDetail,
    gantry::GroupLag,
    gantry::SettleRequest,
    gantry::SettleResponse,
    body::config_level::ConfigList,
    body::config_level::ConfigNames,
    body::config_level::ConfigEntries,
    body::config_level::ConfigOffered,
    gantry::TopicSpec,
    gantry::GroupSpec,
    gantry::SubscriptionSpec,
    body::assignment::RequestModes,
    body::connection::ProducerTable,
    body::GroupForbidden,
    body::GroupList,
    body::TopicList,
    body::ResetOffsetsForC,
    body::offsets::CorrectionOffsets,
    body::stats::ConsumeStatsList,
    body::stats::BrokerStatsData,
    body::inspect::ConsumeTimeSpans,
    body::inspect::ConsumeDirectlyResult,
    body::inspect::QueueEntries,
    body::inspect::GroupSubscription,
    body::members::GroupMembers,
    body::in_flight::InFlight,
}

/// First byte: which type, beyond them a registration; the rest is the body.
pub(crate) fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    match TYPES.get(usize::from(*first)) {
        Some(read) => read(rest),
        None => registration(rest),
    }
}

fn json_body<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = json::from_slice::<T>(bytes) else {
        return;
    };
    for written in [json::to_vec(&value), json::to_vec_apache(&value)] {
        match json::from_slice::<T>(&written) {
            Ok(again) => assert_eq!(text(&json::to_vec(&again)), text(&json::to_vec(&value))),
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&written)),
        }
    }
}

fn text(json: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(json)
}

/// A broker's registration, plain or compressed, of a current and of an old version.
fn registration(bytes: &[u8]) {
    for (version, compressed) in [(493, false), (493, true), (36, false)] {
        if let Ok(read) = body::RegisterBody::decode(bytes, version, compressed) {
            let again = body::RegisterBody::decode(&read.encode(), 493, false);
            assert_eq!(again.ok(), Some(read));
        }
    }
}
