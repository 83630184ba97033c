//! The only seam between the store and the machine: directories, files and mapped log regions.
//!
//! Two implementations: [`RealDisk`] (files, memory maps, fdatasync) and, with the feature `sim`,
//! `SimDisk`, which forgets what was not synced when it is crashed. Paths are
//! absolute or relative as given; nothing here knows the layout of a store.

#[allow(
    unsafe_code,
    reason = "the one place where memory is shared with files"
)]
mod mmap;
mod real;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use mmap::AppendToken;
pub use real::RealDisk;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// File name without the directory; names that are not UTF-8 are left out of listings.
    pub name: String,
    /// True for a directory.
    pub is_dir: bool,
    /// Length in bytes, 0 for a directory.
    pub len: u64,
    /// Last change of the content, milliseconds since 1970; 0 when not known.
    pub modified_ms: i64,
}

/// How bytes get into a region. Both ways reach the same page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteWay {
    /// Copy into the map: no system call, but a later sync may write whole large pages.
    Map,
    /// One positioned write: a system call, and a later sync writes what was written.
    File,
}

/// How full a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// Bytes that are taken or that this process may still take.
    pub total_bytes: u64,
    /// Bytes that this process may still take.
    pub free_bytes: u64,
}

impl DiskUsage {
    /// Part that is taken, 0 to 1; 0 for an unknown size.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        let taken = self.total_bytes.saturating_sub(self.free_bytes);
        taken as f64 / self.total_bytes as f64
    }
}

/// Directories and files. All calls may block; all may fail with any `io::Error`.
pub trait Disk: Send + Sync + Debug {
    /// Makes a directory whose parent exists; an existing one is no error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Entries of a directory sorted by name; `NotFound` when there is none.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Opens a file for reading and writing, making an empty one first if `create`.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes a new file of `len` zero bytes whose blocks are reserved, replacing any old one.
    /// Content and length are synced; the directory entry is not.
    fn create_region(&self, path: &Path, len: u64) -> io::Result<(Arc<dyn Region>, AppendToken)>;
    /// Maps an existing file of which the first `published` bytes will never change again.
    fn open_region(
        &self,
        path: &Path,
        published: u64,
    ) -> io::Result<(Arc<dyn Region>, AppendToken)>;
    /// Renames a file, replacing the target in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; `NotFound` when there is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything on the file system of `dir` durable: cheaper than many single syncs.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
    /// How full the file system of `dir` is.
    fn usage(&self, dir: &Path) -> io::Result<DiskUsage>;
    /// Takes the exclusive lock of a file (made if absent) until the guard is dropped;
    /// `WouldBlock` when someone else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// Holds a lock taken with [`Disk::lock`].
pub trait DiskLock: Send + Sync + Debug {}

/// A file read and written at positions.
pub trait DiskFile: Send + Sync + Debug {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buf` from `at`, returns how many bytes there were before the end of the file.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `at`, making the file longer if needed.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Sets the length; new bytes are zero and take no space until written.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the bytes from `from` to `to` zero, keeping the length.
    fn zero(&self, from: u64, to: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A mapped file of fixed length with one writer and any number of readers.
///
/// ```text
/// 0 .............. published .............. len
///   readers, stable          one token writes
/// ```
pub trait Region: Send + Sync + Debug {
    /// Length in bytes; never changes.
    fn size(&self) -> u64;
    /// Where the stable part ends.
    fn published(&self) -> u64;
    /// Writes at or after `published`; readers see it only once it is published.
    fn append(
        &self,
        token: &mut AppendToken,
        at: u64,
        bytes: &[u8],
        way: WriteWay,
    ) -> io::Result<()>;
    /// Raises `published` to `end`; lower values and a foreign token are ignored.
    fn publish(&self, token: &mut AppendToken, end: u64);
    /// A slice of the stable part, `None` when it reaches beyond.
    fn stable(&self, at: u64, len: usize) -> Option<&[u8]>;
    /// Makes what was written from `from` to `to` in the given way durable (not the directory
    /// entry); of map writes no other pages, so that those touched ahead stay writable.
    fn sync(&self, from: u64, to: u64, way: WriteWay) -> io::Result<()>;
    /// Asks for the pages of a range to be present and writable. A hint: errors are ignored.
    fn touch(&self, from: u64, to: u64);
    /// Says that nothing more will be written or synced, so that resources can be let go.
    fn seal(&self);
}
