//! The campaign on several of everything: name servers, brokers and gateways are killed in turn at random moments, each
//! started again where it was. When a gateway is killed, what it has just given is acked on another one.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::campaign::{Report, drained, judge, prepare, random_between, read_back};
use super::load::{Broker, Load, native_consumer, native_sender, rest_ack};
use super::rest_batch::{Doors, consumer, receive, sender};
use crate::fleet::{Fleet, Metadata, Shape, broker_name};
use crate::http::Rest;
use crate::process::Gantry;

/// Queues of each topic on each broker.
const QUEUES: u64 = 4;
/// Ids of a broker's queues begin here times its number, for the oracle.
const QUEUES_APART: i32 = 1000;
/// Senders over REST; each has a connection of its own, and so has each consumer.
const REST_SENDERS: usize = 4;
/// Consumers a gateway.
const REST_CONSUMERS: usize = 2;

/// A campaign on a fleet.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    pub metadata: Metadata,
    /// `sync` or `async`.
    pub flush: &'static str,
    pub kills: u32,
    /// Between two kills, at random in this range.
    pub between: (Duration, Duration),
    /// Sends a second, a fifth of them by remoting, the others by REST in batches.
    pub rate: u32,
    pub seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct FleetReport {
    pub report: Report,
    /// Receipts of killed gateways that were acked on another one.
    pub handed_over: usize,
    /// How many files of its log each broker has filled.
    pub filled: Vec<usize>,
}

/// Runs a campaign. An error means that it could not be judged, or that a receipt of a killed gateway was not settled.
pub async fn run(plan: &FleetPlan) -> Result<FleetReport> {
    let mut fleet = Fleet::start(&Shape {
        name_servers: 2,
        metadata: plan.metadata,
        // small, so that a few kills' load fills several
        broker_args: vec!["--flush-mode", plan.flush, "--segment-size", "512KiB"],
        ..Shape::default()
    })?;
    fleet.ready().await;
    let doors = doors(&fleet);
    let loads = [
        Load::new("kill-native", "g-native", QUEUES),
        Load::new("kill-rest", "g-rest", QUEUES),
    ];
    for broker in &doors.brokers {
        prepare(broker.addr, &loads).await?;
    }
    let [native, rest] = &loads;
    let from_start = serde_json::json!({"initialPosition": "earliest"});
    let subscribed = fleet
        .rest(0)
        .subscribe(&rest.group, &rest.topic, from_start)
        .await;
    if !(200..=201).contains(&subscribed.status) {
        bail!("subscribe answered {subscribed:?}");
    }
    start_load(plan, &doors, native, rest);

    let began = Instant::now();
    let mut dice = plan.seed | 1;
    let mut slowest_start = Duration::ZERO;
    let mut handed_over = 0;
    for kill in 1..=plan.kills {
        sleep(random_between(&mut dice, plan.between)).await;
        let (victim, gateway) = victim(&mut fleet, usize::try_from(kill - 1)?);
        match gateway {
            Some(number) => handed_over += kill_giver(victim, number, rest, &doors).await?,
            None => victim.kill9()?,
        }
        let start = Instant::now();
        tokio::task::block_in_place(|| victim.start_again())
            .with_context(|| format!("start after kill {kill}"))?;
        slowest_start = slowest_start.max(start.elapsed());
    }
    sleep(plan.between.0).await;
    let lasted = began.elapsed();
    let counts = loads.each_ref().map(|load| load.counts());

    for load in &loads {
        load.drain();
    }
    for load in &loads {
        drained(load).await?;
    }
    let (mut faults, mut stories) = (Vec::new(), Vec::new());
    for load in loads {
        load.end();
        let mut stored = Vec::new();
        for broker in &doors.brokers {
            let found = read_back(broker.addr, &load.topic, QUEUES, broker.first_queue);
            stored.extend(found.await?);
        }
        judge(&load, stored, &mut faults, &mut stories);
    }
    fleet.all_alive()?;
    let sum = |pick: fn(&(usize, usize, usize)) -> usize| counts.iter().map(pick).sum();
    let report = Report {
        faults,
        stories,
        sends: sum(|counts| counts.0),
        deliveries: sum(|counts| counts.1),
        acks: sum(|counts| counts.2),
        lasted,
        slowest_start,
    };
    Ok(FleetReport {
        report,
        handed_over,
        filled: (0..fleet.brokers.len())
            .map(|number| filled(&fleet.dir().join(broker_name(number))))
            .collect::<Result<_>>()?,
    })
}

