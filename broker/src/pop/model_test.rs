//! Random histories against a reference model: nothing acked comes back, everything else comes back exactly once, and a
//! crash at any moment rebuilds the same state from the log and any earlier snapshot.

use std::collections::HashMap;

use super::apply::{Change, Event};
use super::lease::{LeaseId, Receipt};
use super::names::{origin_of, retry_v2};
use super::policy::{Backoff, Policy};
use super::queue::QueueState;
use super::record::{self, CheckPoint, Draft, Part, Record};
use super::replay::Replay;
use super::settle::{self, Fate, Op, Status};
use super::snapshot::{QueueSnapshot, Snapshot};
use super::table::Table;
use super::tombs::Horizon;

const GROUP: &str = "g";
const TOPIC: &str = "T";
const RECORD_BYTES: u64 = 100;

/// xorshift64*: a small seeded generator.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// What the log holds, as replay sees it.
#[derive(Clone)]
enum Entry {
    Fact(&'static str, Vec<u8>),
    Returned {
        topic: String,
        queue_id: i32,
        event: Event,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Ready,
    Leased,
    Done,
}

/// A message as a queue stores it: which one it is and how often it was delivered before.
#[derive(Clone, Copy)]
struct Stored {
    message: usize,
    reconsumed: u32,
}

#[derive(Clone)]
struct Held {
    topic: String,
    queue_id: i32,
    offset: u64,
    id: LeaseId,
    pop_time_ms: i64,
    message: usize,
    /// Reference: what a further ack must say.
    acked: bool,
}

struct World {
    rng: Rng,
    now_ms: i64,
    policy: Policy,
    epoch: u16,
    table: Table,
    log: Vec<(u64, Entry)>,
    snapshots: Vec<Vec<u8>>,
    queues: HashMap<(String, i32), Vec<Stored>>,
    places: Vec<Place>,
    attempts: Vec<u32>,
    receipts: Vec<Held>,
    dead: usize,
}

impl World {
    fn new(seed: u64, messages: usize, queues: i32) -> Self {
        let policy = Policy {
            invisible_ms: 30_000,
            max_in_flight: 1_000,
            max_attempts: 5,
            backoff: Backoff::List(vec![1_000, 5_000]),
            dead_letters: true,
            paused: false,
        };
        let mut world = World {
            rng: Rng(seed.wrapping_mul(2).wrapping_add(1)),
            now_ms: 1_000_000,
            policy,
            epoch: 1,
            table: Table::default(),
            log: Vec::new(),
            snapshots: Vec::new(),
            queues: HashMap::new(),
            places: vec![Place::Ready; messages],
            attempts: vec![0; messages],
            receipts: Vec::new(),
            dead: 0,
        };
        for message in 0..messages {
            let queue_id = (message as i32) % queues;
            world
                .queues
                .entry((TOPIC.to_owned(), queue_id))
                .or_default()
                .push(Stored {
                    message,
                    reconsumed: 0,
                });
        }
        world
    }

    fn position(&self) -> u64 {
        self.log.len() as u64 * RECORD_BYTES
    }

    fn append(&mut self, entry: Entry) -> u64 {
        let position = self.position();
        self.log.push((position, entry));
        position
    }

    fn append_draft(&mut self, draft: Draft) -> u64 {
        self.append(Entry::Fact(draft.tag, draft.body))
    }

    fn pop(&mut self, topic: &str, queue_id: i32, max: usize, invisible_ms: u64) -> usize {
        let Some(stored) = self.queues.get(&(topic.to_owned(), queue_id)).cloned() else {
            return 0;
        };
        if self.table.get(GROUP, topic, queue_id).is_none() && stored.is_empty() {
            return 0;
        }
        let horizon = Horizon {
            id: LeaseId::new(self.epoch, self.position()),
            pop_time_ms: self.now_ms,
        };
        let applied = self.position();
        let slot = self
            .table
            .get_or_create(GROUP, topic, queue_id, || {
                QueueState::new(0, horizon, applied)
            })
            .unwrap();
        let mut locked = slot.lock().unwrap();
        let next = locked.state().next as usize;
        let taken = &stored[next.min(stored.len())..(next + max).min(stored.len())];
        if taken.is_empty() {
            return 0;
        }
        let messages: Vec<(u64, u32)> = taken
            .iter()
            .enumerate()
            .map(|(index, stored)| ((next + index) as u64, stored.reconsumed + 1))
            .collect();
        let point = CheckPoint {
            group: GROUP,
            topic,
            queue_id,
            epoch: self.epoch,
            pop_time_ms: self.now_ms,
            invisible_ms,
            next: (next + taken.len()) as u64,
            messages: &messages,
            member: None,
        };
        let position = self.append_draft(point.draft("b").unwrap());
        let event = point.event(position);
        locked.apply(position, &event);
        for (stored, &(offset, attempt)) in taken.iter().zip(&messages) {
            let message = stored.message;
            assert_eq!(
                self.places[message],
                Place::Ready,
                "message {message} is delivered while not ready"
            );
            assert_eq!(
                attempt,
                self.attempts[message] + 1,
                "attempt of message {message}"
            );
            self.places[message] = Place::Leased;
            self.attempts[message] += 1;
            let id = LeaseId::new(self.epoch, position);
            let held = Held {
                topic: topic.to_owned(),
                queue_id,
                offset,
                id,
                pop_time_ms: point.pop_time_ms,
                message,
                acked: false,
            };
            self.receipts.push(held);
        }
        taken.len()
    }

    /// Settles one receipt; the answer is checked against what the model knows must be true.
    fn settle(&mut self, index: usize, op: &Op) -> Status {
        let held = self.receipts[index].clone();
        let receipt = if self.rng.one_in(2) {
            Receipt::Lease(held.id)
        } else {
            Receipt::PopTime(held.pop_time_ms)
        };
        let slot = self.table.get(GROUP, &held.topic, held.queue_id).unwrap();
        let mut locked = slot.lock().unwrap();
        let decision = settle::decide(
            locked.state(),
            &self.policy,
            held.offset,
            receipt,
            op,
            self.now_ms,
        );
        if held.acked {
            let expected = if *op == Op::Ack {
                Status::Acked
            } else {
                Status::Gone
            };
            assert_eq!(
                (decision.status, decision.already),
                (expected, expected == Status::Acked)
            );
        }
        if let Some(change) = decision.change {
            let check_point = locked
                .state()
                .lease(held.offset, receipt)
                .map(|lease| (lease.start, lease.pop_time_ms));
            let part = Part {
                topic: held.topic.clone(),
                queue_id: held.queue_id,
                check_point,
                changes: vec![change.clone()],
            };
            let position =
                self.append_draft(record::settle_draft(GROUP, "b", self.now_ms, &[part]).unwrap());
            locked.apply(
                position,
                &Event::Settled {
                    at_ms: self.now_ms,
                    changes: vec![change],
                },
            );
            match decision.status {
                Status::Acked => {
                    assert_eq!(
                        self.places[held.message],
                        Place::Leased,
                        "an ack takes effect on a leased message only"
                    );
                    self.places[held.message] = Place::Done;
                    self.receipts[index].acked = true;
                }
                Status::Released if *op == Op::Suspend => self.attempts[held.message] -= 1,
                _ => {}
            }
        }
        decision.status
    }

    /// Puts back and buries what is due.
    fn revive(&mut self) {
        for slot in self.table.all() {
            let mut locked = slot.lock().unwrap();
            for (offset, lease) in locked.state().due(self.now_ms, usize::MAX) {
                let key = &slot.key;
                let stored = self.queues[&(key.topic.to_string(), key.queue_id)][offset as usize];
                assert_eq!(
                    self.places[stored.message],
                    Place::Leased,
                    "put back while not leased"
                );
                let fate = settle::fate(&lease, &self.policy);
                let dead = !matches!(fate, Fate::Retry { .. });
                let event = Event::Returned {
                    offset,
                    id: lease.id,
                    dead,
                    at_ms: self.now_ms,
                };
                let entry = Entry::Returned {
                    topic: key.topic.to_string(),
                    queue_id: key.queue_id,
                    event: event.clone(),
                };
                let position = self.append(entry);
                locked.apply(position, &event);
                if let Fate::Retry { counted, .. } = fate {
                    self.places[stored.message] = Place::Ready;
                    let topic = retry_v2(GROUP, origin_of(GROUP, &key.topic).unwrap_or(&key.topic));
                    let again = Stored {
                        reconsumed: stored.reconsumed + u32::from(counted),
                        ..stored
                    };
                    self.queues.entry((topic, 0)).or_default().push(again);
                } else {
                    self.places[stored.message] = Place::Done;
                    self.dead += 1;
                }
            }
        }
    }

    fn rebuild(&self, snapshot: Option<&[u8]>, end: u64) -> (Table, u16) {
        let snapshot = snapshot.map(|text| Snapshot::decode(text).unwrap());
        let mut replay = Replay::new(snapshot.as_ref(), 0);
        let from = replay.from();
        for (position, entry) in self
            .log
            .iter()
            .filter(|(position, _)| (from..end).contains(position))
        {
            match entry {
                Entry::Fact(tag, body) => {
                    replay.record(*position, &record::decode(tag, body, *position).unwrap())
                }
                Entry::Returned {
                    topic,
                    queue_id,
                    event,
                } => replay.returned(*position, GROUP, topic, *queue_id, event.clone()),
            }
        }
        replay.finish()
    }

    /// kill -9: everything in memory is gone, the log is not.
    fn crash(&mut self) {
        let snapshot = (!self.snapshots.is_empty())
            .then(|| self.rng.below(self.snapshots.len() as u64) as usize);
        let (table, epoch) = self.rebuild(
            snapshot.map(|index| self.snapshots[index].as_slice()),
            u64::MAX,
        );
        compare(
            &text(&table),
            &text(&self.table),
            &format!("the log and snapshot {snapshot:?} tell another state"),
        );
        self.table = table;
        self.epoch = epoch + 1;
    }

    /// Begins or ends a snapshot whose queues are copied at different moments.
    fn begin_snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.epoch, self.position());
        self.copy(&mut snapshot, |index| index % 2 == 0);
        snapshot
    }

