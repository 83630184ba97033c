//! What can go wrong in the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of the store. `Full` and `Busy` pass by themselves; `Poisoned` never does.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process, or another store in this one, holds the directory.
    #[error("data directory {} is in use by another process", path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
    },
    /// The disk has no room for the next file. Nothing was stored; try again later.
    #[error("disk is full")]
    Full,
    /// Too much waits to be written, or the topic is being removed. Nothing was stored; try again soon.
    #[error("store is busy: too many bytes wait for the disk, or the topic is being removed")]
    Busy,
    /// The store was closed.
    #[error("store is closed")]
    Closed,
    /// A write or sync failed once: nothing more is accepted, and what was waiting is in doubt.
    #[error("store failed and accepts no more writes: {reason}")]
    Poisoned {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The record is larger than the limit or does not fit an empty log file. Nothing was stored.
    #[error(
        "record of {size_bytes} bytes is larger than {size_max_bytes}, the most that a message, or a log file less 8 bytes, may take"
    )]
    TooLarge {
        /// Size of the whole record.
        size_bytes: u64,
        /// The largest size accepted.
        size_max_bytes: u64,
    },
    /// The draft or an argument is not acceptable. Nothing was stored.
    #[error("not acceptable: {what}")]
    Invalid {
        /// What is wrong, for people.
        what: String,
    },
    /// The directory is not a store this program can open.
    #[error("{}: {what}", path.display())]
    Layout {
        /// The file or directory at fault.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The operating system refused something.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    /// Turns an I/O error into `Full` or `Io`.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            StoreError::Full
        } else {
            StoreError::Io {
                operation,
                path: path.to_owned(),
                source,
            }
        }
    }

    /// A sync that failed is never `Full`, whatever the reason: what it was to make durable may be
    /// lost, so that trying again proves nothing.
    pub(crate) fn sync(operation: &'static str, path: &Path, source: io::Error) -> Self {
        StoreError::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        StoreError::Invalid { what: what.into() }
    }
}

/// True for "no space left" and "quota exceeded".
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
