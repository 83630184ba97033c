//! 200050 POP_MESSAGE, 200054 NOTIFICATION, 200055 POLLING_INFO.

use std::sync::Arc;
use std::time::Duration;

use remoting::{Connection, Responder};
use wire::body::members::Transport;
use wire::headers::pop::{
    NotificationRequest, NotificationResponse, PollingInfoRequest, PollingInfoResponse, PopRequest,
};
use wire::{Command, ResponseCode};

use crate::broker::Broker;
use crate::clients::Origin;
use crate::error::BrokerError;
use crate::filter::{Filter, FilterError};
use crate::names as core_names;
use crate::table::Entry;

use super::answer;
use super::policy::LEASE_MAX_MS;
use super::position::Start;
use super::rules::Rules;
use super::sweep::Ask;
use super::waiting::{self, Form, Waiting};

/// Most messages of one pop by a RocketMQ client.
const NATIVE_MESSAGES_MAX: i32 = 32;
/// Most messages of one pop by the gateway.
const GANTRY_MESSAGES_MAX: i32 = 256;
/// Most bytes of records in one answer: stays below the frame limit whatever the caller asks.
pub(super) const BYTES_MAX: usize = 12 << 20;
/// Bytes of records in one answer unless the caller says otherwise.
pub(super) const BYTES_DEFAULT: usize = 4 << 20;
/// Longest label of a member, bytes.
const LABEL_MAX: usize = 128;
/// The label of who waits without a name.
const WAITING: &str = "waiting receive";
/// Longest wait, ms.
const POLL_MAX_MS: i64 = 120_000;
/// How much later than its poll time a request may arrive before it is taken for abandoned, ms.
const LATE_MS: i64 = 500;

/// Answers a pop, at once or when it has waited.
pub(crate) fn pop(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    match parse_pop(broker, cmd, &to) {
        Ok((ask, form, deadline_ms)) => {
            let deadline = broker.clock.monotonic() + Duration::from_millis(deadline_ms);
            waiting::begin(
                broker,
                Waiting {
                    ask,
                    form,
                    deadline,
                    to,
                },
            );
        }
        Err(error) => to.send(answer::refusal(&error)),
    }
}

/// Answers a notification, at once or when it has waited.
pub(crate) fn notify(broker: &Arc<Broker>, cmd: &Command, to: Responder) {
    match parse_notification(broker, cmd, &to) {
        Ok(None) => to.send(Command::response(ResponseCode::Success).with_header(
            &NotificationResponse {
                has_msg: false,
                polling_full: false,
            },
        )),
        Ok(Some((ask, deadline_ms))) => {
            let deadline = broker.clock.monotonic() + Duration::from_millis(deadline_ms);
            waiting::begin(
                broker,
                Waiting {
                    ask,
                    form: Form::Notify,
                    deadline,
                    to,
                },
            );
        }
        Err(error) => to.send(error.to_response()),
    }
}

/// How many requests of a group wait on a topic.
pub(crate) fn polling_info(
    broker: &Arc<Broker>,
    cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let request: PollingInfoRequest = cmd.header()?;
    let count = broker
        .pop
        .waiters
        .len_of(&request.consumer_group, &request.topic);
    let header = PollingInfoResponse {
        polling_num: i32::try_from(count).unwrap_or(i32::MAX),
    };
    Ok(Command::response(ResponseCode::Success).with_header(&header))
}

