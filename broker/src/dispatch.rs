//! Which handler answers which request, and where it runs: inline, or on a blocking thread with a permit.

use std::sync::Arc;

use remoting::{Connection, Responder};
use wire::{Command, RequestCode};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::handlers::{
    assignment, broker_config, broker_stats, cleanup, config_level, consume_stats, consumer_call,
    consumer_info, consumer_status, forbidden, gantry_group, gantry_topic, group, group_offsets,
    heartbeat, inspect, lists, lock, offset, pull, reply_message, reset_offset, runtime_info, send,
    send_back, time_span, topic, view,
};
use crate::pop;
use crate::unserved;

/// What most handlers are: a request in, an answer out.
pub(crate) type Handler =
    fn(&Arc<Broker>, &Command, &Arc<Connection>) -> Result<Command, BrokerError>;

/// Answers one request.
pub(crate) fn dispatch(broker: &Arc<Broker>, fast: bool, cmd: Command, to: Responder) {
    #[cfg(feature = "planted-faults")]
    let Some((cmd, to)) = crate::planted::plant(broker, cmd, to) else {
        return;
    };
    match cmd.request_code() {
        RequestCode::SendMessage | RequestCode::SendMessageV2 | RequestCode::SendBatchMessage => {
            send::handle(broker, cmd, to);
        }
        RequestCode::SendReplyMessage | RequestCode::SendReplyMessageV2 => {
            reply_message::handle(broker, cmd, to);
        }
        RequestCode::PopMessage if !fast => pop::pop(broker, &cmd, to),
        RequestCode::Notification if !fast => pop::notify(broker, &cmd, to),
        RequestCode::PollingInfo if !fast => inline(broker, &cmd, to, pop::polling_info),
        RequestCode::PeekMessage if !fast => blocking(broker, cmd, to, pop::peek),
        RequestCode::AckMessage => pop::ack(broker, &cmd, to),
        RequestCode::BatchAckMessage => pop::batch_ack(broker, &cmd, to),
        RequestCode::ChangeMessageInvisibletime => pop::change_invisible(broker, &cmd, to),
        RequestCode::Settle => pop::settle(broker, &cmd, to),
        RequestCode::PullMessage | RequestCode::LitePullMessage if !fast => {
            pull::handle(broker, cmd, to)
        }
        RequestCode::HeartBeat => heartbeat::handle(broker, cmd, to),
        RequestCode::UnregisterClient => inline(broker, &cmd, to, heartbeat::unregister),
        RequestCode::GetConsumerListByGroup => inline(broker, &cmd, to, heartbeat::consumer_list),
        RequestCode::CheckClientConfig => inline(broker, &cmd, to, heartbeat::check_client),
        RequestCode::QueryConsumerOffset => inline(broker, &cmd, to, offset::query),
        RequestCode::UpdateConsumerOffset => inline(broker, &cmd, to, offset::update),
        RequestCode::GetMaxOffset => inline(broker, &cmd, to, offset::max),
        RequestCode::GetMinOffset => inline(broker, &cmd, to, offset::min),
        RequestCode::SearchOffsetByTimestamp => blocking(broker, cmd, to, offset::search),
        RequestCode::GetEarliestMsgStoretime => blocking(broker, cmd, to, offset::earliest),
        RequestCode::ConsumerSendMsgBack => send_back::handle(broker, cmd, to),
        RequestCode::LockBatchMq => inline(broker, &cmd, to, lock::lock),
        RequestCode::UnlockBatchMq => inline(broker, &cmd, to, lock::unlock),
        RequestCode::QueryAssignment => assignment::query(broker, &cmd, to),
        RequestCode::SetMessageRequestMode => blocking(broker, cmd, to, assignment::set_mode),
        RequestCode::GetAllMessageRequestMode => blocking(broker, cmd, to, assignment::all_modes),
        RequestCode::ViewMessageById => blocking(broker, cmd, to, view::by_offset),
        RequestCode::UpdateAndCreateTopic => blocking(broker, cmd, to, topic::update),
        RequestCode::DeleteTopicInBroker => blocking(broker, cmd, to, topic::delete),
        RequestCode::GetAllTopicConfig => blocking(broker, cmd, to, topic::all),
        RequestCode::GetTopicConfig => inline(broker, &cmd, to, topic::get),
        RequestCode::GetTopicStatsInfo => blocking(broker, cmd, to, topic::stats),
        RequestCode::GetSystemTopicListFromBroker => inline(broker, &cmd, to, topic::system_list),
        RequestCode::UpdateAndCreateSubscriptiongroup => blocking(broker, cmd, to, group::update),
        RequestCode::DeleteSubscriptiongroup => blocking(broker, cmd, to, group::delete),
        RequestCode::GetAllSubscriptiongroupConfig => blocking(broker, cmd, to, group::all),
        RequestCode::GetSubscriptiongroupConfig => blocking(broker, cmd, to, group::get),
        RequestCode::GetConsumerConnectionList => {
            inline(broker, &cmd, to, consumer_info::consumers)
        }
        RequestCode::GetConsumerRunningInfo => consumer_call::running_info(broker, cmd, to),
        RequestCode::ConsumeMessageDirectly => consumer_call::consume_directly(broker, cmd, to),
        RequestCode::GetProducerConnectionList => {
            inline(broker, &cmd, to, consumer_info::producers)
        }
        RequestCode::GetAllProducerInfo => blocking(broker, cmd, to, consumer_info::all_producers),
        RequestCode::GetConsumeStats => blocking(broker, cmd, to, consume_stats::stats),
        RequestCode::QueryTopicConsumeByWho => {
            blocking(broker, cmd, to, consume_stats::groups_of_topic)
        }
        RequestCode::QueryTopicsByConsumer => {
            blocking(broker, cmd, to, consume_stats::topics_of_group)
        }
        RequestCode::GetBrokerConsumeStats => blocking(broker, cmd, to, consume_stats::all),
        RequestCode::QueryConsumeTimeSpan => blocking(broker, cmd, to, time_span::query),
        RequestCode::ViewBrokerStatsData => inline(broker, &cmd, to, broker_stats::view),
        RequestCode::QueryConsumeQueue => blocking(broker, cmd, to, inspect::queue),
        RequestCode::QuerySubscriptionByConsumer => inline(broker, &cmd, to, inspect::subscription),
        RequestCode::QueryCorrectionOffset => blocking(broker, cmd, to, group_offsets::corrections),
        RequestCode::CloneGroupOffset => blocking(broker, cmd, to, group_offsets::clone),
        RequestCode::UpdateAndGetGroupForbidden => blocking(broker, cmd, to, forbidden::update),
        RequestCode::CleanExpiredConsumequeue => blocking(broker, cmd, to, cleanup::queues),
        RequestCode::CleanUnusedTopic => blocking(broker, cmd, to, cleanup::topics),
        RequestCode::DeleteExpiredCommitlog => blocking(broker, cmd, to, cleanup::log),
        RequestCode::ResetMasterFlushOffset => {
            inline(broker, &cmd, to, cleanup::master_flush_offset)
        }
        RequestCode::UpdateAndCreateTopicList => blocking(broker, cmd, to, lists::topics),
        RequestCode::UpdateAndCreateSubscriptiongroupList => {
            blocking(broker, cmd, to, lists::groups)
        }
        RequestCode::GetAllDelayOffset => blocking(broker, cmd, to, lists::delay_offsets),
        RequestCode::GetAllConsumerOffset => blocking(broker, cmd, to, offset::all),
        RequestCode::InvokeBrokerToResetOffset => blocking(broker, cmd, to, reset_offset::reset),
        RequestCode::InvokeBrokerToGetConsumerStatus => consumer_status::ask_all(broker, &cmd, to),
        RequestCode::GetBrokerConfig => inline(broker, &cmd, to, broker_config::get),
        RequestCode::UpdateBrokerConfig => blocking(broker, cmd, to, broker_config::update),
        RequestCode::GetBrokerRuntimeInfo => blocking(broker, cmd, to, runtime_info::get),
        RequestCode::PutTopic => blocking(broker, cmd, to, gantry_topic::put),
        RequestCode::GetTopic => blocking(broker, cmd, to, gantry_topic::get),
        RequestCode::PutGroup => blocking(broker, cmd, to, gantry_group::put),
        RequestCode::GetGroup => inline(broker, &cmd, to, gantry_group::get),
        RequestCode::PutSubscription => blocking(broker, cmd, to, gantry_group::put_subscription),
        RequestCode::DeleteSubscription => {
            blocking(broker, cmd, to, gantry_group::delete_subscription)
        }
        RequestCode::ListConfig => blocking(broker, cmd, to, config_level::list),
        RequestCode::FetchConfig => blocking(broker, cmd, to, config_level::fetch),
        RequestCode::OfferConfig => blocking(broker, cmd, to, config_level::offer),
        RequestCode::GroupLag => blocking(broker, cmd, to, gantry_group::lag),
        RequestCode::GroupMembers => blocking(broker, cmd, to, consumer_info::members),
        RequestCode::InFlight => blocking(broker, cmd, to, pop::list_in_flight),
        code => to.send(unserved::refusal(code).to_response()),
    }
}

/// Answers on the connection's own task. For handlers that only touch memory.
fn inline(broker: &Arc<Broker>, cmd: &Command, to: Responder, handler: Handler) {
    let answer = handler(broker, cmd, to.conn());
    reply(to, answer);
}

/// Answers on a blocking thread, in the administrative class.
pub(crate) fn blocking(broker: &Arc<Broker>, cmd: Command, to: Responder, handler: Handler) {
    let owner = broker.clone();
    broker
        .admission
        .admin
        .run(broker, cmd.body.len(), move |admitted| {
            let answer = admitted.and_then(|()| handler(&owner, &cmd, to.conn()));
            reply(to, answer);
        });
}

/// Sends the answer or the refusal.
pub(crate) fn reply(to: Responder, answer: Result<Command, BrokerError>) {
    match answer {
        Ok(response) => to.send(response),
        Err(error) => to.send(error.to_response()),
    }
}
