//! One receive: every broker that has messages for the group is asked in turn, without a wait for arrivals.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use wire::body::gantry::GroupDetail;
use wire::{Command, RequestCode, ResponseCode};

use super::consumer::{
    Delivery, Gap, Giver, PopRequest, Popped, STALE_CONFIG, UNREACHABLE, leave_out, left_out,
    unregistered,
};
use super::groups::version_in;
use super::inflating::{InflateRoom, read_at};
use super::routes::{Broker, Route};
use super::silence::PATIENCE;
use super::timing::BrokerCall;
use super::{Upstream, decode, mapping, time_left};
use crate::error::{ApiError, Code};

/// Largest answer of one pop.
const POP_MAX: u32 = 256;
/// How long an answer is awaited after the request, to give back what it holds.
const KEPT: Duration = Duration::from_secs(60);

impl Upstream {
    /// One no-wait sweep over all brokers that hold the topic(s). Creates group and subscription where `autoCreate` is
    /// on and a topic is named. A broker that does not answer is waited for only while no other does. Dropping the
    /// returned future, or the result, loses no attempt.
    ///
    /// # Errors
    /// `group_not_found`, `topic_not_found`, `subscription_not_found`, `group_mode_conflict`, `too_many_inflight`,
    /// `broker_unavailable` (no broker reached).
    pub async fn pop(&self, request: &PopRequest) -> Result<Popped, ApiError> {
        let (named, deadline) = (request.topic.as_deref(), request.deadline);
        let group = self
            .group_for_receive(&request.group, named, deadline)
            .await?;
        self.enter(&group, named, &request.member, deadline).await?;
        // A broker may have told a newer version.
        let group = self
            .group_for_receive(&request.group, named, deadline)
            .await?;
        let mut sweep = Sweep {
            upstream: self,
            request,
            group: &group,
            all: Popped::given_by(self.giver(request)),
            versions: Vec::new(),
            served: false,
            last: None,
            passed: Vec::new(),
            late: FuturesUnordered::new(),
        };
        let mut found = false;
        for topic in self.topics_of(&group, request.topic.as_deref()) {
            let route = match self.route(&topic, request.deadline).await {
                Err(_) if !sweep.all.gap.is_empty() => continue,
                route => route?,
            };
            let Some(route) = route else {
                if request.topic.is_some() {
                    return Err(ApiError::new(
                        Code::TopicNotFound,
                        format!("topic '{topic}' does not exist"),
                    ));
                }
                continue;
            };
            found = true;
            if !sweep.visit(topic, &route).await? {
                return Ok(sweep.of_one_version());
            }
        }
        if !found && !group.subscriptions.is_empty() {
            let detail = format!(
                "no topic that group '{}' subscribes exists; delete its subscriptions or create a topic",
                request.group
            );
            return Err(ApiError::new(Code::TopicNotFound, detail));
        }
        sweep.end().await
    }

    fn giver(&self, request: &PopRequest) -> Giver {
        Giver {
            upstream: self.clone(),
            scope: request.scope.clone(),
            group: request.group.clone(),
        }
    }

    /// The topics to sweep, in rotated order.
    pub(super) fn topics_of(&self, group: &GroupDetail, named: Option<&str>) -> Vec<String> {
        if let Some(topic) = named {
            return vec![topic.to_owned()];
        }
        let mut topics: Vec<String> = group
            .subscriptions
            .iter()
            .map(|s| s.topic.clone())
            .collect();
        if topics.len() > 1 {
            let by = self.0.routes.next_name_server() % topics.len();
            topics.rotate_left(by);
        }
        topics
    }

