//! Puts again at the end of the log what must outlive the log files that are about to be deleted.
//!
//! | what | becomes |
//! |---|---|
//! | a retry its group has not read, a dead letter that is kept | the same message once more in the same queue; the old position is hidden |
//! | a delayed message that is not due | the same in a level that ends no later than its time (`delay`) |
//! | the message of a lease that has not ended | a copy of the record in the log of leases, for the put-back |
//!
//! Each copy names in `__CARRIED` the position it was made of, so that whether a copy exists and whether its
//! original counts are one and the same record. `config/carry.json` says from where in the log a round that was
//! cut short has to be completed; a start reads the marks from there. So nothing is lost, and nothing is twice.
//!
//! Order of a round: copies, all on the disk; leases, offsets and delay progress written; carry.json written;
//! then the files go.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};
use store::{Cleaned, MessageDraft, PhysicalOffset, QueueEntry, QueueOffset, Store, StoreError};
use wire::message::properties::{PROPERTIES_MAX_BYTES, Properties, names as property};
use wire::message::record::{RecordFields, RecordView};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::names;
use crate::persist::ConfigFile;
use crate::pop;

/// Property of a copy: `queueId queueOffset topic` of the position it was made of.
pub(crate) const CARRIED: &str = "__CARRIED";
/// Tag of a copy that is kept for a put-back.
const TAG_KEPT: &str = "kept";
/// How much larger such a copy is than its record, at most.
pub(crate) const KEPT_EXTRA_BYTES: u64 = 1024;
/// Entries read at a time.
const CHUNK: usize = 64;
/// Bytes of messages read at a time, one more message aside.
const CHUNK_BYTES: u64 = 4 << 20;
/// How long dead letters are kept unless their group says otherwise, ms.
const DEAD_LETTERS_MS: u64 = 14 * 86_400_000;

/// A queue and what is known of it.
type Queue = (String, i32);

/// What was put again and must be known until its original is gone.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct State {
    /// A round was begun at this log position and not ended.
    begun_at: Option<u64>,
    /// Positions before these were put again.
    hidden: Vec<(String, i32, u64)>,
    /// Topic, queue, position: log position of the copy.
    kept: Vec<(String, i32, u64, u64)>,
}

#[derive(Debug, Default)]
struct Tables {
    begun_at: Option<u64>,
    hidden: BTreeMap<Queue, u64>,
    kept: BTreeMap<(String, i32, u64), u64>,
    /// The file lacks what a topic took with it.
    unsaved: bool,
}

/// The copies that count in place of their originals.
#[derive(Debug)]
pub(crate) struct Carry {
    tables: Mutex<Tables>,
    file: ConfigFile,
    log_topic: String,
    /// Messages put again.
    pub(crate) messages: Counter,
}

