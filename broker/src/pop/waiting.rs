//! Parked pops and notifications: what they are, and what happens when they are woken or run out.

use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use remoting::Responder;
use store::PhysicalOffset;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names as core_names;

use super::answer;
use super::carry;
use super::cold;
use super::names;
use super::scan::Reach;
use super::sweep::{self, Ask, Presence, Swept};
use super::wait::{WaitKey, Wants};

/// After this long without a pop, a notification's message is announced to the next request that waits.
const UNUSED: Duration = Duration::from_millis(100);
/// How long a request that was woken makes way for others whose answers wait for the disk.
const MAKE_WAY: Duration = Duration::from_millis(50);
/// Longest that a sparse filter is followed for one request that does not wait.
const FOLLOW: Duration = Duration::from_millis(100);

/// Longest wait of a pop that does not wait, for the queues to catch up with the log.
const CATCH_UP_MS: u64 = 50;

/// Which request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// POP_MESSAGE of a RocketMQ client.
    Native,
    /// POP_MESSAGE of the gateway.
    Gantry,
    /// NOTIFICATION.
    Notify,
}

/// A request that waits, or is at work.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its wishes.
    pub(crate) ask: Ask,
    /// Its kind.
    pub(crate) form: Form,
    /// When it is answered in any case.
    pub(crate) deadline: Monotonic,
    /// Who asked.
    pub(crate) to: Responder,
}

impl Wants for Waiting {
    fn wants(&self, queue_id: i32, tags_code: i64) -> bool {
        (self.ask.queue_id < 0 || self.ask.queue_id == queue_id)
            && self.ask.filter.may_match(tags_code)
    }

    fn is_limited(&self) -> bool {
        self.ask.member_limit > 0
    }
}

impl Waiting {
    fn key(&self) -> WaitKey {
        WaitKey {
            topic: self.ask.topic.clone(),
            group: self.ask.group.clone(),
        }
    }
}

/// How one try to answer ended.
enum Try {
    /// It is answered, or its client is gone.
    Done,
    /// There is nothing.
    Nothing(Waiting, Swept),
    /// It ran out of budget.
    Again(Waiting),
    /// What there is may have to be read from the disk.
    Cold(Waiting),
    /// Too many leased messages wait for the disk.
    Busy(Waiting),
}

/// Answers a request now, or parks it until its deadline. On the connection's task; what takes longer is spawned.
pub(crate) fn begin(broker: &Arc<Broker>, waiting: Waiting) {
    if carry::is_due(broker, &waiting.ask.group) {
        return cold::offload(broker, waiting, |broker, waiting| {
            if let Err(error) = carry::to_leases(broker, &waiting.ask.group) {
                tracing::warn!(group = %waiting.ask.group, %error, "waiting retries are not taken over yet");
            }
            first_try(broker, waiting, Reach::Disk);
        });
    }
    first_try(broker, waiting, Reach::Memory);
}

fn first_try(broker: &Arc<Broker>, waiting: Waiting, reach: Reach) {
    let written = broker.store.written();
    match attempt(broker, waiting, reach) {
        Try::Nothing(waiting, _)
            if waiting.deadline <= broker.clock.monotonic()
                && broker.store.dispatched() < written =>
        {
            catch_up(broker, waiting, written);
        }
        Try::Cold(waiting) => cold::offload(broker, waiting, |broker, waiting| {
            first_try(broker, waiting, Reach::Disk);
        }),
        tried => conclude(broker, tried, false),
    }
}

/// What follows a try: nothing more, the line, or another try. `front` puts the request at the front of its line.
fn conclude(broker: &Arc<Broker>, tried: Try, front: bool) {
    match tried {
        Try::Done => {}
        Try::Nothing(waiting, swept) => park(broker, waiting, &swept, front),
        Try::Again(waiting) => follow(broker, waiting),
        Try::Cold(waiting) => cold::offload(broker, waiting, move |broker, waiting| {
            let tried = attempt(broker, waiting, Reach::Disk);
            conclude(broker, tried, front);
        }),
        Try::Busy(waiting)
            if front
                && waiting.deadline > broker.clock.monotonic()
                && !broker.stopping.is_cancelled() =>
        {
            make_way(broker, waiting);
        }
        Try::Busy(waiting) => {
            broker.metrics.busy.inc();
            let error = BrokerError::Busy("too many leased messages wait for the disk");
            answer::refused(waiting, &error);
        }
    }
}

/// Tries a request that was woken again in a moment: were it refused, nobody would be woken for its message.
fn make_way(broker: &Arc<Broker>, waiting: Waiting) {
    let owner = broker.clone();
    let left = broker.clock.monotonic().until(waiting.deadline);
    broker.spawn(async move {
        tokio::select! {
            () = owner.stopping.cancelled() => {}
            () = tokio::time::sleep(left.min(MAKE_WAY)) => {}
        }
        resume(&owner, waiting);
    });
}