fn parse_pop(
    broker: &Arc<Broker>,
    cmd: &Command,
    to: &Responder,
) -> Result<(Ask, Form, u64), BrokerError> {
    let request: PopRequest = cmd.header()?;
    let gantry = request.gantry == Some(true);
    let (form, most) = if gantry {
        (Form::Gantry, GANTRY_MESSAGES_MAX)
    } else {
        (Form::Native, NATIVE_MESSAGES_MAX)
    };
    if !(1..=most).contains(&request.max_msg_nums) {
        return Err(BrokerError::Invalid(format!(
            "the pop message's num is {}, must be 1 to {most}",
            request.max_msg_nums
        )));
    }
    if request.order == Some(true) {
        return Err(BrokerError::NotSupported("ordered pop"));
    }
    let deadline_ms = wait_ms(broker, request.born_time_ms, request.poll_ms, gantry);
    check_topic(broker, &request.topic, request.queue_id)?;
    check_allowed(broker, &request.consumer_group, &request.topic)?;
    let known = request.group_version.filter(|_| gantry);
    let rules = check_group(broker, &request.consumer_group, known)?;
    let filter = if gantry {
        stored_filter(&rules, &request.consumer_group, &request.topic)?
    } else {
        Arc::new(native_filter(
            request.exp_type.as_deref(),
            request.exp.as_deref(),
        )?)
    };
    let invisible_ms = match u64::try_from(request.invisible_ms) {
        Ok(0) => rules.policy.invisible_ms,
        Ok(ms) => ms.min(LEASE_MAX_MS),
        Err(_) => {
            return Err(BrokerError::Invalid(
                "invisibleTime must not be negative".to_owned(),
            ));
        }
    };
    let deadline_ms = deadline_ms.ok_or(BrokerError::PopTooLate)?;
    // Last of all: a refused call keeps nobody alive.
    let member = if gantry {
        let member = label(request.member.as_deref().unwrap_or("gateway"));
        let (transport, gateway) = (request.transport.as_deref(), request.gateway.as_deref());
        let origin = origin(transport, gateway, request.member_ip.as_deref());
        broker.enter_leases(&request.consumer_group, &member, Some(origin), true)?;
        Arc::from(member)
    } else {
        let wait = Duration::from_millis(deadline_ms);
        broker.enter_pop(&request.consumer_group, to.conn(), wait)?
    };
    let bytes = request
        .max_bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(BYTES_DEFAULT);
    let ask = Ask {
        group: request.consumer_group.into(),
        topic: request.topic.into(),
        queue_id: request.queue_id,
        messages: usize::try_from(request.max_msg_nums).unwrap_or(1),
        bytes: bytes.clamp(1, BYTES_MAX),
        not_first: gantry && request.not_first == Some(true),
        invisible_ms,
        filter,
        start: if gantry || request.init_mode == 0 {
            Start::Earliest
        } else {
            Start::NativeLatest
        },
        rules,
        member: Some(member),
        member_limit: request.member_limit.unwrap_or(0),
    };
    Ok((ask, form, deadline_ms))
}

