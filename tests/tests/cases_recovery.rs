//! What brokers have lost or refused after a crash or a flipped bit, retold on a real process.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::http::{Rest, text};
use gantry_tests::native::Native;
use gantry_tests::process::Gantry;
use gantry_tests::wait::{SLOW, USUAL, within};

const SEGMENT: i64 = 1 << 20;

/// Where a send's message lies in the log: the last 16 digits of the id that the broker answers.
fn physical_offset(message_id: &str) -> i64 {
    i64::from_str_radix(&message_id[message_id.len() - 16..], 16).unwrap()
}

/// Sends numbered messages of about 1 KiB, one after the other, until the log has rolled into its next segment, and a few
/// more for at most `beyond`; then kills the broker. Returns the first unused number.
async fn send_across_a_roll(
    gantry: &mut Gantry,
    broker: SocketAddr,
    mut number: u64,
    beyond: Duration,
    answered: &mut BTreeMap<u64, i64>,
) -> u64 {
    let client = Native::connect(broker).await.unwrap();
    let mut segment = None;
    let mut rolled = None;
    loop {
        let body = format!("{number}:{}", "x".repeat(1000));
        let answer = client
            .send("numbered", 0, body.as_bytes(), &[])
            .await
            .unwrap()
            .expect(0)
            .unwrap();
        answered.insert(number, answer.number("queueOffset").unwrap());
        number += 1;
        let now = physical_offset(&answer.ext["msgId"]) / SEGMENT;
        if segment.is_some_and(|segment| now > segment) && rolled.is_none() {
            rolled = Some(tokio::time::Instant::now());
        }
        segment = Some(now);
        if rolled.is_some_and(|rolled| rolled.elapsed() >= beyond) {
            gantry.kill9().unwrap();
            return number;
        }
    }
}

