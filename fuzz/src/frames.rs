//! Frames of the remoting protocol with either header encoding, and every typed header in them.

use bytes::BytesMut;
use wire::headers::{
    client, gantry, group, kv, offset, pop, pull, query, register_broker, reply, send, send_back,
    topic, transaction,
};
use wire::{Command, ExtFields, Header, frame};

/// First byte 0: the rest is a stream of frames. 1 or 2: a header, JSON or binary, for which the frame is made.
pub(crate) fn run(data: &[u8]) {
    match data {
        [0, stream @ ..] => decode(stream),
        [1, header @ ..] => decode(&framed(0, header)),
        [2, header @ ..] => decode(&framed(1, header)),
        _ => {}
    }
}

/// A frame around a header, without a body.
fn framed(kind: u8, header: &[u8]) -> Vec<u8> {
    let len = u32::try_from(header.len()).unwrap_or(0) & 0xff_ffff;
    let mut bytes = (len + 4).to_be_bytes().to_vec();
    bytes.extend((u32::from(kind) << 24 | len).to_be_bytes());
    bytes.extend(header);
    bytes
}

fn decode(bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    // Ends: every whole frame takes at least eight bytes.
    while let Ok(Some(cmd)) = frame::decode(&mut buf) {
        assert!(frame::check(&cmd).is_ok() || cmd.ext.len() > 1000);
        let mut out = BytesMut::new();
        frame::encode(&cmd, &mut out);
        let again = frame::decode(&mut out);
        let Ok(Some(again)) = again else {
            panic!("what was written is not a frame: {again:?}")
        };
        assert_eq!(
            (again.code, again.opaque, again.flag),
            (cmd.code, cmd.opaque, cmd.flag)
        );
        assert_eq!(
            (&again.ext, &again.body, &again.remark),
            (&cmd.ext, &cmd.body, &cmd.remark)
        );
        headers(&cmd);
    }
    let _missing = frame::missing(&buf);
}

/// Reads the header as `H`; what it reads it writes and reads again.
fn header<H: Header + PartialEq + std::fmt::Debug>(cmd: &Command) {
    if let Ok(header) = cmd.header::<H>() {
        let mut ext = ExtFields::new();
        header.encode(&mut ext);
        assert_eq!(H::decode(&ext).ok().as_ref(), Some(&header));
    }
}

macro_rules! each {
    ($cmd:ident: $($header:ty),* $(,)?) => {$( header::<$header>($cmd); )*};
}

fn headers(cmd: &Command) {
    if let Ok(header) = send::SendRequest::from_command(cmd) {
        let mut ext = ExtFields::new();
        header.encode_v1(&mut ext);
        assert_eq!(send::SendRequest::decode_v1(&ext).ok(), Some(header));
    }
    each!(cmd:
        client::HeartbeatResponse,
        client::UnregisterClientRequest,
        client::ConsumerGroupRequest,
        client::ProducerGroupRequest,
        client::ConsumerRunningInfoRequest,
        client::ConsumeDirectlyRequest,
        gantry::PutTopicRequest,
        gantry::PutGroupRequest,
        gantry::SubscriptionRequest,
        group::GroupRequest,
        group::AllGroupConfigRequest,
        group::AllGroupConfigResponse,
        group::ConsumeStatsRequest,
        group::ResetOffsetRequest,
        group::ConsumerStatusRequest,
        group::GroupTopicRequest,
        group::CloneGroupOffsetRequest,
        group::GroupForbiddenRequest,
        group::BrokerStatsRequest,
        group::QueryConsumeQueueRequest,
        kv::PutKvRequest,
        kv::KvRequest,
        kv::GetKvResponse,
        kv::KvListRequest,
        offset::QueryConsumerOffsetRequest,
        offset::UpdateConsumerOffsetRequest,
        offset::SearchOffsetRequest,
        offset::QueueRequest,
        offset::OffsetResponse,
        offset::TimestampResponse,
        pop::PopRequest,
        pop::PopResponse,
        pop::AckRequest,
        pop::PeekRequest,
        pop::ChangeInvisibleRequest,
        pop::ChangeInvisibleResponse,
        pop::NotificationRequest,
        pop::NotificationResponse,
        pop::PollingInfoRequest,
        pop::PollingInfoResponse,
        pull::PullRequest,
        pull::PullResponse,
        query::ViewMessageRequest,
        query::QueryMessageRequest,
        query::QueryMessageResponse,
        register_broker::RegisterBrokerRequest,
        register_broker::RegisterBrokerResponse,
        register_broker::BrokerRequest,
        register_broker::QueryDataVersionResponse,
        register_broker::BrokerHeartbeatRequest,
        register_broker::WritePermRequest,
        register_broker::WipeWritePermResponse,
        register_broker::AddWritePermResponse,
        register_broker::MemberGroupRequest,
        reply::PushReplyRequest,
        reply::RecallRequest,
        reply::RecallResponse,
        send::SendResponse,
        send_back::SendBackRequest,
        topic::CreateTopicRequest,
        topic::TopicRequest,
        topic::DeleteTopicInNamesrvRequest,
        topic::GetTopicConfigRequest,
        topic::AllTopicConfigRequest,
        topic::AllTopicConfigResponse,
        topic::RouteRequest,
        topic::TopicsByClusterRequest,
        topic::BrokerConfigResponse,
        transaction::EndTransactionRequest,
        transaction::CheckTransactionStateRequest,
    );
}
