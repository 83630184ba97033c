//! The 18 delay levels: messages wait in `SCHEDULE_TOPIC_XXXX` and are put into their topic when due.
//!
//! Progress is one queue offset per level, written to `config/delayOffset.json` together with the log
//! position up to which it is complete. Every delivered record names the entry it came from, so that
//! after a crash the log from that position on says what was delivered since: nothing twice, nothing
//! lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::{Condvar, Mutex};
use serde::Deserialize;
use store::{MessageDraft, PhysicalOffset, QueueEntry, QueueOffset};
use wire::message::properties::{PropertiesView, names as property, push};
use wire::message::record::RecordView;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::persist::ConfigFile;
use crate::topic::{PERM_READ_WRITE, TopicConfig};
use crate::version::DataVersion;

/// Number of levels.
pub(crate) const LEVELS: usize = store::DELAY_LEVELS_MS.len();
/// Property of a delivered record: `level queueOffset` of the entry in the schedule topic.
pub(crate) const DELAYED_FROM: &str = "__DELAYED_FROM";
/// Property of a message that moved through several levels: `dueMs level` of its own.
pub(crate) const DUE: &str = "__DUE";
/// Longest sleep of the delivery task.
const IDLE: Duration = Duration::from_millis(500);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// Entries delivered of one level before the next level has its turn.
const TURN: usize = 256;
/// How often progress is written.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// Log bytes after which the position is written even without deliveries, so that a start scans little.
const SAVE_BYTES: u64 = 64 << 20;

/// Parks a message: notes its topic and queue in the properties. The queue of the schedule topic.
pub(crate) fn park(properties: &mut String, topic: &str, queue_id: i32, level: usize) -> i32 {
    let mut kept = String::with_capacity(properties.len() + 64);
    for (name, value) in PropertiesView::new(properties.as_bytes()).iter() {
        if !matches!(
            name,
            property::DELAY | property::REAL_TOPIC | property::REAL_QID
        ) && !name.starts_with("TIMER_")
        {
            push(&mut kept, name, value);
        }
    }
    push(&mut kept, property::DELAY, &level.to_string());
    push(&mut kept, property::REAL_TOPIC, topic);
    push(&mut kept, property::REAL_QID, &queue_id.to_string());
    *properties = kept;
    i32::try_from(level.saturating_sub(1)).unwrap_or(0)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DelayFile {
    offset_table: BTreeMap<i32, i64>,
    log_position: Option<u64>,
}

impl DelayFile {
    /// Next offset to deliver, by level − 1.
    fn next(&self) -> [u64; LEVELS] {
        let mut next = [0; LEVELS];
        for (level, offset) in &self.offset_table {
            let index = usize::try_from(*level).ok().and_then(|n| n.checked_sub(1));
            let slot = index.and_then(|index| next.get_mut(index));
            if let (Some(slot), Ok(offset)) = (slot, u64::try_from(*offset)) {
                *slot = offset;
            }
        }
        next
    }

    /// The text that says the same.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let position = self.log_position.unwrap_or(0);
        Delay::to_json(DataVersion::default(), &self.next(), position)
    }
}

/// Progress of every level.
#[derive(Debug)]
pub(crate) struct Delay {
    /// Next offset to deliver, by level − 1.
    next: Mutex<[u64; LEVELS]>,
    file: ConfigFile,
    /// Something came that may be due soon, or the broker stops.
    woken: Mutex<bool>,
    wake: Condvar,
    saved: Mutex<Saved>,
    /// Held while a turn of entries of a level is taken: by the delivery, or by the retention.
    taking: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Saved {
    at: Monotonic,
    position: u64,
    version: DataVersion,
    next: [u64; LEVELS],
}

impl Delay {
    /// Nothing delivered yet.
    pub(crate) fn new(file: ConfigFile, now_ms: u64) -> Self {
        let next = [0; LEVELS];
        let saved = Saved {
            at: Monotonic::ZERO,
            position: 0,
            version: DataVersion::new(now_ms),
            next,
        };
        Self {
            next: Mutex::new(next),
            file,
            woken: Mutex::new(false),
            wake: Condvar::new(),
            saved: Mutex::new(saved),
            taking: Mutex::new(()),
        }
    }

    /// Reads the written progress and completes it from the log.
    ///
    /// # Errors
    /// The file cannot be read or parsed; the log cannot be read.
    pub(crate) fn recover(&self, store: &store::Store) -> Result<(), BrokerError> {
        let file = self.read_file()?;
        let mut next = self.next.lock();
        *next = file.next();
        let from = PhysicalOffset::new(file.log_position.unwrap_or(0)).max(store.min_physical());
        for (_, record) in store.scan(from) {
            let Ok(view) = RecordView::parse(&record) else {
                continue;
            };
            let Some(from) = view.property(DELAYED_FROM) else {
                continue;
            };
            let Some((index, after)) = parse_from(from) else {
                continue;
            };
            if let Some(slot) = next.get_mut(index) {
                *slot = (*slot).max(after);
            }
        }
        Ok(())
    }

