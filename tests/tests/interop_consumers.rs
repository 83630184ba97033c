//! Consumers of the unmodified Java client among each other: order and suspension, broadcasting, where a group starts,
//! members that are killed, lite pull.

use std::collections::{BTreeMap, BTreeSet};

use gantry_tests::bulk::{number, numbers};
use gantry_tests::doors::Doors;
use gantry_tests::java::{Consumer, Java};
use gantry_tests::wait::{SLOW, within};
use serde_json::Value;

struct Run {
    doors: Doors,
    java: Java,
    namesrv: String,
}

fn run<F: Future<Output = ()>>(body: impl FnOnce(Run) -> F) {
    within(SLOW, async {
        let doors = Doors::open_fast().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let namesrv = doors.namesrv.to_string();
        body(Run {
            doors,
            java,
            namesrv,
        })
        .await;
    });
}

impl Run {
    async fn produce(&self, topic: &str, first: &str, count: &str) -> Vec<Value> {
        let args = [
            "produce",
            "--namesrv",
            &self.namesrv,
            "--topic",
            topic,
            "--first",
            first,
            "--count",
            count,
        ];
        self.java.lines(&args).await.unwrap()
    }

    /// Starts a program; `more` are words of its command line.
    async fn start(&self, command: &str, topic: &str, group: &str, more: &str) -> Consumer {
        let mut args = vec![command, "--namesrv", &self.namesrv];
        args.extend(["--topic", topic, "--group", group]);
        args.extend(more.split_whitespace());
        self.java.consumer(&args).await.unwrap()
    }

    async fn consume(&self, topic: &str, group: &str, more: &str) -> Vec<Value> {
        let consumer = self.start("consume", topic, group, more).await;
        consumer.rest().await.unwrap()
    }

    async fn lite(&self, topic: &str, group: &str, more: &str) -> Vec<Value> {
        let consumer = self.start("lite", topic, group, more).await;
        consumer.rest().await.unwrap()
    }
}

/// Offsets by queue in the order of delivery.
fn by_queue(lines: &[Value]) -> BTreeMap<i64, Vec<i64>> {
    let mut queues: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for line in lines {
        let (queue, offset) = (line["queue"].as_i64(), line["offset"].as_i64());
        queues
            .entry(queue.unwrap())
            .or_default()
            .push(offset.unwrap());
    }
    queues
}

#[test]
fn an_orderly_queue_waits_for_the_message_that_failed() {
    run(async |run| {
        let topic = run.doors.name("order");
        run.produce(&topic, "0", "40").await;
        let args = "--orderly true --fail first --suspend 50 --expect 80";
        let seen = run.consume(&topic, &run.doors.name("g"), args).await;
        assert_eq!(seen.len(), 80);
        let queues = by_queue(&seen);
        assert_eq!(queues.len(), 4);
        for (queue, offsets) in queues {
            let expected: Vec<i64> = (0..10).flat_map(|at| [at, at]).collect();
            assert_eq!(offsets, expected, "queue {queue}: each twice in a row");
        }
    });
}

#[test]
fn every_broadcasting_member_gets_every_message() {
    run(async |run| {
        let (topic, group) = (run.doors.name("all"), run.doors.name("g"));
        run.produce(&topic, "0", "20").await;
        let args = |name| format!("--model broadcast --instance {name} --expect 20");
        let (first, second) = (args("one"), args("two"));
        let (one, two) = tokio::join!(
            run.consume(&topic, &group, &first),
            run.consume(&topic, &group, &second)
        );
        let all: Vec<u64> = (0..20).collect();
        assert_eq!((numbers(&one), numbers(&two)), (all.clone(), all));
    });
}

/// BL-17, native half (apache/rocketmq#4909): a new group reads a young queue from its start, so that it misses no first
/// message; a group that has progress goes on from there.
#[test]
fn a_group_starts_where_it_asks_to_and_goes_on_where_it_was() {
    run(async |run| {
        let topic = run.doors.name("start");
        run.produce(&topic, "0", "12").await;
        let (group, young) = (run.doors.name("kept"), run.doors.name("young"));
        let first = run.consume(&topic, &group, "--expect 12").await;
        assert_eq!(numbers(&first), (0..12).collect::<Vec<u64>>());
        run.produce(&topic, "12", "4").await;
        let kept = run.consume(&topic, &group, "--from last --expect 4").await;
        let expected: Vec<u64> = (12..16).collect();
        assert_eq!(
            numbers(&kept),
            expected,
            "committed at the end of the first"
        );
        let young = run.consume(&topic, &young, "--from last --expect 16").await;
        assert_eq!(numbers(&young), (0..16).collect::<Vec<u64>>());
    });
}

#[test]
fn the_queues_of_killed_members_go_on_with_the_others_in_order() {
    run(async |run| {
        let (topic, group) = (run.doors.name("killed"), run.doors.name("g"));
        run.produce(&topic, "0", "40").await;
        let args = |name| format!("--instance {name} --orderly true --expect 4000 --timeout 12");
        let mut one = run.start("consume", &topic, &group, &args("one")).await;
        one.next().await.unwrap();
        let two = run.start("consume", &topic, &group, &args("two")).await;
        let three = run.start("consume", &topic, &group, &args("three")).await;
        run.produce(&topic, "100", "400").await;
        one.kill9().await.unwrap();
        two.kill9().await.unwrap();
        let after = run.produce(&topic, "1000", "400").await;
        // The locks of the dead go with their connections, not 60 s later.
        let rest = three.rest().await.unwrap();
        let seen: BTreeSet<u64> = rest.iter().map(number).collect();
        let lost: Vec<u64> = after
            .iter()
            .map(number)
            .filter(|n| !seen.contains(n))
            .collect();
        assert!(
            lost.is_empty(),
            "{} not seen by the last member: {lost:?}",
            lost.len()
        );
        for (queue, offsets) in by_queue(&rest) {
            assert!(offsets.is_sorted(), "queue {queue}: {offsets:?}");
        }
    });
}

#[test]
fn lite_pull_subscribes_or_assigns_and_seeks() {
    run(async |run| {
        let topic = run.doors.name("lite");
        let sent = run.produce(&topic, "0", "40").await;
        let group = run.doors.name("g");
        let all = run.lite(&topic, &group, "--expect 40").await;
        assert_eq!(numbers(&all), (0..40).collect::<Vec<u64>>());
        // What was committed at the end holds for the next of the group.
        run.produce(&topic, "40", "4").await;
        let next = run.lite(&topic, &group, "--expect 4").await;
        assert_eq!(numbers(&next), (40..44).collect::<Vec<u64>>());
        let first = run
            .lite(
                &topic,
                &run.doors.name("second"),
                "--assign first --expect 44",
            )
            .await;
        assert_eq!(first.len(), 44);
        let is_late = |line: &&Value| line["offset"].as_i64() >= Some(6);
        let mut late: Vec<u64> = sent
            .iter()
            .filter(is_late)
            .map(number)
            .chain(40..44)
            .collect();
        late.sort_unstable();
        let args = format!("--assign 6 --expect {}", late.len());
        let seeked = run.lite(&topic, &run.doors.name("third"), &args).await;
        assert_eq!(numbers(&seeked), late);
    });
}