impl Carry {
    /// Reads the file and completes it from the log, and hides what was put again.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn recover(
        store: &Store,
        file: ConfigFile,
        log_topic: String,
    ) -> Result<Self, BrokerError> {
        let carry = Carry {
            tables: Mutex::default(),
            file,
            log_topic,
            messages: Counter::default(),
        };
        let state = carry.read_file(store)?;
        let mut tables = carry.tables.lock();
        tables.begun_at = state.begun_at;
        for (topic, queue_id, to) in state.hidden {
            tables.hidden.insert((topic, queue_id), to);
        }
        for (topic, queue_id, offset, at) in state.kept {
            tables.kept.insert((topic, queue_id, offset), at);
        }
        if let Some(from) = state.begun_at {
            for (at, record) in store.scan(PhysicalOffset::new(from)) {
                if let Ok(view) = RecordView::parse(&record) {
                    carry.note(&mut tables, store, at, &view);
                }
            }
        }
        tables
            .hidden
            .retain(|queue, to| is_as_long(store, queue, *to));
        for ((topic, queue_id), to) in &tables.hidden {
            store.hide_before(topic, *queue_id, QueueOffset::new(*to));
        }
        drop(tables);
        Ok(carry)
    }

    /// The file, else its backup; where both are damaged, the whole log is read.
    fn read_file(&self, store: &Store) -> Result<State, BrokerError> {
        let Some(text) = self.file.read()? else {
            return Ok(State::default());
        };
        if let Ok(state) = serde_json::from_slice(&text) {
            return Ok(state);
        }
        tracing::error!("carry.json does not parse: the log is read for it");
        Ok(State {
            begun_at: Some(store.min_physical().get()),
            ..State::default()
        })
    }

    fn note(&self, tables: &mut Tables, store: &Store, at: PhysicalOffset, view: &RecordView<'_>) {
        let Some((topic, queue_id, offset)) = view.property(CARRIED).and_then(parse_mark) else {
            return;
        };
        if store.was_removed(topic, at) {
            return;
        }
        if view.topic == topic && view.queue_id == queue_id {
            let to = tables
                .hidden
                .entry((topic.to_owned(), queue_id))
                .or_default();
            *to = (*to).max(offset.saturating_add(1));
        } else if view.topic == self.log_topic && view.tags() == Some(TAG_KEPT) {
            tables
                .kept
                .insert((topic.to_owned(), queue_id, offset), at.get());
        }
    }

    /// Queues of which positions are hidden, and up to where.
    pub(crate) fn hidden(&self) -> Vec<(String, i32, u64)> {
        let tables = self.tables.lock();
        let queue = |((topic, id), to): (&Queue, &u64)| (topic.clone(), *id, *to);
        tables.hidden.iter().map(queue).collect()
    }

    /// The record of a leased message whose log file is gone, or about to go.
    pub(crate) fn kept(
        &self,
        store: &Store,
        topic: &str,
        queue_id: i32,
        offset: u64,
    ) -> Option<Bytes> {
        let key = (topic.to_owned(), queue_id, offset);
        let at = self.tables.lock().kept.get(&key).copied()?;
        let copy = store.record_at(PhysicalOffset::new(at)).ok()??;
        let body = RecordView::parse(&copy).ok()?.body;
        Some(copy.slice_ref(body))
    }

    /// Forgets a topic that is being deleted: the positions of one that is made anew are others. On the disk when it
    /// returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn forget(&self, store: &Store, topic: &str) -> Result<(), BrokerError> {
        let mut tables = self.tables.lock();
        let before = tables.hidden.len() + tables.kept.len();
        tables.hidden.retain(|(name, _), _| name != topic);
        tables.kept.retain(|(name, _, _), _| name != topic);
        tables.unsaved |= tables.hidden.len() + tables.kept.len() < before;
        let unsaved = tables.unsaved;
        drop(tables);
        if unsaved { self.save(store) } else { Ok(()) }
    }

    /// A round was begun at this log position, or has ended. On the disk when it returns.
    fn set_begun(&self, store: &Store, begun_at: Option<u64>) -> Result<(), BrokerError> {
        self.tables.lock().begun_at = begun_at;
        self.save(store)
    }

    /// Writes what must be known at the next start, once what was put again is on the disk. Blocks on the disk.
    fn save(&self, store: &Store) -> Result<(), BrokerError> {
        let saved = self.file.try_write(|| {
            let mut tables = self.tables.lock();
            tables.unsaved = false;
            let state = State {
                begun_at: tables.begun_at,
                hidden: tables
                    .hidden
                    .iter()
                    .map(|((topic, id), to)| (topic.clone(), *id, *to))
                    .collect(),
                kept: tables
                    .kept
                    .iter()
                    .map(|((topic, id, offset), at)| (topic.clone(), *id, *offset, *at))
                    .collect(),
            };
            drop(tables);
            pop::wait_flushed(store, store.written())?;
            serde_json::to_vec(&state).map_err(|error| BrokerError::Persist(error.to_string()))
        });
        if saved.is_err() {
            self.tables.lock().unsaved = true;
        }
        saved
    }

    /// Forgets what no longer has an original, or nobody needs any more.
    fn prune(&self, store: &Store, needed: &pop::InFlight) {
        let mut tables = self.tables.lock();
        tables.hidden.retain(|queue, to| {
            store.first_stored(&queue.0, queue.1).get() < *to && is_as_long(store, queue, *to)
        });
        tables.kept.retain(|(topic, id, offset), _| {
            needed
                .get(&(topic.clone(), *id))
                .is_some_and(|offsets| offsets.contains(offset))
        });
    }

    fn is_empty(&self) -> bool {
        let tables = self.tables.lock();
        tables.hidden.is_empty() && tables.kept.is_empty()
    }
}

/// Whether the queue ever got to position `to`. One that did not belongs to a topic that was made anew, or is gone.
fn is_as_long(store: &Store, (topic, queue_id): &Queue, to: u64) -> bool {
    to <= store.queue(topic, *queue_id).max.get()
}

pub(crate) fn mark(topic: &str, queue_id: i32, offset: u64) -> String {
    format!("{queue_id} {offset} {topic}")
}

pub(crate) fn parse_mark(text: &str) -> Option<(&str, i32, u64)> {
    let mut parts = text.splitn(3, ' ');
    let queue_id = parts.next()?.parse().ok()?;
    let offset = parts.next()?.parse().ok()?;
    Some((parts.next()?, queue_id, offset))
}