/// A member's label, cut to what is remembered.
pub(super) fn label(text: &str) -> String {
    let end = text.floor_char_boundary(LABEL_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Where the gateway says that its member is. What cannot be read is not known.
fn origin(transport: Option<&str>, gateway: Option<&str>, ip: Option<&str>) -> Origin {
    Origin {
        transport: transport.and_then(Transport::parse),
        gateway: gateway.map(|name| label(name).into()),
        ip: ip.and_then(|ip| ip.parse().ok()),
    }
}

/// `None` when the request only says that a member has left.
fn parse_notification(
    broker: &Arc<Broker>,
    cmd: &Command,
    to: &Responder,
) -> Result<Option<(Ask, u64)>, BrokerError> {
    let request: NotificationRequest = cmd.header()?;
    let gantry = request.gantry == Some(true);
    let member = request.member.as_deref().map(label);
    if gantry && request.leave == Some(true) {
        let member = member.unwrap_or_else(|| WAITING.to_owned());
        broker.leave_leases(&request.consumer_group, &member);
        return Ok(None);
    }
    check_topic(broker, &request.topic, request.queue_id)?;
    let known = request.group_version.filter(|_| gantry);
    let rules = check_group(broker, &request.consumer_group, known)?;
    let filter = if gantry {
        stored_filter(&rules, &request.consumer_group, &request.topic)?
    } else {
        Arc::new(Filter::All)
    };
    let deadline_ms = wait_ms(broker, request.born_time_ms, request.poll_ms, true).unwrap_or(0);
    if gantry {
        let (transport, gateway) = (request.transport.as_deref(), request.gateway.as_deref());
        let origin = member
            .is_some()
            .then(|| origin(transport, gateway, request.member_ip.as_deref()));
        let member = member.as_deref().unwrap_or(WAITING);
        broker.enter_leases(&request.consumer_group, member, origin, false)?;
    } else {
        let wait = Duration::from_millis(deadline_ms);
        broker.enter_pop(&request.consumer_group, to.conn(), wait)?;
    }
    let ask = Ask {
        group: request.consumer_group.into(),
        topic: request.topic.into(),
        queue_id: request.queue_id,
        messages: 1,
        bytes: 1,
        not_first: false,
        invisible_ms: rules.policy.invisible_ms,
        filter,
        start: Start::Earliest,
        rules,
        member: member.map(Into::into),
        member_limit: request.member_limit.unwrap_or(0),
    };
    Ok(Some((ask, deadline_ms)))
}

/// How long the request may wait from now, ms; `None` when it is past that already. The gateway's clock is not trusted:
/// its waits count from arrival.
fn wait_ms(broker: &Broker, born_ms: i64, poll_ms: i64, from_now: bool) -> Option<u64> {
    let poll_ms = poll_ms.clamp(0, POLL_MAX_MS);
    if from_now {
        return u64::try_from(poll_ms).ok();
    }
    let age_ms = i64::try_from(broker.now_ms())
        .unwrap_or(i64::MAX)
        .saturating_sub(born_ms);
    if age_ms > poll_ms + LATE_MS {
        return None;
    }
    u64::try_from(poll_ms.saturating_sub(age_ms.max(0)).max(0)).ok()
}

pub(super) fn check_topic(broker: &Broker, topic: &str, queue_id: i32) -> Result<(), BrokerError> {
    let config = broker
        .topics
        .get(topic)
        .ok_or_else(|| BrokerError::NoTopic(core_names::shorten(topic)))?;
    if !config.is_readable() {
        return Err(BrokerError::Forbidden(format!(
            "the topic[{topic}] peeking message is forbidden"
        )));
    }
    if core_names::is_retry(topic) {
        return Err(BrokerError::Invalid(format!(
            "topic[{topic}] is read together with its origin"
        )));
    }
    if queue_id >= config.read_queue_nums {
        return Err(BrokerError::Invalid(format!(
            "queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{}]",
            config.read_queue_nums
        )));
    }
    Ok(())
}

/// `known` is the version of the group that the gateway knows: a broker with an older one delivers nothing under it.
pub(super) fn check_group(
    broker: &Broker,
    group: &str,
    known: Option<u64>,
) -> Result<Arc<Rules>, BrokerError> {
    let config = broker.groups.get(group);
    let found = config.as_ref().map_or(0, |config| config.version());
    // The common case asks no lock: only who knows a newer version may know of a deletion.
    let newer = known.filter(|wanted| *wanted > found);
    if let Some(wanted) = newer.filter(|wanted| *wanted > broker.groups.deleted_in(group)) {
        broker.peers.look();
        return Err(BrokerError::StaleConfig {
            group: core_names::shorten(group),
            wanted,
            found,
        });
    }
    let config = config.ok_or_else(|| BrokerError::NoGroup(core_names::shorten(group)))?;
    if !config.consume_enable {
        return Err(BrokerError::Forbidden(format!(
            "subscription group no permission, {group}"
        )));
    }
    let rules = broker.pop.rules.of(&config);
    if rules.ordered {
        return Err(BrokerError::NotSupported("ordered delivery to leases"));
    }
    Ok(rules)
}

/// An administrator may have taken the group's right to read the topic away.
pub(super) fn check_allowed(broker: &Broker, group: &str, topic: &str) -> Result<(), BrokerError> {
    if broker.groups.is_forbidden(group, topic) {
        return Err(BrokerError::Forbidden(format!(
            "the consumer group[{}] is forbidden for topic[{}]",
            core_names::shorten(group),
            core_names::shorten(topic)
        )));
    }
    Ok(())
}

pub(super) fn stored_filter(
    rules: &Rules,
    group: &str,
    topic: &str,
) -> Result<Arc<Filter>, BrokerError> {
    let missing = || BrokerError::NoLeaseSubscription {
        group: group.to_owned(),
        topic: topic.to_owned(),
    };
    rules.subscriptions.get(topic).cloned().ok_or_else(missing)
}

fn native_filter(kind: Option<&str>, expression: Option<&str>) -> Result<Filter, BrokerError> {
    Filter::parse(kind, expression).map_err(|error| match error {
        FilterError::Kind(kind) => BrokerError::Subscription(format!("{kind} is not supported")),
        FilterError::TooLarge => BrokerError::Subscription("the expression is too long".to_owned()),
    })
}
