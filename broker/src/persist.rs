//! The tables as files of the data directory: `config/*.json`, replaced atomically.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use store::Disk;

use crate::error::BrokerError;

/// One configuration file. Writers are serialized, so that an older content never replaces a newer.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    writing: Mutex<()>,
}

impl ConfigFile {
    /// The file `config/<name>` below the store's root.
    pub(crate) fn new(disk: Arc<dyn Disk>, root: &Path, name: &str) -> Self {
        Self { disk, path: root.join("config").join(name), writing: Mutex::new(()) }
    }

    /// Its content as strict JSON, whatever dialect it was written in; `None` when there is none.
    ///
    /// # Errors
    /// The file cannot be read, or neither it nor its backup parses.
    pub(crate) fn read_json(&self) -> Result<Option<Vec<u8>>, BrokerError> {
        let Some(bytes) = self.read()? else { return Ok(None) };
        let value = wire::json::parse(&bytes)?;
        Ok(Some(wire::json::to_vec(&value)))
    }

    /// Its content; `None` when there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, BrokerError> {
        store::config_file::read(self.disk.as_ref(), &self.path).map_err(|error| BrokerError::Persist(error.to_string()))
    }

    /// Writes what `content` gives, taken after earlier writers are done. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn write(&self, content: impl FnOnce() -> Vec<u8>) -> Result<(), BrokerError> {
        let _alone = self.writing.lock();
        store::config_file::write(self.disk.as_ref(), &self.path, &content())
            .map_err(|error| BrokerError::Persist(error.to_string()))
    }
}