/// Puts again what must stay, then deletes the log files before `border`. Blocks on the disk.
///
/// # Errors
/// The store's or a table's: nothing is deleted then.
pub(crate) fn delete_before(
    broker: &Arc<Broker>,
    border: PhysicalOffset,
) -> Result<Cleaned, BrokerError> {
    let carry = &broker.carry;
    carry.set_begun(&broker.store, Some(broker.store.written().get()))?;
    crate::delay::carry(broker, border)?;
    let carried = |topic: &str| names::is_retry(topic) || names::is_dlq(topic);
    let queues = broker.store.topics().into_iter();
    for (topic, queue_id) in queues.filter(|(topic, _)| carried(topic)) {
        let Some(source) = Source::of(broker, &topic, queue_id) else {
            continue;
        };
        let to = broker.store.position_from(&topic, queue_id, border)?;
        if to > broker.store.first_stored(&topic, queue_id) {
            match carry_queue(broker, source, to.get()) {
                // Deleted meanwhile. What one of the same name holds came after these files.
                Err(_) if !source.is_there(broker) => {}
                done => done?,
            }
        }
    }
    let Some(retiring) = broker.store.retire(border)? else {
        return Ok(Cleaned::default());
    };
    let needed = pop::in_flight(broker);
    for ((topic, queue_id), offsets) in &needed {
        let to = broker
            .store
            .position_from(topic, *queue_id, retiring.before())?;
        for offset in offsets.range(..to.get()) {
            keep(broker, topic, *queue_id, *offset, retiring.before())?;
        }
    }
    pop::wait_flushed(&broker.store, broker.store.written())?;
    broker.save_offsets()?;
    broker.delay.save(broker)?;
    // Twice: the backup of the file must not point before the log either.
    broker.pop.save(&broker.store)?;
    broker.pop.save(&broker.store)?;
    carry.prune(&broker.store, &needed);
    carry.set_begun(&broker.store, None)?;
    let cleaned = retiring.remove()?;
    carry.prune(&broker.store, &needed);
    if carry.is_empty() {
        carry.save(&broker.store)?;
    }
    Ok(cleaned)
}

/// Puts the unread retries or the kept dead letters of a queue before position `to` again.
fn carry_queue(broker: &Arc<Broker>, source: Source<'_>, to: u64) -> Result<(), BrokerError> {
    let Source {
        topic, queue_id, ..
    } = source;
    if let Some(group) = group_of_retry(broker, topic) {
        let stays = |view: &RecordView<'_>| !pop::is_void_retry(broker, &group, topic, view);
        return pop::carry_unread(broker, &group, source, to, stays);
    }
    let Some(config) = topic
        .strip_prefix(names::DLQ_PREFIX)
        .and_then(|group| broker.groups.get(group))
    else {
        return Ok(());
    };
    let kept_ms = match crate::handlers::gantry_group::spec_of(&config).dead_letter_retention_ms {
        0 => DEAD_LETTERS_MS,
        ms => ms,
    };
    let now_ms = broker.now_ms();
    let stays = |view: &RecordView<'_>| dead_at_ms(view).saturating_add(kept_ms) > now_ms;
    let mut from = broker.store.queue(topic, queue_id).min.get();
    while from < to {
        let part = Part::read(&broker.store, source, from, to)?;
        part.put_again(broker, from, stays)?;
        from = part.end;
    }
    Ok(())
}

/// The group that reads a retry topic; `None` for other topics and for groups that are gone.
fn group_of_retry(broker: &Broker, topic: &str) -> Option<String> {
    let rest = topic.strip_prefix(names::RETRY_PREFIX)?;
    let known = |group: &str| broker.groups.contains(group).then(|| group.to_owned());
    if let Some((group, _)) = rest.split_once('+') {
        return known(group);
    }
    // `group_topic` is what older brokers called it.
    let ends = rest.match_indices('_').rev().map(|(at, _)| at);
    std::iter::once(rest.len())
        .chain(ends)
        .find_map(|end| known(rest.get(..end)?))
}

fn dead_at_ms(view: &RecordView<'_>) -> u64 {
    let said = view
        .property(property::DEAD_AT)
        .and_then(|at| at.parse().ok());
    said.unwrap_or_else(|| u64::try_from(view.store_ts_ms).unwrap_or(0))
}

/// A queue whose messages are put again: not that of a topic of the same name that is made after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    /// Topic of the queue.
    pub(crate) topic: &'a str,
    /// Id of the queue.
    pub(crate) queue_id: i32,
    epoch: u64,
}