    /// Asks one broker for `max` messages and bytes within the limit of leases. The pop runs in a task of its own: a
    /// caller that goes away loses no message, since the task gives them back.
    fn pop_broker(
        &self,
        request: &PopRequest,
        target: &Target,
        (max, max_bytes, limit): (u32, u32, Option<u32>),
        group: &Arc<GroupDetail>,
    ) -> JoinHandle<Result<Popped, ApiError>> {
        let mut command = Command::request(RequestCode::PopMessage);
        let ext = &mut command.ext;
        ext.put("consumerGroup", &request.group);
        ext.put("topic", &target.topic);
        ext.put("queueId", "-1");
        ext.put("maxMsgNums", max);
        ext.put("invisibleTime", request.invisible_ms.unwrap_or(0));
        ext.put("pollTime", "0");
        ext.put("bornTime", self.now_ms());
        ext.put("initMode", "0");
        ext.put("gantry", "1");
        ext.put("groupVersion", group.version);
        self.name(&request.member, ext);
        ext.put("maxBytes", max_bytes.max(1));
        ext.put("notFirst", max_bytes < request.max_bytes);
        if let Some(limit) = limit {
            ext.put("memberLimit", limit);
        }
        let (upstream, target, group) = (self.clone(), target.clone(), Arc::clone(group));
        let (giver, deadline) = (self.giver(request), request.deadline);
        let draining = self.0.options.draining.clone();
        self.0.options.tracker.spawn(async move {
            let addr = &target.broker().addr;
            let response = tokio::select! {
                response = upstream.call(addr, command, deadline + KEPT) => response?,
                () = async { draining.cancelled().await; sleep_until(deadline).await } => {
                    return Err(mapping::unanswered());
                }
            };
            let body = response.body.to_bytes();
            // Without a place what is deflated goes back to the broker.
            let (place, room) = match upstream.place_to_inflate(&body, deadline).await {
                Ok(place) => {
                    let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                    (place, InflateRoom::new(max_bytes))
                }
                Err(_) => (None, InflateRoom::none()),
            };
            let read = move || upstream.read_pop(&response, &target, &group, room, giver);
            read_at(place, read).await
        })
    }

    fn read_pop(
        &self,
        response: &Command,
        target: &Target,
        group: &GroupDetail,
        room: InflateRoom,
        giver: Giver,
    ) -> Result<Popped, ApiError> {
        let (broker, topic) = (target.broker().name.as_str(), target.topic.as_str());
        let mut popped = Popped::given_by(giver.clone());
        popped.paused = response.ext.bool("paused");
        popped.more = response.ext.bool("more");
        popped.member_full = response.ext.bool("memberFull");
        popped.gap = gaps(response, broker, topic);
        popped.group_version = version_in(response);
        self.learn_version(response, &group.group, group.version);
        match response.response_code() {
            ResponseCode::Success => {}
            ResponseCode::PollingTimeout
            | ResponseCode::PullNotFound
            | ResponseCode::PullRetryImmediately => {
                return Ok(popped);
            }
            _ => {
                let about = mapping::About::Receive(&giver.group, topic);
                return Err(self.forget_if_unknown(mapping::answer(response, about), &giver.group));
            }
        }
        let context = decode::Context {
            broker,
            scope: &giver.scope,
            group: &giver.group,
            receipts: &self.0.options.receipts,
            max_attempts: group.spec.max_attempts,
            now_ms: i64::try_from(self.now_ms()).unwrap_or(i64::MAX),
        };
        let (messages, left) = decode::deliveries(response, &context, room)?;
        popped.messages = messages;
        popped.more |= !left.is_empty();
        if !left.is_empty() {
            giver.give_back(left);
        }
        popped.more |= response
            .ext
            .optional::<i64>("restNum")
            .ok()
            .flatten()
            .is_some_and(|n| n > 0);
        if !popped.messages.is_empty() {
            self.0.notifier.taken(&group.group, topic, broker);
        }
        Ok(popped)
    }
}

/// One topic at one of the brokers of its route.
#[derive(Clone, Debug)]
struct Target {
    topic: String,
    route: Arc<Route>,
    /// Place in `route.readable`.
    at: usize,
}

impl Target {
    fn broker(&self) -> &Arc<Broker> {
        &self.route.readable[self.at]
    }
}

type Answer = Result<Popped, ApiError>;

