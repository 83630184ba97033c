//! The machine's own file system.

use super::mmap::Map;
use super::{AppendToken, DirEntry, Disk, DiskFile, DiskLock, DiskUsage, Region, WriteWay};
use parking_lot::RwLock;
use rustix::fs::{FallocateFlags, FlockOperation};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Files of the machine: maps for reading, `pwrite`, `fdatasync`, directory `fsync`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Follows links, so that a linked log directory works.
            let Ok(meta) = fs::metadata(entry.path()) else {
                continue;
            };
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_dir = meta.is_dir();
            let len = if is_dir { 0 } else { meta.len() };
            let since = meta.modified().ok().and_then(|at| {
                let passed = at.duration_since(std::time::UNIX_EPOCH).ok()?;
                i64::try_from(passed.as_millis()).ok()
            });
            found.push(DirEntry {
                name,
                is_dir,
                len,
                modified_ms: since.unwrap_or(0),
            });
        }
        found.sort();
        Ok(found)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = read_write(path, create)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create_region(&self, path: &Path, len: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let reserved = reserve(&file, len).and_then(|()| file.sync_all());
        if let Err(error) = reserved {
            // A file that is too short must not be left behind; the first error matters more.
            drop(fs::remove_file(path));
            return Err(error);
        }
        RealRegion::open(file, 0)
    }

    fn open_region(
        &self,
        path: &Path,
        published: u64,
    ) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        RealRegion::open(read_write(path, false)?, published)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(dir)?)?)
    }

    fn usage(&self, dir: &Path) -> io::Result<DiskUsage> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(DiskUsage {
            // As df and RocketMQ 5.4.0 (UtilAll) reckon: what only root may take counts neither way.
            total_bytes: found
                .f_blocks
                .saturating_sub(found.f_bfree)
                .saturating_add(found.f_bavail)
                .saturating_mul(found.f_frsize),
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = read_write(path, true)?;
        // flock keeps a second store of this program out (also one in the same process),
        // the POSIX lock is the one a Java broker takes on this file.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(b"lock", 0)?;
        }
        Ok(Box::new(RealLock { _file: file }))
    }
}

/// Closing the file lets both locks go.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl DiskLock for RealLock {}

fn read_write(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(path)
}

/// Reserves blocks for `len` zero bytes, by writing where the file system cannot reserve.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, 0, len),
        Err(errno) => Err(errno.into()),
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    const CHUNK: usize = 4096;
    let zeros = [0u8; CHUNK];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at).map_or(CHUNK, |left| left.min(CHUNK));
        file.write_all_at(zeros.get(..len).unwrap_or(&zeros), at)?;
        at += len as u64;
    }
    Ok(())
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        if from >= to {
            return Ok(());
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.0, flags, from, to - from) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(&self.0, from, to),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// A mapped file; the descriptor is kept while the region may still be written or synced.
#[derive(Debug)]
struct RealRegion {
    map: Map,
    file: RwLock<Option<File>>,
}

impl RealRegion {
    fn open(file: File, published: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        let (map, token) = Map::of_file(&file, published)?;
        let file = RwLock::new(Some(file));
        Ok((Arc::new(RealRegion { map, file }), token))
    }
}

fn sealed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "region is sealed")
}

impl Region for RealRegion {
    fn size(&self) -> u64 {
        self.map.len()
    }

    fn published(&self) -> u64 {
        self.map.published()
    }

    fn append(
        &self,
        token: &mut AppendToken,
        at: u64,
        bytes: &[u8],
        way: WriteWay,
    ) -> io::Result<()> {
        match way {
            WriteWay::Map => self.map.write(token, at, bytes),
            WriteWay::File => {
                self.map.check(token, at, bytes.len())?;
                let file = self.file.read();
                file.as_ref().ok_or_else(sealed)?.write_all_at(bytes, at)
            }
        }
    }

    fn publish(&self, token: &mut AppendToken, end: u64) {
        self.map.publish(token, end);
    }

    fn stable(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.map.stable(at, len)
    }

    fn sync(&self, from: u64, to: u64, way: WriteWay) -> io::Result<()> {
        match way {
            WriteWay::Map => self.map.sync(from, to),
            WriteWay::File => self.file.read().as_ref().map_or(Ok(()), File::sync_data),
        }
    }

    fn touch(&self, from: u64, to: u64) {
        self.map.touch(from, to);
    }

    fn seal(&self) {
        *self.file.write() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_either_way_are_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        let (region, mut token) = RealDisk.create_region(&path, 8192).unwrap();
        region.append(&mut token, 0, b"map", WriteWay::Map).unwrap();
        region
            .append(&mut token, 3, b"file", WriteWay::File)
            .unwrap();
        region.touch(0, 8192);
        region.publish(&mut token, 7);
        assert_eq!(region.stable(0, 7), Some(&b"mapfile"[..]));
        region.sync(0, 7, WriteWay::Map).unwrap();
        region.sync(0, 7, WriteWay::File).unwrap();
        region.seal();
        assert!(region.append(&mut token, 7, b"x", WriteWay::File).is_err());
        let file = RealDisk.open(&path, false).unwrap();
        let mut buf = [1; 9];
        assert_eq!(file.read_at(0, &mut buf).unwrap(), 9);
        assert_eq!(&buf, b"mapfile\0\0");
        file.zero(3, 8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        file.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"map\0\0\0\0\0\0");
        assert_eq!(file.read_at(8190, &mut buf).unwrap(), 2);
    }

    #[test]
    fn a_lock_is_exclusive_within_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = RealDisk.lock(&path).unwrap();
        let refused = RealDisk.lock(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        RealDisk.lock(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"lock");
    }
}
