//! Runs a load on real processes, kills the broker at random moments, drains, reads the log back and asks the oracle.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::load::{
    Broker, INVISIBLE, Load, body_for, native_consumer, native_sender, number_of, rest_consumer,
    rest_sender,
};
use super::oracle::{Fault, Place, Stored, check};
use crate::http::Rest;
use crate::native::Native;
use crate::process::Gantry;

const QUEUES: u64 = 4;
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// `gantry up`: name server, broker and gateway at once.
    Up,
    /// `gantry broker` beside a name server and a gateway that live on.
    Broker,
}

/// A campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    pub victim: Victim,
    /// `sync` or `async`.
    pub flush: &'static str,
    pub kills: u32,
    /// Between two kills, at random in this range.
    pub between: (Duration, Duration),
    /// Sends a second by remoting and by REST.
    pub native_rate: u32,
    pub rest_rate: u32,
    pub seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    pub faults: Vec<Fault>,
    /// All that was seen of the first messages with a fault.
    pub stories: Vec<String>,
    pub sends: usize,
    pub deliveries: usize,
    pub acks: usize,
    /// How long the load ran, restarts included.
    pub lasted: Duration,
    /// Start until ready after a kill, the longest.
    pub slowest_start: Duration,
}

impl Report {
    /// Answered sends, deliveries and answered acks a second.
    pub fn rates(&self) -> (f64, f64, f64) {
        let seconds = self.lasted.as_secs_f64().max(0.001);
        let rate = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
        (rate(self.sends), rate(self.deliveries), rate(self.acks))
    }
}

/// The processes of a campaign; the last one is the victim.
struct Cluster {
    bystanders: Vec<Gantry>,
    victim: Gantry,
    broker: SocketAddr,
    gateway: SocketAddr,
}

impl Cluster {
    fn start(plan: &Plan, dir: &Path) -> Result<Cluster> {
        let flush = ["--flush-mode", plan.flush, "--segment-size", "4MiB"];
        match plan.victim {
            Victim::Up => {
                let victim = Gantry::up(dir, &flush)?;
                let (broker, gateway) = (victim.addr("broker"), victim.addr("gateway"));
                Ok(Cluster {
                    bystanders: Vec::new(),
                    victim,
                    broker,
                    gateway,
                })
            }
            Victim::Broker => {
                let namesrv = Gantry::start("namesrv", &["--listen", "127.0.0.1:0"], dir)?;
                let names = namesrv.addr("namesrv").to_string();
                let mut args = vec![
                    "--data",
                    "data",
                    "--listen",
                    "127.0.0.1:0",
                    "--namesrv",
                    &names,
                ];
                args.extend(flush);
                let victim = Gantry::start("broker", &args, dir)?;
                let args = [
                    "--listen",
                    "127.0.0.1:0",
                    "--namesrv",
                    &names,
                    "--data",
                    "gateway",
                    "--auth",
                    "off",
                ];
                let gateway = Gantry::start("gateway", &args, dir)?;
                let (broker, gateway_addr) = (victim.addr("broker"), gateway.addr("gateway"));
                Ok(Cluster {
                    bystanders: vec![namesrv, gateway],
                    victim,
                    broker,
                    gateway: gateway_addr,
                })
            }
        }
    }
}

/// Runs a campaign in a directory. An error means that it could not be judged: a process did not start again, the queues
/// were not drained in time.
pub async fn run(plan: &Plan, dir: &Path) -> Result<Report> {
    let mut cluster = Cluster::start(plan, dir)?;
    let loads = [
        Load::new("kill-native", "g-native", QUEUES),
        Load::new("kill-rest", "g-rest", QUEUES),
    ];
    prepare(cluster.broker, &loads).await?;
    let [_, rest] = &loads;
    let from_start = serde_json::json!({"initialPosition": "earliest"});
    let subscribed = Rest::new(cluster.gateway)
        .subscribe(&rest.group, &rest.topic, from_start)
        .await;
    if !(200..=201).contains(&subscribed.status) {
        bail!("subscribe answered {subscribed:?}");
    }
    start_load(plan, &cluster, &loads);

    let began = Instant::now();
    let mut dice = plan.seed | 1;
    let mut slowest_start = Duration::ZERO;
    for kill in 1..=plan.kills {
        sleep(random_between(&mut dice, plan.between)).await;
        cluster.victim.kill9()?;
        let start = Instant::now();
        cluster
            .victim
            .start_again()
            .with_context(|| format!("start after kill {kill}"))?;
        slowest_start = slowest_start.max(start.elapsed());
    }
    sleep(plan.between.0).await;
    let lasted = began.elapsed();
    let counts = loads.each_ref().map(|load| load.counts());

    let (mut faults, mut stories) = (Vec::new(), Vec::new());
    for load in &loads {
        load.drain();
    }
    for load in &loads {
        drained(load).await?;
    }
    for load in loads {
        load.end();
        let stored = read_back(cluster.broker, &load.topic, QUEUES, 0).await?;
        judge(&load, stored, &mut faults, &mut stories);
    }
    for bystander in &mut cluster.bystanders {
        if !bystander.alive() {
            bail!(
                "a process that was not killed has ended:\n{}",
                bystander.logged()
            );
        }
    }
    let sum = |pick: fn(&(usize, usize, usize)) -> usize| counts.iter().map(pick).sum();
    Ok(Report {
        faults,
        stories,
        sends: sum(|counts| counts.0),
        deliveries: sum(|counts| counts.1),
        acks: sum(|counts| counts.2),
        lasted,
        slowest_start,
    })
}