/// A receive under way.
struct Sweep<'a> {
    upstream: &'a Upstream,
    request: &'a PopRequest,
    group: &'a Arc<GroupDetail>,
    all: Popped,
    /// Brokers that answered, with their version of the group.
    versions: Vec<(String, u64)>,
    /// A broker has answered, with messages or without.
    served: bool,
    /// Why the last broker that was left out was.
    last: Option<ApiError>,
    /// Known not to answer, so not asked yet.
    passed: Vec<Target>,
    /// Asked, and not answered in time.
    late: FuturesUnordered<BoxFuture<'static, (Target, Answer)>>,
}

impl Sweep<'_> {
    /// Asks the brokers of a topic; false where the answer is full before all were asked.
    async fn visit(&mut self, topic: String, route: &Arc<Route>) -> Result<bool, ApiError> {
        for gone in &route.gone {
            let name = &gone.broker.name;
            self.leave_out(name, UNREACHABLE, unregistered(name));
        }
        let start = self.upstream.0.routes.next_name_server();
        let count = route.readable.len();
        let targets = (0..count).map(|i| Target {
            topic: topic.clone(),
            route: Arc::clone(route),
            at: start.wrapping_add(i) % count,
        });
        let (silent, others): (Vec<_>, Vec<_>) =
            targets.partition(|target| self.upstream.is_silent(&target.broker().addr));
        for target in silent {
            let name = &target.broker().name;
            self.leave_out(name, UNREACHABLE, mapping::unanswered());
            self.passed.push(target);
        }
        for target in others {
            if self.left().is_none() {
                self.all.more = true;
                return Ok(false);
            }
            self.ask(target).await?;
        }
        Ok(true)
    }

    /// Messages and bytes that may still be taken; `None` = no more.
    fn left(&self) -> Option<(u32, u32)> {
        let taken = u32::try_from(self.all.messages.len()).unwrap_or(u32::MAX);
        let messages = self.request.max.min(POP_MAX).saturating_sub(taken);
        let bytes: usize = self.all.messages.iter().map(|m| m.body.len()).sum();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = self.request.max_bytes.saturating_sub(bytes);
        (messages > 0 && (bytes > 0 || taken == 0)).then_some((messages, bytes))
    }

    /// Takes from one broker, unless it does not answer in time: then the others go on.
    async fn ask(&mut self, target: Target) -> Result<(), ApiError> {
        let Some((messages, bytes)) = self.left() else {
            return Ok(());
        };
        if let Err(error) = time_left(self.request.deadline) {
            self.leave_out(&target.broker().name, UNREACHABLE, error);
            return Ok(());
        }
        let limit = self
            .request
            .limit_at(&target.broker().name, &self.all.messages);
        if limit == Some(0) {
            (self.served, self.all.member_full) = (true, true);
            return Ok(());
        }
        let _call = BrokerCall::begin();
        let wanted = (messages, bytes, limit);
        let pop = self
            .upstream
            .pop_broker(self.request, &target, wanted, self.group);
        let interrupted = || ApiError::new(Code::Internal, "the receive was interrupted");
        let mut pop: BoxFuture<'static, Answer> =
            Box::pin(async move { pop.await.unwrap_or_else(|_| Err(interrupted())) });
        let until = self.request.deadline.min(Instant::now() + PATIENCE);
        if let Ok(answer) = timeout_at(until, &mut pop).await {
            return self.take(&target, answer);
        }
        if until < self.request.deadline {
            self.upstream.fell_silent(&target.broker().addr);
        }
        self.leave_out(&target.broker().name, UNREACHABLE, mapping::unanswered());
        self.late.push(Box::pin(async move { (target, pop.await) }));
        Ok(())
    }

    /// What a broker answered.
    fn take(&mut self, target: &Target, answer: Answer) -> Result<(), ApiError> {
        let broker = target.broker();
        let error = match answer {
            Ok(mut part) => {
                self.served = true;
                self.versions
                    .push((broker.name.clone(), part.group_version));
                let all = &mut self.all;
                all.more |= part.more;
                all.paused |= part.paused;
                all.member_full |= part.member_full;
                all.gap.append(&mut part.gap);
                all.messages.append(&mut part.messages);
                return Ok(());
            }
            Err(error) => error,
        };
        if error.code() == Code::BrokerUnavailable {
            self.upstream.doubt_route(&target.topic);
        }
        if error.is_stale_config() {
            self.upstream.0.stale.inc(&broker.name);
        }
        let readable = &target.route.readable;
        if error.code() == Code::GroupModeConflict {
            let (group, topic) = (&self.request.group, &target.topic);
            let named = self.request.topic.as_deref();
            self.upstream.refused_at(group, named, &broker.name);
            for other in readable.iter().filter(|b| b.name != broker.name) {
                self.upstream
                    .leave(group, topic, &self.request.member, other);
            }
        }
        let reason = match left_out(&error, readable.len() > 1) {
            Some(reason) => reason,
            // A loss is told once; the refusal comes again.
            None if !self.all.gap.is_empty() => UNREACHABLE,
            None => return Err(error),
        };
        self.leave_out(&broker.name, reason, error);
        Ok(())
    }

    fn leave_out(&mut self, broker: &str, reason: &'static str, error: ApiError) {
        leave_out(&mut self.all.partial, broker, reason);
        self.last = Some(error);
    }

    /// Where no broker has answered, the silent ones are asked and waited for after all.
    async fn end(mut self) -> Result<Popped, ApiError> {
        for target in std::mem::take(&mut self.passed) {
            if !self.served {
                let broker = Arc::clone(target.broker());
                self.ask(target).await?;
                self.answered_after_all(&broker);
            }
        }
        while !self.served {
            let next = timeout_at(self.request.deadline, self.late.next()).await;
            let Ok(Some((target, answer))) = next else {
                break;
            };
            self.take(&target, answer)?;
            self.answered_after_all(target.broker());
        }
        match self.last {
            Some(error) if !self.served => Err(from_none(error, &self.all.partial)),
            _ => Ok(self.of_one_version()),
        }
    }

    /// Without the messages of brokers that had an older version of the group than another of the brokers asked: the
    /// group may be paused since, or have other subscriptions. They are given back.
    fn of_one_version(mut self) -> Popped {
        let newest = self.versions.iter().map(|(_, version)| *version).max();
        for (broker, version) in std::mem::take(&mut self.versions) {
            if Some(version) == newest || version == 0 {
                continue;
            }
            self.upstream.0.stale.inc(&broker);
            leave_out(&mut self.all.partial, &broker, STALE_CONFIG);
            let old = |m: &mut Delivery| m.lease.broker == broker;
            let leases = self.all.messages.extract_if(.., old).map(|m| m.lease);
            let leases: Vec<_> = leases.collect();
            if !leases.is_empty() {
                self.upstream.giver(self.request).give_back(leases);
            }
        }
        self.all
    }

    fn answered_after_all(&mut self, broker: &Broker) {
        if self.served {
            self.all.partial.retain(|(out, _)| *out != broker.name);
        }
    }
}

/// The refusal when every broker failed: told apart from an empty queue, and to be tried again.
fn from_none(error: ApiError, partial: &[(String, &'static str)]) -> ApiError {
    if error.code() == Code::BrokerBusy {
        return error;
    }
    let brokers: Vec<String> = partial
        .iter()
        .map(|(broker, reason)| format!("{broker} ({reason})"))
        .collect();
    let detail = format!("no broker could be taken from: {}", brokers.join(", "));
    ApiError::new(Code::BrokerUnavailable, detail)
}

/// Losses that a pop answer reports. What cannot be read is none: the messages count for more.
fn gaps(response: &Command, broker: &str, topic: &str) -> Vec<Gap> {
    let text = response.ext.get("gap").unwrap_or_default();
    let gaps = wire::receipt::parse_gaps(text).unwrap_or_default();
    gaps.into_iter()
        .map(|gap| Gap {
            topic: topic.to_owned(),
            broker: broker.to_owned(),
            queue_id: gap.queue_id,
            from: gap.from,
            to: gap.to,
        })
        .collect()
}
