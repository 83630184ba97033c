//! The put lock and what is done under it.

use super::CommitLog;
use super::prepare::Prepared;
use crate::StoreError;
use crate::consume_queue::ConsumeQueue;
use crate::disk::{AppendToken, WriteWay};
use crate::mapped_file::MappedFile;
use crate::options::BLANK_BYTES;
use crate::record::takes_position;
use clock::Clock;
use parking_lot::MutexGuard;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::message::record::{MAGIC_BLANK, patch_record};

/// State under the put lock.
#[derive(Debug)]
pub(super) struct PutState {
    /// The last file; `None` until the first append into a new one.
    file: Option<Arc<MappedFile>>,
    /// The right to write the last file: kept here when appends copy into the map themselves,
    /// handed to the flusher with the first chunk otherwise.
    token: Option<AppendToken>,
    /// Where the next record goes.
    at: u64,
    last_store_timestamp_ms: i64,
    /// Bytes that wait for the flusher, when it is the one who writes.
    pending: Vec<Chunk>,
    pending_bytes: u64,
    /// A used buffer of the flusher, to be filled again.
    spare: Vec<u8>,
    closed: bool,
}

/// Bytes of one file for the flusher to write.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) file: Arc<MappedFile>,
    /// The right to write this file, with the first chunk of it.
    pub(crate) token: Option<AppendToken>,
    /// Log position of the first byte.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    /// Log position up to which the file may be read once the bytes are written.
    pub(crate) publish_to: u64,
}

/// Whether a record takes a position in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It gets the next one.
    Queue,
    /// It says position 0 and takes none (prepared and rollback types).
    Nowhere,
}

impl Place {
    /// That of a record with this sys flag.
    pub(crate) fn of(sys_flag: i32) -> Place {
        if takes_position(sys_flag) {
            Place::Queue
        } else {
            Place::Nowhere
        }
    }
}

/// Where the first of the appended records went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) physical: u64,
    pub(crate) position: u64,
    pub(crate) place: Place,
    pub(crate) store_timestamp_ms: i64,
}

impl PutState {
    pub(super) fn new(
        tail: Option<(Arc<MappedFile>, AppendToken)>,
        at: u64,
        last_store_timestamp_ms: i64,
    ) -> Self {
        let (file, token) = tail.unzip();
        PutState {
            file,
            token,
            at,
            last_store_timestamp_ms,
            pending: Vec::new(),
            pending_bytes: 0,
            spare: Vec::new(),
            closed: false,
        }
    }

    fn room(&self) -> u64 {
        let room = |file: &Arc<MappedFile>| file.end().saturating_sub(self.at);
        self.file.as_ref().map_or(0, room)
    }
}

/// The put lock, marked as held so that others can see for how long.
struct Held<'a> {
    state: MutexGuard<'a, PutState>,
    log: &'a CommitLog,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.log.held_since.store(0, Ordering::Relaxed);
    }
}