impl<'a> Source<'a> {
    /// A queue of the topic as it is now; `None` without such a topic.
    pub(crate) fn of(broker: &Broker, topic: &'a str, queue_id: i32) -> Option<Self> {
        let epoch = broker.topics.get(topic)?.epoch();
        Some(Self {
            topic,
            queue_id,
            epoch,
        })
    }

    fn is_there(&self, broker: &Broker) -> bool {
        let known = broker.topics.get(self.topic);
        known.is_some_and(|known| known.epoch() == self.epoch)
    }

    /// Whether to go on with it.
    ///
    /// # Errors
    /// Its topic was deleted, or the broker stops.
    pub(crate) fn check(&self, broker: &Broker) -> Result<(), BrokerError> {
        if broker.stopping.is_cancelled() {
            return Err(BrokerError::Stopping);
        }
        if !self.is_there(broker) {
            return Err(BrokerError::NoTopic(names::shorten(self.topic)));
        }
        Ok(())
    }
}

/// Messages of a queue, read to be put again in the same queue.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The queue.
    pub(crate) source: Source<'a>,
    /// Position of the first that was asked for.
    pub(crate) from: u64,
    /// Position after the last.
    pub(crate) end: u64,
    records: Vec<(QueueEntry, Bytes)>,
}

impl<'a> Part<'a> {
    /// Reads some messages from `from` on and before `to`. Blocks on the disk: they may be cold.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn read(
        store: &Store,
        source: Source<'a>,
        from: u64,
        to: u64,
    ) -> Result<Self, BrokerError> {
        let Source {
            topic, queue_id, ..
        } = source;
        let mut part = Part {
            source,
            from,
            end: to,
            records: Vec::new(),
        };
        let mut bytes = 0;
        for entry in store.entries(topic, queue_id, QueueOffset::new(from), CHUNK)? {
            if entry.queue_offset.get() >= to {
                part.end = to;
                break;
            }
            part.end = entry.queue_offset.get() + 1;
            if let Some(record) = store.record(entry.physical_offset, entry.size)? {
                // A copy, since what is only mapped may have to be read when it is used.
                part.records.push((entry, Bytes::copy_from_slice(&record)));
            }
            bytes += u64::from(entry.size);
            if bytes >= CHUNK_BYTES {
                break;
            }
        }
        Ok(part)
    }

    /// Puts those from position `from` on that `stays` again, and hides the originals.
    ///
    /// # Errors
    /// The store's, the topic was deleted, or the broker stops: those that were put again before are hidden.
    pub(crate) fn put_again(
        &self,
        broker: &Broker,
        from: u64,
        stays: impl Fn(&RecordView<'_>) -> bool,
    ) -> Result<(), BrokerError> {
        for (entry, record) in &self.records {
            let offset = entry.queue_offset.get();
            let view = RecordView::parse(record)?;
            if offset >= from && stays(&view) {
                self.source.check(broker)?;
                copy(broker, entry, &view)?;
                self.hide(broker, offset + 1)?;
            }
        }
        self.hide(broker, self.end)
    }

    fn hide(&self, broker: &Broker, before: u64) -> Result<(), BrokerError> {
        let Source {
            topic, queue_id, ..
        } = self.source;
        // Who deletes the topic takes it out of the table of topics first, and out of this one then.
        let mut tables = broker.carry.tables.lock();
        if !self.source.is_there(broker) {
            return Err(BrokerError::NoTopic(names::shorten(topic)));
        }
        tables.hidden.insert((topic.to_owned(), queue_id), before);
        broker
            .store
            .hide_before(topic, queue_id, QueueOffset::new(before));
        Ok(())
    }
}

fn copy(broker: &Broker, entry: &QueueEntry, view: &RecordView<'_>) -> Result<(), BrokerError> {
    let mut properties = view.properties().to_owned();
    // What ended a lease or a delay has done so once.
    for gone in [property::LEASE, crate::delay::DELAYED_FROM] {
        properties.remove(gone);
    }
    let first = |properties: &mut Properties, name: &str, value: String| {
        if properties.get(name).is_none() {
            properties.set(name, value);
        }
    };
    let place = format!(
        "{} {} {}",
        view.queue_id, view.queue_offset, view.store_ts_ms
    );
    first(&mut properties, property::ORIGIN, place);
    if names::is_dlq(view.topic) {
        let dead_at = dead_at_ms(view).to_string();
        first(&mut properties, property::DEAD_AT, dead_at);
    }
    let from = mark(view.topic, view.queue_id, entry.queue_offset.get());
    properties.set(CARRIED, from);
    let text = properties.encode();
    let mut fields = view.fields();
    // The store's limit comes first: a message without room for the mark is put again without it, and may be
    // there twice after a crash in between.
    let fits = text.len() <= PROPERTIES_MAX_BYTES;
    fields.properties = if fits {
        text.as_bytes()
    } else {
        view.properties_bytes
    };
    broker.append(&MessageDraft::from(fields))?;
    broker.carry.messages.inc();
    Ok(())
}