    fn end_snapshot(&mut self, mut snapshot: Snapshot) {
        self.copy(&mut snapshot, |_| true);
        self.snapshots.push(snapshot.encode().unwrap());
    }

    fn copy(&self, snapshot: &mut Snapshot, wanted: impl Fn(usize) -> bool) {
        for (index, slot) in self
            .table
            .all()
            .iter()
            .enumerate()
            .filter(|(index, _)| wanted(*index))
        {
            let known = snapshot.queues.iter().any(|queue| {
                *queue.topic == *slot.key.topic && queue.queue_id == slot.key.queue_id
            });
            if !known && index < 64 {
                let locked = slot.lock().unwrap();
                snapshot.queues.push(QueueSnapshot::take(
                    GROUP,
                    &slot.key.topic,
                    slot.key.queue_id,
                    locked.state(),
                ));
            }
        }
    }

    fn random_step(&mut self) {
        match self.rng.below(10) {
            0..=2 => {
                let (queue_id, max) = (self.rng.below(3) as i32, 1 + self.rng.below(8) as usize);
                self.pop(TOPIC, queue_id, max, 5_000);
            }
            3 => {
                self.pop(&retry_v2(GROUP, TOPIC), 0, 8, 5_000);
            }
            4..=7 if !self.receipts.is_empty() => {
                let recent = self.receipts.len().saturating_sub(40) as u64;
                let index = if self.rng.one_in(8) {
                    self.rng.below(self.receipts.len() as u64)
                } else {
                    recent + self.rng.below(self.receipts.len() as u64 - recent)
                };
                let op = match self.rng.below(10) {
                    0..=4 => Op::Ack,
                    5 => Op::Nack {
                        delay_ms: Some(2_000),
                        fault: Default::default(),
                    },
                    6 => Op::Extend(Some(8_000), None),
                    7 => Op::Release(500, None),
                    8 => Op::Suspend,
                    _ => Op::Nack {
                        delay_ms: None,
                        fault: super::lease::Fault {
                            code: Some("E".into()),
                            reason: None,
                            at_ms: self.now_ms,
                        },
                    },
                };
                self.settle(index as usize, &op);
            }
            8 => self.now_ms += self.rng.below(4_000) as i64,
            _ => self.revive(),
        }
    }