/// Asks the oracle about a load whose queues are drained, and tells the stories of the first faults.
pub(super) fn judge(
    load: &Load,
    stored: Vec<Stored>,
    faults: &mut Vec<Fault>,
    stories: &mut Vec<String>,
) {
    let mut history = load.history();
    history.stored = stored;
    history.drained = true;
    let found = check(&history);
    let mut told: Vec<u64> = found.iter().filter_map(Fault::message).collect();
    told.dedup();
    stories.extend(
        told.iter()
            .take(3)
            .map(|message| format!("{}, {message}:\n{}", load.topic, history.about(*message))),
    );
    faults.extend(found);
}

/// Topics and groups are made before anything is sent, so that a group misses nothing and no message dies of its attempts.
pub async fn prepare(broker: SocketAddr, loads: &[Arc<Load>]) -> Result<()> {
    let connection = Native::connect(broker).await?;
    for load in loads {
        connection
            .put_topic(&load.topic, u32::try_from(load.queues)?)
            .await?;
        connection.put_group(&load.group, 99).await?;
    }
    Ok(())
}

fn start_load(plan: &Plan, cluster: &Cluster, loads: &[Arc<Load>; 2]) {
    let [native, rest] = loads;
    for _ in 0..2 {
        let broker = Broker {
            addr: cluster.broker,
            name: "broker-a".to_owned(),
            first_queue: 0,
        };
        tokio::spawn(native_sender(
            Arc::clone(native),
            broker.clone(),
            plan.native_rate / 2,
        ));
        tokio::spawn(native_consumer(Arc::clone(native), broker));
    }
    if plan.rest_rate > 0 {
        tokio::spawn(rest_sender(
            Arc::clone(rest),
            cluster.gateway,
            plan.rest_rate,
        ));
        tokio::spawn(rest_consumer(Arc::clone(rest), cluster.gateway));
    }
}

/// Waits until nothing has been delivered for so long that every lease has ended and come back.
pub async fn drained(load: &Load) -> Result<()> {
    let end = Instant::now() + DRAIN_LIMIT;
    while load.quiet() < INVISIBLE + Duration::from_secs(3) {
        if Instant::now() >= end {
            bail!("{} was not drained within {DRAIN_LIMIT:?}", load.topic);
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// All messages of a topic on a broker, as a reader finds them; `first_queue` is added to the queue ids.
pub async fn read_back(
    broker: SocketAddr,
    topic: &str,
    queues: u64,
    first_queue: i32,
) -> Result<Vec<Stored>> {
    let connection = Native::connect(broker).await?;
    let mut stored = Vec::new();
    for queue in 0..queues {
        let queue = i32::try_from(queue)?;
        let (records, end) = connection.read_queue(topic, queue).await?;
        if i64::try_from(records.len())? != end {
            bail!(
                "queue {queue} of {topic} ends at {end} and has {} messages",
                records.len()
            );
        }
        stored.extend(records.iter().map(|record| {
            let message = number_of(&record.body);
            let intact = record.body == body_for(message).as_bytes();
            Stored {
                message,
                place: Place {
                    queue: first_queue + record.queue,
                    offset: record.offset,
                },
                intact,
            }
        }));
    }
    Ok(stored)
}

/// xorshift; the seed is printed with the result, although the moments of a run never repeat exactly.
pub(super) fn random_between(state: &mut u64, (low, high): (Duration, Duration)) -> Duration {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let span = u64::try_from(high.saturating_sub(low).as_micros())
        .unwrap_or(u64::MAX)
        .max(1);
    low + Duration::from_micros(*state % span)
}
