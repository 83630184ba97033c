//! Topics that were removed, and where in the log: earlier records of them are not put into
//! queues again when the log is replayed.
//!
//! Kept in the text file `removed-topics`, one `POSITION TOPIC` a line.

use crate::disk::Disk;
use crate::{StoreError, config_file};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Removed topics.
#[derive(Debug)]
pub(crate) struct Removed {
    path: PathBuf,
    /// Records of the topic before this log position are gone.
    before: RwLock<HashMap<String, u64>>,
    /// Topics whose removal is under way, and how many times.
    closing: RwLock<HashMap<String, usize>>,
    /// How many topics that are: appends look here first.
    closings: AtomicUsize,
    /// How many removals have begun since the store was opened.
    begun: AtomicU64,
    any: AtomicBool,
    /// Something was noted and not saved: the queues on disk must not be called complete.
    unsaved: AtomicBool,
}

/// A removal that is under way.
#[derive(Debug)]
pub(crate) struct Closing<'a> {
    removed: &'a Removed,
    topic: &'a str,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut closing = self.removed.closing.write();
        if let Some(count) = closing.get_mut(self.topic) {
            *count -= 1;
            if *count == 0 {
                closing.remove(self.topic);
            }
        }
        self.removed
            .closings
            .store(closing.len(), Ordering::Release);
    }
}

impl Removed {
    /// Reads the file; topics whose last record is before `log_min` are forgotten.
    pub(crate) fn load(disk: &dyn Disk, path: PathBuf, log_min: u64) -> Result<Self, StoreError> {
        let text = config_file::read(disk, &path)?.unwrap_or_default();
        let mut before = parse(&text);
        before.retain(|_, position| *position > log_min);
        Ok(Removed {
            path,
            any: AtomicBool::new(!before.is_empty()),
            unsaved: AtomicBool::new(false),
            before: RwLock::new(before),
            closing: RwLock::default(),
            closings: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        })
    }

    /// True for a record of a topic that was removed after it.
    pub(crate) fn hides(&self, topic: &str, physical: u64) -> bool {
        self.any.load(Ordering::Acquire)
            && self
                .before
                .read()
                .get(topic)
                .is_some_and(|before| physical < *before)
    }

    /// Up to which log position the messages of a topic were removed.
    pub(crate) fn before(&self, topic: &str) -> Option<u64> {
        self.before.read().get(topic).copied()
    }

    pub(crate) fn is_closing(&self, topic: &str) -> bool {
        self.closings.load(Ordering::Acquire) > 0 && self.closing.read().contains_key(topic)
    }

    /// True while the removal of `topic` is under way, and where it was removed when the log had got to `end` or later.
    pub(crate) fn closes_since(&self, topic: &str, end: u64) -> bool {
        self.is_closing(topic) || self.before(topic).is_some_and(|position| position >= end)
    }

    /// Unchanged between two calls: no removal has begun between them. One that began before the
    /// first is still under way then, or over.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// The removal of `topic` is under way until what is returned is dropped.
    pub(crate) fn begin<'a>(&'a self, topic: &'a str) -> Closing<'a> {
        let mut closing = self.closing.write();
        *closing.entry(topic.to_owned()).or_default() += 1;
        self.closings.store(closing.len(), Ordering::Release);
        self.begun.fetch_add(1, Ordering::Release);
        Closing {
            removed: self,
            topic,
        }
    }

    /// Lowers positions beyond `end`, where the log was cut: new records must not be hidden.
    pub(crate) fn cut(&self, disk: &dyn Disk, end: u64) -> Result<(), StoreError> {
        let mut before = self.before.write();
        let beyond = before.values_mut().filter(|position| **position > end);
        let cut = beyond.map(|position| *position = end).count();
        drop(before);
        if cut > 0 { self.save(disk) } else { Ok(()) }
    }

    /// Hides the records of `topic` before `position`, in memory.
    pub(crate) fn note(&self, topic: &str, position: u64) {
        self.before.write().insert(topic.to_owned(), position);
        self.any.store(true, Ordering::Release);
        self.unsaved.store(true, Ordering::Release);
    }

    /// Saves again what could not be saved when it was noted.
    pub(crate) fn save_if_due(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        if self.unsaved.load(Ordering::Acquire) {
            self.save(disk)
        } else {
            Ok(())
        }
    }

    /// Makes what was noted durable.
    pub(crate) fn save(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let text = text(&self.before.read());
        config_file::write(disk, &self.path, text.as_bytes())?;
        self.unsaved.store(false, Ordering::Release);
        Ok(())
    }
}

/// What the text of the file says: topics and positions.
pub(crate) fn parse(text: &[u8]) -> HashMap<String, u64> {
    let line = |line: &str| {
        let (position, topic) = line.split_once(' ')?;
        Some((topic.to_owned(), position.parse().ok()?))
    };
    let text = String::from_utf8_lossy(text);
    text.split_terminator('\n').filter_map(line).collect()
}

/// The text of the file.
pub(crate) fn text(before: &HashMap<String, u64>) -> String {
    let line = |(topic, position): (&String, &u64)| format!("{position} {topic}\n");
    before.iter().map(line).collect()
}
