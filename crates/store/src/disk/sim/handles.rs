//! Open files, regions and locks of the simulated disk.

use super::{Call, SimDisk};
use crate::disk::mmap::Map;
use crate::disk::{AppendToken, DiskFile, DiskLock, Region, WriteWay};
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    inode: u64,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: u64) -> Self {
        SimFile { disk, inode }
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.disk.enter(Call::Other)?;
        Ok(state.image.content(self.inode).len() as u64)
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.enter(Call::Other)?;
        let content = state.image.content(self.inode);
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(content.len());
        let there = content.get(from..).unwrap_or_default();
        let count = there.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(there) {
            *to = *from;
        }
        Ok(count)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_inode(self.inode, at, bytes)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.enter(Call::Other)?;
        state.image.set_len(self.inode, len);
        Ok(())
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        if from >= to {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(to - from).unwrap_or(0)];
        self.disk.write_inode(self.inode, from, &zeros)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync_inode(self.inode)
    }
}

#[derive(Debug)]
pub(super) struct SimRegion {
    disk: SimDisk,
    inode: u64,
    map: Map,
}

impl SimRegion {
    pub(super) fn new(disk: SimDisk, inode: u64, map: Map) -> Self {
        SimRegion { disk, inode, map }
    }
}

impl Region for SimRegion {
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
        _way: WriteWay,
    ) -> io::Result<()> {
        self.map.check(token, at, bytes.len())?;
        self.disk.write_inode(self.inode, at, bytes)?;
        self.map.write(token, at, bytes)
    }

    fn publish(&self, token: &mut AppendToken, end: u64) {
        self.map.publish(token, end);
    }

    fn stable(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.map.stable(at, len)
    }

    fn sync(&self, from: u64, to: u64, way: WriteWay) -> io::Result<()> {
        match way {
            WriteWay::Map => self.disk.sync_pages(self.inode, from, to),
            WriteWay::File => self.disk.sync_inode(self.inode),
        }
    }

    fn touch(&self, _from: u64, _to: u64) {}

    fn seal(&self) {}
}

#[derive(Debug)]
pub(super) struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl SimLock {
    pub(super) fn new(disk: SimDisk, path: PathBuf) -> Self {
        SimLock { disk, path }
    }
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.path);
    }
}
