//! The files of the commit log in order, as a snapshot that readers take without a lock.

use crate::mapped_file::MappedFile;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;

/// Rolling files of one size, each named by the log position of its first byte.
#[derive(Debug)]
pub(crate) struct MappedFileQueue {
    file_size: u64,
    files: ArcSwap<Vec<Arc<MappedFile>>>,
    /// Held while the list is changed: one end grows, the other shrinks.
    changing: Mutex<()>,
}

impl MappedFileQueue {
    /// `files` are sorted, of size `file_size`, without gaps.
    pub(crate) fn new(file_size: u64, files: Vec<Arc<MappedFile>>) -> Self {
        MappedFileQueue {
            file_size,
            files: ArcSwap::from_pointee(files),
            changing: Mutex::new(()),
        }
    }

    pub(crate) fn file_size(&self) -> u64 {
        self.file_size
    }

    /// First position there is.
    pub(crate) fn min(&self) -> u64 {
        self.files.load().first().map_or(0, |file| file.base())
    }

    /// Position after the last byte of the last file.
    pub(crate) fn end(&self) -> u64 {
        self.files.load().last().map_or(0, |file| file.end())
    }

    /// The file that holds position `at`.
    pub(crate) fn find(&self, at: u64) -> Option<Arc<MappedFile>> {
        let files = self.files.load();
        let first = files.first()?.base();
        let index = at.checked_sub(first)? / self.file_size;
        files.get(usize::try_from(index).ok()?).cloned()
    }

    pub(crate) fn snapshot(&self) -> Arc<Vec<Arc<MappedFile>>> {
        self.files.load_full()
    }

    /// Takes the first file out if it is `first` and not the last. Who reads it keeps it.
    pub(crate) fn pop_front(&self, first: &Arc<MappedFile>) -> bool {
        let _changing = self.changing.lock();
        let files = self.files.load();
        let is_first = files.first().is_some_and(|file| Arc::ptr_eq(file, first));
        if !is_first || files.len() < 2 {
            return false;
        }
        let rest = files.iter().skip(1).cloned().collect();
        self.files.store(Arc::new(rest));
        true
    }

    /// Adds the next file. Only the holder of the put lock calls this.
    pub(crate) fn push(&self, file: Arc<MappedFile>) {
        let _changing = self.changing.lock();
        let mut files = Vec::clone(&self.files.load());
        files.push(file);
        self.files.store(Arc::new(files));
    }
}
