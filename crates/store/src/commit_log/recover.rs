//! Finds the end of the log at start, and what in it cannot be read.
//!
//! Records are walked with their checksums. A bad one *before* the position known to be durable
//! is damage: it is reported, skipped to the next record that says itself that it belongs where it
//! is, and left alone. A bad one *after* it is where a torn write ended: the log ends there. What
//! follows is erased in place (nobody holds a slice yet), after a copy of it was set aside if whole
//! records are among it.

use super::{DamagedRange, RecoveredLog};
use crate::disk::{AppendToken, Disk, WriteWay};
use crate::layout::{Layout, NumberedFile, make_dirs, numbered_files, sync_dir};
use crate::mapped_file::MappedFile;
use crate::record::{Found, look};
use crate::{PhysicalOffset, StoreError};
use std::path::Path;
use std::sync::Arc;
use wire::message::record::RecordView;

/// How far behind a torn end whole records are looked for, and how much is set aside.
const LOOK_BEHIND_BYTES: usize = 16 << 20;

/// All log files, readable whole.
#[derive(Debug)]
pub(crate) struct LogFiles {
    files: Vec<Arc<MappedFile>>,
    file_size: u64,
}

/// Where a scan ended and what it met.
#[derive(Debug, Default)]
pub(crate) struct ScanEnd {
    pub(crate) end: u64,
    pub(crate) damaged: Vec<DamagedRange>,
    pub(crate) last_store_timestamp_ms: i64,
    pub(crate) scanned_bytes: u64,
}

/// What was taken away behind the end of the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    /// There was anything.
    pub(crate) torn: bool,
    /// Whole records, as far as they were looked for.
    pub(crate) records: u64,
}

impl Rest {
    fn add(&mut self, other: Rest) {
        self.torn |= other.torn;
        self.records += other.records;
    }
}

impl LogFiles {
    /// Opens all files. An empty last file is removed, as is one of a wrong length that holds
    /// nothing: a crash while it was made.
    pub(crate) fn open(
        disk: &dyn Disk,
        layout: &Layout,
        file_size: u64,
    ) -> Result<LogFiles, StoreError> {
        let mut found = numbered_files(disk, &layout.commit_log())?;
        while let Some(last) = found.last().copied() {
            if last.len == file_size {
                break;
            }
            remove_unmade(disk, layout, last)?;
            found.pop();
        }
        let mut files: Vec<Arc<MappedFile>> = Vec::with_capacity(found.len());
        for file in found {
            let path = layout.log_file(file.base);
            let bad = |what: &str| StoreError::Layout {
                path: path.clone(),
                what: what.to_owned(),
            };
            if file.len != file_size {
                return Err(bad("length differs from that of the other log files"));
            }
            if files.last().is_some_and(|last| last.end() != file.base) {
                return Err(bad("the log file before this one is missing"));
            }
            let (region, _token) = disk
                .open_region(&path, file_size)
                .map_err(|e| StoreError::io("map", &path, e))?;
            let found = MappedFile::found(file.base, region, file.modified_ms);
            files.push(Arc::new(found));
        }
        Ok(LogFiles { files, file_size })
    }

    pub(crate) fn min(&self) -> u64 {
        self.files.first().map_or(0, |file| file.base())
    }

    pub(crate) fn end(&self) -> u64 {
        self.files.last().map_or(0, |file| file.end())
    }

    /// The first file border at or after `at`, but not beyond the last file.
    pub(crate) fn border_after(&self, at: u64) -> Option<u64> {
        self.files.iter().map(|f| f.base()).find(|base| *base >= at)
    }

    fn index_of(&self, at: u64) -> Option<usize> {
        let from_first = at.checked_sub(self.min())?;
        let index = usize::try_from(from_first / self.file_size).ok()?;
        (index < self.files.len()).then_some(index)
    }

    fn find(&self, at: u64) -> Option<&Arc<MappedFile>> {
        self.files.get(self.index_of(at)?)
    }

