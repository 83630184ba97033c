//! Reads and writes units in queue files, with a bounded number of open files.
//!
//! Queues are not mapped: a broker may have 50,000 of them, more than the number of maps and
//! descriptors a process gets by default. A file takes its full length at once and space only
//! where it was written.

use super::entry::Unit;
use crate::StoreError;
use crate::disk::{Disk, DiskFile};
use crate::layout::{UNIT_BYTES, UNIT_LEN, file_name, list, numbered_files};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Units read at a time.
pub(super) const STRETCH: usize = 3276;
/// Files kept open at most.
const OPEN_MAX: usize = 512;

/// Access to queue files.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    file_bytes: u64,
    open: Mutex<OpenFiles>,
    /// Directories with entries that were not synced yet.
    dirs: Mutex<HashSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    by_path: HashMap<PathBuf, Arc<dyn DiskFile>>,
    oldest_first: VecDeque<PathBuf>,
}

impl QueueFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, root: PathBuf, file_bytes: u64) -> Self {
        QueueFiles {
            disk,
            root,
            file_bytes,
            open: Mutex::default(),
            dirs: Mutex::default(),
        }
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(crate) fn units_per_file(&self) -> u64 {
        self.file_bytes / UNIT_BYTES
    }

    pub(crate) fn dir(&self, topic: &str, queue_id: i32) -> PathBuf {
        self.root.join(topic).join(queue_id.to_string())
    }

    fn path(&self, dir: &Path, file: u64) -> PathBuf {
        dir.join(file_name(file.saturating_mul(self.file_bytes)))
    }