    /// The file, else its backup, else nothing: the older it is, the more of the log is read for what it lacks.
    fn read_file(&self) -> Result<DelayFile, BrokerError> {
        let Some(bytes) = self.file.read()? else {
            return Ok(DelayFile::default());
        };
        let error = match wire::json::from_slice(&bytes) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        tracing::error!(%error, "delayOffset.json does not parse: the log is read for it");
        let backup = self.file.read_backup()?;
        Ok(backup
            .and_then(|bytes| wire::json::from_slice(&bytes).ok())
            .unwrap_or_default())
    }

    /// Wakes the delivery: a message came into the schedule topic, or the broker stops. Any thread.
    pub(crate) fn notify(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }

    /// Waits for [`Delay::notify`], at most this long.
    fn wait(&self, limit: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.wake.wait_for(&mut woken, limit);
        }
        *woken = false;
    }

    /// Next offset of each level that was ever used, by level.
    pub(crate) fn progress(&self) -> Vec<(usize, u64)> {
        self.next
            .lock()
            .iter()
            .enumerate()
            .filter(|(_, next)| **next > 0)
            .map(|(i, next)| (i + 1, *next))
            .collect()
    }

    /// What [`Delay::save`] would write now.
    pub(crate) fn view(&self) -> Vec<u8> {
        let next = *self.next.lock();
        let saved = *self.saved.lock();
        Self::to_json(saved.version, &next, saved.position)
    }

    fn to_json(version: DataVersion, next: &[u64; LEVELS], position: u64) -> Vec<u8> {
        let entries: Vec<String> = next
            .iter()
            .enumerate()
            .filter(|(_, next)| **next > 0)
            .map(|(index, next)| format!("{}:{next}", index + 1))
            .collect();
        let version = serde_json::to_string(&version).unwrap_or_default();
        format!(
            "{{\"dataVersion\":{version},\"logPosition\":{position},\"offsetTable\":{{{}}}}}",
            entries.join(",")
        )
        .into_bytes()
    }

    /// Writes the progress. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn save(&self, broker: &Broker) -> Result<(), BrokerError> {
        // The position first: a delivery between the two is found again by the scan.
        let position = broker.store.flushed().get();
        let next = *self.next.lock();
        // Progress must not outlive the records it is about: a power cut may take the log's tail.
        if !broker.wait_flushed() {
            return Err(BrokerError::Internal("the log was not flushed in time"));
        }
        self.file.write(|| {
            let mut saved = self.saved.lock();
            if saved.next != next {
                saved.version.bump(broker.now_ms());
            }
            *saved = Saved {
                at: broker.clock.monotonic(),
                position,
                next,
                ..*saved
            };
            Self::to_json(saved.version, &next, position)
        })
    }

    fn is_save_due(&self, broker: &Broker) -> bool {
        let saved = *self.saved.lock();
        let quiet = *self.next.lock() == saved.next
            && broker.store.flushed().get() < saved.position + SAVE_BYTES;
        !quiet && broker.clock.monotonic().since(saved.at) >= SAVE_EVERY
    }
}

/// What one look at a level found.
enum Look {
    /// More may be due at once.
    More,
    /// The next entry is due at this wall time (ms).
    Due(u64),
    /// Nothing waits.
    Empty,
}

/// Delivers what is due until the broker stops. Blocking work, on its own thread.
pub(crate) fn run(broker: &Arc<Broker>) {
    while !broker.stopping.is_cancelled() {
        let mut sleep = IDLE;
        for level in 1..=LEVELS {
            loop {
                if broker.stopping.is_cancelled() {
                    return;
                }
                match deliver_level(broker, level) {
                    Ok(Look::More) => {}
                    Ok(Look::Due(at_ms)) => {
                        sleep = sleep.min(Duration::from_millis(
                            at_ms.saturating_sub(broker.now_ms()).max(1),
                        ));
                        break;
                    }
                    Ok(Look::Empty) => break,
                    Err(error) => {
                        tracing::warn!(level, %error, "delayed messages not delivered");
                        sleep = sleep.min(PAUSE);
                        break;
                    }
                }
            }
        }
        if broker.delay.is_save_due(broker)
            && let Err(error) = broker.delay.save(broker)
        {
            tracing::error!(%error, "progress of delayed messages not written");
        }
        broker.delay.wait(sleep);
    }
}

