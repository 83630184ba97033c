//! A disk in memory that forgets what was not synced, for tests and simulations.
//!
//! Reads see every write. [`SimDisk::crash`] gives the disk as a power cut would leave it: each
//! page that was not synced is kept, dropped or torn at 512-byte sectors; names that were not
//! synced in their directory are there or not; lengths likewise. Calls can be made to fail, the
//! disk can be full, and a failed sync loses its pages for good, as on Linux.

mod handles;
mod image;
mod rng;

pub use rng::Rng;

use super::mmap::Map;
use super::{AppendToken, DirEntry, Disk, DiskFile, DiskLock, DiskUsage, Region};
use handles::{SimFile, SimLock, SimRegion};
use image::{Image, Node};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Failing {
    /// None.
    #[default]
    None,
    /// The call of this number (the first is 1).
    Once(u64),
    /// The call of this number and all after it: the machine has stopped.
    From(u64),
}

/// A disk in memory. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Told when syncs are held no longer.
    let_go: Arc<Condvar>,
}

/// Lets syncs go on when it is dropped.
#[derive(Debug)]
pub struct HeldSyncs(SimDisk);

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        self.0.state.lock().hold_syncs = false;
        self.0.let_go.notify_all();
    }
}

#[derive(Debug)]
struct State {
    image: Image,
    rng: Rng,
    calls: u64,
    failing: Failing,
    fail_syncs: bool,
    hold_syncs: bool,
    capacity_bytes: u64,
    locked: std::collections::BTreeSet<std::path::PathBuf>,
}

/// What a call does, for counting and failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Sync,
    Other,
}

impl SimDisk {
    /// An empty disk; `seed` decides what background write-back and crashes do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SimDisk::of(Image::default(), Rng::new(seed))
    }

    fn of(image: Image, rng: Rng) -> Self {
        let state = State {
            image,
            rng,
            calls: 0,
            failing: Failing::None,
            fail_syncs: false,
            hold_syncs: false,
            capacity_bytes: u64::MAX,
            locked: std::collections::BTreeSet::new(),
        };
        SimDisk {
            state: Arc::new(Mutex::new(state)),
            let_go: Arc::default(),
        }
    }

    /// The disk as a power cut at this moment leaves it. This one is not changed.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let mut state = self.state.lock();
        let mut rng = state.rng.fork();
        let image = state.image.after_crash(&mut rng);
        SimDisk::of(image, rng)
    }

    /// The disk as it would be if the process alone had died: nothing is lost.
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        let mut state = self.state.lock();
        let rng = state.rng.fork();
        SimDisk::of(state.image.clone(), rng)
    }

    /// Makes calls fail from now on; numbers count from here, the next call is 1.
    pub fn fail(&self, failing: Failing) {
        let mut state = self.state.lock();
        state.calls = 0;
        state.failing = failing;
    }

    /// Calls since the last [`SimDisk::fail`].
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Makes every sync fail and lose its pages, or not.
    pub fn fail_syncs(&self, fail: bool) {
        self.state.lock().fail_syncs = fail;
    }

    /// Keeps every sync waiting until the guard is dropped. Other calls go on meanwhile.
    #[must_use]
    pub fn hold_syncs(&self) -> HeldSyncs {
        self.state.lock().hold_syncs = true;
        HeldSyncs(self.clone())
    }

    /// Sets how many bytes fit.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Bytes taken.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.lock().image.used()
    }

    /// Changes a bit of a file behind everyone's back, on the medium too. False when there is no
    /// such file or it is shorter.
    #[must_use]
    pub fn flip_bit(&self, path: &Path, at: u64, bit: u8) -> bool {
        self.state.lock().image.flip_bit(path, at, bit)
    }

    /// Content of all files by path, for comparing.
    #[must_use]
    pub fn files(&self) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        self.state.lock().image.files()
    }

    /// Counts a call; fails it if it is to fail.
    fn enter(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        while call == Call::Sync && state.hold_syncs {
            self.let_go.wait(&mut state);
        }
        state.calls += 1;
        let fails = match state.failing {
            Failing::None => false,
            Failing::Once(number) => state.calls == number,
            Failing::From(number) => state.calls >= number,
        };
        if fails || (call == Call::Sync && state.fail_syncs) {
            if call == Call::Sync {
                // Which file it was is told by the caller through `lose`.
                return Err(io::Error::other("simulated sync error"));
            }
            return Err(io::Error::other("simulated i/o error"));
        }
        Ok(state)
    }

    fn sync_inode(&self, inode: u64) -> io::Result<()> {
        self.sync_pages(inode, 0, u64::MAX)
    }

    fn sync_pages(&self, inode: u64, from: u64, to: u64) -> io::Result<()> {
        match self.enter(Call::Sync) {
            Ok(mut state) => {
                state.image.sync(inode, from, to);
                Ok(())
            }
            Err(error) => {
                self.state.lock().image.lose(inode);
                Err(error)
            }
        }
    }

    fn write_inode(&self, inode: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.enter(Call::Other)?;
        let state = &mut *state;
        state.image.write(inode, at, bytes, state.capacity_bytes)?;
        state.image.write_back_some(inode, &mut state.rng);
        Ok(())
    }

    fn region(&self, inode: u64, published: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        let content = self.state.lock().image.content(inode).to_vec();
        let (map, token) = Map::of_memory(&content, published)?;
        let region = SimRegion::new(self.clone(), inode, map);
        Ok((Arc::new(region), token))
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter(Call::Other)?.image.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.enter(Call::Other)?.image.list(dir)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.enter(Call::Other)?;
        let inode = match state.image.find(path) {
            Some(Node::File(inode)) => inode,
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None if create => state.image.make_file(path)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(SimFile::new(self.clone(), inode)))
    }

    fn create_region(&self, path: &Path, len: u64) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        let mut guard = self.enter(Call::Other)?;
        let state = &mut *guard;
        let inode = state.image.make_file(path)?;
        let reserved = state.image.reserve(inode, len, state.capacity_bytes);
        if let Err(error) = reserved {
            // As the real disk: a file that is too short is not left behind.
            drop(state.image.remove(path));
            return Err(error);
        }
        drop(guard);
        self.sync_inode(inode)?;
        self.region(inode, 0)
    }

    fn open_region(
        &self,
        path: &Path,
        published: u64,
    ) -> io::Result<(Arc<dyn Region>, AppendToken)> {
        let state = self.enter(Call::Other)?;
        let Some(Node::File(inode)) = state.image.find(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        drop(state);
        self.region(inode, published)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter(Call::Other)?.image.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.enter(Call::Other)?.image.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter(Call::Other)?.image.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter(Call::Sync)?.image.sync_dir(dir)
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        match self.enter(Call::Sync) {
            Ok(mut state) => {
                state.image.sync_all();
                Ok(())
            }
            Err(error) => {
                self.state.lock().image.lose_all();
                Err(error)
            }
        }
    }

    fn usage(&self, _dir: &Path) -> io::Result<DiskUsage> {
        let state = self.enter(Call::Other)?;
        let total_bytes = state.capacity_bytes;
        Ok(DiskUsage {
            total_bytes,
            free_bytes: total_bytes.saturating_sub(state.image.used()),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.open(path, true)?;
        let taken = self.state.lock().locked.insert(path.to_owned());
        if !taken {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock::new(self.clone(), path.to_owned())))
    }
}