    /// Units from `from` on, at most `max`, from one file; `None` for a unit never written.
    pub(crate) fn read(
        &self,
        dir: &Path,
        from: u64,
        max: usize,
    ) -> Result<Vec<Option<Unit>>, StoreError> {
        let per_file = self.units_per_file();
        let (file, first) = (from / per_file, from % per_file);
        let count = max.min(usize::try_from(per_file - first).unwrap_or(usize::MAX));
        let path = self.path(dir, file);
        let Some(handle) = self.handle(&path, false)? else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; count.saturating_mul(UNIT_LEN)];
        let got = handle
            .read_at(first * UNIT_BYTES, &mut bytes)
            .map_err(|e| StoreError::io("read", &path, e))?;
        bytes.truncate(got);
        Ok(Unit::decode_all(&bytes).collect())
    }

    /// Writes `units` from position `from` on, over file borders; returns the files written.
    pub(crate) fn write(
        &self,
        dir: &Path,
        from: u64,
        units: &[Unit],
    ) -> Result<Vec<u64>, StoreError> {
        let per_file = self.units_per_file();
        let mut written = Vec::new();
        let (mut at, mut rest) = (from, units);
        let mut bytes = Vec::new();
        while !rest.is_empty() {
            let (file, first) = (at / per_file, at % per_file);
            let room = usize::try_from(per_file - first).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            bytes.clear();
            now.iter().for_each(|unit| unit.encode(&mut bytes));
            self.put(dir, file, first * UNIT_BYTES, &bytes)?;
            written.push(file);
            at += now.len() as u64;
            rest = later;
        }
        Ok(written)
    }

    fn put(&self, dir: &Path, file: u64, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(dir, file);
        let handle = match self.handle(&path, false)? {
            Some(handle) => handle,
            None => self.create(dir, &path)?,
        };
        handle
            .write_at(at, bytes)
            .map_err(|e| StoreError::io("write", &path, e))
    }

    /// Erases units from `from` to the end of its file; later files are removed by the caller.
    pub(crate) fn erase_from(&self, dir: &Path, from: u64) -> Result<(), StoreError> {
        let per_file = self.units_per_file();
        let path = self.path(dir, from / per_file);
        let Some(handle) = self.handle(&path, false)? else {
            return Ok(());
        };
        let failed = |e| StoreError::io("erase", &path, e);
        let len = handle.len().map_err(failed)?;
        handle
            .zero((from % per_file) * UNIT_BYTES, len)
            .map_err(failed)
    }

    pub(crate) fn remove(&self, dir: &Path, file: u64) -> Result<(), StoreError> {
        let path = self.path(dir, file);
        let mut open = self.open.lock();
        open.by_path.remove(&path);
        match self.disk.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &path, e))
            }
            _ => Ok(()),
        }
    }

    /// Deletes the files of a queue before number `keep`: those there are, oldest first.
    pub(crate) fn remove_before(&self, dir: &Path, keep: u64) -> Result<(), StoreError> {
        let border = keep.saturating_mul(self.file_bytes);
        let files = numbered_files(&*self.disk, dir)?;
        for file in files.iter().take_while(|file| file.base < border) {
            self.remove(dir, file.base / self.file_bytes)?;
            self.mark_dirs(dir);
        }
        Ok(())
    }

    /// Makes the content of a file durable.
    pub(crate) fn sync(&self, dir: &Path, file: u64) -> Result<(), StoreError> {
        let path = self.path(dir, file);
        match self.handle(&path, false)? {
            Some(handle) => handle
                .sync()
                .map_err(|e| StoreError::sync("sync", &path, e)),
            None => Ok(()),
        }
    }

    /// Makes content and names of all files durable in one go.
    pub(crate) fn sync_all(&self) -> Result<(), StoreError> {
        self.dirs.lock().clear();
        self.disk
            .sync_all(&self.root)
            .map_err(|e| StoreError::sync("sync the file system of", &self.root, e))
    }

    /// Makes the names of all files made so far durable.
    pub(crate) fn sync_dirs(&self) -> Result<(), StoreError> {
        let dirs = std::mem::take(&mut *self.dirs.lock());
        for dir in dirs {
            match self.disk.sync_dir(&dir) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::sync("sync directory", &dir, e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes all files of a queue and its directory; the topic's too if that was the last.
    pub(crate) fn remove_queue(&self, dir: &Path) -> Result<(), StoreError> {
        let mut open = self.open.lock();
        open.by_path.retain(|path, _| !path.starts_with(dir));
        open.oldest_first.retain(|path| !path.starts_with(dir));
        drop(open);
        for entry in list(&*self.disk, dir)? {
            let path = dir.join(&entry.name);
            self.disk
                .remove_file(&path)
                .map_err(|e| StoreError::io("remove", &path, e))?;
        }
        // Both fail where there is no such directory or something is left in it.
        drop(self.disk.remove_dir(dir));
        if let Some(topic) = dir.parent().filter(|topic| *topic != self.root) {
            drop(self.disk.remove_dir(topic));
        }
        Ok(())
    }

    /// Notes that the names that lead to files of `dir` may not be durable.
    pub(crate) fn mark_dirs(&self, dir: &Path) {
        let mut dirs = self.dirs.lock();
        if dirs.insert(dir.to_owned()) {
            dirs.insert(self.root.clone());
            dirs.extend(dir.parent().map(Path::to_owned));
        }
    }

    fn create(&self, dir: &Path, path: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        let failed = |e| StoreError::io("make", path, e);
        let topic_dir = dir.parent().unwrap_or(&self.root);
        self.disk.create_dir(topic_dir).map_err(failed)?;
        self.disk.create_dir(dir).map_err(failed)?;
        self.mark_dirs(dir);
        let file = self.disk.open(path, true).map_err(failed)?;
        file.set_len(self.file_bytes).map_err(failed)?;
        self.keep(path, &file);
        Ok(file)
    }

    fn handle(&self, path: &Path, create: bool) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        if let Some(file) = self.open.lock().by_path.get(path) {
            return Ok(Some(Arc::clone(file)));
        }
        match self.disk.open(path, create) {
            Ok(file) => {
                self.keep(path, &file);
                Ok(Some(file))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("open", path, e)),
        }
    }

    fn keep(&self, path: &Path, file: &Arc<dyn DiskFile>) {
        let mut open = self.open.lock();
        if open
            .by_path
            .insert(path.to_owned(), Arc::clone(file))
            .is_none()
        {
            open.oldest_first.push_back(path.to_owned());
        }
        while open.by_path.len() > OPEN_MAX {
            let Some(oldest) = open.oldest_first.pop_front() else {
                break;
            };
            open.by_path.remove(&oldest);
        }
    }
}
