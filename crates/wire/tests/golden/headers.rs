//! Typed headers: every field of every recorded header is kept.

use wire::headers::*;
use wire::{Command, ExtFields, Header, RequestCode};

use crate::{Frame, decode, frames};

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
