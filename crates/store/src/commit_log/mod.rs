//! The log itself: one sequence of records over files of one size.
//!
//! Appends go through one lock (`append`), reads take none (`reader`), recovery runs before
//! either (`recover`).

mod append;
mod prepare;
mod reader;
pub(crate) mod recover;

pub(crate) use append::{Appended, Chunk, Place};
pub(crate) use prepare::NextFile;
pub(crate) use reader::Next;

use crate::PhysicalOffset;
use crate::disk::{AppendToken, WriteWay};
use crate::mapped_file::MappedFile;
use crate::mapped_file_queue::MappedFileQueue;
use crate::watermarks::Watermarks;
use append::PutState;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A part of the log that cannot be read. It is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedRange {
    /// First position that cannot be read.
    pub from: PhysicalOffset,
    /// First position after it that can.
    pub to: PhysicalOffset,
}

/// The log.
#[derive(Debug)]
pub(crate) struct CommitLog {
    files: MappedFileQueue,
    marks: Watermarks,
    way: WriteWay,
    pending_max_bytes: u64,
    put: Mutex<PutState>,
    /// Monotonic nanoseconds at which the put lock was taken, 0 when it is free.
    held_since: AtomicU64,
    next: NextFile,
    damaged: Vec<DamagedRange>,
    /// Records from here on were written by this process: their checksums are not compared again.
    trusted_from: u64,
}

/// What recovery hands over.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    pub(crate) files: Vec<Arc<MappedFile>>,
    /// The file to be written next, if there is one.
    pub(crate) tail: Option<(Arc<MappedFile>, AppendToken)>,
    pub(crate) end: u64,
    pub(crate) last_store_timestamp_ms: i64,
    pub(crate) damaged: Vec<DamagedRange>,
}

impl CommitLog {
    pub(crate) fn new(
        log: RecoveredLog,
        next: NextFile,
        way: WriteWay,
        file_size: u64,
        pending_max_bytes: u64,
    ) -> Self {
        let last_store_timestamp_ms = log.last_store_timestamp_ms;
        CommitLog {
            files: MappedFileQueue::new(file_size, log.files),
            marks: Watermarks::at(log.end),
            way,
            pending_max_bytes,
            put: Mutex::new(PutState::new(log.tail, log.end, last_store_timestamp_ms)),
            held_since: AtomicU64::new(0),
            next,
            damaged: log.damaged,
            trusted_from: log.end,
        }
    }

    pub(crate) fn files(&self) -> &MappedFileQueue {
        &self.files
    }

    pub(crate) fn marks(&self) -> &Watermarks {
        &self.marks
    }

    pub(crate) fn next_file(&self) -> &NextFile {
        &self.next
    }

    pub(crate) fn way(&self) -> WriteWay {
        self.way
    }

    pub(crate) fn damaged(&self) -> &[DamagedRange] {
        &self.damaged
    }
}
