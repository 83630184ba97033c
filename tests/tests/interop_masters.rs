//! The unmodified Java client before several masters and name servers, one of each failing while it works: about 35 s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_tests::bulk::number;
use gantry_tests::fleet::{Fleet, Metadata, Shape, broker_name};
use gantry_tests::http::text;
use gantry_tests::java::{Consumer, Java};
use gantry_tests::native::Native;
use gantry_tests::wait::{SLOW, eventually, within};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep};

/// Messages of the producer, and its pause between two, ms.
const COUNT: usize = 700;
const PAUSE: &str = "30";
/// Messages before the kill, which comes later than [`REPEATED`] after the first.
const BEFORE: usize = 400;
/// A message that a group took so long before the broker was killed does not come again: the client commits every
/// second, and the broker writes what was committed every 5 s, as RocketMQ's does.
const REPEATED: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(20);

/// The lines of a program as they come, each with when it was read.
struct Lines {
    read: Arc<Mutex<Vec<(Instant, Value)>>>,
    reading: JoinHandle<()>,
}

impl Lines {
    fn of(mut program: Consumer) -> Lines {
        let read = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&read);
        let reading = tokio::spawn(async move {
            while let Ok(line) = program.next().await {
                all.lock().push((Instant::now(), line));
            }
        });
        Lines { read, reading }
    }

    /// Lines that pass, with the others left out.
    fn picked(&self, pick: impl Fn(&Value) -> bool) -> Vec<(Instant, Value)> {
        let read = self.read.lock();
        read.iter()
            .filter(|(_, line)| pick(line))
            .cloned()
            .collect()
    }

    /// How many lines there are.
    fn count(&self) -> usize {
        self.read.lock().len()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // kills the program
        self.reading.abort();
    }
}

fn is_acknowledged(line: &Value) -> bool {
    line["status"] == "SEND_OK"
}

/// When each message came, by its id.
fn arrivals(lines: &Lines) -> BTreeMap<String, Vec<Instant>> {
    let mut all: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for (at, line) in lines.read.lock().iter() {
        all.entry(text(line, "msgId").to_owned())
            .or_default()
            .push(*at);
    }
    all
}

/// Waits until a program has printed `count` more lines that pass.
async fn more(lines: &Lines, count: usize, what: &str, pick: fn(&Value) -> bool) {
    let wanted = lines.picked(pick).len() + count;
    eventually(SOON, what, async || {
        (lines.picked(pick).len() >= wanted).then_some(())
    })
    .await;
}

#[test]
fn a_java_client_loses_nothing_while_a_master_is_killed_and_a_name_server_starts_again() {
    within(SLOW, async {
        let shape = Shape {
            name_servers: 2,
            gateways: 0,
            metadata: Metadata::Sqlite,
            ..Shape::default()
        };
        let mut fleet = Fleet::start(&shape).unwrap();
        fleet.ready().await;
        for broker in &fleet.brokers {
            let native = Native::connect(broker.addr("broker")).await.unwrap();
            native.put_topic("orders", 4).await.unwrap();
        }
        let java = Java::new(fleet.dir()).unwrap();
        // Java takes a list with semicolons.
        let names = fleet.names().replace(',', ";");
        let consumer = async |group: &str, orderly: &str| {
            let args = [
                "consume",
                "--namesrv",
                &names,
                "--topic",
                "orders",
                "--group",
                group,
                "--orderly",
                orderly,
                "--instance",
                group,
                "--timeout",
                "100",
            ];
            Lines::of(java.consumer(&args).await.unwrap())
        };
        let (concurrent, orderly) =
            tokio::join!(consumer("concurrent", "false"), consumer("orderly", "true"));
        let groups = [&concurrent, &orderly];
        let count = COUNT.to_string();
        let args = [
            "produce",
            "--namesrv",
            &names,
            "--topic",
            "orders",
            "--mode",
            "steady",
            "--pause",
            PAUSE,
            "--count",
            &count,
        ];
        let producer = Lines::of(java.consumer(&args).await.unwrap());

        let first = Instant::now();
        eventually(SLOW, "messages before the kill", async || {
            (producer.count() >= BEFORE).then_some(())
        })
        .await;
        assert!(first.elapsed() > REPEATED, "too fast to tell");
        fleet.brokers[1].kill9().unwrap();
        let killed = Instant::now();
        more(&producer, 40, "sends to the other master", is_acknowledged).await;
        fleet.name_servers[0].kill9().unwrap();
        block_in_place(|| fleet.name_servers[0].start_again()).unwrap();
        more(
            &producer,
            40,
            "sends after the name server",
            is_acknowledged,
        )
        .await;
        for group in groups {
            more(group, 20, "deliveries by the other master", |_| true).await;
        }
        block_in_place(|| fleet.brokers[1].start_again()).unwrap();
        let restarted = Instant::now();

        let acknowledged = eventually(SLOW, "all are acknowledged", async || {
            let all = producer.picked(is_acknowledged);
            (all.len() >= COUNT).then_some(all)
        })
        .await;
        let numbers: Vec<u64> = acknowledged.iter().map(|(_, line)| number(line)).collect();
        assert_eq!(numbers, (0..COUNT as u64).collect::<Vec<_>>());
        let mut tried = BTreeSet::new();
        for (_, line) in producer.picked(|_| true) {
            let id = text(&line, "msgId").to_owned();
            assert!(tried.insert(id), "an id twice: {line}");
        }
        let (living, dead) = (broker_name(0), broker_name(1));
        let on = |broker: &str, from: Instant, to: Option<Instant>| {
            acknowledged
                .iter()
                .filter(|(at, line)| {
                    text(line, "broker") == broker && *at > from && to.is_none_or(|to| *at < to)
                })
                .count()
        };
        assert!(on(&dead, first, Some(killed)) > 0, "both masters at first");
        assert!(
            on(&living, killed, Some(restarted)) > 0,
            "the other one alone"
        );
        assert!(on(&dead, restarted, None) > 0, "both masters again");

        for group in groups {
            eventually(SOON, "all are delivered", async || {
                let seen = arrivals(group);
                let all = acknowledged.iter();
                let mut ids = all.map(|(_, line)| text(line, "msgId"));
                ids.all(|id| seen.contains_key(id)).then_some(())
            })
            .await;
        }
        // What comes again would come now.
        sleep(Duration::from_secs(2)).await;
        let by_id: BTreeMap<&str, &Value> = acknowledged
            .iter()
            .map(|(_, line)| (text(line, "msgId"), line))
            .collect();
        for group in groups {
            let mut repeated = 0;
            for (id, times) in arrivals(group) {
                assert!(tried.contains(&id), "{id} was never sent");
                let just_before = times[0] + REPEATED > killed && times[0] < restarted;
                let line = by_id.get(id.as_str());
                if just_before && line.is_none_or(|line| text(line, "broker") == dead) {
                    repeated += times.len() - 1;
                } else {
                    assert_eq!(times.len(), 1, "{id} came at {times:?}: {line:?}");
                }
            }
            println!("{repeated} came again of those taken just before the kill");
        }
        fleet.all_alive().unwrap();
    });
}