/// BL-01, apache/rocketmq#1434: killed just after a roll, the last messages of the older segment must not be lost to the
/// queues. `GANTRY_ROUNDS=30` for the full campaign.
#[test]
fn messages_before_a_roll_survive_a_kill_just_after_it() {
    within(SLOW, async {
        let rounds =
            std::env::var("GANTRY_ROUNDS").map_or(4, |rounds| rounds.parse::<u32>().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(
            dir.path(),
            &["--segment-size", "1MiB", "--flush-mode", "sync"],
        )
        .unwrap();
        let broker = gantry.addr("broker");
        Native::connect(broker)
            .await
            .unwrap()
            .put_topic("numbered", 1)
            .await
            .unwrap();
        let mut answered = BTreeMap::new();
        let mut next = 0;
        for round in 0..rounds {
            let beyond = Duration::from_millis(u64::from(round * 17 % 50));
            next = send_across_a_roll(&mut gantry, broker, next, beyond, &mut answered).await;
            gantry.start_again().unwrap();
            let (records, end) = Native::connect(broker)
                .await
                .unwrap()
                .read_queue("numbered", 0)
                .await
                .unwrap();
            assert_eq!(
                i64::try_from(records.len()).unwrap(),
                end,
                "round {round}: every queue entry has its message"
            );
            let found: BTreeMap<u64, i64> = records
                .iter()
                .map(|record| (number(&record.body), record.offset))
                .collect();
            assert_eq!(found.len(), records.len(), "round {round}: none twice");
            for (number, offset) in &answered {
                assert_eq!(
                    found.get(number),
                    Some(offset),
                    "round {round}: number {number}"
                );
            }
        }

        // and polled in sequence by a group that starts at the beginning
        let rest = Rest::new(gantry.addr("gateway"));
        let mut polled: Vec<u64> = Vec::new();
        while polled.len() < answered.len() {
            let got = rest
                .receive("g", "topic=numbered&max=256&wait=5s&bodyFormat=text")
                .await
                .expect(200)
                .messages();
            assert!(
                !got.is_empty(),
                "only {} of {} are polled",
                polled.len(),
                answered.len()
            );
            let receipts: Vec<&str> = got.iter().map(|message| text(message, "receipt")).collect();
            rest.ack("g", &receipts).await.expect(200);
            polled.extend(
                got.iter()
                    .map(|message| number(text(message, "text").as_bytes())),
            );
        }
        assert_eq!(polled, answered.keys().copied().collect::<Vec<_>>());
    });
}

fn number(body: &[u8]) -> u64 {
    let digits = body.split(|byte| *byte == b':').next().unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// All files below a folder whose path has a part with that name, sorted.
fn files(below: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .components()
                .any(|component| component.as_os_str() == part)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn flip_bit(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0b100;
    fs::write(path, bytes).unwrap();
}

struct Stopped {
    dir: tempfile::TempDir,
    gantry: Gantry,
    bodies: Vec<String>,
}

/// A cleanly stopped process with 3,000 messages in four segments or so, one queue.
async fn stopped() -> Stopped {
    let dir = tempfile::tempdir().unwrap();
    let mut gantry = Gantry::up(
        dir.path(),
        &["--segment-size", "1MiB", "--flush-mode", "async"],
    )
    .unwrap();
    let client = Native::connect(gantry.addr("broker")).await.unwrap();
    client.put_topic("kept", 1).await.unwrap();
    let bodies: Vec<String> = (0..3000)
        .map(|number| format!("{number}:{}", "y".repeat(1000)))
        .collect();
    for chunk in bodies.chunks(50) {
        let batch: Vec<_> = chunk
            .iter()
            .map(|body| (body.clone().into_bytes(), Vec::new()))
            .collect();
        client
            .send_batch("kept", 0, &batch)
            .await
            .unwrap()
            .expect(0)
            .unwrap();
    }
    drop(client);
    assert_eq!(gantry.stop().unwrap().code(), Some(0));
    Stopped {
        dir,
        gantry,
        bodies,
    }
}

async fn all_bodies(gantry: &Gantry) -> Vec<String> {
    let client = Native::connect(gantry.addr("broker")).await.unwrap();
    let (records, _) = client.read_queue("kept", 0).await.unwrap();
    records
        .into_iter()
        .map(|record| String::from_utf8_lossy(&record.body).into_owned())
        .collect()
}

/// BL-06, nats-io/nats-server#7556, apache/iggy#2572, in the middle of the log: the damaged record is reported, and the
/// rest is served and kept.
#[test]
fn one_flipped_bit_in_the_log_costs_one_message() {
    within(USUAL, async {
        let Stopped {
            dir,
            mut gantry,
            bodies,
        } = stopped().await;
        let logs = files(&dir.path().join("data"), "commitlog");
        let victim = "1500:yyyy".as_bytes();
        let (path, at) = logs
            .iter()
            .find_map(|path| {
                let bytes = fs::read(path).unwrap();
                let at = bytes
                    .windows(victim.len())
                    .position(|window| window == victim)?;
                Some((path.clone(), at + 500))
            })
            .expect("message 1500 is in the log");
        let sizes: Vec<u64> = logs
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .collect();
        flip_bit(&path, at);

        gantry.start_again().unwrap();
        let logged = gantry.logged();
        assert!(
            logged.contains("damaged"),
            "the damaged range is not reported:\n{logged}"
        );
        let served = all_bodies(&gantry).await;
        let expected: Vec<String> = bodies
            .iter()
            .filter(|body| !body.starts_with("1500:"))
            .cloned()
            .collect();
        assert_eq!(served.len(), expected.len());
        assert_eq!(served, expected);
        let after: Vec<u64> = logs
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .collect();
        assert_eq!(after, sizes, "nothing of the log is deleted");

        let client = Native::connect(gantry.addr("broker")).await.unwrap();
        let sent = client
            .send("kept", 0, b"still writable", &[])
            .await
            .unwrap()
            .expect(0)
            .unwrap();
        assert_eq!(sent.number("queueOffset").unwrap(), 3000);
    });
}

/// BL-06 in what is derived from the log: it is rebuilt.
#[test]
fn one_flipped_bit_in_a_derived_file_costs_nothing() {
    within(SLOW, async {
        for part in ["consumequeue", "checkpoint", "index"] {
            let Stopped {
                dir,
                mut gantry,
                bodies,
            } = stopped().await;
            let derived: Vec<PathBuf> = files(&dir.path().join("data"), part);
            let derived: Vec<&PathBuf> = match part {
                "consumequeue" => derived
                    .iter()
                    .filter(|path| path.components().any(|name| name.as_os_str() == "kept"))
                    .collect(),
                _ => derived.iter().collect(),
            };
            if part != "index" {
                assert!(!derived.is_empty(), "no file of {part}");
            }
            for path in derived {
                // in the queue: the 1,500th entry of 20 bytes, its offset in the log; elsewhere: within the first fields
                flip_bit(
                    path,
                    if part == "consumequeue" {
                        1500 * 20 + 6
                    } else {
                        5
                    },
                );
            }
            gantry.start_again().unwrap();
            assert_eq!(
                all_bodies(&gantry).await,
                bodies,
                "after a flipped bit in {part}"
            );
        }
    });
}

/// BL-04, apache/rocketmq#4549: unread messages that go with their log files are not passed over in silence: the group's
/// next receive says which, and what came later is all there, also after a kill -9 among the deletions.
#[test]
fn a_group_is_told_which_unread_messages_retention_deleted() {
    within(SLOW, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &["--segment-size", "1MiB"]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        let broker = gantry.addr("broker");
        let client = Native::connect(broker).await.unwrap();
        client.put_topic("kept", 1).await.unwrap();
        // The group exists and reads nothing.
        rest.receive("g", "topic=kept&max=1&wait=0s")
            .await
            .expect(200);
        let batch = |from: u64| {
            let body = |number: u64| format!("{number}:{}", "z".repeat(1000)).into_bytes();
            let messages = (from..from + 50).map(|number| (body(number), Vec::new()));
            messages.collect::<Vec<_>>()
        };
        for from in (0..3000).step_by(50) {
            client
                .send_batch("kept", 0, &batch(from))
                .await
                .unwrap()
                .expect(0)
                .unwrap();
        }
        let logs = || files(&dir.path().join("data"), "commitlog").len();
        let full = logs();
        gantry.kill9().unwrap();
        let retention = ["--broker-retention-time", "3s"];
        let often = ["--broker-retention-check-interval", "200ms"];
        let flags = [retention, often].concat();
        gantry.start_with(&flags).unwrap();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        while logs() >= full {
            assert!(tokio::time::Instant::now() < until, "nothing is deleted");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gantry.kill9().unwrap();
        gantry.start_again().unwrap();
        let client = Native::connect(broker).await.unwrap();
        client
            .send_batch("kept", 0, &batch(3000))
            .await
            .unwrap()
            .expect(0)
            .unwrap();

        let mut polled: Vec<u64> = Vec::new();
        let mut skipped = Vec::new();
        while polled.last() != Some(&3049) {
            assert!(
                tokio::time::Instant::now() < until + Duration::from_secs(20),
                "{polled:?}"
            );
            let answer = rest
                .receive("g", "topic=kept&max=256&wait=1s&bodyFormat=text")
                .await
                .expect(200);
            if let Some(gaps) = answer.json()["gap"].as_array() {
                for gap in gaps {
                    let number = |name: &str| gap[name].as_u64().unwrap();
                    assert_eq!(gap["topic"], "kept");
                    assert_eq!(gap["reason"], "retention");
                    assert_eq!(number("skipped"), number("to") - number("from"));
                    skipped.push(number("from")..number("to"));
                }
            }
            let got = answer.messages();
            let receipts: Vec<&str> = got.iter().map(|message| text(message, "receipt")).collect();
            if !receipts.is_empty() {
                rest.ack("g", &receipts).await.expect(200);
            }
            polled.extend(
                got.iter()
                    .map(|message| number(text(message, "text").as_bytes())),
            );
        }
        // Every number is either read or said to be lost, in order, none twice.
        assert!(!skipped.is_empty(), "unread messages vanished in silence");
        let mut accounted: Vec<u64> = skipped.into_iter().flatten().chain(polled).collect();
        accounted.sort_unstable();
        assert_eq!(accounted, (0..3050).collect::<Vec<u64>>());
    });
}
