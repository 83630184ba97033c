//! Codes 34, 35, 38, 46 and the notice 40: who is there, who came, who left.

use std::sync::Arc;
use std::time::Duration;

use remoting::{Connection, Responder};
use serde::{Deserialize, Serialize};
use wire::{Command, RequestCode};

use super::{json_answer, json_body, success};
use crate::broker::Broker;
use crate::clients::{ConsumerHeartbeat, Member, Subscription};
use crate::error::BrokerError;
use crate::filter::{Filter, FilterError};
use crate::names;

/// Longest wait for name servers to know a new retry topic before the heartbeat is answered.
const REGISTER_WAIT: Duration = Duration::from_millis(1_000);
/// Most groups in one heartbeat.
const GROUPS_MAX: usize = 1_024;
/// Longest client id, in bytes.
const CLIENT_ID_MAX: usize = 512;

/// The body of RocketMQ 5.4.0 `HeartbeatData`, as any client writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HeartbeatBody {
    #[serde(rename = "clientID")]
    client_id: String,
    producer_data_set: Vec<ProducerBody>,
    consumer_data_set: Vec<ConsumerBody>,
    heartbeat_fingerprint: i64,
    without_sub: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProducerBody {
    group_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConsumerBody {
    group_name: String,
    consume_type: String,
    message_model: String,
    consume_from_where: String,
    subscription_data_set: Vec<SubscriptionBody>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SubscriptionBody {
    topic: String,
    sub_string: String,
    expression_type: Option<String>,
    sub_version: i64,
    class_filter_mode: bool,
    tags_set: Vec<String>,
}

impl HeartbeatBody {
    /// The short form leaves the subscriptions out.
    fn is_short(&self) -> bool {
        self.heartbeat_fingerprint != 0 && self.without_sub
    }
}

/// The C++ client writes ordinals, others names in any case.
fn named(value: &str, names: &[&str]) -> String {
    let by_ordinal = value
        .parse::<usize>()
        .ok()
        .and_then(|ordinal| names.get(ordinal).copied());
    let by_name = names
        .iter()
        .find(|name| name.eq_ignore_ascii_case(value))
        .copied();
    by_ordinal
        .or(by_name)
        .or(names.first().copied())
        .unwrap_or_default()
        .to_owned()
}

const CONSUME_TYPES: [&str; 3] = ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"];
const MESSAGE_MODELS: [&str; 2] = ["BROADCASTING", "CLUSTERING"];
const FROM_WHERE: [&str; 6] = [
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
];

/// Answers a heartbeat: inline where every group is known, else once its retry topics are created
/// and registered.
pub(crate) fn handle(broker: &Arc<Broker>, cmd: Command, to: Responder) {
    let body: HeartbeatBody = match json_body(&cmd).and_then(check) {
        Ok(body) => body,
        Err(error) => return to.send(error.to_response()),
    };
    let is_new = body.consumer_data_set.iter().any(|consumer| {
        !broker.groups.contains(&consumer.group_name)
            || !broker
                .topics
                .contains(&names::retry_topic(&consumer.group_name))
    });
    let known = relies_on_known(broker, &body, to.conn().id());
    if !is_new {
        let refused = accept(broker, &cmd, &body, &to);
        return to.send(refused.unwrap_or_else(|| answer(known)));
    }
    let owner = broker.clone();
    let bytes = cmd.body.len();
    broker.admission.create.run(broker, bytes, move |admitted| {
        if let Err(error) = admitted {
            return to.send(error.to_response());
        }
        create_groups(&owner, &body);
        let refused = accept(&owner, &cmd, &body, &to);
        let response = refused.unwrap_or_else(|| answer(known));
        let sequence = owner.topics.sequence();
        let task = owner.clone();
        owner.spawn(async move {
            task.registration.wait_synced(sequence, REGISTER_WAIT).await;
            to.send(response);
        });
    });
}

fn check(body: HeartbeatBody) -> Result<HeartbeatBody, BrokerError> {
    let groups = body.consumer_data_set.len() + body.producer_data_set.len();
    if groups > GROUPS_MAX {
        return Err(BrokerError::Body(format!(
            "{groups} groups in one heartbeat, the limit is {GROUPS_MAX}"
        )));
    }
    if body.client_id.len() > CLIENT_ID_MAX {
        return Err(BrokerError::Body(format!(
            "clientID is longer than {CLIENT_ID_MAX} bytes"
        )));
    }
    Ok(body)
}

/// Groups that may not be created are skipped, as RocketMQ does; their pulls say why.
fn create_groups(broker: &Arc<Broker>, body: &HeartbeatBody) {
    for consumer in &body.consumer_data_set {
        let created = broker
            .ensure_group(&consumer.group_name)
            .and_then(|group| broker.ensure_retry_topic(&group));
        if let Err(error) = created {
            tracing::debug!(group = %names::shorten(&consumer.group_name), %error, "group of a heartbeat not created");
        }
    }
}

/// Notes the members. `Some` when a group has members of the other kind: the rest of the heartbeat counts.
fn accept(
    broker: &Arc<Broker>,
    cmd: &Command,
    body: &HeartbeatBody,
    to: &Responder,
) -> Option<Command> {
    let conn = to.conn();
    let member = Member {
        client_id: Arc::from(body.client_id.as_str()),
        language: cmd.language,
        version: cmd.version,
        fingerprint: body.heartbeat_fingerprint,
        conn: conn.clone(),
        seen: broker.clock.monotonic(),
        seen_ms: broker.now_ms(),
        pops: false,
        popped: None,
        received_ms: None,
    };
    for producer in &body.producer_data_set {
        if !producer.group_name.is_empty() {
            broker.producers.heartbeat(&producer.group_name, &member);
        }
    }
    let mut refused = None;
    for consumer in &body.consumer_data_set {
        let group = consumer.group_name.as_str();
        let Some(config) = broker.groups.get(group) else {
            continue;
        };
        let keep = body.is_short();
        let beat = ConsumerHeartbeat {
            consume_type: named(&consumer.consume_type, &CONSUME_TYPES),
            message_model: named(&consumer.message_model, &MESSAGE_MODELS),
            consume_from_where: named(&consumer.consume_from_where, &FROM_WHERE),
            subscriptions: (!keep).then(|| {
                consumer
                    .subscription_data_set
                    .iter()
                    .map(subscription)
                    .collect()
            }),
        };
        let broadcasting = beat.message_model == "BROADCASTING";
        let pops = beat.consume_type == "CONSUME_POP";
        let member = Member {
            pops,
            ..member.clone()
        };
        let join = || broker.consumers.heartbeat(group, beat, member);
        let changed = match broker.enter_by_heartbeat(group, conn, pops, join) {
            Ok(changed) => changed,
            Err(error) => {
                // One that was silent too long lost the group: it must not stand in the list of consumers any more.
                if let Some(member) = broker.consumers.leave(conn.id(), group) {
                    member_left(broker, group, &member);
                }
                refused = Some(error.to_response());
                continue;
            }
        };
        if changed == Some(true) {
            crate::pop::kind_changed(broker, group);
        }
        if changed == Some(true) && config.notify_consumer_ids_changed_enable && !broadcasting {
            notify(broker, group);
        }
    }
    // A connection that closed while it was being noted would stay noted for two minutes.
    if conn.is_closed() {
        connection_closed(broker, conn);
    }
    refused
}

fn subscription(body: &SubscriptionBody) -> Subscription {
    let kind = body
        .expression_type
        .clone()
        .filter(|kind| !kind.is_empty())
        .unwrap_or_else(|| "TAG".to_owned());
    // The hashes are computed anew: the Go client's are of other characters.
    let filter = match Filter::parse(Some(&kind), Some(&body.sub_string)) {
        Ok(Filter::All) if !body.tags_set.is_empty() => Filter::of_tags(body.tags_set.clone()).ok(),
        Ok(filter) => Some(filter),
        Err(FilterError::Kind(_) | FilterError::TooLarge) => None,
    };
    Subscription {
        topic: body.topic.clone(),
        expression_type: kind,
        expression: body.sub_string.clone(),
        version: body.sub_version,
        class_filter: body.class_filter_mode,
        filter: filter.map(Arc::new),
    }
}

/// Whether a heartbeat is a short one whose subscriptions this connection has sent before. After a restart of the broker
/// it is not: the client has to send them again.
fn relies_on_known(broker: &Broker, body: &HeartbeatBody, conn_id: u64) -> bool {
    body.is_short()
        && body.consumer_data_set.iter().all(|consumer| {
            broker
                .consumers
                .knows(&consumer.group_name, conn_id, body.heartbeat_fingerprint)
        })
}

fn answer(known: bool) -> Command {
    let mut response = success();
    response.ext.put("IS_SUPPORT_HEART_BEAT_V2", true);
    response.ext.put("IS_SUB_CHANGE", !known);
    response
}

/// Tells every member of the group that its members changed.
fn notify(broker: &Broker, group: &str) {
    let Some(view) = broker.consumers.view(group) else {
        return;
    };
    for member in view.members {
        let mut cmd = Command::oneway(RequestCode::NotifyConsumerIdsChanged);
        cmd.ext.put("consumerGroup", group);
        if let Err(error) = member.conn.send_oneway(cmd) {
            tracing::debug!(group, peer = %member.conn.peer(), %error, "member not told of a change");
        }
    }
}

/// A member is gone: its queue locks are free, the others are told.
pub(crate) fn member_left(broker: &Broker, group: &str, member: &Member) {
    broker.locks.release(group, &member.client_id);
    let tell = broker
        .groups
        .get(group)
        .is_none_or(|config| config.notify_consumer_ids_changed_enable);
    if tell && broker.consumers.is_broadcasting(group) == Some(false) {
        notify(broker, group);
    }
}

/// A connection ended: its members are gone.
pub(crate) fn connection_closed(broker: &Broker, conn: &Arc<Connection>) {
    broker.producers.remove(conn.id(), None);
    for (group, member) in broker.consumers.disconnected(conn.id()) {
        member_left(broker, &group, &member);
    }
}

/// Code 35.
pub(crate) fn unregister(
    broker: &Arc<Broker>,
    cmd: &Command,
    conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let _client: String = cmd.ext.required("clientID")?;
    if let Some(group) = cmd
        .ext
        .get("producerGroup")
        .filter(|group| !group.is_empty())
    {
        broker.producers.remove(conn.id(), Some(group));
    }
    if let Some(group) = cmd
        .ext
        .get("consumerGroup")
        .filter(|group| !group.is_empty())
        && let Some(member) = broker.consumers.leave(conn.id(), group)
    {
        member_left(broker, group, &member);
    }
    let mut response = success();
    response.ext.mark_present();
    Ok(response)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsumerList {
    consumer_id_list: Vec<String>,
}

/// Code 38.
pub(crate) fn consumer_list(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let group: String = cmd.ext.required("consumerGroup")?;
    let ids = broker.consumers.client_ids(&group);
    if ids.is_empty() {
        return Err(BrokerError::Absent(format!(
            "no consumer for this group, {}",
            names::shorten(&group)
        )));
    }
    let mut response = json_answer(&ConsumerList {
        consumer_id_list: ids.iter().map(|id| id.to_string()).collect(),
    });
    response.ext.mark_present();
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CheckBody {
    subscription_data: SubscriptionBody,
}

/// Code 46: whether a subscription can be served, before a client relies on it.
pub(crate) fn check_client(
    _broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    if cmd.body.is_empty() {
        return Ok(success());
    }
    let body: CheckBody = json_body(cmd)?;
    let wanted = &body.subscription_data;
    match Filter::parse(wanted.expression_type.as_deref(), Some(&wanted.sub_string)) {
        Ok(_) => Ok(success()),
        Err(FilterError::Kind(_)) => Err(BrokerError::Absent(
            "broker does not support consumer to filter message by SQL92".to_owned(),
        )),
        Err(FilterError::TooLarge) => Err(BrokerError::Subscription(
            "the expression is too long".to_owned(),
        )),
    }
}