    fn drain(&mut self) {
        while self.places.contains(&Place::Ready) || self.places.contains(&Place::Leased) {
            let before = self.receipts.len();
            for queue_id in 0..3 {
                while self.pop(TOPIC, queue_id, 32, 1_000) > 0 {}
            }
            while self.pop(&retry_v2(GROUP, TOPIC), 0, 32, 1_000) > 0 {}
            for index in before..self.receipts.len() {
                self.settle(index, &Op::Ack);
            }
            self.now_ms += 10_000;
            self.revive();
        }
        for slot in self.table.all() {
            let locked = slot.lock().unwrap();
            assert_eq!(locked.state().in_flight_len(), 0);
            assert_eq!(locked.state().held(), 0);
            assert_eq!(locked.state().ack_floor(), locked.state().next);
        }
        assert_eq!(self.table.open(GROUP), (0, 0));
    }
}

fn text(table: &Table) -> String {
    String::from_utf8(table.snapshot(0, 0).encode().unwrap()).unwrap()
}

/// Equal, or a panic that shows where they part rather than all of it.
fn compare(left: &str, right: &str, what: &str) {
    if left != right {
        let at = left
            .bytes()
            .zip(right.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let part = |text: &str| {
            text.chars()
                .skip(at.saturating_sub(120))
                .take(200)
                .collect::<String>()
        };
        panic!("{what}:\n{}\n{}", part(left), part(right));
    }
}

/// PoppedAckedOrReturned over random histories with crashes.
#[test]
fn whatever_happens_a_message_is_acked_once_or_comes_back() {
    for seed in 1..=150 {
        let mut world = World::new(seed, 60, 3);
        let mut pending = None;
        for step in 0..600 {
            world.random_step();
            match world.rng.below(60) {
                0 if pending.is_none() => pending = Some(world.begin_snapshot()),
                1 => {
                    if let Some(snapshot) = pending.take() {
                        world.end_snapshot(snapshot);
                    }
                }
                2 if step % 2 == 0 => {
                    pending = None;
                    world.crash();
                }
                _ => {}
            }
        }
        world.drain();
        world.crash();
        assert!(
            world.places.iter().all(|place| *place == Place::Done),
            "seed {seed}"
        );
    }
}

/// A cut log tells the same state from the beginning and from any snapshot that was complete before the cut.
#[test]
fn every_prefix_of_the_log_rebuilds_alike_from_every_snapshot() {
    for seed in 1..=20 {
        let mut world = World::new(seed, 40, 3);
        let mut ends = Vec::new();
        for _ in 0..12 {
            let snapshot = world.begin_snapshot();
            (0..15).for_each(|_| world.random_step());
            world.end_snapshot(snapshot);
            ends.push(world.position());
            (0..15).for_each(|_| world.random_step());
        }
        for end in (0..=world.position()).step_by(7 * RECORD_BYTES as usize) {
            let expected = text(&world.rebuild(None, end).0);
            for (snapshot, _) in world
                .snapshots
                .iter()
                .zip(&ends)
                .filter(|(_, taken)| **taken <= end)
            {
                let rebuilt = text(&world.rebuild(Some(snapshot), end).0);
                compare(&rebuilt, &expected, &format!("seed {seed}, cut at {end}"));
            }
        }
    }
}

/// BL-14 (apache/rocketmq#7914): batches of 32, a random half acked, invisible 5 s, until drained: nothing gets lost.
#[test]
fn acking_a_random_half_of_each_batch_loses_nothing() {
    const MESSAGES: usize = 20_000;
    let mut world = World::new(14, MESSAGES, 3);
    world.policy.max_attempts = 100;
    let mut rounds = 0;
    while world.places.iter().any(|place| *place != Place::Done) {
        rounds += 1;
        assert!(rounds < 200, "does not drain");
        for queue_id in 0..3 {
            for topic in [TOPIC.to_owned(), retry_v2(GROUP, TOPIC)] {
                for _ in 0..80 {
                    let before = world.receipts.len();
                    world.pop(&topic, queue_id, 32, 5_000);
                    for index in before..world.receipts.len() {
                        if world.rng.one_in(2) {
                            assert_eq!(world.settle(index, &Op::Ack), Status::Acked);
                        }
                    }
                }
            }
        }
        world.now_ms += 5_000;
        world.revive();
        if rounds % 5 == 0 {
            world.crash();
        }
    }
    assert_eq!(world.dead, 0);
    assert_eq!(
        world.receipts.iter().filter(|held| held.acked).count(),
        MESSAGES
    );
}

/// BL-48 (apache/pulsar#14242): a batch of 50 acked one by one out of order; restarts in between replay none of it.
#[test]
fn single_acks_of_a_batch_out_of_order_add_up_over_restarts() {
    let mut world = World::new(48, 50, 1);
    assert_eq!(world.pop(TOPIC, 0, 50, 600_000), 50);
    let mut order: Vec<usize> = (0..50).collect();
    for last in (1..50).rev() {
        order.swap(last, world.rng.below(last as u64 + 1) as usize);
    }
    for (count, index) in order.into_iter().enumerate() {
        assert_eq!(world.settle(index, &Op::Ack), Status::Acked);
        if count % 16 == 15 {
            world.crash();
        }
    }
    world.now_ms += 700_000;
    world.revive();
    world.crash();
    let slot = world.table.get(GROUP, TOPIC, 0).unwrap();
    let locked = slot.lock().unwrap();
    assert_eq!(
        (
            locked.state().ack_floor(),
            locked.state().next,
            locked.state().in_flight_len()
        ),
        (50, 50, 0)
    );
}

/// BL-47 (localstack/localstack#13222): the receipt of an expired delivery does not touch the next one.
#[test]
fn a_stale_receipt_is_gone_and_the_new_holder_stays() {
    let mut world = World::new(47, 1, 1);
    world.pop(TOPIC, 0, 1, 2_000);
    world.now_ms += 3_000;
    world.revive();
    world.pop(&retry_v2(GROUP, TOPIC), 0, 1, 2_000);
    assert_eq!(world.settle(0, &Op::Ack), Status::Gone);
    assert_eq!(
        world.settle(1, &Op::Extend(Some(5_000), None)),
        Status::Extended
    );
    world.now_ms += 4_000;
    world.revive();
    assert_eq!(world.settle(1, &Op::Ack), Status::Acked);
    assert_eq!(world.settle(0, &Op::Ack), Status::Gone);
}

#[test]
fn an_ack_after_expiry_and_before_the_put_back_is_late_and_counts() {
    let mut world = World::new(1, 1, 1);
    world.pop(TOPIC, 0, 1, 2_000);
    world.now_ms += 2_500;
    let slot = world.table.get(GROUP, TOPIC, 0).unwrap();
    let receipt = Receipt::Lease(world.receipts[0].id);
    let late = settle::decide(
        slot.lock().unwrap().state(),
        &world.policy,
        0,
        receipt,
        &Op::Ack,
        world.now_ms,
    );
    assert_eq!(
        (late.status, late.late, late.already),
        (Status::Acked, true, false)
    );
    assert_eq!(world.settle(0, &Op::Ack), Status::Acked);
    world.revive();
    assert_eq!(world.places[0], Place::Done);
}

#[test]
fn one_lease_lives_at_most_twelve_hours() {
    let mut world = World::new(1, 1, 1);
    world.pop(TOPIC, 0, 1, 43_000_000);
    world.now_ms += 40_000_000;
    assert_eq!(
        world.settle(0, &Op::Extend(Some(3_200_000), None)),
        Status::Extended
    );
    assert_eq!(
        world.settle(0, &Op::Extend(Some(3_200_001), None)),
        Status::Limit
    );
    assert_eq!(world.settle(0, &Op::Ack), Status::Acked);
}

#[test]
fn the_last_nack_is_a_dead_letter_and_its_repetition_says_so() {
    let mut world = World::new(1, 1, 1);
    world.policy.max_attempts = 1;
    world.pop(TOPIC, 0, 1, 60_000);
    let nack = Op::Nack {
        delay_ms: Some(3_600_000),
        fault: Default::default(),
    };
    assert_eq!(world.settle(0, &nack), Status::DeadLettered);
    world.revive();
    assert_eq!(world.dead, 1, "at once, not after the delay");
    assert_eq!(world.settle(0, &nack), Status::DeadLettered);
    assert_eq!(world.settle(0, &Op::Ack), Status::Gone);
}

/// Without dead letters it is dropped, and never said to be one.
#[test]
fn the_last_nack_is_a_nack_where_there_are_no_dead_letters() {
    let mut world = World::new(1, 1, 1);
    (world.policy.max_attempts, world.policy.dead_letters) = (1, false);
    world.pop(TOPIC, 0, 1, 60_000);
    let nack = Op::Nack {
        delay_ms: None,
        fault: Default::default(),
    };
    assert_eq!(world.settle(0, &nack), Status::Nacked);
    world.revive();
    assert_eq!(world.dead, 0);
    assert_eq!(world.settle(0, &nack), Status::Nacked);
    assert_eq!(world.settle(0, &Op::Ack), Status::Gone);
}

#[test]
fn a_deletion_forgets_and_a_later_namesake_starts_anew() {
    let mut world = World::new(1, 4, 1);
    world.pop(TOPIC, 0, 4, 60_000);
    world.settle(0, &Op::Ack);
    world.table.forget(u64::MAX, |_| true);
    world.append_draft(record::forget_draft(Some(GROUP), None, world.now_ms).unwrap());
    world.places.fill(Place::Ready);
    world.attempts.fill(0);
    world.pop(TOPIC, 0, 2, 60_000);
    world.crash();
    let slot = world.table.get(GROUP, TOPIC, 0).unwrap();
    let old = Receipt::Lease(world.receipts[0].id);
    let answer = settle::decide(
        slot.lock().unwrap().state(),
        &world.policy,
        0,
        old,
        &Op::Ack,
        world.now_ms,
    );
    assert_eq!(answer.status, Status::Gone);
}

#[test]
fn a_seek_ends_all_leases_and_a_take_over_only_those_delivered_again() {
    for (void, left) in [(true, 0), (false, 2)] {
        let mut world = World::new(1, 6, 1);
        world.pop(TOPIC, 0, 6, 60_000);
        let slot = world.table.get(GROUP, TOPIC, 0).unwrap();
        let position = world
            .append_draft(record::position_draft(GROUP, TOPIC, 0, 2, void, world.now_ms).unwrap());
        let event = match record::decode(
            record::TAG_POSITION,
            match &world.log[1].1 {
                Entry::Fact(_, body) => body,
                Entry::Returned { .. } => unreachable!(),
            },
            position,
        ) {
            Some(Record::Events { mut events, .. }) => events.remove(0).event,
            _ => unreachable!(),
        };
        let mut locked = slot.lock().unwrap();
        locked.apply(position, &event);
        assert_eq!(
            (locked.state().next, locked.state().in_flight_len()),
            (2, left)
        );
        let gone = settle::decide(
            locked.state(),
            &world.policy,
            3,
            Receipt::Lease(world.receipts[3].id),
            &Op::Ack,
            world.now_ms,
        );
        assert_eq!(gone.status, Status::Gone);
        assert!(locked.state().leases_from(2).is_empty());
        let change: Option<Change> = gone.change;
        assert!(change.is_none());
    }
}
