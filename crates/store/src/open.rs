//! Opens a data directory: lock, sizes, recovery of the log and of the queues.

use crate::checkpoint::{self, Checkpoint};
use crate::commit_log::recover::{LogFiles, ScanEnd};
use crate::commit_log::{CommitLog, DamagedRange, NextFile};
use crate::consume_queue::{self, Outcome, QueueFiles, QueueTable, Replay, Trust};
use crate::disk::{Disk, WriteWay};
use crate::dispatch::Dispatcher;
use crate::flush::{Flusher, Waiters};
use crate::gate::Gate;
use crate::layout::{Layout, Sizes, UNIT_BYTES, make_dirs, sync_dir};
use crate::maintain::Maintainer;
use crate::options::FlushPolicy;
use crate::queue_ends;
use crate::record::unit_of;
use crate::removed::Removed;
use crate::shared::Shared;
use crate::{PhysicalOffset, StoreError, StoreOptions};
use clock::Clock;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// What was found when the store was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// The previous run ended with `close`.
    pub clean: bool,
    /// The log was cut here: what followed was a torn write.
    pub truncated_at: Option<PhysicalOffset>,
    /// The log was cut short of what it once held: no torn write.
    pub lost: Option<LostEnd>,
    /// Parts of the log that cannot be read. They are left as they are and skipped.
    pub damaged: Vec<DamagedRange>,
    /// Queue entries on disk that were wrong and have been put right.
    pub repaired_entries: u64,
    /// Queue entries that were missing and have been built again from the log.
    pub rebuilt_entries: u64,
    /// Bytes of the log that were checked.
    pub scanned_bytes: u64,
    /// End of the log; the queues are complete up to here.
    pub dispatched_to: PhysicalOffset,
}

/// Where a log ends that once went on, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostEnd {
    /// File the end lies in.
    pub file: PathBuf,
    /// First byte of that file that cannot be read.
    pub offset: u64,
    /// Whole records behind the end, as far as they were looked for; set aside in `damaged/`.
    pub records: u64,
    /// Bytes behind the end that the checkpoint says were durable.
    pub durable_bytes: u64,
}

/// Opens the directory and brings log and queues into agreement.
pub(crate) fn open(
    options: StoreOptions,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
) -> Result<(Shared, RecoveryReport), StoreError> {
    options.validate()?;
    make_dirs(&*disk, &options.root)?;
    let layout = Layout::locate(&*disk, &options.root)?;
    let lock_path = layout.file("lock");
    let lock = disk.lock(&lock_path).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => StoreError::InUse {
            path: layout.root().to_owned(),
        },
        _ => StoreError::io("lock", &lock_path, e),
    })?;
    let dirty = mark_running(&*disk, &layout)?;
    layout.create(&*disk)?;
    let wanted = Sizes {
        segment: options.segment_size,
        queue_file: options.queue_file_units.saturating_mul(UNIT_BYTES),
    };
    let sizes = layout.sizes(&*disk, wanted)?;
    let point = checkpoint::read(&*disk, &layout.file("checkpoint"))?;
    let files = LogFiles::open(&*disk, &layout, sizes.segment)?;
    let log_min = files.min();
    // Where log files are gone, queue units behind the end are not of this log.
    let dirty = dirty || point.is_some_and(|p| p.flushed > files.end());
    let removed = Removed::load(&*disk, layout.file("removed-topics"), log_min)?;
    let known = Known::new(point, dirty, &files);

    let queue_files = QueueFiles::new(Arc::clone(&disk), layout.consume_queues(), sizes.queue_file);
    let table = QueueTable::new(queue_files);
    let root = layout.consume_queues();
    let trust = Trust {
        durable: known.queues,
        log_min,
        removed: 0,
        dirty,
        restart: false,
    };
    let loaded = consume_queue::load(&table, &root, trust, |topic| removed.before(topic))?;
    if log_min > 0 {
        queue_ends::restore(&*disk, &layout, &table, &removed)?;
    }
    let empty = loaded.queues == 0;
    let from = if loaded.rebuild || empty {
        log_min
    } else {
        known.start(&files, &options)
    };
    let mut walk = Walk {
        files: &files,
        table: &table,
        removed: &removed,
        options: &options,
    };
    let (mut scan, mut outcome) = walk.run(from, known.durable)?;
    if outcome.gap {
        let (added, first_added) = (outcome.added, outcome.first_added);
        (scan, outcome) = walk.run(log_min, known.durable)?;
        outcome.added += added;
        outcome.first_added = outcome.first_added.min(first_added);
    }
    for liar in &outcome.liars {
        scan.damaged.push(DamagedRange {
            from: PhysicalOffset::new(liar.physical),
            to: PhysicalOffset::new(liar.end()),
        });
    }
    scan.last_store_timestamp_ms = scan
        .last_store_timestamp_ms
        .max(point.map_or(0, |p| p.store_timestamp_ms));
    let mut report = RecoveryReport {
        clean: !dirty,
        truncated_at: None,
        lost: None,
        damaged: scan.damaged.clone(),
        repaired_entries: outcome.repaired,
        rebuilt_entries: outcome.added,
        scanned_bytes: scan.scanned_bytes,
        dispatched_to: PhysicalOffset::new(scan.end),
    };
    let (log, rest) = files.finish(&*disk, &layout, scan, known.durable, dirty)?;
    removed.cut(&*disk, log.end)?;
    report.truncated_at = rest.torn.then(|| PhysicalOffset::new(log.end));
    let durable_bytes = point.map_or(0, |p| p.flushed.saturating_sub(log.end));
    if rest.records > 0 || durable_bytes > 0 {
        let base = log.end / sizes.segment * sizes.segment;
        report.lost = Some(LostEnd {
            file: layout.log_file(base),
            offset: log.end - base,
            records: rest.records,
            durable_bytes,
        });
    }

    let way = match options.flush {
        FlushPolicy::Sync => WriteWay::File,
        FlushPolicy::Async { .. } => WriteWay::Map,
    };
    let next = NextFile::new(Arc::clone(&disk), layout.clone(), sizes.segment);
    let log = CommitLog::new(log, next, way, sizes.segment, options.pending_max_bytes);
    // Everything the scan accepted has just been synced. The queues are as durable as before, but
    // for units that were missing and are only in memory yet.
    let start = Checkpoint {
        number: point.map_or(0, |p| p.number),
        queues: known
            .queues
            .min(outcome.first_added)
            .min(report.dispatched_to.get()),
        ..Checkpoint::default()
    };
    let flush_interval_ms = match options.flush {
        FlushPolicy::Sync => 0,
        FlushPolicy::Async { interval_ms, .. } => interval_ms,
    };
    let shared = Shared {
        options,
        disk,
        clock,
        layout,
        log,
        queues: table,
        removed,
        waiters: Waiters::default(),
        listeners: RwLock::default(),
        flusher: Mutex::new(Flusher::default()),
        dispatcher: Mutex::new(Dispatcher::default()),
        maintainer: Mutex::new(Maintainer::new(start)),
        dispatch_gate: Gate::default(),
        maintain_gate: Gate::default(),
        flush_interval_ms: AtomicU64::new(flush_interval_ms),
        ends_due: AtomicBool::new(false),
        queues_full: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        retiring: AtomicBool::new(false),
        failure: OnceLock::new(),
        lock: Mutex::new(Some(lock)),
    };
    Ok((shared, report))
}

