//! The tables as files of the data directory: `config/*.json`, replaced atomically.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use store::StoreError;
use store::disk::Disk;
use wire::WireError;

use crate::error::BrokerError;

/// What a failure of the disk means to the caller: a full one passes, the rest does not.
fn failed(error: StoreError) -> BrokerError {
    match error {
        StoreError::Full => BrokerError::Store(error),
        other => BrokerError::Persist(other.to_string()),
    }
}

/// One configuration file. Writers are serialized, so that an older content never replaces a newer.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    writing: Mutex<()>,
}

/// Where the content of a table came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// The file.
    Whole,
    /// Its backup: the last change may be missing.
    Backup,
    /// There was no file.
    Absent,
}

impl ConfigFile {
    /// The file `config/<name>` below the store's root.
    pub(crate) fn new(disk: Arc<dyn Disk>, root: &Path, name: &str) -> Self {
        Self {
            disk,
            path: root.join("config").join(name),
            writing: Mutex::new(()),
        }
    }

    /// Hands the content to `take`, that of the backup where the file itself does not parse.
    ///
    /// # Errors
    /// Neither can be read and parsed.
    pub(crate) fn load(
        &self,
        take: impl Fn(&[u8]) -> Result<usize, WireError>,
    ) -> Result<Loaded, BrokerError> {
        let Some(bytes) = self.read()? else {
            return Ok(Loaded::Absent);
        };
        let own = store::config_file::read_own(self.disk.as_ref(), &self.path).map_err(failed)?;
        let first = match take(&bytes) {
            // A file that is missing or empty was read from its backup.
            Ok(_) if own.is_none() => return Ok(Loaded::Backup),
            Ok(_) => return Ok(Loaded::Whole),
            Err(error) => error,
        };
        let name = self.path.display().to_string();
        tracing::error!(file = name, error = %first, "file does not parse, its backup is used");
        let backup =
            store::config_file::read_backup(self.disk.as_ref(), &self.path).map_err(failed)?;
        let unusable = |error: WireError| BrokerError::Damaged(format!("{name}: {error}"));
        match backup {
            Some(bytes) => take(&bytes).map(|_| Loaded::Backup).map_err(unusable),
            None => Err(unusable(first)),
        }
    }

    /// Its content; `None` when there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, BrokerError> {
        store::config_file::read(self.disk.as_ref(), &self.path).map_err(failed)
    }

    /// The content before the last write, for a caller that cannot use the present one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read_backup(&self) -> Result<Option<Vec<u8>>, BrokerError> {
        store::config_file::read_backup(self.disk.as_ref(), &self.path).map_err(failed)
    }

    /// Writes what `content` gives, taken after earlier writers are done. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn write(&self, content: impl FnOnce() -> Vec<u8>) -> Result<(), BrokerError> {
        self.try_write(|| Ok(content()))
    }

    /// As [`ConfigFile::write`], and the backup gets the same content: neither file alone can lose the last change.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn write_twice(&self, content: impl FnOnce() -> Vec<u8>) -> Result<(), BrokerError> {
        let _alone = self.writing.lock();
        let content = content();
        store::config_file::write(self.disk.as_ref(), &self.path, &content).map_err(failed)?;
        store::config_file::write_backup(self.disk.as_ref(), &self.path, &content).map_err(failed)
    }

    /// As [`ConfigFile::write`], for content that may fail to come about.
    ///
    /// # Errors
    /// The content's, or the disk's.
    pub(crate) fn try_write(
        &self,
        content: impl FnOnce() -> Result<Vec<u8>, BrokerError>,
    ) -> Result<(), BrokerError> {
        let _alone = self.writing.lock();
        let content = content()?;
        store::config_file::write(self.disk.as_ref(), &self.path, &content).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::disk::sim::SimDisk;

    #[test]
    fn a_full_disk_is_said_and_passes() {
        let disk = SimDisk::new(1);
        let file = ConfigFile::new(Arc::new(disk.clone()), Path::new("/data"), "topics.json");
        file.write(|| b"{}".to_vec()).unwrap();
        disk.set_capacity(disk.used());
        let refused = file.write(|| vec![b' '; 1 << 20]).unwrap_err();
        assert_eq!(refused.reason(), "storage_full");
        disk.set_capacity(u64::MAX);
        file.write(|| b"{\"a\":1}".to_vec()).unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"{\"a\":1}");
    }
}
