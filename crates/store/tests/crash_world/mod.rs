//! A store on a simulated disk, a model of what it must hold, and the comparison of both.

use clock::ManualClock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::disk::Disk;
use store::disk::sim::{Failing, Rng, SimDisk};
use store::{
    FlushPolicy, MessageDraft, PhysicalOffset, QueueOffset, RecoveryReport, Store, StoreError,
    StoreOptions, Workers,
};
use wire::message::flags::{TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK};
use wire::message::record::{RecordFields, RecordView, encode_record};

/// What a seed decides before the start.
#[derive(Debug, Clone)]
pub struct Plan {
    pub flush: FlushPolicy,
    pub segment_size: u64,
    pub queue_file_units: u64,
    pub verify_at_open_bytes: u64,
    pub lives: u64,
    pub steps: u64,
    pub lie_about_flush: bool,
}

impl Plan {
    pub fn seeded(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        Plan {
            flush: if rng.one_in(2) {
                FlushPolicy::Sync
            } else {
                FlushPolicy::ASYNC_DEFAULT
            },
            segment_size: [2048, 4096, 16_384, 65_536][rng.below(4) as usize],
            queue_file_units: 3 + rng.below(40),
            verify_at_open_bytes: [0, 8192, 1 << 30][rng.below(3) as usize],
            lives: 2 + rng.below(4),
            steps: 10 + rng.below(150),
            lie_about_flush: false,
        }
    }
}

/// A record whose append was answered.
#[derive(Debug, Clone)]
struct Model {
    topic: String,
    queue_id: i32,
    queue_offset: u64,
    physical: u64,
    end: u64,
    body: Vec<u8>,
    properties: String,
    takes_position: bool,
}

/// Positions for which "flushed" was answered, and failures.
type Acks = Arc<Mutex<Vec<(u64, bool)>>>;

pub struct World {
    plan: Plan,
    rng: Rng,
    disk: SimDisk,
    clock: ManualClock,
    store: Option<Store>,
    model: Vec<Model>,
    acks: Acks,
    /// What was in the page cache when the process was killed.
    cached: Option<u64>,
    /// Topics removed, and the log position at which.
    removed: BTreeMap<String, u64>,
    /// The same for removals that failed: they may or may not have happened.
    perhaps_removed: BTreeMap<String, u64>,
    /// The first log position after deletions that were answered.
    deleted: u64,
    /// The same for deletions that may or may not have happened.
    perhaps_deleted: u64,
    counter: u64,
}

