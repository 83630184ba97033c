//! Makes the next log file before it is needed.

use crate::StoreError;
use crate::disk::{AppendToken, Disk};
use crate::gate::Gate;
use crate::layout::{Layout, sync_dir};
use crate::mapped_file::MappedFile;
use parking_lot::Mutex;
use std::sync::Arc;

/// A file that waits to become the last one of the log.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) file: Arc<MappedFile>,
    pub(crate) token: AppendToken,
}

/// The next log file: at most one, made by the preparer or, if it is late, by the appender.
#[derive(Debug)]
pub(crate) struct NextFile {
    disk: Arc<dyn Disk>,
    layout: Layout,
    file_size: u64,
    slot: Mutex<Option<Prepared>>,
    gate: Gate,
}

impl NextFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, layout: Layout, file_size: u64) -> Self {
        NextFile {
            disk,
            layout,
            file_size,
            slot: Mutex::new(None),
            gate: Gate::default(),
        }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.slot.lock().is_some()
    }

    /// The file that is ready, for touching its pages.
    pub(crate) fn ready(&self) -> Option<Arc<MappedFile>> {
        self.slot
            .lock()
            .as_ref()
            .map(|ready| Arc::clone(&ready.file))
    }

    /// Makes the file that follows `last_end()` unless one is ready.
    pub(crate) fn prepare(&self, last_end: impl FnOnce() -> u64) -> Result<(), StoreError> {
        let mut slot = self.slot.lock();
        if slot.is_none() {
            // Read under the slot's lock: a taken file is in the list before the lock is free.
            *slot = Some(self.make(last_end())?);
        }
        Ok(())
    }

    /// Takes the file that starts at `base`, making it if need be, and lets `enter` put it into
    /// the list of files.
    pub(crate) fn take(
        &self,
        base: u64,
        enter: impl FnOnce(&Arc<MappedFile>),
    ) -> Result<Prepared, StoreError> {
        let mut slot = self.slot.lock();
        let ready = match slot.take() {
            Some(ready) if ready.file.base() == base => ready,
            _ => self.make(base)?,
        };
        enter(&ready.file);
        Ok(ready)
    }

    /// Removes a file that was made and not used.
    pub(crate) fn discard(&self) -> Result<(), StoreError> {
        let Some(unused) = self.slot.lock().take() else {
            return Ok(());
        };
        let path = self.layout.log_file(unused.file.base());
        drop(unused);
        self.disk
            .remove_file(&path)
            .map_err(|e| StoreError::io("remove", &path, e))?;
        sync_dir(&*self.disk, &self.layout.commit_log())
    }

    fn make(&self, base: u64) -> Result<Prepared, StoreError> {
        let path = self.layout.log_file(base);
        let (region, token) = self
            .disk
            .create_region(&path, self.file_size)
            .map_err(|e| StoreError::io("make", &path, e))?;
        // The name must be durable before anything in the file is called so.
        sync_dir(&*self.disk, &self.layout.commit_log())?;
        let file = Arc::new(MappedFile::new(base, region));
        Ok(Prepared { file, token })
    }
}
