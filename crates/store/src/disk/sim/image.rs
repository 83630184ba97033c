//! What is on the simulated disk: as written, and as the medium has it.

use super::rng::Rng;
use crate::disk::DirEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
const SECTORS_PER_PAGE: u64 = 8;
const PAGE: u64 = 4096;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Dir,
}

/// A change of a directory that its next sync makes durable.
#[derive(Debug, Clone)]
enum Change {
    Add(String, Node),
    Remove(String),
    Rename(String, String, u64),
}

#[derive(Debug, Clone, Default)]
struct Dir {
    names: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors written and not synced.
    dirty: BTreeSet<u64>,
    /// Pages that take space.
    pages: BTreeSet<u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    dirs: BTreeMap<PathBuf, Dir>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
}

fn split(path: &Path) -> (PathBuf, String) {
    let dir = path.parent().unwrap_or(Path::new("")).to_owned();
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    (dir, name)
}

fn is_top(dir: &Path) -> bool {
    dir.as_os_str().is_empty() || dir.parent().is_none()
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Dir {
    fn apply(durable: &mut BTreeMap<String, Node>, change: &Change) {
        match change {
            Change::Add(name, node) => {
                durable.insert(name.clone(), *node);
            }
            Change::Remove(name) => {
                durable.remove(name);
            }
            Change::Rename(from, to, inode) => {
                durable.remove(from);
                durable.insert(to.clone(), Node::File(*inode));
            }
        }
    }
}

impl Image {
    fn dir(&mut self, dir: &Path) -> io::Result<&mut Dir> {
        if is_top(dir) {
            return Ok(self.dirs.entry(dir.to_owned()).or_default());
        }
        self.dirs.get_mut(dir).ok_or_else(not_found)
    }

    pub(super) fn find(&self, path: &Path) -> Option<Node> {
        let (dir, name) = split(path);
        self.dirs.get(&dir)?.names.get(&name).copied()
    }

    pub(super) fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        if is_top(path) {
            return Ok(());
        }
        let (parent, name) = split(path);
        let parent = self.dir(&parent)?;
        if parent.names.contains_key(&name) {
            return Ok(());
        }
        parent.names.insert(name.clone(), Node::Dir);
        parent.changes.push(Change::Add(name, Node::Dir));
        self.dirs.entry(path.to_owned()).or_default();
        Ok(())
    }

    pub(super) fn make_file(&mut self, path: &Path) -> io::Result<u64> {
        let inode = self.next_inode;
        let (dir, name) = split(path);
        let dir = self.dir(&dir)?;
        dir.names.insert(name.clone(), Node::File(inode));
        dir.changes.push(Change::Add(name, Node::File(inode)));
        self.inodes.insert(inode, Inode::default());
        self.next_inode += 1;
        Ok(inode)
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = self.dirs.get(path);
        let Some(dir) = dir else {
            if is_top(path) {
                return Ok(Vec::new());
            }
            let is_file = matches!(self.find(path), Some(Node::File(_)));
            return Err(if is_file {
                io::ErrorKind::NotADirectory.into()
            } else {
                not_found()
            });
        };
        let entry = |(name, node): (&String, &Node)| DirEntry {
            name: name.clone(),
            is_dir: *node == Node::Dir,
            modified_ms: 0,
            len: match node {
                Node::File(inode) => self.content(*inode).len() as u64,
                Node::Dir => 0,
            },
        };
        Ok(dir.names.iter().map(entry).collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let Some(Node::File(inode)) = self.find(from) else {
            return Err(not_found());
        };
        let (from_dir, from_name) = split(from);
        let (to_dir, to_name) = split(to);
        self.dir(&from_dir)?.names.remove(&from_name);
        let dir = self.dir(&to_dir)?;
        dir.names.insert(to_name.clone(), Node::File(inode));
        if from_dir == to_dir {
            dir.changes.push(Change::Rename(from_name, to_name, inode));
        } else {
            dir.changes.push(Change::Add(to_name, Node::File(inode)));
            self.dir(&from_dir)?.changes.push(Change::Remove(from_name));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = split(path);
        let dir = self.dir(&dir)?;
        let node = dir.names.remove(&name).ok_or_else(not_found)?;
        dir.changes.push(Change::Remove(name));
        if let Node::File(inode) = node
            && let Some(inode) = self.inodes.get_mut(&inode)
        {
            inode.pages.clear();
        }
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.dirs.get(path).is_none_or(|dir| !dir.names.is_empty()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.dirs.remove(path);
        self.remove(path)
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        dir.durable = dir.names.clone();
        dir.changes.clear();
        Ok(())
    }

    pub(super) fn content(&self, inode: u64) -> &[u8] {
        self.inodes.get(&inode).map_or(&[], |inode| &inode.content)
    }

    pub(super) fn used(&self) -> u64 {
        self.inodes
            .values()
            .map(|inode| inode.pages.len() as u64 * PAGE)
            .sum()
    }

    fn take_pages(&mut self, number: u64, from: u64, to: u64, capacity: u64) -> io::Result<()> {
        let used = self.used();
        let inode = self.inodes.entry(number).or_default();
        let wanted: Vec<u64> = (from / PAGE..to.div_ceil(PAGE))
            .filter(|page| !inode.pages.contains(page))
            .collect();
        if used + wanted.len() as u64 * PAGE > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inode.pages.extend(wanted);
        Ok(())
    }

    pub(super) fn reserve(&mut self, inode: u64, len: u64, capacity: u64) -> io::Result<()> {
        self.take_pages(inode, 0, len, capacity)?;
        self.set_len(inode, len);
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        number: u64,
        at: u64,
        bytes: &[u8],
        capacity: u64,
    ) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        self.take_pages(number, at, end, capacity)?;
        let inode = self.inodes.entry(number).or_default();
        let (from, to) = (index(at), index(end));
        if inode.content.len() < to {
            inode.content.resize(to, 0);
        }
        if let Some(target) = inode.content.get_mut(from..to) {
            target.copy_from_slice(bytes);
        }
        inode
            .dirty
            .extend(at / SECTOR as u64..end.div_ceil(SECTOR as u64));
        Ok(())
    }

    pub(super) fn set_len(&mut self, number: u64, len: u64) {
        let inode = self.inodes.entry(number).or_default();
        inode.content.resize(index(len), 0);
        inode.dirty.retain(|sector| sector * (SECTOR as u64) < len);
    }

    /// Makes the pages that hold `[from, to)` durable, and the length.
    pub(super) fn sync(&mut self, number: u64, from: u64, to: u64) {
        let first = from / PAGE * SECTORS_PER_PAGE;
        let end = to.div_ceil(PAGE).saturating_mul(SECTORS_PER_PAGE);
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.durable.resize(inode.content.len(), 0);
            // Only what is dirty: pages of a failed sync are clean, and lost.
            let dirty: Vec<u64> = inode.dirty.range(first..end).copied().collect();
            for sector in dirty {
                inode.dirty.remove(&sector);
                inode.write_back(sector);
            }
        }
    }

    pub(super) fn sync_all(&mut self) {
        let inodes: Vec<u64> = self.inodes.keys().copied().collect();
        inodes
            .into_iter()
            .for_each(|inode| self.sync(inode, 0, u64::MAX));
        for dir in self.dirs.values_mut() {
            dir.durable = dir.names.clone();
            dir.changes.clear();
        }
    }

    pub(super) fn lose_all(&mut self) {
        self.inodes
            .values_mut()
            .for_each(|inode| inode.dirty.clear());
    }

    /// A sync failed: its pages count as clean and were never written.
    pub(super) fn lose(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.dirty.clear();
        }
    }

    /// The kernel writes back a page now and then without being asked.
    pub(super) fn write_back_some(&mut self, number: u64, rng: &mut Rng) {
        let Some(inode) = self.inodes.get_mut(&number) else {
            return;
        };
        if !rng.one_in(6) {
            return;
        }
        let nth = index(rng.below(inode.dirty.len() as u64));
        let Some(page) = inode
            .dirty
            .iter()
            .nth(nth)
            .map(|sector| sector / SECTORS_PER_PAGE)
        else {
            return;
        };
        let first = page * SECTORS_PER_PAGE;
        for sector in first..first + SECTORS_PER_PAGE {
            if inode.dirty.remove(&sector) {
                inode.write_back(sector);
            }
        }
    }

    pub(super) fn flip_bit(&mut self, path: &Path, at: u64, bit: u8) -> bool {
        let Some(Node::File(number)) = self.find(path) else {
            return false;
        };
        let inode = self.inodes.entry(number).or_default();
        let mut flipped = false;
        for content in [&mut inode.content, &mut inode.durable] {
            if let Some(byte) = content.get_mut(index(at)) {
                *byte ^= 1 << (bit % 8);
                flipped = true;
            }
        }
        flipped
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let in_dir = |(path, dir): (&PathBuf, &Dir)| {
            let file = |(name, node): (&String, &Node)| match node {
                Node::File(inode) => Some((path.join(name), self.content(*inode).to_vec())),
                Node::Dir => None,
            };
            dir.names.iter().filter_map(file).collect::<Vec<_>>()
        };
        self.dirs.iter().flat_map(in_dir).collect()
    }

    /// What a power cut leaves.
    pub(super) fn after_crash(&self, rng: &mut Rng) -> Image {
        let mut after = Image {
            next_inode: self.next_inode,
            ..Image::default()
        };
        let tops: Vec<PathBuf> = self
            .dirs
            .keys()
            .filter(|dir| is_top(dir))
            .cloned()
            .collect();
        for top in tops {
            self.copy_dir(&top, &mut after, rng);
        }
        after
    }

    fn copy_dir(&self, path: &Path, after: &mut Image, rng: &mut Rng) {
        let mut names = BTreeMap::new();
        if let Some(dir) = self.dirs.get(path) {
            names = dir.durable.clone();
            // Either changes reach the medium in order up to some point, or in no order at all.
            let in_order = rng.one_in(2);
            let upto = rng.below(dir.changes.len() as u64 + 1);
            for (n, change) in (0..).zip(&dir.changes) {
                if if in_order { n < upto } else { rng.one_in(2) } {
                    Dir::apply(&mut names, change);
                }
            }
        }
        for (name, node) in &names {
            match node {
                Node::Dir => self.copy_dir(&path.join(name), after, rng),
                Node::File(number) => {
                    let inode = self.inodes.get(number).map(|inode| inode.after_crash(rng));
                    after
                        .inodes
                        .entry(*number)
                        .or_insert(inode.unwrap_or_default());
                }
            }
        }
        let copied = Dir {
            durable: names.clone(),
            names,
            changes: Vec::new(),
        };
        after.dirs.insert(path.to_owned(), copied);
    }
}

impl Inode {
    fn write_back(&mut self, sector: u64) {
        let from = index(sector) * SECTOR;
        let to = (from + SECTOR).min(self.content.len());
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        if let (Some(target), Some(source)) =
            (self.durable.get_mut(from..to), self.content.get(from..to))
        {
            target.copy_from_slice(source);
        }
    }

    fn after_crash(&self, rng: &mut Rng) -> Inode {
        let mut after = self.clone();
        if self.durable.len() != self.content.len() && rng.one_in(2) {
            after.durable.resize(self.content.len(), 0);
        }
        let mut fate = (u64::MAX, 0);
        for sector in &self.dirty {
            let page = sector / SECTORS_PER_PAGE;
            if fate.0 != page {
                fate = (page, rng.below(3));
            }
            let kept = match fate.1 {
                0 => true,
                1 => false,
                _ => rng.one_in(2),
            };
            if kept {
                after.write_back(*sector);
            }
        }
        after.dirty.clear();
        after.content = after.durable.clone();
        after
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
