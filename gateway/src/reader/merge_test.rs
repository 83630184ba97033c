//! The merge against queues in memory: complete, in order, bounded, resumable, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::filter::TagFilter;
use super::merge::{Limits, Merge, Order, Source, memory_of};
use super::view::{QueueView, TopicView};
use crate::error::{ApiError, Code};
use crate::upstream::{Amount, Page, QueueAt, Record, Times};

/// One stored message: time, matches the filter, bytes.
type Stored = (i64, bool, usize);

/// Queues of a topic; those with the same number of a broker are on it.
struct Memory {
    queues: Vec<Vec<Stored>>,
    min: Vec<i64>,
    /// Most bytes given in one page, for the bound.
    largest: AtomicUsize,
    down: Option<usize>,
}

impl Memory {
    fn new(queues: Vec<Vec<Stored>>) -> Self {
        let min = vec![0; queues.len()];
        Self {
            queues,
            min,
            largest: AtomicUsize::new(0),
            down: None,
        }
    }

    fn view(&self) -> TopicView {
        let queue = |(id, q): (usize, &Vec<Stored>)| QueueView {
            broker: "a".into(),
            addr: "x".into(),
            id: id as i32,
            min: self.min[id],
            max: q.len() as i64,
            earliest_at_ms: 0,
            epoch: 1,
        };
        TopicView {
            topic: "t".into(),
            queues: self.queues.iter().enumerate().map(queue).collect(),
        }
    }

    fn ends(&self) -> Vec<i64> {
        self.queues.iter().map(|q| q.len() as i64).collect()
    }

    fn check(&self, at: &QueueAt) -> Result<(), ApiError> {
        if self.down == Some(at.queue_id as usize) {
            return Err(ApiError::new(Code::BrokerUnavailable, "down"));
        }
        Ok(())
    }
}

impl Source for Memory {
    async fn page(&self, at: QueueAt, amount: Amount<'_>, _: Instant) -> Result<Page, ApiError> {
        self.check(&at)?;
        let (id, queue) = (at.queue_id as usize, &self.queues[at.queue_id as usize]);
        if at.offset < self.min[id] {
            return Ok(Page {
                next: self.min[id],
                deleted: (self.min[id] - at.offset) as u64,
                ..Page::default()
            });
        }
        let (mut page, mut bytes, mut next) = (Page::default(), 0, at.offset);
        for (offset, (time, matches, size)) in queue
            .iter()
            .enumerate()
            .skip(at.offset as usize)
            .take(amount.scan)
        {
            let wanted = amount.tags.is_none() || *matches;
            if wanted
                && (page.records.len() >= amount.messages
                    || (!page.records.is_empty() && bytes + size > amount.bytes))
            {
                break;
            }
            if wanted && page.records.is_empty() && *size > amount.room {
                page.large = Some(*size + 600);
                break;
            }
            if wanted {
                bytes += size;
                page.records.push(Arc::new(Record::for_test(
                    id as i32,
                    offset as i64,
                    *time,
                    matches.then_some("x"),
                    *size,
                )));
            }
            next = offset as i64 + 1;
        }
        self.largest.fetch_max(bytes, Ordering::Relaxed);
        page.next = next;
        page.next_stored_at_ms = queue.get(next as usize).map(|m| m.0);
        Ok(page)
    }

    async fn times(&self, at: QueueAt, amount: Amount<'_>, _: Instant) -> Result<Times, ApiError> {
        self.check(&at)?;
        let queue = &self.queues[at.queue_id as usize];
        let looked = queue
            .iter()
            .enumerate()
            .skip(at.offset as usize)
            .take(amount.scan);
        let entries = looked
            .clone()
            .filter(|(_, m)| amount.tags.is_none() || m.1)
            .take(amount.messages);
        Ok(Times {
            entries: entries.map(|(o, m)| (o as i64, m.0)).collect(),
            next: at.offset + looked.count() as i64,
        })
    }
}

