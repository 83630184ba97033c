//! Requests from the broker to a client, on the client's own connection.

use std::sync::Arc;
use std::time::Duration;

use remoting::{ErrorKind, Responder};
use wire::Command;

use super::Member;
use crate::broker::Broker;
use crate::dispatch::reply;
use crate::error::BrokerError;
use crate::names;

/// Longest wait for the answer of a client (RocketMQ 5.4.0 `Broker2Client.callClient`).
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// First client version that answers the broker's questions: 3.1.8-SNAPSHOT.
const ANSWERS_SINCE: i32 = 62;

/// Asks a member of a consumer group and returns its answer, whatever that says. It waits for up to
/// [`CALL_TIMEOUT`].
///
/// # Errors
/// The client is not connected (code 1), too old to be asked (code 1), or did not answer in time (code 207).
async fn call_client(
    broker: &Broker,
    group: &str,
    client_id: &str,
    request: Command,
) -> Result<Command, BrokerError> {
    let member = broker.consumers.member(group, client_id).ok_or_else(|| {
        BrokerError::Absent(format!(
            "The Consumer <{}> <{}> not online",
            names::shorten(group),
            names::shorten(client_id)
        ))
    })?;
    call_member(&member, request).await
}

/// As [`call_client`], for a member that is known.
pub(crate) async fn call_member(member: &Member, request: Command) -> Result<Command, BrokerError> {
    let name = || names::shorten(&member.client_id);
    if member.version < ANSWERS_SINCE {
        return Err(BrokerError::Absent(format!(
            "The Consumer <{}> is too old to answer: its version is {}, the first that can is {ANSWERS_SINCE}",
            name(),
            member.version
        )));
    }
    match member.conn.ask(request, CALL_TIMEOUT).await {
        Ok(answer) => Ok(answer),
        Err(error) if error.kind == ErrorKind::Timeout => Err(BrokerError::NoAnswer(name())),
        Err(error) => Err(BrokerError::Absent(format!(
            "The Consumer <{}> could not be asked: {error}",
            name()
        ))),
    }
}

/// Asks a member of a consumer group and passes code, remark and body of its answer on to who asked the broker.
/// Waits in the background; the number of those that wait is bounded.
pub(crate) fn pass_on(
    broker: &Arc<Broker>,
    group: String,
    client_id: String,
    request: Command,
    to: Responder,
) {
    let Some(place) = broker.admission.admin.place_to_wait() else {
        return to.send(BrokerError::Overload.to_response());
    };
    let owner = broker.clone();
    broker.spawn(async move {
        let answer = tokio::select! {
            () = owner.stopping.cancelled() => Err(BrokerError::Stopping),
            answer = call_client(&owner, &group, &client_id, request) => answer,
        };
        drop(place);
        reply(to, answer);
    });
}
