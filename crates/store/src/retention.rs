//! Deletes the oldest log files, and what of the queues points into them.
//!
//! ```text
//! retire   queue files and checkpoint are synced as far as the border;
//!          positions whose records begin before the border are hidden from every reader
//!          (the owner puts again what must stay: it still reads the log, and hidden positions)
//! remove   the ends of queues that lose all their messages are written down
//!          each log file, oldest first: out of the list, unlinked, directory synced
//!          queue files before the last one that hold nothing else: unlinked
//! ```
//! A crash at any point is right: a start takes the first log file for the beginning of the log and
//! derives from it where each queue begins, and what a queue lost of its front is made up for by
//! what it has kept. The last log file is never deleted, nor one whose records are not all durable
//! in log and queues. Who reads a deleted file goes on reading it: it is unlinked, not shortened.

use crate::consume_queue::ConsumeQueue;
use crate::disk::DiskUsage;
use crate::layout::sync_dir;
use crate::mapped_file::MappedFile;
use crate::query::{gather, is_of};
use crate::queue_ends;
use crate::shared::Shared;
use crate::{PhysicalOffset, QueueEntry, QueueOffset, Store, StoreError};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A log file that nothing is written to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position of its first byte.
    pub from: PhysicalOffset,
    /// Position after its last byte.
    pub to: PhysicalOffset,
    /// No record in it was stored later, in milliseconds since 1970. Of a file that an earlier run
    /// filled it is the time of the first record after it, or the last change of the file where
    /// [`crate::StoreOptions::age_by_file_time`] is set and that is later.
    pub newest_ms: i64,
}

/// What a removal took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Log files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// First position of the log now.
    pub min_physical: PhysicalOffset,
}

/// Log files that are about to be deleted: nobody but the holder sees their messages in the queues.
/// Dropped without [`Retiring::remove`], it shows them again; after it, those that are still there.
#[derive(Debug)]
pub struct Retiring {
    store: Store,
    before: u64,
    /// Queues that lose positions, and the first one they keep.
    queues: Vec<(Arc<ConsumeQueue>, u64)>,
}