    /// Walks the records from `from` on. Everything before `durable` was synced once.
    pub(crate) fn scan(
        &self,
        from: u64,
        durable: u64,
        mut each: impl FnMut(&RecordView<'_>),
    ) -> ScanEnd {
        let mut result = ScanEnd::default();
        let mut at = from.max(self.min());
        while let Some(file) = self.find(at) {
            match look(file.stable_from(at), at, true) {
                Found::Record(view) if at < durable || !has_zeros(&view) => {
                    result.last_store_timestamp_ms =
                        result.last_store_timestamp_ms.max(view.store_ts_ms);
                    each(&view);
                    at += view.total_size() as u64;
                }
                Found::Blank => at = file.end(),
                Found::Record(_) | Found::Nothing => {
                    if at >= durable {
                        break;
                    }
                    let next = self.next_whole(at + 1);
                    let to = match next {
                        Some(next) => next,
                        None if durable == u64::MAX => break,
                        None => durable,
                    };
                    result.damaged.push(DamagedRange {
                        from: PhysicalOffset::new(at),
                        to: PhysicalOffset::new(to),
                    });
                    at = to;
                    if next.is_none() {
                        break;
                    }
                }
            }
        }
        result.scanned_bytes = at.saturating_sub(from);
        result.end = at;
        result
    }

    /// The next position at or after `at` where a whole record says that it belongs there.
    fn next_whole(&self, at: u64) -> Option<u64> {
        let first = self.index_of(at)?;
        let mut from = at;
        for file in self.files.get(first..)? {
            let bytes = file.stable_from(from);
            if let Some(found) = whole_record_in(bytes, from) {
                return Some(found);
            }
            from = file.end();
        }
        None
    }

    /// Ends the log at `end`: sets aside and erases what follows, syncs what may not be durable,
    /// and opens the last file for appending.
    pub(crate) fn finish(
        self,
        disk: &dyn Disk,
        layout: &Layout,
        scan: ScanEnd,
        durable: u64,
        dirty: bool,
    ) -> Result<(RecoveredLog, Rest), StoreError> {
        let end = scan.end;
        let mut rest = Rest::default();
        let mut files = self.files;
        // Files that begin at or after the end: prepared ones, or what follows a torn write. The
        // first file stays, even if nothing is in it: its name says where the log goes on when
        // everything before it was deleted.
        while files.len() > 1
            && let Some(last) = files.pop_if(|file| file.base() >= end)
        {
            rest.add(drop_file(disk, layout, &last)?);
        }
        let mut tail = None;
        if let Some(last) = files.pop_if(|file| file.end() > end) {
            rest.add(drop_tail(disk, layout, &last, end, dirty)?);
            let (base, modified_ms) = (last.base(), last.modified_ms());
            drop(last);
            let path = layout.log_file(base);
            let (region, token) = disk
                .open_region(&path, end - base)
                .map_err(|e| StoreError::io("map", &path, e))?;
            let file = Arc::new(MappedFile::found(base, region, modified_ms));
            files.push(Arc::clone(&file));
            tail = Some((file, token));
        }
        sync_files(layout, &files, durable.min(end), tail.as_ref())?;
        let log = RecoveredLog {
            files,
            tail,
            end,
            last_store_timestamp_ms: scan.last_store_timestamp_ms,
            damaged: scan.damaged,
        };
        Ok((log, rest))
    }
}

/// Syncs the files from `from` on and lets go of the descriptors of those that are full.
fn sync_files(
    layout: &Layout,
    files: &[Arc<MappedFile>],
    from: u64,
    tail: Option<&(Arc<MappedFile>, AppendToken)>,
) -> Result<(), StoreError> {
    for file in files {
        if file.end() > from {
            let failed = |e| StoreError::io("sync", &layout.log_file(file.base()), e);
            let whole = file.end() - file.base();
            file.region()
                .sync(0, whole, WriteWay::File)
                .map_err(failed)?;
        }
        if tail.is_none_or(|(tail, _)| !Arc::ptr_eq(tail, file)) {
            file.region().seal();
        }
    }
    Ok(())
}

/// Topic and properties never hold a NUL (appends refuse it), so one is a sector that was lost:
/// the checksum covers the body alone.
fn has_zeros(view: &RecordView<'_>) -> bool {
    view.topic.as_bytes().contains(&0) || view.properties_bytes.contains(&0)
}

/// Position of the first whole record in `bytes`, which begin at log position `base`.
fn whole_record_in(bytes: &[u8], base: u64) -> Option<u64> {
    const MAGIC_START: [u8; 3] = [0xda, 0xa3, 0x20];
    let starts = bytes.windows(3).enumerate().skip(4);
    let candidates = starts.filter(|(_, window)| *window == MAGIC_START);
    for (magic_at, _) in candidates {
        let start = magic_at - 4;
        let at = base + start as u64;
        if let Found::Record(_) = look(bytes.get(start..)?, at, true) {
            return Some(at);
        }
    }
    None
}

/// Counts the whole records in the first bytes of what begins at log position `base`.
fn whole_records_in(bytes: &[u8], base: u64) -> u64 {
    let (mut count, mut from) = (0, 0);
    let near = bytes.get(..LOOK_BEHIND_BYTES).unwrap_or(bytes);
    while let Some(at) = whole_record_in(near.get(from..).unwrap_or_default(), base + from as u64) {
        count += 1;
        from = usize::try_from(at - base).unwrap_or(usize::MAX);
        if let Found::Record(view) = look(near.get(from..).unwrap_or_default(), at, false) {
            from += view.total_size();
        }
    }
    count
}

/// Takes a file after the end out of the log.
fn drop_file(disk: &dyn Disk, layout: &Layout, file: &MappedFile) -> Result<Rest, StoreError> {
    let path = layout.log_file(file.base());
    let head = file.stable_from(file.base());
    let torn = !matches!(look(head, file.base(), true), Found::Nothing);
    let records = whole_records_in(head, file.base());
    if torn {
        let aside = aside_path(disk, layout, file.base())?;
        disk.rename(&path, &aside)
            .map_err(|e| StoreError::io("set aside", &path, e))?;
        sync_dir(disk, &layout.damaged())?;
    } else {
        disk.remove_file(&path)
            .map_err(|e| StoreError::io("remove", &path, e))?;
    }
    sync_dir(disk, &layout.commit_log())?;
    Ok(Rest { torn, records })
}

/// Erases what follows `end` in its file.
fn drop_tail(
    disk: &dyn Disk,
    layout: &Layout,
    file: &MappedFile,
    end: u64,
    dirty: bool,
) -> Result<Rest, StoreError> {
    let rest = file.stable_from(end);
    let near = rest
        .get(..LOOK_BEHIND_BYTES.min(rest.len()))
        .unwrap_or(rest);
    let used = near
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    if used == 0 && !dirty {
        return Ok(Rest::default());
    }
    let found = near.get(..used).unwrap_or_default();
    let records = whole_records_in(found.get(1..).unwrap_or_default(), end + 1);
    if records > 0 {
        let aside = aside_path(disk, layout, end)?;
        write_aside(disk, &aside, found)?;
        sync_dir(disk, &layout.damaged())?;
    }
    let path = layout.log_file(file.base());
    let failed = |e| StoreError::io("erase the torn end of", &path, e);
    let handle = disk.open(&path, false).map_err(failed)?;
    handle
        .zero(end - file.base(), file.end() - file.base())
        .map_err(failed)?;
    handle.sync().map_err(failed)?;
    Ok(Rest {
        torn: used > 0,
        records,
    })
}

fn write_aside(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("write", path, e);
    let file = disk.open(path, true).map_err(failed)?;
    file.write_at(0, bytes).map_err(failed)?;
    file.sync().map_err(failed)
}

/// A name in `damaged/` that is not taken: the log position and a counter.
fn aside_path(disk: &dyn Disk, layout: &Layout, at: u64) -> Result<std::path::PathBuf, StoreError> {
    let dir = layout.damaged();
    make_dirs(disk, &dir)?;
    let taken = crate::layout::list(disk, &dir)?;
    let prefix = format!("{at:020}.");
    let number = taken.iter().filter(|e| e.name.starts_with(&prefix)).count();
    Ok(dir.join(format!("{prefix}{number}")))
}

fn remove_unmade(disk: &dyn Disk, layout: &Layout, file: NumberedFile) -> Result<(), StoreError> {
    let path = layout.log_file(file.base);
    let failed = |e| StoreError::io("read", &path, e);
    let mut head = [0; 8];
    let handle = disk.open(&path, false).map_err(failed)?;
    handle.read_at(0, &mut head).map_err(failed)?;
    if head != [0; 8] {
        return Err(StoreError::Layout {
            path,
            what: "length differs from that of the other log files".to_owned(),
        });
    }
    disk.remove_file(&path)
        .map_err(|e| StoreError::io("remove", &path, e))?;
    sync_dir(disk, &layout.commit_log())
}
