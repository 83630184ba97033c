//! Names in a data directory, and the sizes it was made with.
//!
//! ```text
//! commitlog/00000000000000000000 ...        log files, named by the position of their first byte
//! consumequeue/TOPIC/QUEUE/0000... ...      20-byte units, named likewise
//! config/*.json                             tables of the broker
//! checkpoint  abort  lock                   see checkpoint.rs, store.rs
//! layout                                    sizes this directory was made with (text)
//! removed-topics                            topics removed, and where in the log (text)
//! damaged/                                  what recovery took out of the way, never read
//! ```

use crate::disk::{DirEntry, Disk};
use crate::{StoreError, config_file};
use std::io;
use std::path::{Path, PathBuf};

/// Paths of one data directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

/// What a data directory was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of a commit-log file.
    pub(crate) segment: u64,
    /// Bytes of a consume-queue file.
    pub(crate) queue_file: u64,
}

impl Sizes {
    /// The text of the file `layout`.
    pub(crate) fn text(self) -> String {
        format!(
            "segment_size={}\nqueue_file_size={}\n",
            self.segment, self.queue_file
        )
    }
}

/// Bytes of one consume-queue unit.
pub(crate) const UNIT_BYTES: u64 = 20;
/// The same, as a length in memory.
pub(crate) const UNIT_LEN: usize = 20;

impl Layout {
    /// The store at `root`, or at `root/store` if only that holds a commit log.
    pub(crate) fn locate(disk: &dyn Disk, root: &Path) -> Result<Layout, StoreError> {
        let inner = root.join("store");
        let found = !has_dir(disk, root, "commitlog")? && has_dir(disk, &inner, "commitlog")?;
        let root = if found { inner } else { root.to_owned() };
        Ok(Layout { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn commit_log(&self) -> PathBuf {
        self.root.join("commitlog")
    }

    pub(crate) fn log_file(&self, base: u64) -> PathBuf {
        self.commit_log().join(file_name(base))
    }

    pub(crate) fn consume_queues(&self) -> PathBuf {
        self.root.join("consumequeue")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    pub(crate) fn damaged(&self) -> PathBuf {
        self.root.join("damaged")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the directories, durably.
    pub(crate) fn create(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        make_dirs(disk, &self.commit_log())?;
        make_dirs(disk, &self.consume_queues())?;
        make_dirs(disk, &self.config())
    }

    /// Sizes of the files found, else those recorded in the directory, else `wanted`; what comes
    /// out is recorded.
    pub(crate) fn sizes(&self, disk: &dyn Disk, wanted: Sizes) -> Result<Sizes, StoreError> {
        let path = self.file("layout");
        let text = config_file::read(disk, &path)?;
        let recorded = text.and_then(|text| parse_sizes(&text));
        let otherwise = recorded.unwrap_or(wanted);
        let sizes = Sizes {
            segment: self.segment_found(disk)?.unwrap_or(otherwise.segment),
            queue_file: self.queue_file_found(disk)?.unwrap_or(otherwise.queue_file),
        };
        if recorded != Some(sizes) {
            config_file::write(disk, &path, sizes.text().as_bytes())?;
        }
        Ok(sizes)
    }

    fn segment_found(&self, disk: &dyn Disk) -> Result<Option<u64>, StoreError> {
        let files = numbered_files(disk, &self.commit_log())?;
        Ok(files.iter().map(|f| f.len).find(|len| *len > 0))
    }

    fn queue_file_found(&self, disk: &dyn Disk) -> Result<Option<u64>, StoreError> {
        for topic in list(disk, &self.consume_queues())? {
            let dir = self.consume_queues().join(&topic.name);
            for queue in list(disk, &dir)? {
                let files = numbered_files(disk, &dir.join(&queue.name))?;
                let len = files.first().map_or(0, |f| f.len);
                if len >= UNIT_BYTES && len.is_multiple_of(UNIT_BYTES) {
                    return Ok(Some(len));
                }
            }
        }
        Ok(None)
    }
}

pub(crate) fn parse_sizes(text: &[u8]) -> Option<Sizes> {
    let text = std::str::from_utf8(text).ok()?;
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.trim().parse::<u64>().ok())
            .filter(|value| *value > 0)
    };
    let queue_file = value("queue_file_size").filter(|v| v.is_multiple_of(UNIT_BYTES))?;
    Some(Sizes {
        segment: value("segment_size")?,
        queue_file,
    })
}

/// A file whose name is its start position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberedFile {
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// See [`DirEntry::modified_ms`].
    pub(crate) modified_ms: i64,
}

/// The name of the file that starts at `base`: 20 decimal digits.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:020}")
}

/// Files of `dir` named by 20 digits, sorted; none when there is no such directory.
pub(crate) fn numbered_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<NumberedFile>, StoreError> {
    let numbered = |entry: DirEntry| {
        let digits = entry.name.len() == 20 && entry.name.bytes().all(|b| b.is_ascii_digit());
        let base = entry
            .name
            .parse()
            .ok()
            .filter(|_| digits && !entry.is_dir)?;
        Some(NumberedFile {
            base,
            len: entry.len,
            modified_ms: entry.modified_ms,
        })
    };
    Ok(list(disk, dir)?.into_iter().filter_map(numbered).collect())
}

/// Entries of `dir`, none when it does not exist or is a file.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<DirEntry>, StoreError> {
    match disk.list(dir) {
        Ok(entries) => Ok(entries),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(e) => Err(StoreError::io("list", dir, e)),
    }
}

fn has_dir(disk: &dyn Disk, dir: &Path, name: &str) -> Result<bool, StoreError> {
    Ok(list(disk, dir)?.iter().any(|e| e.is_dir && e.name == name))
}

/// Makes `dir` and its missing parents, syncing the directory each is entered in.
pub(crate) fn make_dirs(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    match disk.list(dir) {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(StoreError::io("list", dir, e)),
    }
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        make_dirs(disk, parent)?;
    }
    disk.create_dir(dir)
        .map_err(|e| StoreError::io("make directory", dir, e))?;
    match dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => sync_dir(disk, parent),
        None => Ok(()),
    }
}

pub(crate) fn sync_dir(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    disk.sync_dir(dir)
        .map_err(|e| StoreError::sync("sync directory", dir, e))
}