/// How many files of a broker's log are followed by one that holds records; the last may be one made ahead of its time.
fn filled(broker: &Path) -> Result<usize> {
    let mut begun = 0;
    for file in std::fs::read_dir(broker.join("data/commitlog"))? {
        let mut first = [0; 4];
        File::open(file?.path())?.read_exact(&mut first)?;
        begun += usize::from(first != [0; 4]);
    }
    Ok(begun.saturating_sub(1))
}

fn doors(fleet: &Fleet) -> Doors {
    let broker = |(number, process): (usize, &Gantry)| Broker {
        addr: process.addr("broker"),
        name: broker_name(number),
        first_queue: QUEUES_APART * i32::try_from(number).unwrap_or_default(),
    };
    Doors {
        gateways: fleet.gateways.iter().map(|g| g.addr("gateway")).collect(),
        brokers: fleet.brokers.iter().enumerate().map(broker).collect(),
    }
}

fn start_load(plan: &FleetPlan, doors: &Doors, native: &Arc<Load>, rest: &Arc<Load>) {
    let brokers = u32::try_from(doors.brokers.len()).unwrap_or(1).max(1);
    for broker in &doors.brokers {
        let (sender, taker) = (Arc::clone(native), Arc::clone(native));
        tokio::spawn(native_sender(
            sender,
            broker.clone(),
            plan.rate / 5 / brokers,
        ));
        tokio::spawn(native_consumer(taker, broker.clone()));
    }
    let senders = u32::try_from(REST_SENDERS).unwrap_or(1);
    for number in 0..REST_SENDERS {
        let rate = plan.rate / 5 * 4 / senders;
        tokio::spawn(sender(Arc::clone(rest), doors.clone(), number, rate));
    }
    for number in 0..REST_CONSUMERS * doors.gateways.len() {
        tokio::spawn(consumer(Arc::clone(rest), doors.clone(), number));
    }
}

/// The process that is killed as the n-th, and its number where it is a gateway: broker, gateway and name server take
/// turns.
fn victim(fleet: &mut Fleet, n: usize) -> (&mut Gantry, Option<usize>) {
    let (kind, turn) = (n % 3, n / 3);
    match kind {
        0 => {
            let number = turn % fleet.brokers.len();
            (&mut fleet.brokers[number], None)
        }
        1 => {
            let number = turn % fleet.gateways.len();
            (&mut fleet.gateways[number], Some(number))
        }
        _ => {
            let number = turn % fleet.name_servers.len();
            (&mut fleet.name_servers[number], None)
        }
    }
}

/// Receives from a gateway, kills it and acks on the next one: every receipt must be settled there.
async fn kill_giver(
    victim: &mut Gantry,
    number: usize,
    load: &Arc<Load>,
    doors: &Doors,
) -> Result<usize> {
    let giver = Rest::new(doors.gateways[number]);
    let other = Rest::new(doors.gateways[(number + 1) % doors.gateways.len()]);
    let given = receive(load, &giver, "max=64&wait=500ms&invisibleFor=20s")
        .await
        .unwrap_or_default();
    victim.kill9()?;
    if given.is_empty() {
        return Ok(0);
    }
    let count = given.len();
    let statuses = rest_ack(load, &other, given).await;
    let acked = statuses.iter().filter(|s| s.as_str() == "acked").count();
    if acked != count {
        bail!("of {count} receipts of a killed gateway, another one answered {statuses:?}");
    }
    Ok(count)
}