impl Store {
    /// Log files but the last, oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        let files = self.shared.log.files().snapshot();
        let of = |(file, next): (&Arc<MappedFile>, &Arc<MappedFile>)| Segment {
            from: PhysicalOffset::new(file.base()),
            to: PhysicalOffset::new(file.end()),
            newest_ms: newest_ms(&self.shared, file, next),
        };
        files.iter().zip(files.iter().skip(1)).map(of).collect()
    }

    /// Where the first log file ends that holds a record stored at `before_ms` or later, or that is
    /// the last: everything before may go. At most `files_max` files are before it.
    #[must_use]
    pub fn expired(&self, before_ms: i64, files_max: usize) -> PhysicalOffset {
        let files = self.shared.log.files().snapshot();
        let pairs = files.iter().zip(files.iter().skip(1)).take(files_max);
        let old = pairs
            .take_while(|(file, next)| newest_ms(&self.shared, file, next) < before_ms)
            .last();
        let border = old.map_or(self.shared.log.files().min(), |(file, _)| file.end());
        PhysicalOffset::new(border)
    }

    /// Goes on in a new log file if the last record is older than `before_ms` and nothing has come
    /// since: the last file is never deleted, and an idle log would keep it for ever. True if it did.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Closed`], [`StoreError::Io`], [`StoreError::Poisoned`].
    pub fn roll_if_older(&self, before_ms: i64) -> Result<bool, StoreError> {
        let shared = &*self.shared;
        let (log, clock) = (&shared.log, &*shared.clock);
        let by_file_time = shared.options.age_by_file_time;
        if !log.is_older(before_ms, by_file_time, clock)? {
            return Ok(false);
        }
        // Allocates and syncs, so it is done before the put lock is taken again.
        let maintainer = shared.maintainer.lock();
        shared.usable()?;
        self.step_prepare()?;
        drop(maintainer);
        let rolled = log.roll_if_older(before_ms, by_file_time, clock)?;
        if rolled {
            shared.dispatch_gate.wake();
            shared.waiters.gate().wake();
        }
        Ok(rolled)
    }

    /// Hides the messages of the log files before `before` from the queues; `None` when there is no
    /// such file, or one of them is not durable yet in log and queues (try again later).
    ///
    /// # Errors
    /// [`StoreError::Busy`] while another retirement is under way, [`StoreError::Io`],
    /// [`StoreError::Poisoned`], [`StoreError::Closed`].
    pub fn retire(&self, before: PhysicalOffset) -> Result<Option<Retiring>, StoreError> {
        let shared = &*self.shared;
        let border = border(shared, before.get());
        if border <= shared.log.files().min() {
            return Ok(None);
        }
        if shared.retiring.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Busy);
        }
        let mut retiring = Retiring {
            store: self.clone(),
            before: border,
            queues: Vec::new(),
        };
        if !is_durable(shared, border)? {
            return Ok(None);
        }
        for queue in shared.queues.all() {
            let first = first_from(shared, &queue, border)?;
            if first > queue.first() {
                queue.hide(first);
                retiring.queues.push((queue, first));
            }
        }
        Ok(Some(retiring))
    }

    /// [`Store::retire`] and [`Retiring::remove`] of the log files all whose records were stored
    /// before `before_ms`; an idle log goes on in a new file first.
    ///
    /// # Errors
    /// As these.
    pub fn clean_expired(&self, before_ms: i64) -> Result<Cleaned, StoreError> {
        self.roll_if_older(before_ms)?;
        match self.retire(self.expired(before_ms, usize::MAX))? {
            Some(retiring) => retiring.remove(),
            None => Ok(Cleaned {
                min_physical: self.min_physical(),
                ..Cleaned::default()
            }),
        }
    }

    /// First position of a queue whose record begins at `from` in the log or later; its end if
    /// there is none.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn position_from(
        &self,
        topic: &str,
        queue_id: i32,
        from: PhysicalOffset,
    ) -> Result<QueueOffset, StoreError> {
        match self.shared.queues.get(topic, queue_id) {
            Some(queue) => first_from(&self.shared, &queue, from.get()).map(QueueOffset::new),
            None => Ok(QueueOffset::ZERO),
        }
    }

    /// As [`Store::entries`], with the positions that are hidden while their log file is retired.
    /// Nothing is repaired.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn entries_with_hidden(
        &self,
        topic: &str,
        queue_id: i32,
        from: QueueOffset,
        max: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(Vec::new());
        };
        let files = self.shared.queues.files();
        gather(
            from,
            max,
            |at, max| queue.read_all(files, at, max),
            |_, unit, _| Ok(unit.filter(|unit| !unit.is_hole())),
        )
    }

    /// First position of a queue whose record is in the log, hidden or not.
    #[must_use]
    pub fn first_stored(&self, topic: &str, queue_id: i32) -> QueueOffset {
        let queue = self.shared.queues.get(topic, queue_id);
        QueueOffset::new(queue.map_or(0, |queue| queue.first()))
    }

    /// Hides the positions of a queue before `to` until the store is closed: their messages were
    /// put again at the end of the log.
    pub fn hide_before(&self, topic: &str, queue_id: i32, to: QueueOffset) {
        if let Some(queue) = self.shared.queues.get(topic, queue_id) {
            queue.hide_for_good(to.get());
        }
    }

    /// Whether the topic of a record at `at` was removed after it was stored: what it says of a queue is not of the one
    /// there is.
    #[must_use]
    pub fn was_removed(&self, topic: &str, at: PhysicalOffset) -> bool {
        self.shared.removed.hides(topic, at.get())
    }

    /// How full the disk of the data directory is.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let root = self.shared.layout.root();
        let usage = self.shared.disk.usage(root);
        usage.map_err(|e| StoreError::io("measure the disk of", root, e))
    }
}

impl Retiring {
    /// Where the log will begin.
    #[must_use]
    pub fn before(&self) -> PhysicalOffset {
        PhysicalOffset::new(self.before)
    }