/// Looks once more when the queues hold what was in the log when the request came: a send that was answered before is
/// found, though nobody waits for it.
fn catch_up(broker: &Arc<Broker>, waiting: Waiting, written: PhysicalOffset) {
    let owner = broker.clone();
    broker.spawn(async move {
        for _ in 0..CATCH_UP_MS {
            if owner.store.dispatched() >= written {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match attempt(&owner, waiting, Reach::Memory) {
            Try::Nothing(waiting, swept) => answer::empty(&owner, waiting, &swept),
            tried => conclude(&owner, tried, false),
        }
    });
}

/// Tries a request that was woken. Parked again at the front of its line when there is nothing for it.
fn resume(broker: &Arc<Broker>, waiting: Waiting) {
    if waiting.to.conn().is_closed() {
        // Its message is for the next in line.
        let key = waiting.key();
        drop(waiting);
        wake_one(broker, &key.group, &key.topic);
        return;
    }
    let tried = attempt(broker, waiting, Reach::Memory);
    conclude(broker, tried, true);
}

/// Goes on with a request whose filter matches little, making way for others between the rounds. What has looked at much
/// without an end is told to ask again at once: it goes on from there.
fn follow(broker: &Arc<Broker>, mut waiting: Waiting) {
    let owner = broker.clone();
    broker.spawn(async move {
        let give_up = waiting.deadline.max(owner.clock.monotonic() + FOLLOW);
        loop {
            tokio::task::yield_now().await;
            if waiting.to.conn().is_closed() {
                return;
            }
            match attempt(&owner, waiting, Reach::Memory) {
                Try::Again(unfinished)
                    if owner.clock.monotonic() >= give_up || owner.stopping.is_cancelled() =>
                {
                    let swept = Swept {
                        again: true,
                        ..Swept::default()
                    };
                    return answer::empty(&owner, unfinished, &swept);
                }
                Try::Again(unfinished) => waiting = unfinished,
                tried => return conclude(&owner, tried, true),
            }
        }
    });
}

fn attempt(broker: &Arc<Broker>, waiting: Waiting, reach: Reach) -> Try {
    match waiting.form {
        Form::Notify => match sweep::is_there(broker, &waiting.ask, reach) {
            Ok(Presence::Yes) => {
                let key = waiting.key();
                answer::notified(waiting, true, false);
                if broker.pop.waiters.len_of(&key.group, &key.topic) > 0 {
                    announce_again(broker, key);
                }
                Try::Done
            }
            Ok(Presence::No) => Try::Nothing(waiting, Swept::default()),
            Ok(Presence::LookAgain) => Try::Again(waiting),
            Ok(Presence::Cold) => Try::Cold(waiting),
            Err(error) => {
                waiting.to.send(error.to_response());
                Try::Done
            }
        },
        Form::Native | Form::Gantry => {
            if waiting.ask.rules.policy.paused {
                return Try::Nothing(waiting, Swept::default());
            }
            if broker.durability.popped_bytes() as u64 >= broker.config.limits.pop_bytes.0 {
                return Try::Busy(waiting);
            }
            let tells_gaps = waiting.form == Form::Gantry;
            match sweep::lease(broker, &waiting.ask, reach, tells_gaps) {
                Ok(swept) if !swept.leased.is_empty() => {
                    answer::found(broker, waiting, swept);
                    Try::Done
                }
                // A loss is told at once, also where nothing is left.
                Ok(swept) if !swept.gaps.is_empty() => {
                    answer::empty(broker, waiting, &swept);
                    Try::Done
                }
                Ok(swept) if swept.cold => Try::Cold(waiting),
                Ok(swept) if swept.again => Try::Again(waiting),
                Ok(swept) => Try::Nothing(waiting, swept),
                // RocketMQ's protocol has no word for it: a native pop waits for room as for a message.
                Err(BrokerError::TooManyInFlight { .. }) if waiting.form == Form::Native => {
                    Try::Nothing(waiting, Swept::default())
                }
                Err(error) => {
                    answer::refused(waiting, &error);
                    Try::Done
                }
            }
        }
    }
}

/// Parks a request, and looks once more: a message that came between the look and the parking woke nobody.
fn park(broker: &Arc<Broker>, waiting: Waiting, swept: &Swept, front: bool) {
    let now = broker.clock.monotonic();
    if waiting.deadline <= now || broker.stopping.is_cancelled() {
        return answer::empty(broker, waiting, swept);
    }
    let key = waiting.key();
    let ask = waiting.ask.clone();
    let parked = match broker
        .pop
        .waiters
        .park(&key, waiting.deadline, front, waiting)
    {
        Ok(parked) => parked,
        Err(waiting) => return answer::polling_full(broker, waiting),
    };
    if parked.earliest {
        broker.pop.deadline_moved.notify_one();
    }
    if !matches!(
        sweep::is_there(broker, &ask, Reach::Memory),
        Ok(Presence::No)
    ) && let Some(waiting) = broker.pop.waiters.take(&key, parked.id)
    {
        spawn_resume(broker, vec![waiting]);
    }
}

/// Called on the store's dispatch thread for each new queue entry: must return at once.
pub(crate) fn arrived(broker: &Arc<Broker>, topic: &str, queue_id: i32, tags_code: i64) {
    if let Some(group) = topic.strip_prefix(core_names::RETRY_PREFIX)
        && !group.contains('+')
    {
        carry::native_retry_came(broker, group);
    }
    if broker.pop.waiters.is_empty() {
        return;
    }
    match names::parse_retry_v2(topic) {
        Some((group, topic)) => wake_one(broker, group, topic),
        None => spawn_resume(
            broker,
            broker.pop.waiters.arrived(topic, queue_id, tags_code),
        ),
    }
}

/// Wakes the first request of a line.
pub(crate) fn wake_one(broker: &Arc<Broker>, group: &str, topic: &str) {
    spawn_resume(
        broker,
        broker
            .pop
            .waiters
            .take_first(group, topic)
            .into_iter()
            .collect(),
    );
}

/// Lets every waiting request of a group look again: it was resumed, its rules changed, or it has room again.
pub(crate) fn wake_group(broker: &Arc<Broker>, group: &str) {
    let woken = broker.pop.waiters.take_all(|key| *key.group == *group);
    let config = broker.groups.get(group);
    let rules = config.map(|config| broker.pop.rules.of(&config));
    let renewed = woken.into_iter().map(|mut waiting| {
        if let Some(rules) = &rules {
            waiting.ask.rules = rules.clone();
            if let (Form::Gantry | Form::Notify, Some(filter)) =
                (waiting.form, rules.subscriptions.get(&*waiting.ask.topic))
            {
                waiting.ask.filter = filter.clone();
            }
        }
        waiting
    });
    spawn_resume(broker, renewed.collect());
}

fn spawn_resume(broker: &Arc<Broker>, woken: Vec<Waiting>) {
    if woken.is_empty() {
        return;
    }
    let owner = broker.clone();
    broker.spawn(async move {
        for waiting in woken {
            resume(&owner, waiting);
        }
    });
}

/// A notification that was answered may have gone to a client that never pops: the next in line hears of it soon.
fn announce_again(broker: &Arc<Broker>, key: WaitKey) {
    let owner = broker.clone();
    broker.spawn(async move {
        tokio::select! {
            () = owner.stopping.cancelled() => {}
            () = tokio::time::sleep(UNUSED) => wake_one(&owner, &key.group, &key.topic),
        }
    });
}

/// Answers requests at their deadline, exactly then. Ends when the broker stops, and answers what waits then.
pub(crate) async fn run_deadlines(broker: Arc<Broker>) {
    loop {
        let now = broker.clock.monotonic();
        for waiting in broker.pop.waiters.expire(now) {
            answer::empty(&broker, waiting, &Swept::default());
        }
        let until = broker.pop.waiters.next_deadline().unwrap_or(Monotonic::MAX);
        let sleep = now.until(until).min(Duration::from_secs(3_600));
        tokio::select! {
            () = broker.stopping.cancelled() => break,
            () = broker.pop.deadline_moved.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
    for waiting in broker.pop.waiters.take_all(|_| true) {
        answer::empty(&broker, waiting, &Swept::default());
    }
}

#[cfg(test)]
mod tests {
    use remoting::{Client, ClientOptions};
    use store::disk::sim::SimDisk;
    use wire::{Command, RequestCode};

    use super::*;
    use crate::durability::Waiter;
    use crate::test_broker::{append, put, start_at};
    use crate::topic::{PERM_READ_WRITE, TopicConfig};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_waiting_pop_that_is_woken_while_too_much_waits_for_the_disk_goes_on_waiting() {
        let disk = SimDisk::new(1);
        let running = start_at(&disk).await;
        let broker = &running.broker;
        let topic = TopicConfig::new("T", 1, PERM_READ_WRITE);
        broker.ensure_topic(topic).unwrap();
        broker.ensure_group("g").unwrap();
        let pop = Command::request(RequestCode::PopMessage)
            .with_ext("consumerGroup", "g")
            .with_ext("topic", "T")
            .with_ext("queueId", -1)
            .with_ext("maxMsgNums", 1)
            .with_ext("invisibleTime", 60_000)
            .with_ext("pollTime", 10_000)
            .with_ext("bornTime", i64::MAX)
            .with_ext("initMode", 0);
        let client = Client::new(ClientOptions::default());
        let addr = running.addrs.listen.to_string();
        let mut waits = tokio::spawn(async move {
            let answer = client.invoke(&addr, pop, Duration::from_secs(20)).await;
            answer.unwrap()
        });
        let waiters = &broker.pop.waiters;
        while waiters.len_of("g", "T") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let much = usize::try_from(broker.config.limits.pop_bytes.0).unwrap();
        // The first log file is there: making one syncs.
        append(broker, "U", 1).await;
        let held = disk.hold_syncs();
        put(broker, "U", 1);
        let (now, end) = (broker.clock.monotonic(), broker.store.written());
        broker
            .durability
            .when_durable(&broker.store, end, true, now, Waiter::Pop(much), |_| {});
        wake_one(broker, "g", "T");
        let early = tokio::time::timeout(3 * MAKE_WAY, &mut waits).await;
        assert!(early.is_err(), "{early:?}");
        drop(held);
        append(broker, "T", 1).await;
        assert_eq!(waits.await.unwrap().code, 0);
        running.stop().await.unwrap();
    }
}
