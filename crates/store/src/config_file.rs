//! Small files that are replaced whole: `X`, with the previous content in `X.bak`.
//!
//! Write: the new content is written to `X.new` and synced, `X` becomes `X.bak` in one step, the
//! directory is synced, `X.new` becomes `X` in one step, the directory is synced. At every moment
//! one of `X` and `X.bak` is whole and durable. RocketMQ 5.4.0 `ConfigManager` keeps its files
//! under the same two names, so each side reads what the other wrote.

use crate::StoreError;
use crate::disk::Disk;
use crate::layout::{make_dirs, sync_dir};
use std::io;
use std::path::{Path, PathBuf};

/// The content of `path`, or of its `.bak` when `path` is missing or empty; `None` when both are.
///
/// What is answered is durable: a writer that was killed may have left a name that is not yet.
/// A caller that cannot parse the answer tries [`read_backup`].
///
/// # Errors
/// [`StoreError::Io`] when a file is there and cannot be read.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(content) = read_own(disk, path)? else {
        return read_backup(disk, path);
    };
    sync_dir(disk, path.parent().unwrap_or(Path::new(".")))?;
    Ok(Some(content))
}

/// The content of the `.bak` of `path`, `None` when it is missing or empty.
///
/// # Errors
/// [`StoreError::Io`] when it is there and cannot be read.
pub fn read_backup(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    read_own(disk, &with_suffix(path, ".bak"))
}

/// The content of `path` itself, `None` when it is missing or empty.
///
/// # Errors
/// [`StoreError::Io`] when it is there and cannot be read.
pub fn read_own(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read_whole(disk, path)?.filter(|content| !content.is_empty()))
}

/// Replaces the `.bak` of `path` durably, after [`write()`] has written the same: then damage to one of the two loses
/// nothing. Two writers of one path must not run at once.
///
/// # Errors
/// [`StoreError::Full`], [`StoreError::Io`]; `path` is then still whole.
pub fn write_backup(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let (new, backup) = (with_suffix(path, ".new"), with_suffix(path, ".bak"));
    write_new(disk, &new, content)?;
    disk.rename(&new, &backup)
        .map_err(|e| StoreError::io("rename", &new, e))?;
    sync_dir(disk, path.parent().unwrap_or(Path::new(".")))
}

/// Replaces the content of `path` durably. Two writers of one path must not run at once.
///
/// # Errors
/// [`StoreError::Full`], [`StoreError::Io`]; the old content is then still what [`read`] finds.
pub fn write(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    make_dirs(disk, dir)?;
    let new = with_suffix(path, ".new");
    write_new(disk, &new, content)?;
    let old_is_whole = read_own(disk, path)?.is_some();
    let rename = |from: &Path, to: &Path| {
        disk.rename(from, to)
            .map_err(|e| StoreError::io("rename", from, e))
    };
    if old_is_whole {
        rename(path, &with_suffix(path, ".bak"))?;
        sync_dir(disk, dir)?;
    }
    rename(&new, path)?;
    sync_dir(disk, dir)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn write_new(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("write", path, e);
    let file = disk.open(path, true).map_err(failed)?;
    file.set_len(0).map_err(failed)?;
    file.write_at(0, content).map_err(failed)?;
    file.sync().map_err(failed)
}

/// Content of a file, `None` when there is none.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |e| StoreError::io("read", path, e);
    let file = match disk.open(path, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
    const CONTENT_MAX_BYTES: usize = 1 << 30;
    let mut content = vec![0; len.min(CONTENT_MAX_BYTES)];
    let got = file.read_at(0, &mut content).map_err(failed)?;
    content.truncate(got);
    Ok(Some(content))
}