    /// Deletes the files. Records that are being read stay valid for who holds them. On a disk so
    /// full that the ends of queues cannot be written down before, they are after it.
    ///
    /// # Errors
    /// [`StoreError::Io`]: some may be deleted, the rest at the next time; the store is poisoned if
    /// a sync failed. [`StoreError::Poisoned`]. [`StoreError::Closed`].
    pub fn remove(self) -> Result<Cleaned, StoreError> {
        let shared = &*self.store.shared;
        let files = shared.queues.files();
        let mut cleaned = Cleaned::default();
        let _maintainer = shared.maintainer.lock();
        shared.usable()?;
        // Not for want of space: the queues that are emptied are durable in their own files, and
        // without any deletion there would never be space.
        queue_ends::write(shared)?;
        let removed = remove_log_files(shared, self.before, &mut cleaned);
        let min = shared.log.files().min();
        cleaned.min_physical = PhysicalOffset::new(min);
        self.drop_positions(min);
        removed?;
        queue_ends::write_if_due(shared)?;
        for (queue, _) in &self.queues {
            if !queue.is_removed() {
                queue.remove_old_files(files)?;
            }
        }
        shared.survive(files.sync_dirs())?;
        Ok(cleaned)
    }

    /// Takes the positions whose records are before `min`, where the log begins now, from the
    /// queues. That is short of `before` where a removal was cut short.
    fn drop_positions(&self, min: u64) {
        for (queue, first) in &self.queues {
            let kept = if min < self.before {
                // A queue that cannot be read loses sight of some more until the next start.
                first_from(&self.store.shared, queue, min).unwrap_or(*first)
            } else {
                *first
            };
            queue.drop_before(kept);
        }
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        self.queues.iter().for_each(|(queue, _)| queue.show());
        self.store.shared.retiring.store(false, Ordering::Release);
    }
}

/// See [`Segment::newest_ms`].
fn newest_ms(shared: &Shared, file: &MappedFile, next: &MappedFile) -> i64 {
    if let Some(known) = file.newest_ms() {
        return known;
    }
    let next_ms = match shared.log.next_record(next.base(), |view| view.store_ts_ms) {
        crate::commit_log::Next::Record { made, .. } => made,
        crate::commit_log::Next::End(_) => shared.log.last_store_timestamp_ms(&*shared.clock),
    };
    if shared.options.age_by_file_time {
        next_ms.max(file.modified_ms())
    } else {
        next_ms
    }
}

/// The last file border at or before `before`, short of the last file.
fn border(shared: &Shared, before: u64) -> u64 {
    let files = shared.log.files().snapshot();
    let full = files.len().saturating_sub(1);
    let ends = files.iter().take(full).map(|file| file.end());
    ends.take_while(|end| *end <= before).last().unwrap_or(0)
}

/// True when everything before `border` is durable in log and queues, so that a start needs none of
/// it; makes it so if it can.
fn is_durable(shared: &Shared, border: u64) -> Result<bool, StoreError> {
    let mut maintainer = shared.maintainer.lock();
    shared.usable()?;
    if maintainer.queues_durable() < border {
        maintainer.step(shared, true);
    }
    let marks = shared.log.marks();
    let durable = marks.flushed().min(marks.dispatched());
    Ok(maintainer.queues_durable().min(durable) >= border)
}

fn first_from(shared: &Shared, queue: &ConsumeQueue, border: u64) -> Result<u64, StoreError> {
    queue.position_from(shared.queues.files(), border, |position, unit| {
        let own = shared
            .log
            .view(unit.physical, |view| is_of(view, queue, position));
        own == Some(true) || shared.log.damage_at(unit.physical).is_some()
    })
}

/// One file at a time, each durably: two that are gone in the wrong order would tear the log.
fn remove_log_files(shared: &Shared, before: u64, cleaned: &mut Cleaned) -> Result<(), StoreError> {
    loop {
        shared.usable()?;
        let files = shared.log.files().snapshot();
        let Some(first) = files.first().filter(|file| file.end() <= before) else {
            return Ok(());
        };
        let path = shared.layout.log_file(first.base());
        match shared.disk.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &path, e));
            }
            _ => {}
        }
        if !shared.log.files().pop_front(first) {
            return Ok(());
        }
        // As any failed sync: which files are there now, nobody knows.
        shared.survive(sync_dir(&*shared.disk, &shared.layout.commit_log()))?;
        cleaned.files += 1;
        cleaned.bytes += first.end() - first.base();
    }
}