/// Keeps the record of a leased message for its put-back.
fn keep(
    broker: &Broker,
    topic: &str,
    queue_id: i32,
    offset: u64,
    border: PhysicalOffset,
) -> Result<(), BrokerError> {
    let store = &broker.store;
    let carry = &broker.carry;
    let key = (topic.to_owned(), queue_id, offset);
    let known = carry.tables.lock().kept.get(&key).copied();
    if known.is_some_and(|at| at >= border.get()) {
        return Ok(());
    }
    let record = match carry.kept(store, topic, queue_id, offset) {
        Some(copy) => Some(copy),
        None => {
            let at = QueueOffset::new(offset);
            let entries = store.entries_with_hidden(topic, queue_id, at, 1)?;
            match entries.first().filter(|entry| entry.queue_offset == at) {
                Some(entry) => store.record(entry.physical_offset, entry.size)?,
                None => None,
            }
        }
    };
    let Some(record) = record else {
        tracing::warn!(
            topic,
            queue_id,
            offset,
            "the message of a lease is gone already"
        );
        return Ok(());
    };
    let properties: Properties = [
        (property::TAGS, TAG_KEPT.to_owned()),
        (CARRIED, mark(topic, queue_id, offset)),
    ]
    .into_iter()
    .collect();
    let text = properties.encode();
    let view = RecordView::parse(&record)?;
    let fields = RecordFields {
        topic: &carry.log_topic,
        queue_id: 0,
        body: &record,
        properties: text.as_bytes(),
        ..view.fields()
    };
    match broker.append(&MessageDraft::from(RecordFields {
        sys_flag: 0,
        reconsume_times: 0,
        prepared_offset: 0,
        ..fields
    })) {
        Ok(stored) => {
            carry
                .tables
                .lock()
                .kept
                .insert(key, stored.physical_offset.get());
            carry.messages.inc();
            Ok(())
        }
        Err(BrokerError::Store(StoreError::TooLarge { .. })) => {
            tracing::error!(
                topic,
                queue_id,
                offset,
                "a leased message does not fit a log file together with its frame: it cannot be put back"
            );
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Running;
    use crate::test_broker::{append, dispatched, start_at};
    use crate::topic::{PERM_READ_WRITE, TopicConfig};
    use store::disk::sim::SimDisk;

    const TOPIC: &str = "%RETRY%g+t";

    fn make(running: &Running) {
        let retries = TopicConfig::new(TOPIC, 1, PERM_READ_WRITE);
        running.broker.ensure_topic(retries).unwrap();
    }

    fn range(running: &Running) -> (u64, u64) {
        let range = running.broker.store.queue(TOPIC, 0);
        (range.min.get(), range.max.get())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_made_anew_shows_all_its_messages_after_a_start() {
        let disk = SimDisk::new(1);
        let running = start_at(&disk).await;
        let broker = &running.broker;
        make(&running);
        append(broker, TOPIC, 3).await;
        let begun_at = Some(broker.store.written().get());
        broker.carry.set_begun(&broker.store, begun_at).unwrap();
        let source = Source::of(broker, TOPIC, 0).unwrap();
        pop::carry_unread(broker, "g", source, 3, |_| true).unwrap();
        dispatched(broker).await;
        broker.carry.save(&broker.store).unwrap();
        assert_eq!(range(&running), (3, 6));
        crate::handlers::topic::remove(broker, TOPIC).unwrap();
        make(&running);
        append(broker, TOPIC, 5).await;
        running.stop().await.unwrap();

        let running = start_at(&disk).await;
        assert_eq!(range(&running), (0, 5));
        // What an earlier version left in the file.
        let carry = &running.broker.carry;
        let queue = |topic: &str| (topic.to_owned(), 0);
        carry.tables.lock().hidden = [(queue(TOPIC), 9), (queue("gone"), 1)].into();
        carry.save(&running.broker.store).unwrap();
        running.stop().await.unwrap();
        let running = start_at(&disk).await;
        assert_eq!(range(&running), (0, 5));
        assert_eq!(running.broker.carry.hidden(), []);
        running.stop().await.unwrap();
    }
}