fn deliver_level(broker: &Arc<Broker>, level: usize) -> Result<Look, BrokerError> {
    let _taking = broker.delay.taking.lock();
    let queue_id = i32::try_from(level - 1).map_err(|_| BrokerError::Internal("delay level"))?;
    let range = broker.store.queue(names::SCHEDULE_TOPIC, queue_id);
    let index = level - 1;
    let mut next = broker.delay.next.lock().get(index).copied().unwrap_or(0);
    if next < range.min.get() || next > range.max.get() {
        // Deleted by retention, or the file is of another log: never loop, never repeat.
        next = next.clamp(range.min.get(), range.max.get());
        set_next(broker, index, next);
    }
    let entries = broker.store.entries(
        names::SCHEDULE_TOPIC,
        queue_id,
        QueueOffset::new(next),
        TURN,
    )?;
    if entries.is_empty() {
        return Ok(Look::Empty);
    }
    let delay_ms = store::DELAY_LEVELS_MS.get(index).copied().unwrap_or(0);
    for entry in entries {
        let now_ms = broker.now_ms();
        let due_ms = u64::try_from(entry.tags_code).unwrap_or(0);
        // A clock that went back must not hold a message longer than its delay.
        if due_ms > now_ms && due_ms <= now_ms + delay_ms {
            return Ok(Look::Due(due_ms));
        }
        deliver(broker, level, &entry)?;
        set_next(broker, index, entry.queue_offset.get() + 1);
    }
    Ok(Look::More)
}

fn set_next(broker: &Broker, index: usize, next: u64) {
    if let Some(slot) = broker.delay.next.lock().get_mut(index) {
        *slot = next;
    }
}

/// Puts one message into its topic. A message whose topic was deleted meanwhile is passed over.
fn deliver(broker: &Arc<Broker>, level: usize, entry: &QueueEntry) -> Result<(), BrokerError> {
    let Some(record) = broker.store.record(entry.physical_offset, entry.size)? else {
        tracing::warn!(level, at = %entry.physical_offset, "a delayed message is gone from the log");
        return Ok(());
    };
    let view = RecordView::parse(&record)?;
    let own = view.property(DUE).and_then(parse_due);
    if let Some((due_ms, own_level)) = own.filter(|(due_ms, _)| *due_ms > broker.now_ms()) {
        return move_on(broker, level, entry, &view, due_ms, own_level);
    }
    let (Some(topic), Some(queue_id)) = (
        view.property(property::REAL_TOPIC),
        view.property(property::REAL_QID)
            .and_then(|id| id.parse::<i32>().ok())
            .filter(|id| *id >= 0),
    ) else {
        tracing::warn!(level, at = %entry.physical_offset, "a delayed message names no topic");
        return Ok(());
    };
    let known = match broker.topics.get(topic) {
        // Also one that is there, but perhaps not in the table's file.
        _ if names::is_retry(topic) => {
            broker.ensure_topic(TopicConfig::new(topic, 1, PERM_READ_WRITE))?
        }
        Some(known) => known,
        None => {
            tracing::warn!(level, topic = %names::shorten(topic), "a delayed message came due after its topic was deleted");
            return Ok(());
        }
    };
    let mut properties = String::with_capacity(view.properties_bytes.len() + 40);
    for (name, value) in view.properties().iter() {
        match (name, own) {
            (DELAYED_FROM | DUE, _) => {}
            (property::DELAY, Some((_, level))) => {
                push(&mut properties, name, &level.to_string());
            }
            _ => push(&mut properties, name, value),
        }
    }
    push(
        &mut properties,
        DELAYED_FROM,
        &format!("{level} {}", entry.queue_offset),
    );
    let mut fields = view.fields();
    fields.topic = topic;
    fields.queue_id = queue_id % known.queue_count().max(1);
    fields.store_host = broker.store_host;
    // A message at the limit of its properties keeps them and loses the mark: rather twice than never.
    fields.properties = if properties.len() <= wire::message::properties::PROPERTIES_MAX_BYTES {
        properties.as_bytes()
    } else {
        view.properties_bytes
    };
    broker.append(&MessageDraft::from(fields))?;
    broker.metrics.delayed.inc();
    Ok(())
}

/// Level − 1 of a delivered message, and the offset after it.
pub(crate) fn parse_from(text: &str) -> Option<(usize, u64)> {
    let (level, offset) = text.split_once(' ')?;
    let index = level.parse::<usize>().ok()?.checked_sub(1)?;
    Some((index, offset.parse::<u64>().ok()?.saturating_add(1)))
}

pub(crate) fn parse_due(text: &str) -> Option<(u64, usize)> {
    let (due_ms, level) = text.split_once(' ')?;
    Some((due_ms.parse().ok()?, level.parse().ok()?))
}