const TOPICS: [&str; 4] = ["a", "b", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"];

fn record<'a>(
    topic: &'a str,
    queue_id: i32,
    sys_flag: i32,
    properties: &'a str,
    body: &'a [u8],
) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id,
        flag: 1,
        sys_flag,
        born_ts_ms: 5,
        born_host: ([10, 0, 0, 1], 99).into(),
        store_host: ([127, 0, 0, 1], 10911).into(),
        reconsume_times: 0,
        prepared_offset: 0,
        body,
        properties: properties.as_bytes(),
    }
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let disk = SimDisk::new(seed);
        disk.create_dir("/data".as_ref()).unwrap();
        disk.sync_dir("/".as_ref()).unwrap();
        World {
            plan,
            rng: Rng::new(seed),
            disk,
            clock: ManualClock::new(1_700_000_000_000),
            store: None,
            model: Vec::new(),
            acks: Acks::default(),
            cached: None,
            removed: BTreeMap::new(),
            perhaps_removed: BTreeMap::new(),
            deleted: 0,
            perhaps_deleted: 0,
            counter: 0,
        }
    }

    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn options(&self) -> StoreOptions {
        let mut options = StoreOptions::new("/data");
        options.flush = self.plan.flush;
        options.segment_size = self.plan.segment_size;
        options.queue_file_units = self.plan.queue_file_units;
        options.verify_at_open_bytes = self.plan.verify_at_open_bytes;
        options.workers = Workers::Manual;
        options.lie_about_flush = self.plan.lie_about_flush;
        options.queue_sync_bytes = 4096;
        options
    }

    fn open(&mut self) -> Result<RecoveryReport, StoreError> {
        let disk = Arc::new(self.disk.clone());
        let (store, report) = Store::open(self.options(), disk, Arc::new(self.clock.clone()))?;
        self.store = Some(store);
        Ok(report)
    }

    /// Lives and crashes as the plan says.
    pub fn run(&mut self) -> Result<(), String> {
        for life in 0..self.plan.lives {
            self.crash_inside_recovery();
            let report = self
                .open()
                .map_err(|e| format!("life {life}: open: {e:?}"))?;
            self.check(&report)
                .map_err(|e| format!("life {life}: {e}"))?;
            for _ in 0..self.plan.steps {
                self.step().map_err(|e| format!("life {life}: {e:?}"))?;
            }
            self.end_life().map_err(|e| format!("life {life}: {e}"))?;
        }
        let report = self.open().map_err(|e| format!("last open: {e:?}"))?;
        self.check(&report)
    }

    /// Sometimes the machine stops while it recovers.
    fn crash_inside_recovery(&mut self) {
        for _ in 0..self.rng.below(3) {
            let at = 1 + self.rng.below(60);
            self.disk.fail(Failing::From(at));
            let opened = self.open();
            self.disk.fail(Failing::None);
            self.store = None;
            if opened.is_err() || self.rng.one_in(2) {
                self.disk = self.disk.crash();
                self.cached = None;
            }
        }
    }

    fn end_life(&mut self) -> Result<(), String> {
        let store = self.store.take().ok_or("no store")?;
        match self.rng.below(4) {
            0 => {
                store.close().map_err(|e| format!("close: {e:?}"))?;
                // Everything is durable now, whether anybody asked or not.
                if let Some(last) = self.model.last() {
                    self.acks.lock().unwrap().push((last.end, true));
                }
                if self.rng.one_in(2) {
                    drop(store);
                    self.disk = self.disk.crash();
                }
            }
            1 => {
                let written = store.max_physical().get();
                drop(store);
                self.disk = self.disk.kill();
                // A killed process loses nothing that had reached the page cache.
                self.cached = Some(written);
            }
            _ => {
                drop(store);
                self.disk = self.disk.crash();
            }
        }
        Ok(())
    }

    /// One random thing a broker or a worker may do.
    fn step(&mut self) -> Result<(), StoreError> {
        let store = self.store.clone().ok_or(StoreError::Closed)?;
        match self.rng.below(26) {
            0..=9 => {
                let count = if self.rng.one_in(5) {
                    1 + self.rng.below(4)
                } else {
                    1
                };
                self.append(&store, count)?;
            }
            10..=13 => {
                store.step_flush(self.rng.one_in(2));
            }
            14..=17 => {
                store.step_dispatch();
            }
            18..=19 => store.step_maintain(self.rng.one_in(4)),
            20 => {
                store.step_prepare()?;
            }
            21 => self
                .clock
                .advance(Duration::from_millis(self.rng.below(2_000))),
            22 => self
                .clock
                .set_wall(1_700_000_000_000 + self.rng.below(1_000_000)),
            23 => {
                if self.rng.one_in(12) {
                    self.remove_topic(&store)?;
                }
            }
            _ => {
                if self.rng.one_in(3) {
                    self.delete_oldest(&store)?;
                }
            }
        }
        match store.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Deletes log files as far as a border; now and then appends meanwhile, or thinks better of it.
    fn delete_oldest(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.rng.one_in(3) {
            store.roll_if_older(i64::MAX)?;
            if self.rng.one_in(2) {
                while store.step_flush(true) {}
                while store.step_dispatch() {}
            }
        }
        let segments = store.segments();
        let count = self.rng.below(segments.len() as u64 + 1) as usize;
        let Some(last) = segments.get(..count).and_then(<[_]>::last) else {
            return Ok(());
        };
        let seen = self.ranges(store);
        let Some(retiring) = store.retire(last.to)? else {
            return Ok(());
        };
        if self.rng.one_in(3) {
            self.append(store, 1)?;
            store.step_dispatch();
        }
        let before = retiring.before().get();
        if self.rng.one_in(4) {
            drop(retiring);
            for (key, (min, _)) in &seen {
                let range = store.queue(&key.0, key.1);
                assert_eq!(range.min.get(), *min, "{key:?} is not shown again");
            }
            return Ok(());
        }
        self.perhaps_deleted = before;
        let cleaned = retiring.remove()?;
        assert_eq!(cleaned.min_physical.get(), before);
        self.deleted = before;
        for m in self.model.iter().rev().take(20) {
            let gone = m.physical < before;
            let found = store.record_at(PhysicalOffset::new(m.physical))?;
            assert!(!gone || found.is_none(), "deleted and still there: {m:?}");
        }
        Ok(())
    }

    /// Makes the last body so long that its record ends just where the blank must begin, leaving
    /// it 8 bytes, or a few more, or one too few so that the file ends before it.
    fn fit_to_the_file(&mut self, store: &Store, plain: &RecordFields<'_>, bodies: &mut [Vec<u8>]) {
        let mut empty = Vec::new();
        encode_record(plain, &mut empty).unwrap();
        let size = self.plan.segment_size;
        let room = size - store.written().get() % size;
        let others: usize = bodies.iter().rev().skip(1).map(Vec::len).sum();
        let taken = others + empty.len() * bodies.len();
        let slack = [8, 8, 9, 12, 15, 16, 7][self.rng.below(7) as usize];
        let len = room.checked_sub(taken as u64 + slack);
        if let (Some(len), Some(last)) = (len, bodies.last_mut()) {
            last.resize((len as usize).clamp(1, 60_000), 7);
        }
    }

    fn ranges(&self, store: &Store) -> BTreeMap<(String, i32), (u64, u64)> {
        let range = |key: (String, i32)| {
            let range = store.queue(&key.0, key.1);
            (key, (range.min.get(), range.max.get()))
        };
        store.topics().into_iter().map(range).collect()
    }

    fn remove_topic(&mut self, store: &Store) -> Result<(), StoreError> {
        let topic = TOPICS[self.rng.below(4) as usize];
        let end = self.model.last().map_or(0, |m| m.end);
        let removed = store.remove_topic(topic);
        if removed.is_ok() {
            self.removed.insert(topic.to_owned(), end);
        } else {
            self.perhaps_removed.insert(topic.to_owned(), end);
        }
        removed
    }

    fn append(&mut self, store: &Store, count: u64) -> Result<(), StoreError> {
        let topic = TOPICS[self.rng.below(4) as usize].to_owned();
        let queue_id = self.rng.below(3) as i32;
        let sys_flag = match self.rng.below(10) {
            0 => TRANSACTION_PREPARED,
            1 => TRANSACTION_ROLLBACK,
            2 => TRANSACTION_COMMIT,
            _ => 0,
        };
        let mut bodies = Vec::new();
        for _ in 0..count {
            self.counter += 1;
            let mut body = format!("{}:", self.counter).into_bytes();
            let len = self.rng.below(400) as usize;
            // Runs of zeros look like sectors that were lost; the checksum must tell.
            let fill = if self.rng.one_in(3) {
                0
            } else {
                self.counter as u8
            };
            body.resize(body.len() + len, fill);
            bodies.push(body);
        }
        // Long enough to fill a sector: the checksum of a record does not cover them.
        let filler = "p".repeat(if self.rng.one_in(4) { 700 } else { 1 });
        let tag = self.rng.below(3);
        let properties = format!("TAGS\x01t{tag}\x02DELAY\x013\x02user\x01{filler}\x02");
        let plain = record(&topic, queue_id, sys_flag, &properties, &[]);
        if self.rng.one_in(4) {
            self.fit_to_the_file(store, &plain, &mut bodies);
        }
        let drafts: Vec<MessageDraft<'_>> = bodies
            .iter()
            .map(|body| record(&topic, queue_id, sys_flag, &properties, body).into())
            .collect();
        let stored = match store.append_batch(&drafts) {
            Err(StoreError::TooLarge { .. }) => return Ok(()),
            other => other?,
        };
        let takes_position = !matches!(sys_flag, TRANSACTION_PREPARED | TRANSACTION_ROLLBACK);
        let mut end = PhysicalOffset::ZERO;
        for (outcome, body) in stored.iter().zip(bodies) {
            end = outcome.end();
            self.model.push(Model {
                topic: topic.clone(),
                queue_id,
                queue_offset: outcome.queue_offset.get(),
                physical: outcome.physical_offset.get(),
                end: end.get(),
                body,
                properties: properties.clone(),
                takes_position,
            });
        }
        if self.rng.one_in(2) {
            let acks = Arc::clone(&self.acks);
            store.when_flushed(
                end,
                Box::new(move |result| acks.lock().unwrap().push((end.get(), result.is_ok()))),
            );
        }
        Ok(())
    }

    /// A history in which calls may fail; true if none did.
    pub fn live_through_errors(&mut self) -> bool {
        let lived = self.open().is_ok() && (0..120).all(|_| self.step().is_ok());
        let closed = self.store.take().is_some_and(|store| store.close().is_ok());
        lived && closed
    }

    pub fn crash_and_check(&mut self) -> Result<(), String> {
        self.store = None;
        self.disk = self.disk.crash();
        let path = "/data/removed-topics".as_ref();
        let text = store::config_file::read(&self.disk, path)
            .unwrap()
            .unwrap_or_default();
        let text = String::from_utf8(text).unwrap();
        for (topic, end) in std::mem::take(&mut self.perhaps_removed) {
            if text.lines().any(|line| line == format!("{end} {topic}")) {
                self.removed.insert(topic, end);
            }
        }
        let report = self.open().map_err(|e| format!("open: {e:?}"))?;
        self.check(&report)
    }

    /// Compares the store with the model right after a recovery.
    fn check(&mut self, report: &RecoveryReport) -> Result<(), String> {
        let store = self.store.clone().ok_or("no store")?;
        let end = report.dispatched_to.get();
        let acked = self
            .acks
            .lock()
            .unwrap()
            .iter()
            .filter(|a| a.1)
            .map(|a| a.0)
            .max();
        if acked.is_some_and(|acked| acked > end) {
            return Err(format!(
                "flushed to {acked:?}, recovered to {end}: {report:?}"
            ));
        }
        let cached = self.cached.take();
        if cached.is_some_and(|cached| cached > end) || (cached.is_some() && report.lost.is_some())
        {
            return Err(format!("killed process lost records: {report:?}"));
        }
        if report
            .lost
            .as_ref()
            .is_some_and(|lost| lost.durable_bytes > 0)
        {
            return Err(format!("a checkpoint ahead of the log: {report:?}"));
        }
        if !report.damaged.is_empty() {
            return Err(format!("damage where there is none: {:?}", report.damaged));
        }
        let min = store.min_physical().get();
        if min < self.deleted || min > self.perhaps_deleted.max(self.deleted) {
            return Err(format!(
                "log begins at {min}, deleted {} to {}",
                self.deleted, self.perhaps_deleted
            ));
        }
        self.deleted = min;
        self.perhaps_deleted = min;
        self.model.retain(|m| m.end <= end);
        self.removed
            .values_mut()
            .for_each(|position| *position = (*position).min(end));
        // What was recovered has been synced: nothing may take it away any more.
        *self.acks.lock().unwrap() = vec![(end, true)];
        self.check_log(&store)?;
        self.check_queues(&store)?;
        drop(store);
        self.check_again(end)
            .map_err(|e| format!("{e}; first {report:?}; removed {:?}", self.removed))
    }

    /// The log holds exactly the records of the model.
    fn check_log(&self, store: &Store) -> Result<(), String> {
        let mut scan = store.scan(PhysicalOffset::ZERO);
        let min = store.min_physical().get();
        for want in self.model.iter().filter(|m| m.physical >= min) {
            let (at, record) = scan.next().ok_or(format!("record missing: {want:?}"))?;
            let view = RecordView::parse_checked(&record).map_err(|e| format!("{e}: {want:?}"))?;
            let same = at.get() == want.physical
                && view.topic == want.topic
                && view.queue_id == want.queue_id
                && view.queue_offset == want.queue_offset as i64
                && view.properties_bytes == want.properties.as_bytes()
                && view.body == want.body;
            if !same {
                return Err(format!("at {at} is {view:?}, want {want:?}"));
            }
            let again = store.record_at(at).map_err(|e| e.to_string())?;
            if again.as_ref() != Some(&record) {
                return Err(format!("record_at({at}) differs from the scan"));
            }
        }
        match scan.next() {
            Some((at, _)) => Err(format!("record at {at} was never appended")),
            None => Ok(()),
        }
    }

    /// Every queue holds exactly the positions that the log says.
    fn check_queues(&self, store: &Store) -> Result<(), String> {
        let log_min = store.min_physical().get();
        let mut queues: BTreeMap<(String, i32), Vec<&Model>> = BTreeMap::new();
        for m in &self.model {
            let removed = self
                .removed
                .get(&m.topic)
                .is_some_and(|end| m.physical < *end);
            if m.takes_position && !removed {
                queues
                    .entry((m.topic.clone(), m.queue_id))
                    .or_default()
                    .push(m);
            }
        }
        for (topic, id) in store.topics() {
            let known = queues.contains_key(&(topic.clone(), id));
            let range = store.queue(&topic, id);
            if !known && range.max != range.min {
                return Err(format!("queue {topic} {id} {range:?} should be empty"));
            }
        }
        for ((topic, id), want) in queues {
            let range = store.queue(&topic, id);
            let max = want.len() as u64;
            let want: Vec<&Model> = want.into_iter().filter(|m| m.physical >= log_min).collect();
            let min = max - want.len() as u64;
            if (range.min.get(), range.max.get()) != (min, max) {
                return Err(format!(
                    "queue {topic} {id}: {range:?}, want {min}..{max}: {:?}; log from {log_min}; removed {:?}",
                    want.iter()
                        .map(|m| (m.queue_offset, m.physical))
                        .collect::<Vec<_>>(),
                    self.removed
                ));
            }
            let entries = store
                .entries(&topic, id, QueueOffset::ZERO, usize::MAX)
                .map_err(|e| e.to_string())?;
            if entries.len() != want.len() {
                return Err(format!("queue {topic} {id}: {} entries", entries.len()));
            }
            for (n, (entry, want)) in (min..).zip(entries.iter().zip(want)) {
                let same = entry.queue_offset.get() == n
                    && want.queue_offset == n
                    && entry.physical_offset.get() == want.physical
                    && u64::from(entry.size) == want.end - want.physical;
                if !same {
                    return Err(format!("queue {topic} {id}: {entry:?}, want {want:?}"));
                }
            }
        }
        Ok(())
    }

    /// A second recovery finds the same end and changes no file.
    fn check_again(&mut self, end: u64) -> Result<(), String> {
        self.store = None;
        let before = self.disk.files();
        let report = self.open().map_err(|e| format!("second open: {e:?}"))?;
        if report.dispatched_to.get() != end || report.truncated_at.is_some() {
            return Err(format!("second recovery differs: {report:?}"));
        }
        for ((path, old), (new_path, new)) in before.iter().zip(self.disk.files()) {
            if *path != new_path || *old != new {
                let at = old.iter().zip(&new).position(|(a, b)| a != b);
                return Err(format!(
                    "second recovery changed {} {} at {at:?} of {} {}: {report:?} {old:?} {new:?}",
                    path.display(),
                    new_path.display(),
                    old.len(),
                    new.len()
                ));
            }
        }
        let store = self.store.clone().ok_or("no store")?;
        self.check_queues(&store)
    }
}
