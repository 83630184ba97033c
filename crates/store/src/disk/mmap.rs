//! Shared memory of a region: the only unsafe code of the workspace.
//!
//! Why it is sound:
//! - The map is made over a file of fixed length that nobody shrinks while it is mapped: regions
//!   are never truncated, and the lock of the data directory keeps other processes out. Blocks
//!   are reserved before a file is mapped, so a store cannot meet a full disk.
//! - Memory below `published` is never written again and is the only memory a slice is made of.
//!   `published` only grows, with release order, and readers load it with acquire order.
//! - Memory at or above `published` is written only by the owner of the one [`AppendToken`] of
//!   the map, which is neither `Clone` nor made elsewhere, through `&mut`: one writer at a time.
//! - A slice borrows the map, so it cannot outlive the mapping.

#[cfg(any(test, feature = "sim"))]
use memmap2::MmapMut;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The right to write to one region. There is exactly one for each region.
#[derive(Debug)]
pub struct AppendToken {
    map: u64,
}

/// Memory of a region, of a file or of its own.
#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    len: u64,
    published: AtomicU64,
    id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Map {
    /// Maps the whole of `file`, whose first `published` bytes never change again.
    pub(super) fn of_file(file: &File, published: u64) -> io::Result<(Map, AppendToken)> {
        let len = file.metadata()?.len();
        let raw = MmapOptions::new().len(to_usize(len)?).map_raw(file)?;
        Ok(Map::new(raw, len, published))
    }

    /// Memory that is not backed by a file, holding a copy of `content`.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn of_memory(content: &[u8], published: u64) -> io::Result<(Map, AppendToken)> {
        let mut memory = MmapMut::map_anon(content.len().max(1))?;
        if let Some(start) = memory.get_mut(..content.len()) {
            start.copy_from_slice(content);
        }
        let raw = MmapRaw::from(memory);
        Ok(Map::new(raw, content.len() as u64, published))
    }

    fn new(raw: MmapRaw, len: u64, published: u64) -> (Map, AppendToken) {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let map = Map {
            raw,
            len,
            published: AtomicU64::new(published.min(len)),
            id,
        };
        (map, AppendToken { map: id })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Checks that `token` may write `len` bytes at `at`.
    pub(super) fn check(&self, token: &AppendToken, at: u64, len: usize) -> io::Result<()> {
        let end = at.checked_add(len as u64);
        let inside = end.is_some_and(|end| end <= self.len) && at >= self.published();
        if token.map == self.id && inside {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "write outside the open part of a region",
            ))
        }
    }

    /// Copies `bytes` to `at`, which lies in the part that is not published.
    pub(super) fn write(&self, token: &mut AppendToken, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(token, at, bytes.len())?;
        let at = to_usize(at)?;
        let base = self.raw.as_mut_ptr();
        // SAFETY: `check` showed at + bytes.len() <= len, so the target lies inside the map.
        let target = unsafe { base.add(at) };
        // SAFETY: source and target are valid for bytes.len() bytes and do not overlap: `bytes`
        // is no slice of this map above `published`, since none is ever made. Nobody else writes
        // there (the token is borrowed mutably) and nobody reads there (not published).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Raises `published`; ignores lower values and foreign tokens.
    pub(super) fn publish(&self, token: &mut AppendToken, end: u64) {
        if token.map == self.id && end <= self.len {
            self.published.fetch_max(end, Ordering::Release);
        }
    }

    /// A slice of the published part.
    pub(super) fn stable(&self, at: u64, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64)?;
        if end > self.published() {
            return None;
        }
        let at = usize::try_from(at).ok()?;
        let base = self.raw.as_ptr();
        // SAFETY: at + len <= published <= len of the map.
        let start = unsafe { base.add(at) };
        // SAFETY: the range is inside the map, initialised (file content or zero pages), never
        // written again (below `published`), and the borrow of self keeps the map alive.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// Writes the pages of a range to the file and waits until they are durable.
    pub(super) fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        let to = to.min(self.len);
        let from = from.min(to);
        self.raw.flush_range(to_usize(from)?, to_usize(to - from)?)
    }

    /// Faults the pages of a range in for writing, as far as the kernel can do it.
    pub(super) fn touch(&self, from: u64, to: u64) {
        let to = to.min(self.len);
        let from = from.min(to);
        if let (Ok(from), Ok(len)) = (usize::try_from(from), usize::try_from(to - from)) {
            // Only a hint: old kernels do not know it.
            let _unsupported = self.raw.advise_range(Advice::PopulateWrite, from, len);
        }
    }
}

fn to_usize(value: u64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "file too large for this machine",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_token_writes_and_only_above_published() {
        let (map, mut token) = Map::of_memory(&[0; 64], 16).unwrap();
        let (_other, mut foreign) = Map::of_memory(&[0; 64], 0).unwrap();
        assert!(map.write(&mut foreign, 20, b"x").is_err());
        assert!(map.write(&mut token, 15, b"x").is_err());
        assert!(map.write(&mut token, 60, b"12345").is_err());
        map.write(&mut token, 16, b"hello").unwrap();
        assert_eq!(map.stable(16, 5), None);
        map.publish(&mut foreign, 21);
        assert_eq!(map.stable(16, 5), None);
        map.publish(&mut token, 21);
        assert_eq!(map.stable(16, 5), Some(&b"hello"[..]));
        map.publish(&mut token, 10);
        assert_eq!(map.published(), 21);
        assert_eq!(map.stable(u64::MAX, 5), None);
    }
}