/// Parks a message again, in the longest level that ends before it is due, so that a level stays in the order of its times.
fn move_on(
    broker: &Arc<Broker>,
    level: usize,
    entry: &QueueEntry,
    view: &RecordView<'_>,
    due_ms: u64,
    own_level: usize,
) -> Result<(), BrokerError> {
    let left_ms = due_ms.saturating_sub(broker.now_ms());
    let shorter = store::DELAY_LEVELS_MS
        .iter()
        .rposition(|delay_ms| *delay_ms <= left_ms);
    let index = shorter.unwrap_or(0);
    let mut properties = String::with_capacity(view.properties_bytes.len() + 80);
    for (name, value) in view.properties().iter() {
        if !matches!(name, DELAYED_FROM | DUE | property::DELAY) {
            push(&mut properties, name, value);
        }
    }
    push(&mut properties, property::DELAY, &(index + 1).to_string());
    push(&mut properties, DUE, &format!("{due_ms} {own_level}"));
    let from = format!("{level} {}", entry.queue_offset);
    push(&mut properties, DELAYED_FROM, &from);
    let mut fields = view.fields();
    // At the limit of its properties a message waits its whole delay again: rather late than never.
    if properties.len() <= wire::message::properties::PROPERTIES_MAX_BYTES {
        fields.queue_id = i32::try_from(index).unwrap_or(0);
        fields.properties = properties.as_bytes();
    }
    broker.append(&MessageDraft::from(fields))?;
    Ok(())
}

/// Takes every message of the log before `border` out of its level: delivers what is due, moves on what is not.
///
/// # Errors
/// The store's; those taken so far are taken.
pub(crate) fn carry(broker: &Arc<Broker>, border: PhysicalOffset) -> Result<(), BrokerError> {
    for (index, level) in (1..=LEVELS).enumerate() {
        let queue_id = i32::try_from(index).map_err(|_| BrokerError::Internal("delay level"))?;
        let to = broker
            .store
            .position_from(names::SCHEDULE_TOPIC, queue_id, border)?;
        loop {
            // By turns, so that what is due of any level is late by one turn at most.
            let _taking = broker.delay.taking.lock();
            let next = broker.delay.next.lock().get(index).copied().unwrap_or(0);
            let from = QueueOffset::new(next);
            let entries = broker
                .store
                .entries(names::SCHEDULE_TOPIC, queue_id, from, TURN)?;
            let before: Vec<_> = entries
                .into_iter()
                .filter(|entry| entry.queue_offset < to)
                .collect();
            if before.is_empty() {
                break;
            }
            for entry in before {
                take_out(broker, level, &entry)?;
                set_next(broker, index, entry.queue_offset.get() + 1);
            }
        }
    }
    broker.delay.notify();
    Ok(())
}

fn take_out(broker: &Arc<Broker>, level: usize, entry: &QueueEntry) -> Result<(), BrokerError> {
    let due_ms = u64::try_from(entry.tags_code).unwrap_or(0);
    if due_ms <= broker.now_ms() {
        return deliver(broker, level, entry);
    }
    let Some(record) = broker.store.record(entry.physical_offset, entry.size)? else {
        return Ok(());
    };
    let view = RecordView::parse(&record)?;
    let (due_ms, own_level) = view
        .property(DUE)
        .and_then(parse_due)
        .unwrap_or((due_ms, level));
    move_on(broker, level, entry, &view, due_ms, own_level)?;
    broker.carry.messages.inc();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_message_knows_where_it_belongs() {
        let mut properties = "DELAY\u{1}99\u{2}TIMER_OUT_MS\u{1}5\u{2}KEYS\u{1}k\u{2}".to_owned();
        assert_eq!(park(&mut properties, "orders", 3, 18), 17);
        let view = PropertiesView::new(properties.as_bytes());
        assert_eq!(view.get(property::REAL_TOPIC), Some("orders"));
        assert_eq!(view.get(property::REAL_QID), Some("3"));
        assert_eq!(view.get(property::DELAY), Some("18"));
        assert_eq!(view.get(property::KEYS), Some("k"));
        assert_eq!(view.get("TIMER_OUT_MS"), None);
    }

    #[test]
    fn the_progress_file_reads_back_and_reads_apaches() {
        let mut next = [0; LEVELS];
        next[2] = 7;
        let text = Delay::to_json(DataVersion::default(), &next, 99);
        let file: DelayFile = wire::json::from_slice(&text).unwrap();
        assert_eq!(
            (file.offset_table.get(&3), file.log_position),
            (Some(&7), Some(99))
        );
        let file: DelayFile = wire::json::from_slice(b"{\n\t\"offsetTable\":{1:5\n\t}\n}").unwrap();
        assert_eq!(
            (file.offset_table.get(&1), file.log_position),
            (Some(&5), None)
        );
    }
}