/// Leaves the mark of a running store; true if one was there already.
fn mark_running(disk: &dyn Disk, layout: &Layout) -> Result<bool, StoreError> {
    let path = layout.file("abort");
    let found = match disk.open(&path, false) {
        Ok(_) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(StoreError::io("open", &path, e)),
    };
    let failed = |e| StoreError::io("make", &path, e);
    let file = disk.open(&path, true).map_err(failed)?;
    let pid = std::process::id().to_string();
    file.write_at(0, pid.as_bytes()).map_err(failed)?;
    file.sync().map_err(failed)?;
    // Also when it was found: the run that made it may have been killed before its sync.
    sync_dir(disk, layout.root())?;
    Ok(found)
}

/// Removes the mark of a running store.
pub(crate) fn mark_stopped(disk: &dyn Disk, layout: &Layout) -> Result<(), StoreError> {
    let path = layout.file("abort");
    match disk.remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path, e)),
        _ => sync_dir(disk, layout.root()),
    }
}

/// What is known to be durable.
struct Known {
    /// The log, up to here; `u64::MAX`: cleanly stopped by a program that does not say where.
    durable: u64,
    /// The queues, up to records that end here.
    queues: u64,
}

impl Known {
    fn new(point: Option<Checkpoint>, dirty: bool, files: &LogFiles) -> Known {
        match (point, dirty) {
            // Not beyond what files there are: a missing last file must not make up a log.
            (Some(point), _) => Known {
                durable: point.flushed.min(files.end()),
                queues: point.queues.min(files.end()),
            },
            (None, false) => Known {
                durable: u64::MAX,
                queues: u64::MAX,
            },
            (None, true) => Known {
                durable: 0,
                queues: files.min(),
            },
        }
    }

    /// Where the walk begins: at the queues' position, or before it at a file border near the end.
    fn start(&self, files: &LogFiles, options: &StoreOptions) -> u64 {
        if self.queues == u64::MAX {
            return files.min();
        }
        let near = self.durable.saturating_sub(options.verify_at_open_bytes);
        let border = files.border_after(near).unwrap_or(u64::MAX);
        self.queues.min(border).max(files.min())
    }
}

/// One walk over the log that compares the queues with it.
struct Walk<'a> {
    files: &'a LogFiles,
    table: &'a QueueTable,
    removed: &'a Removed,
    options: &'a StoreOptions,
}

impl Walk<'_> {
    fn run(&mut self, from: u64, durable: u64) -> Result<(ScanEnd, Outcome), StoreError> {
        let mut replay = Replay::new(self.table, from <= self.files.min());
        let mut failed = Ok(());
        let scan = self.files.scan(from, durable, |view| {
            let Some((position, unit)) = unit_of(view, &self.options.delay_levels_ms) else {
                return;
            };
            if failed.is_ok() && !self.removed.hides(view.topic, unit.physical) {
                failed = replay.add(view.topic, view.queue_id, position, unit);
            }
        });
        failed?;
        replay.compare()?;
        Ok((scan, replay.outcome))
    }
}
