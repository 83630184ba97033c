//! Topics that were removed, and where in the log: earlier records of them are not put into
//! queues again when the log is replayed.
//!
//! Kept in the text file `removed-topics`, one `POSITION TOPIC` a line.

use crate::disk::Disk;
use crate::{StoreError, config_file};
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Removed topics.
#[derive(Debug)]
pub(crate) struct Removed {
    path: PathBuf,
    /// Records of the topic before this log position are gone.
    before: RwLock<HashMap<String, u64>>,
    /// Topics whose removal is under way.
    closing: RwLock<HashSet<String>>,
    /// How many removals are under way: appends look here first.
    closings: AtomicUsize,
    any: AtomicBool,
    /// Something was noted and not saved: the queues on disk must not be called complete.
    unsaved: AtomicBool,
}

impl Removed {
    /// Reads the file; topics whose last record is before `log_min` are forgotten.
    pub(crate) fn load(disk: &dyn Disk, path: PathBuf, log_min: u64) -> Result<Self, StoreError> {
        let text = config_file::read(disk, &path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = |line: &str| {
            let (position, topic) = line.split_once(' ')?;
            let position = position.parse::<u64>().ok().filter(|p| *p > log_min)?;
            Some((topic.to_owned(), position))
        };
        let before: HashMap<_, _> = text.lines().filter_map(line).collect();
        Ok(Removed {
            path,
            any: AtomicBool::new(!before.is_empty()),
            unsaved: AtomicBool::new(false),
            before: RwLock::new(before),
            closing: RwLock::default(),
            closings: AtomicUsize::new(0),
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
        self.closings.load(Ordering::Acquire) > 0 && self.closing.read().contains(topic)
    }

    pub(crate) fn begin(&self, topic: &str) {
        self.closing.write().insert(topic.to_owned());
        self.closings.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end(&self, topic: &str) {
        self.closing.write().remove(topic);
        self.closings.fetch_sub(1, Ordering::AcqRel);
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
        let mut text = String::new();
        for (topic, position) in self.before.read().iter() {
            text.push_str(&format!("{position} {topic}\n"));
        }
        config_file::write(disk, &self.path, text.as_bytes())?;
        self.unsaved.store(false, Ordering::Release);
        Ok(())
    }
}
