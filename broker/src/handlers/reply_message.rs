//! Codes 324, 325 and the push 326: the reply to a request goes to the client that waits for it, and into the log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remoting::Responder;
use tokio::sync::oneshot;
use wire::headers::reply::PushReplyRequest;
use wire::message::properties::{PropertiesView, names as property, push};
use wire::{Command, RequestCode, ResponseCode};

use super::send::{self, REGION, Stored};
use super::send_request::SendRequest;
use crate::broker::Broker;
use crate::clients::Member;
use crate::durability::{PutStatus, Waiter};
use crate::names;

/// Longest wait for the requester to take the reply. It only notes it, and its replier waits 3 s.
const PUSH_WAIT: Duration = Duration::from_secs(3);

/// Stores a reply, pushes it, and answers when both are done.
pub(crate) fn handle(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    send::take(broker, cmd, to, answer);
}

fn answer(broker: &Arc<Broker>, cmd: &Command, request: &SendRequest<'_>, to: Responder) {
    let peer = to.conn().peer();
    let stored = match send::store(broker, cmd, request, peer) {
        Ok(stored) => stored,
        Err(error) => return send::refuse(broker, to, &error),
    };
    let pushed = requester(broker, request)
        .map(|member| (member, pushed_command(broker, cmd, request, &stored, peer)));
    let (done, durable) = oneshot::channel();
    broker.durability.when_durable(
        &broker.store,
        stored.last.end(),
        stored.want_flushed,
        broker.clock.monotonic(),
        Waiter::Send,
        move |status| {
            // The task below may have ended with the broker.
            done.send(status).ok();
        },
    );
    broker.spawn(async move {
        let pushed = match pushed {
            Ok((member, command)) => deliver(&member, command).await,
            Err(why) => Err(why),
        };
        let status = durable.await.unwrap_or(PutStatus::Failed);
        let mut response = send::response(&stored, status);
        if let Err(why) = pushed {
            response.code = ResponseCode::SystemError.code();
            response.remark = Some(why);
        }
        to.send(response);
    });
}

/// Who waits for the reply, by the client id that the request carried.
fn requester(broker: &Broker, request: &SendRequest<'_>) -> Result<Member, String> {
    let properties = PropertiesView::new(request.properties.as_bytes());
    let client = properties
        .get(property::REPLY_TO_CLIENT)
        .ok_or("reply message properties[REPLY_TO_CLIENT] is null")?;
    broker.producers.by_client(client).ok_or_else(|| {
        format!(
            "push reply message fail, channel of <{}> not found.",
            names::shorten(client)
        )
    })
}

fn pushed_command(
    broker: &Broker,
    cmd: &Command,
    request: &SendRequest<'_>,
    stored: &Stored,
    peer: SocketAddr,
) -> Command {
    let mut properties = String::with_capacity(request.properties.len() + 64);
    for (name, value) in PropertiesView::new(request.properties.as_bytes()).iter() {
        push(&mut properties, name, value);
    }
    push(&mut properties, property::MSG_REGION, REGION);
    push(
        &mut properties,
        property::PUSH_REPLY_TIME,
        &broker.now_ms().to_string(),
    );
    Command::request(RequestCode::PushReplyMessageToClient)
        .with_header(&PushReplyRequest {
            producer_group: request.producer_group.to_owned(),
            topic: request.topic.to_owned(),
            default_topic: request.default_topic.to_owned(),
            default_topic_queue_nums: request.default_queues,
            queue_id: stored.queue_id,
            sys_flag: request.client_sys_flag(),
            born_ts_ms: request.born_ts_ms,
            flag: request.flag,
            properties: Some(properties),
            reconsume_times: Some(request.reconsume_times),
            unit_mode: Some(false),
            born_host: peer.to_string(),
            store_host: broker.store_host.to_string(),
            store_ts_ms: stored.last.store_timestamp_ms,
        })
        .with_body(cmd.body.to_bytes())
}

async fn deliver(requester: &Member, command: Command) -> Result<(), String> {
    let name = || names::shorten(&requester.client_id);
    match requester.conn.ask(command, PUSH_WAIT).await {
        Ok(answer) if answer.response_code() == ResponseCode::Success => Ok(()),
        Ok(answer) => Err(format!(
            "push reply message to <{}> fail, it answered {}: {}",
            name(),
            answer.code,
            answer.remark.unwrap_or_default()
        )),
        Err(error) => Err(format!("push reply message to <{}> fail: {error}", name())),
    }
}
