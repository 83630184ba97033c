//! The newest messages of a topic as the gateway saw them come: batches in the order of arrival, bounded, shared by all
//! readers of the topic. A batch is encoded once for each filter and body format.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::cursor::{Cursor, Held};
use super::filter::TagFilter;
use super::view::QueueView;
use crate::render::{self, BodyFormat};
use crate::upstream::Record;

/// Batches kept.
const BATCHES_MAX: usize = 1_024;
/// Bytes of a batch besides its records.
const BATCH_BYTES: usize = 256;
/// Encoded forms kept of one batch; further ones are made for each reader.
const TEXTS_MAX: usize = 8;

/// Items of a batch as they stand in a frame.
#[derive(Debug)]
pub(crate) struct Text {
    /// Message objects joined by commas.
    pub(crate) items: String,
    /// How many.
    pub(crate) count: u32,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
}

/// A run of one queue.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) queue: usize,
    pub(crate) from: i64,
    /// The next offset; below `from` where the broker lost its tail.
    pub(crate) to: i64,
    /// Messages in between that were deleted unread.
    pub(crate) deleted: u64,
    pub(crate) records: Vec<Arc<Record>>,
    /// The cursor of a reader that has taken everything up to and with this batch, once one has asked.
    pub(crate) cursor: OnceLock<Arc<str>>,
    texts: Mutex<Vec<Encoded>>,
}

type Encoded = ((Option<TagFilter>, BodyFormat), Arc<Text>);

impl Batch {
    /// The matching messages, encoded once for all who ask for the same; and by how many bytes this batch has grown.
    pub(crate) fn text(
        &self,
        topic: &str,
        filter: Option<&TagFilter>,
        format: BodyFormat,
    ) -> (Arc<Text>, usize) {
        let mut texts = self.texts.lock();
        let known = texts
            .iter()
            .find(|(key, _)| key.0.as_ref() == filter && key.1 == format);
        if let Some((_, text)) = known {
            return (Arc::clone(text), 0);
        }
        let text = Arc::new(encode(
            topic,
            self.records.iter().filter(|r| wants(filter, r)),
            format,
        ));
        if texts.len() == TEXTS_MAX {
            return (text, 0);
        }
        texts.push(((filter.cloned(), format), Arc::clone(&text)));
        let grown = text.items.len();
        (text, grown)
    }
}

/// Whether a filter lets a message through.
pub(crate) fn wants(filter: Option<&TagFilter>, record: &Record) -> bool {
    filter.is_none_or(|f| f.matches(record.content.tag.as_deref()))
}

/// Messages as they stand in a frame.
pub(crate) fn encode<'a>(
    topic: &str,
    records: impl Iterator<Item = &'a Arc<Record>>,
    format: BodyFormat,
) -> Text {
    let (mut out, mut count, mut bytes) = (Vec::new(), 0, 0);
    for record in records {
        if count > 0 {
            out.push(b',');
        }
        let from = out.len();
        render::record(&mut out, record, topic, format, true);
        if std::str::from_utf8(&out[from..]).is_err() {
            // A stored `json` value is written as it is; where it is no UTF-8 after all, as bytes.
            out.truncate(from);
            render::record(&mut out, record, topic, BodyFormat::Base64, true);
        }
        count += 1;
        bytes += record.content.body.len() as u64;
    }
    let items = String::from_utf8(out).unwrap_or_default();
    Text {
        items,
        count,
        bytes,
    }
}

/// A queue of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingQueue {
    pub(crate) broker: Arc<str>,
    pub(crate) id: i32,
    pub(crate) epoch: u64,
}

/// The ring. Offsets are by queue, in the order the queues became known.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) queues: Vec<RingQueue>,
    /// The number of a queue by broker and id.
    numbers: HashMap<Arc<str>, HashMap<i32, usize>>,
    /// Before the first batch.
    pub(crate) base: Vec<i64>,
    /// After the last batch.
    pub(crate) head: Vec<i64>,
    /// With the bytes each takes, its encoded forms included.
    batches: VecDeque<(Arc<Batch>, usize)>,
    /// Number of the first batch.
    pub(crate) first: u64,
    bytes: usize,
    /// Brokers that do not answer.
    pub(crate) down: BTreeSet<Arc<str>>,
    /// Why the topic is no more.
    pub(crate) gone: Option<&'static str>,
}

impl Ring {
    /// Adds a queue that is read from `at`; its number, or `None` where it is known.
    pub(crate) fn add(&mut self, queue: &QueueView, at: i64) -> Option<usize> {
        let number = self.queues.len();
        let numbers = self.numbers.entry(Arc::clone(&queue.broker)).or_default();
        if numbers.contains_key(&queue.id) {
            return None;
        }
        numbers.insert(queue.id, number);
        self.queues.push(RingQueue {
            broker: Arc::clone(&queue.broker),
            id: queue.id,
            epoch: queue.epoch,
        });
        self.base.push(at);
        self.head.push(at);
        Some(number)
    }