impl CommitLog {
    fn hold(&self, clock: &dyn Clock) -> Held<'_> {
        let state = self.put.lock();
        let now = clock.monotonic().as_nanos().max(1);
        self.held_since.store(now, Ordering::Relaxed);
        Held { state, log: self }
    }

    /// Monotonic nanoseconds since which the put lock is held, 0 when it is free.
    pub(crate) fn held_since(&self) -> u64 {
        self.held_since.load(Ordering::Relaxed)
    }

    /// Appends whole records, `lens` their sizes in `records`, next to each other in one file.
    /// `None`: the queue was removed meanwhile.
    pub(crate) fn append(
        &self,
        records: &mut [u8],
        lens: &[usize],
        queue: &ConsumeQueue,
        place: Place,
        clock: &dyn Clock,
    ) -> Result<Option<Appended>, StoreError> {
        let total = records.len() as u64;
        let mut held = self.hold(clock);
        let state = &mut *held.state;
        if state.closed {
            return Err(StoreError::Closed);
        }
        if queue.is_removed() {
            return Ok(None);
        }
        let waiting = state.pending_bytes;
        if waiting > 0 && waiting.saturating_add(total) > self.pending_max_bytes {
            return Err(StoreError::Busy);
        }
        if state.room() < total.saturating_add(BLANK_BYTES) {
            self.roll(state)?;
        }
        let now = i64::try_from(clock.now_ms()).unwrap_or(i64::MAX);
        let appended = Appended {
            physical: state.at,
            position: if place == Place::Queue {
                queue.next()
            } else {
                0
            },
            place,
            store_timestamp_ms: now.max(state.last_store_timestamp_ms),
        };
        patch_all(records, lens, appended);
        let end = state.at.saturating_add(total);
        self.put_bytes(state, records, end)?;
        if place == Place::Queue {
            queue.set_next(appended.position + lens.len() as u64);
        }
        state.last_store_timestamp_ms = appended.store_timestamp_ms;
        self.advance(state, end);
        Ok(Some(appended))
    }

    fn advance(&self, state: &mut PutState, to: u64) {
        state.at = to;
        self.marks.raise_appended(to);
        if self.way == WriteWay::Map {
            self.marks.raise_written(to);
        }
    }

    /// Puts bytes at the end, readable up to `publish_to` once they are written.
    fn put_bytes(
        &self,
        state: &mut PutState,
        bytes: &[u8],
        publish_to: u64,
    ) -> Result<(), StoreError> {
        let Some(file) = state.file.as_ref() else {
            return Err(StoreError::Busy);
        };
        if self.way == WriteWay::File {
            state.pending_bytes += bytes.len() as u64;
            if let Some(chunk) = state.pending.last_mut()
                && Arc::ptr_eq(&chunk.file, file)
            {
                chunk.bytes.extend_from_slice(bytes);
                chunk.publish_to = publish_to;
                return Ok(());
            }
            let mut buffer = std::mem::take(&mut state.spare);
            buffer.clear();
            buffer.extend_from_slice(bytes);
            state.pending.push(Chunk {
                file: Arc::clone(file),
                token: state.token.take(),
                at: state.at,
                bytes: buffer,
                publish_to,
            });
            return Ok(());
        }
        let Some(token) = state.token.as_mut() else {
            return Err(StoreError::Busy);
        };
        let region = file.region();
        let from = state.at.saturating_sub(file.base());
        region
            .append(token, from, bytes, WriteWay::Map)
            .map_err(|e| StoreError::io("write", Path::new("commitlog"), e))?;
        region.publish(token, publish_to.saturating_sub(file.base()));
        Ok(())
    }

    /// Closes the last file with a blank record and goes on in the next one, which is made sure
    /// of first: if it cannot be had, nothing has changed.
    fn roll(&self, state: &mut PutState) -> Result<(), StoreError> {
        let base = state.file.as_ref().map_or(state.at, |file| file.end());
        let enter = |file: &Arc<MappedFile>| self.files.push(Arc::clone(file));
        let Prepared { file, token } = self.next.take(base, enter)?;
        let room = state.room();
        if room >= BLANK_BYTES {
            let size = u32::try_from(room).unwrap_or(u32::MAX).to_be_bytes();
            let blank = [size, MAGIC_BLANK.to_be_bytes()].concat();
            self.put_bytes(state, &blank, base)?;
        }
        if let Some(full) = state.file.replace(file) {
            full.close_at(state.last_store_timestamp_ms);
        }
        state.token = Some(token);
        self.advance(state, base);
        self.next.gate().wake();
        Ok(())
    }

    /// True when the last record is older than `before_ms` and the last file holds any.
    pub(crate) fn is_older(
        &self,
        before_ms: i64,
        by_file_time: bool,
        clock: &dyn Clock,
    ) -> Result<bool, StoreError> {
        self.state_is_older(&self.hold(clock).state, before_ms, by_file_time)
    }

    /// Goes on in the next file if [`CommitLog::is_older`], so that the last one need not wait for
    /// more before it can be deleted. True if it did. The next file should be ready.
    pub(crate) fn roll_if_older(
        &self,
        before_ms: i64,
        by_file_time: bool,
        clock: &dyn Clock,
    ) -> Result<bool, StoreError> {
        let mut held = self.hold(clock);
        let older = self.state_is_older(&held.state, before_ms, by_file_time)?;
        if older {
            self.roll(&mut held.state)?;
        }
        Ok(older)
    }

    fn state_is_older(
        &self,
        state: &PutState,
        before_ms: i64,
        by_file_time: bool,
    ) -> Result<bool, StoreError> {
        if state.closed {
            return Err(StoreError::Closed);
        }
        let unused = match &state.file {
            Some(file) => state.at == file.base(),
            None => self.files.end() == 0,
        };
        let last = state
            .file
            .clone()
            .or_else(|| self.files.snapshot().last().cloned());
        let changed_ms = last
            .filter(|_| by_file_time)
            .map_or(0, |file| file.modified_ms());
        Ok(!unused && state.last_store_timestamp_ms.max(changed_ms) < before_ms)
    }

    /// Takes what waits to be written.
    pub(crate) fn take_pending(&self, clock: &dyn Clock) -> Vec<Chunk> {
        let mut held = self.hold(clock);
        let state = &mut *held.state;
        state.pending_bytes = 0;
        std::mem::take(&mut state.pending)
    }

    /// Gives a used buffer back to be filled again.
    pub(crate) fn give_back(&self, spare: Vec<u8>) {
        let mut state = self.put.lock();
        if state.spare.capacity() < spare.capacity() {
            state.spare = spare;
        }
    }

    /// Runs `then` under the put lock: no append is half done meanwhile.
    pub(crate) fn while_held<R>(&self, clock: &dyn Clock, then: impl FnOnce() -> R) -> R {
        let _held = self.hold(clock);
        then()
    }

    /// Refuses appends from now on.
    pub(crate) fn close(&self, clock: &dyn Clock) {
        self.hold(clock).state.closed = true;
    }

    pub(crate) fn last_store_timestamp_ms(&self, clock: &dyn Clock) -> i64 {
        self.hold(clock).state.last_store_timestamp_ms
    }
}

fn patch_all(records: &mut [u8], lens: &[usize], first: Appended) {
    let mut rest = records;
    let mut physical = first.physical;
    let mut position = first.position;
    for len in lens {
        let Some((record, later)) = std::mem::take(&mut rest).split_at_mut_checked(*len) else {
            return;
        };
        patch_record(
            record,
            i64::try_from(position).unwrap_or(i64::MAX),
            i64::try_from(physical).unwrap_or(i64::MAX),
            first.store_timestamp_ms,
        );
        physical += record.len() as u64;
        if first.place == Place::Queue {
            position += 1;
        }
        rest = later;
    }
}
