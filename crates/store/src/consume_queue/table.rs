//! All queues, by topic and number.

use super::{ConsumeQueue, QueueFiles};
use crate::StoreError;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// More queues than this are synced together with everything on the file system.
const SINGLE_SYNCS_MAX: usize = 100;

/// Queues of one topic by number.
type OfTopic = HashMap<i32, Arc<ConsumeQueue>>;

/// All queues, by topic and number.
#[derive(Debug)]
pub(crate) struct QueueTable {
    files: QueueFiles,
    queues: RwLock<HashMap<Arc<str>, OfTopic>>,
    /// Queues with units that are only in memory.
    dirty: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Queues with files that were not synced.
    unsynced: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Units that are only in memory. Below zero for a moment when some are written out before the
    /// dispatcher has counted them.
    backlog: AtomicI64,
}

impl QueueTable {
    pub(crate) fn new(files: QueueFiles) -> Self {
        QueueTable {
            files,
            queues: RwLock::default(),
            dirty: Mutex::default(),
            unsynced: Mutex::default(),
            backlog: AtomicI64::new(0),
        }
    }

    pub(crate) fn files(&self) -> &QueueFiles {
        &self.files
    }

    pub(crate) fn backlog(&self) -> u64 {
        u64::try_from(self.backlog.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add_backlog(&self, units: u64) {
        self.backlog.fetch_add(signed(units), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<Arc<ConsumeQueue>> {
        self.queues.read().get(topic)?.get(&id).cloned()
    }

    pub(crate) fn get_or_make(&self, topic: &str, id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, id) {
            return queue;
        }
        let mut queues = self.queues.write();
        let name = match queues.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(topic),
        };
        let of_topic = queues.entry(Arc::clone(&name)).or_default();
        let make = || Arc::new(ConsumeQueue::new(name, id, self.files.dir(topic, id)));
        Arc::clone(of_topic.entry(id).or_insert_with(make))
    }

    /// Takes the queues of a topic out of the table.
    pub(crate) fn take_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        let taken = self.queues.write().remove(topic).unwrap_or_default();
        taken.into_values().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        let queues = self.queues.read();
        queues.values().flat_map(HashMap::values).cloned().collect()
    }

    /// Notes that a queue has units that are only in memory.
    pub(crate) fn list_dirty(&self, queue: &Arc<ConsumeQueue>) {
        self.dirty.lock().push(Arc::clone(queue));
    }

    /// Notes that a queue has files to be synced.
    pub(crate) fn list_unsynced(&self, queue: &Arc<ConsumeQueue>) {
        self.unsynced.lock().push(Arc::clone(queue));
    }

    /// Writes out all units that are only in memory. One caller at a time.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock());
        let mut failed = Ok(());
        while let Some(queue) = dirty.pop() {
            if queue.is_removed() {
                continue;
            }
            let had = queue.has_unsynced();
            match queue.write_out(&self.files) {
                Ok(units) => {
                    self.backlog.fetch_sub(signed(units), Ordering::Relaxed);
                    if !had && queue.has_unsynced() {
                        self.list_unsynced(&queue);
                    }
                }
                Err(error) => {
                    // Nothing is lost: the units stay in memory and the queues on the list.
                    dirty.push(queue);
                    failed = Err(error);
                    break;
                }
            }
        }
        self.dirty.lock().append(&mut dirty);
        failed
    }

    /// Makes everything written out so far durable. One caller at a time.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        if unsynced.len() > SINGLE_SYNCS_MAX {
            unsynced.iter().for_each(|queue| queue.mark_synced());
            return self.files.sync_all();
        }
        for queue in unsynced {
            if !queue.is_removed() {
                queue.sync(&self.files)?;
            }
        }
        self.files.sync_dirs()
    }

    /// Forgets the units of a removed queue that are only in memory.
    pub(crate) fn forget(&self, queue: &ConsumeQueue) {
        let units = queue.discard_unwritten();
        self.backlog.fetch_sub(signed(units), Ordering::Relaxed);
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