/// Queues with times that do not go back.
fn queues() -> impl Strategy<Value = Vec<Vec<Stored>>> {
    let message = (0_i64..4, any::<bool>(), 1_usize..40_000);
    let queue = proptest::collection::vec(message, 0..60).prop_map(|steps| {
        let mut time = 0;
        let mut later = |(step, matches, size)| {
            time += step;
            (time, matches, size)
        };
        steps.into_iter().map(&mut later).collect::<Vec<Stored>>()
    });
    proptest::collection::vec(queue, 1..6)
}

/// (time, queue, offset) of all messages, in the order of the merge.
fn expected(queues: &[Vec<Stored>], filtered: bool) -> Vec<(i64, i32, i64)> {
    let of = |(id, queue): (usize, &Vec<Stored>)| {
        let keep = queue.iter().enumerate().filter(|(_, m)| !filtered || m.1);
        keep.map(|(o, m)| (m.0, id as i32, o as i64))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<_> = queues.iter().enumerate().flat_map(of).collect();
    all.sort_unstable();
    all
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_message_comes_once_in_order_over_many_cursors(
        queues in queues(), filtered: bool, down: bool, items in 1_usize..30, scan in 1_u64..100, buffer in 1_usize..200_000,
    ) {
        let memory = Memory::new(queues);
        let filter = filtered.then(|| TagFilter::parse("x", "").unwrap().unwrap());
        let (order, mut places, ends) = if down {
            (Order::Descending, memory.ends(), vec![0; memory.queues.len()])
        } else {
            (Order::Ascending, vec![0; memory.queues.len()], memory.ends())
        };
        let (mut got, mut passed, mut calls) = (Vec::new(), 0, 0);
        run(async {
            loop {
                let mut merge = Merge::new(memory.view(), order, filter.clone(), &places, &ends, buffer);
                let taken = merge.take(&memory, Limits { items, bytes: 100_000, scan }, soon()).await.unwrap();
                let bytes: usize = taken.iter().map(|r| r.content.body.len()).sum();
                assert!(taken.len() <= items && (bytes <= 100_000 || taken.len() == 1));
                got.extend(taken.iter().map(|r| (r.stored_at_ms, r.queue_id, r.offset)));
                assert_eq!(merge.take_deleted(), 0);
                passed += merge.passed();
                calls += 1;
                if merge.is_done() {
                    break;
                }
                assert!(merge.places() != places, "no progress");
                places = merge.places();
            }
        });
        let mut want = expected(&memory.queues, filtered);
        if down {
            want.reverse();
        }
        prop_assert_eq!(got, want, "after {} calls", calls);
        let all: u64 = memory.queues.iter().map(|q| q.len() as u64).sum();
        prop_assert_eq!(passed, all);
    }
}

#[test]
fn a_merge_that_is_kept_goes_on_behind_its_scan_limit() {
    let mut queue = vec![(1, false, 1); 50];
    queue.push((2, true, 1));
    let memory = Memory::new(vec![queue]);
    let filter = TagFilter::parse("x", "").unwrap();
    let limits = Limits {
        items: 9,
        bytes: 1 << 20,
        scan: 10,
    };
    run(async {
        let (view, ends) = (memory.view(), memory.ends());
        let mut merge = Merge::new(view, Order::Ascending, filter, &[0], &ends, 1 << 20);
        let mut places = Vec::new();
        for _ in 0..5 {
            let taken = merge.take(&memory, limits, soon()).await.unwrap();
            assert!(taken.is_empty());
            places.extend(merge.places());
        }
        assert_eq!(places, [10, 20, 30, 40, 50]);
        let taken = merge.take(&memory, limits, soon()).await.unwrap();
        assert_eq!((taken.len(), merge.is_done()), (1, true));
    });
}

#[test]
fn what_retention_deleted_is_counted_once() {
    let mut memory = Memory::new(vec![vec![(1, true, 1); 5], vec![(1, true, 1); 3]]);
    memory.min = vec![4, 0];
    run(async {
        let mut merge = Merge::new(
            memory.view(),
            Order::Ascending,
            None,
            &[1, 1],
            &memory.ends(),
            1 << 20,
        );
        let limits = Limits {
            items: 9,
            bytes: 1 << 20,
            scan: 99,
        };
        let taken = merge.take(&memory, limits, soon()).await.unwrap();
        assert_eq!(
            (
                taken.len(),
                merge.take_deleted(),
                merge.take_deleted(),
                merge.passed()
            ),
            (3, 3, 0, 3)
        );
        // Deleted while the merge runs.
        let view = Memory::new(memory.queues.clone()).view();
        let mut merge = Merge::new(
            view,
            Order::Ascending,
            None,
            &[1, 3],
            &memory.ends(),
            1 << 20,
        );
        let taken = merge.take(&memory, limits, soon()).await.unwrap();
        assert_eq!(
            (taken.len(), merge.take_deleted(), merge.places()),
            (1, 3, vec![5, 3])
        );
        let view = Memory::new(memory.queues.clone()).view();
        let mut back = Merge::new(view, Order::Descending, None, &[5, 0], &[0, 0], 1 << 20);
        let taken = back.take(&memory, limits, soon()).await.unwrap();
        assert_eq!((taken.len(), back.is_done()), (1, true));
    });
}

#[test]
fn a_broker_that_is_down_fails_a_strict_merge_and_is_left_out_of_a_lenient_one() {
    let mut memory = Memory::new(vec![vec![(1, true, 1); 2], vec![(1, true, 1); 2]]);
    memory.down = Some(1);
    let limits = Limits {
        items: 9,
        bytes: 1 << 20,
        scan: 99,
    };
    run(async {
        let mut view = memory.view();
        view.queues[1].broker = "b".into();
        let mut strict = Merge::new(
            view.clone(),
            Order::Ascending,
            None,
            &[0, 0],
            &[2, 2],
            1 << 20,
        );
        let error = strict.take(&memory, limits, soon()).await.unwrap_err();
        assert_eq!(error.code(), Code::BrokerUnavailable);
        let mut lenient =
            Merge::new(view, Order::Ascending, None, &[0, 0], &[2, 2], 1 << 20).lenient();
        assert_eq!(
            lenient.take(&memory, limits, soon()).await.unwrap().len(),
            2
        );
        assert_eq!(
            (lenient.places(), lenient.is_done(), lenient.shut()),
            (vec![2, 0], false, vec![Arc::from("b")])
        );
    });
}

#[test]
fn a_message_beyond_the_memory_is_waited_for_with_nothing_held_and_comes_in_its_place() {
    const MEMORY: usize = 512 << 10;
    // Every queue, and times of several queues in turn and at once.
    let size = |at: usize| {
        if at.is_multiple_of(3) {
            700_000
        } else {
            30_000
        }
    };
    let queue = |id: usize| (0..7).map(move |at| ((at + id / 2) as i64, true, size(at + id)));
    let memory = Memory::new((0..4).map(|id| queue(id).collect()).collect());
    for order in [Order::Ascending, Order::Descending] {
        let (mut places, ends) = match order {
            Order::Ascending => (vec![0; 4], memory.ends()),
            Order::Descending => (memory.ends(), vec![0; 4]),
        };
        let (mut got, mut room, mut waits) = (Vec::new(), MEMORY, 0);
        run(async {
            loop {
                let mut merge = Merge::new(memory.view(), order, None, &places, &ends, MEMORY / 2);
                merge.within(room);
                let limits = Limits {
                    items: 9,
                    bytes: 192 << 10,
                    scan: 99,
                };
                let taken = merge.take(&memory, limits, soon()).await.unwrap();
                let held = taken.iter().map(|r| r.bytes).sum::<usize>() + merge.ahead();
                assert!(held <= room, "{held} bytes");
                got.extend(taken.iter().map(|r| (r.stored_at_ms, r.queue_id, r.offset)));
                places = merge.places();
                room = merge.needed().map_or(MEMORY, memory_of);
                if merge.needed().is_some() {
                    assert_eq!(held, 0);
                    waits += 1;
                }
                if merge.is_done() {
                    break;
                }
            }
        });
        let mut want = expected(&memory.queues, false);
        if order == Order::Descending {
            want.reverse();
        }
        assert_eq!(got, want);
        assert!(waits > 0 && waits <= 10, "{waits} waits");
    }
}