    /// The number of a queue.
    pub(crate) fn number(&self, broker: &str, id: i32) -> Option<usize> {
        self.numbers.get(broker)?.get(&id).copied()
    }

    /// One past the number of the last batch.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    /// A batch by number.
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Batch>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.batches.get(index).map(|(batch, _)| batch)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the next run of a queue in. Older batches go while more than `max` bytes are held.
    pub(crate) fn push(
        &mut self,
        queue: usize,
        to: i64,
        deleted: u64,
        records: Vec<Arc<Record>>,
        max: usize,
    ) {
        let Some(head) = self.head.get_mut(queue) else {
            return;
        };
        let from = std::mem::replace(head, to);
        let bytes = BATCH_BYTES + records.iter().map(|r| r.bytes).sum::<usize>();
        let batch = Batch {
            queue,
            from,
            to,
            deleted,
            records,
            cursor: OnceLock::new(),
            texts: Mutex::default(),
        };
        self.bytes += bytes;
        self.batches.push_back((Arc::new(batch), bytes));
        self.shrink(max);
    }

    /// A batch has grown by so many bytes.
    pub(crate) fn grown(&mut self, number: u64, bytes: usize, max: usize) {
        let index = number.checked_sub(self.first);
        let batch = index.and_then(|i| self.batches.get_mut(usize::try_from(i).ok()?));
        if let Some((_, held)) = batch {
            *held += bytes;
            self.bytes += bytes;
            self.shrink(max);
        }
    }

    fn shrink(&mut self, max: usize) {
        while self.bytes > max || self.batches.len() > BATCHES_MAX {
            let Some((old, bytes)) = self.batches.pop_front() else {
                return;
            };
            self.bytes -= bytes;
            self.first += 1;
            if let Some(base) = self.base.get_mut(old.queue) {
                *base = old.to;
            }
        }
    }

    /// A cursor at these offsets.
    pub(crate) fn cursor(&self, places: &[i64]) -> Cursor {
        let mut cursor = Cursor::default();
        for (i, queue) in self.queues.iter().enumerate() {
            let held: &mut Held = cursor.brokers.entry(Arc::clone(&queue.broker)).or_default();
            held.epoch = queue.epoch;
            let id = usize::try_from(queue.id).unwrap_or(0);
            if held.next.len() <= id {
                held.next.resize(id + 1, 0);
            }
            held.next[id] = places.get(i).copied().unwrap_or(0);
        }
        cursor
    }

    /// Whether every queue's place is within the ring, so that nothing before it is missing.
    pub(crate) fn reaches(&self, places: &[i64]) -> bool {
        self.base
            .iter()
            .enumerate()
            .all(|(i, base)| places.get(i).copied().unwrap_or(0) >= *base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_ring_moves_its_base() {
        let mut ring = Ring::default();
        assert_eq!(ring.add(&QueueView::for_test(0), 5), Some(0));
        assert_eq!(ring.add(&QueueView::for_test(1), 7), Some(1));
        assert_eq!(ring.add(&QueueView::for_test(0), 9), None);
        ring.push(0, 6, 0, Vec::new(), 600);
        ring.push(1, 8, 0, Vec::new(), 600);
        assert!(ring.reaches(&[5, 7]) && !ring.reaches(&[4, 7]) && !ring.reaches(&[5]));
        ring.push(0, 7, 0, Vec::new(), 600);
        assert_eq!((ring.first, ring.end(), ring.bytes()), (1, 3, 512));
        assert_eq!(
            (ring.base.as_slice(), ring.head.as_slice()),
            (&[6, 7][..], &[7, 8][..])
        );
        assert!(ring.get(0).is_none() && ring.get(3).is_none());
        assert_eq!(
            ring.get(1).map(|b| (b.queue, b.from, b.to)),
            Some((1, 7, 8))
        );
        assert_eq!(ring.cursor(&[6]).brokers["a"].next, [6, 0]);
    }

    #[test]
    fn encoded_forms_count_as_the_batch_they_belong_to() {
        let mut ring = Ring::default();
        ring.add(&QueueView::for_test(0), 0);
        for at in 0..3 {
            let records = vec![Arc::new(Record::for_test(0, at, 0, None, 1_000))];
            ring.push(0, at + 1, 0, records, 10_000);
        }
        let before = ring.bytes();
        let batch = Arc::clone(ring.get(1).unwrap());
        let (text, grown) = batch.text("t", None, BodyFormat::Base64);
        assert!(grown > 1_300 && grown == text.items.len());
        assert_eq!(batch.text("t", None, BodyFormat::Base64).1, 0);
        ring.grown(1, grown, 10_000);
        assert_eq!((ring.first, ring.bytes()), (0, before + grown));
        ring.grown(1, 4_000, 10_000);
        assert_eq!((ring.first, ring.end()), (1, 3));
        ring.grown(0, 4_000, 10_000);
        ring.push(0, 4, 0, Vec::new(), 1_900);
        assert_eq!((ring.first, ring.bytes()), (3, BATCH_BYTES));
    }
}
