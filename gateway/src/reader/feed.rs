//! What one subscription reads: old messages from the brokers until it meets the live tail, then from there. Its place
//! is the offset of every queue; what it is not given is counted.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::filter::TagFilter;
use super::merge::{Limits, Merge, Order};
use super::origin::{self, Origin};
use super::pace::{Pace, WINDOW, newest_by_key};
use super::ring::{Batch, Ring, Text, encode, wants};
use super::tail::Joined;
use super::view::{self, Opened, TopicView};
use crate::error::{ApiError, Code};
use crate::render::BodyFormat;
use crate::state::AppState;
use crate::upstream::{Amount, QueueAt, Record};

/// Messages of one chunk.
const CHUNK_MESSAGES: usize = 64;
/// Bytes of bodies in one chunk; a larger message goes alone.
const CHUNK_BYTES: usize = 192 * 1024;
/// Bytes read ahead while catching up.
const BUFFER_MAX: usize = 256 * 1024;
/// Messages looked at to count what a filter would have let through.
const COUNT_SCAN: u64 = 20_000;
/// Messages examined in one step of catching up.
const STEP_SCAN: u64 = 20_000;
/// A broker call of a feed.
const CALL: Duration = Duration::from_secs(10);
/// Pause while a broker does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// How a subscription reads.
#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    pub(crate) topic: Arc<str>,
    pub(crate) filter: Option<TagFilter>,
    pub(crate) format: BodyFormat,
    /// Messages a second.
    pub(crate) max_rate: Option<u32>,
    /// Only the newest of each key within a window.
    pub(crate) latest_by_key: bool,
}

/// Why messages were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapReason {
    Slow,
    Rate,
    Retention,
}

/// Messages not given.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) reason: GapReason,
    pub(crate) skipped: u64,
    /// False where only part of it was looked at with the filter.
    pub(crate) exact: bool,
    pub(crate) from: Arc<str>,
    pub(crate) to: Arc<str>,
}

/// How a feed stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// All queues are read.
    Active,
    /// These brokers do not answer.
    Partial(Vec<Arc<str>>),
    /// The topic is no more.
    Deleted(&'static str),
}

/// What a feed gives at a time: news of its state, or gaps, then messages.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) state: Option<State>,
    pub(crate) gaps: Vec<Gap>,
    /// Shared by all subscriptions that read the same.
    pub(crate) text: Option<Arc<Text>>,
    /// After the messages; set with `text`.
    pub(crate) cursor: Option<Arc<str>>,
}

/// How much may be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Messages; 0 = only say when there are any.
    pub(crate) max: u32,
    /// Bytes of bodies left; one message is given in any case.
    pub(crate) bytes: Option<u64>,
    /// Skip to the newest first.
    pub(crate) skip: bool,
}

/// One subscription.
#[derive(Debug)]
pub(crate) struct Feed {
    state: AppState,
    tail: Joined,
    options: FeedOptions,
    /// Next offsets, by number of the queue in the ring; 0 where missing.
    places: Vec<i64>,
    /// Next batch of the ring; `None` while catching up.
    number: Option<u64>,
    /// The places are those of the ring before batch `number`.
    aligned: bool,
    merge: Option<Merge>,
    pace: Option<Pace>,
    told: State,
}

enum Step {
    Give(Chunk),
    /// Everything in the ring is taken.
    Empty,
    /// The ring begins later than this feed is.
    Behind,
}

impl Feed {
    /// A feed that begins at `origin`, and its first cursor.
    ///
    /// # Errors
    /// `topic_not_found`, `cursor_expired`, `broker_unavailable`.
    pub(crate) async fn open(
        state: &AppState,
        options: FeedOptions,
        origin: &Origin,
    ) -> Result<(Self, Arc<str>), ApiError> {
        let deadline = Instant::now() + CALL;
        let tail = state.tails.join(state, &options.topic, deadline).await?;
        let cursors = match origin {
            Origin::Cursor(cursor) => vec![&cursor.brokers],
            Origin::Earliest | Origin::Latest | Origin::Time(_) | Origin::Last(_) => Vec::new(),
        };
        let Opened { view, .. } =
            view::open(state, &options.topic, &cursors, true, deadline).await?;
        let starts =
            origin::starts(state, &view, origin, options.filter.as_ref(), deadline).await?;
        tail.learn_now(state, &view);
        let mut feed = Self {
            state: state.clone(),
            pace: options.max_rate.map(|rate| Pace::new(rate, Instant::now())),
            options,
            places: Vec::new(),
            number: None,
            aligned: false,
            merge: None,
            told: State::Active,
            tail,
        };
        feed.set_places(&view, &starts);
        let cursor = feed.cursor();
        Ok((feed, cursor))
    }

    fn set_places(&mut self, view: &TopicView, places: &[i64]) {
        let ring = self.tail.ring.read();
        for (queue, place) in view.queues.iter().zip(places) {
            if let Some(number) = ring.number(&queue.broker, queue.id) {
                if self.places.len() <= number {
                    self.places.resize(number + 1, 0);
                }
                self.places[number] = *place;
            }
        }
    }

    fn place(&self, queue: usize) -> i64 {
        self.places.get(queue).copied().unwrap_or(0)
    }

    fn move_to(&mut self, queue: usize, to: i64) {
        if self.places.len() <= queue {
            self.places.resize(queue + 1, 0);
        }
        self.places[queue] = to;
    }

    /// The place as a cursor.
    pub(crate) fn cursor(&self) -> Arc<str> {
        let cursor = self.tail.ring.read().cursor(&self.places);
        cursor.encode(&self.state.cursors, &self.options.topic)
    }

    /// The next messages, or news. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What a broker answers for good.
    pub(crate) async fn next(&mut self, wanted: Wanted) -> Result<Chunk, ApiError> {
        if wanted.skip
            && let Some(gap) = self.skip().await?
        {
            return Ok(Chunk {
                gaps: vec![gap],
                ..Chunk::default()
            });
        }
        loop {
            let mut changes = self.tail.changes();
            changes.mark_unchanged();
            if let Some(state) = self.news() {
                return Ok(Chunk {
                    state: Some(state),
                    ..Chunk::default()
                });
            }
            if self.number.is_none() {
                self.try_join();
            }
            if wanted.max == 0 {
                if self.unread().await? {
                    return Ok(Chunk::default());
                }
                drop(changes.changed().await);
                continue;
            }
            if self.number.is_none() {
                if let Some(chunk) = self.catch_up(wanted).await? {
                    return Ok(chunk);
                }
                continue;
            }
            let step = if self.pace.is_some() || self.options.latest_by_key {
                self.thinned(wanted).await
            } else {
                self.plain(wanted)
            };
            match step {
                Step::Give(chunk) => return Ok(chunk),
                Step::Behind => self.number = None,
                Step::Empty => drop(changes.changed().await),
            }
        }
    }

    /// A change of state that was not told yet.
    fn news(&mut self) -> Option<State> {
        let state = {
            let ring = self.tail.ring.read();
            match ring.gone {
                Some(why) => State::Deleted(why),
                None if ring.down.is_empty() => State::Active,
                None => State::Partial(ring.down.iter().cloned().collect()),
            }
        };
        (state != self.told).then(|| {
            self.told = state.clone();
            state
        })
    }

    fn try_join(&mut self) {
        let ring = self.tail.ring.read();
        if ring.reaches(&self.places) {
            let first = ring.first;
            drop(ring);
            (self.number, self.aligned, self.merge) = (Some(first), false, None);
        }
    }

    /// One batch of the ring.
    fn plain(&mut self, wanted: Wanted) -> Step {
        loop {
            let (batch, number) = match self.batch() {
                Ok(found) => found,
                Err(step) => return step,
            };
            if let Some(step) = self.pass(&batch, number) {
                match step {
                    Some(chunk) => return Step::Give(chunk),
                    None => continue,
                }
            }
            let at = self.place(batch.queue);
            let filter = self.options.filter.as_ref();
            let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
                usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
            });
            if at == batch.from {
                let text = batch.text(&self.options.topic, filter, self.options.format);
                let fits =
                    text.count <= wanted.max && (text.bytes <= bytes as u64 || text.count == 1);
                if text.count == 0 || fits {
                    self.move_to(batch.queue, batch.to);
                    self.number = Some(number + 1);
                    if text.count == 0 {
                        continue;
                    }
                    let cursor = if self.aligned {
                        Arc::clone(&batch.cursor)
                    } else {
                        self.cursor()
                    };
                    return Step::Give(Chunk {
                        text: Some(text),
                        cursor: Some(cursor),
                        ..Chunk::default()
                    });
                }
            }
            let max = usize::try_from(wanted.max).unwrap_or(usize::MAX);
            let mut taken: Vec<Arc<Record>> = Vec::new();
            let (mut size, mut end) = (0, batch.to);
            for record in batch
                .records
                .iter()
                .filter(|r| r.offset >= at && wants(filter, r))
            {
                let body = record.content.body.len();
                if taken.len() >= max || (!taken.is_empty() && size + body > bytes) {
                    end = record.offset;
                    break;
                }
                size += body;
                taken.push(Arc::clone(record));
            }
            self.move_to(batch.queue, end);
            if end == batch.to {
                self.number = Some(number + 1);
            }
            if !taken.is_empty() {
                return Step::Give(self.given(&taken, Vec::new()));
            }
        }
    }

    /// The next batch of the ring.
    fn batch(&mut self) -> Result<(Arc<Batch>, u64), Step> {
        let ring = self.tail.ring.read();
        let Some(number) = self.number.filter(|n| *n >= ring.first) else {
            return Err(Step::Behind);
        };
        match ring.get(number) {
            Some(batch) => Ok((Arc::clone(batch), number)),
            None => {
                let equal = |ring: &Ring| {
                    ring.head
                        .iter()
                        .enumerate()
                        .all(|(i, head)| self.places.get(i).copied().unwrap_or(0) == *head)
                };
                self.aligned = equal(&ring);
                Err(Step::Empty)
            }
        }
    }

    /// Steps over a batch that holds nothing for this feed: `Some(None)`; over one whose messages were deleted before
    /// they could be read: the gap.
    fn pass(&mut self, batch: &Batch, number: u64) -> Option<Option<Chunk>> {
        let at = self.place(batch.queue);
        if batch.to < batch.from {
            // The broker lost its tail and goes on below.
            self.move_to(batch.queue, at.min(batch.to));
            self.number = Some(number + 1);
            return Some(None);
        }
        if at >= batch.to {
            self.number = Some(number + 1);
            return Some(None);
        }
        if batch.deleted == 0 || at > batch.from {
            return None;
        }
        let from = self.cursor();
        let first = batch.records.first().map_or(batch.to, |r| r.offset);
        self.move_to(batch.queue, first);
        if first == batch.to {
            self.number = Some(number + 1);
        }
        let gap = self.gap(
            GapReason::Retention,
            batch.deleted,
            self.options.filter.is_none(),
            from,
        );
        Some(Some(Chunk {
            gaps: vec![gap],
            ..Chunk::default()
        }))
    }

    fn gap(&self, reason: GapReason, skipped: u64, exact: bool, from: Arc<str>) -> Gap {
        Gap {
            reason,
            skipped,
            exact,
            from,
            to: self.cursor(),
        }
    }

    fn given(&self, records: &[Arc<Record>], gaps: Vec<Gap>) -> Chunk {
        let text = (!records.is_empty()).then(|| {
            Arc::new(encode(
                &self.options.topic,
                records.iter(),
                self.options.format,
            ))
        });
        let cursor = text.as_ref().map(|_| self.cursor());
        Chunk {
            state: None,
            gaps,
            text,
            cursor,
        }
    }

    /// Everything the ring has, thinned.
    async fn thinned(&mut self, wanted: Wanted) -> Step {
        // What has nothing for this feed is passed, deletions are told.
        loop {
            let (batch, number) = match self.batch() {
                Ok(found) => found,
                Err(step) => return step,
            };
            match self.pass(&batch, number) {
                Some(Some(chunk)) => return Step::Give(chunk),
                Some(None) => {}
                None if batch.records.iter().any(|r| {
                    r.offset >= self.place(batch.queue) && wants(self.options.filter.as_ref(), r)
                }) =>
                {
                    break;
                }
                None => {
                    self.move_to(batch.queue, batch.to);
                    self.number = Some(number + 1);
                }
            }
        }
        if self.options.latest_by_key {
            tokio::time::sleep(WINDOW).await;
        }
        if let Some(pace) = &mut self.pace
            && pace.allowed(Instant::now()) == 0
        {
            tokio::time::sleep_until(pace.next()).await;
        }
        let run: Vec<(usize, Arc<Record>)> = {
            let ring = self.tail.ring.read();
            let Some(first) = self.number.filter(|n| *n >= ring.first) else {
                return Step::Behind;
            };
            let batches = (first..ring.end()).filter_map(|n| ring.get(n));
            // Up to a batch that is no plain run.
            let plain = batches.take_while(|b| b.to >= b.from && b.deleted == 0);
            let filter = self.options.filter.as_ref();
            let of = |b: &Arc<Batch>| {
                let (queue, at) = (b.queue, self.place(b.queue));
                b.records
                    .iter()
                    .filter(|r| r.offset >= at && wants(filter, r))
                    .map(|r| (queue, Arc::clone(r)))
                    .collect::<Vec<_>>()
            };
            plain.flat_map(of).collect()
        };
        let from = self.cursor();
        let records: Vec<Arc<Record>> = run.iter().map(|(_, r)| Arc::clone(r)).collect();
        let (kept, looked) = self.thin(&records, wanted);
        for (queue, record) in run.iter().take(looked) {
            self.move_to(*queue, record.offset + 1);
        }
        // Batches that are taken to their end are stepped over by the next call.
        Step::Give(self.thinned_chunk(&kept, looked, from))
    }

    /// Which messages of a run are given, and how many of the run that decides about.
    fn thin(&mut self, run: &[Arc<Record>], wanted: Wanted) -> (Vec<Arc<Record>>, usize) {
        let max = usize::try_from(wanted.max)
            .unwrap_or(usize::MAX)
            .min(CHUNK_MESSAGES);
        let (mut kept, mut looked) = if self.options.latest_by_key {
            newest_by_key(run, max)
        } else {
            (run.to_vec(), run.len())
        };
        if let Some(pace) = &mut self.pace {
            let allowed = pace.allowed(Instant::now());
            let over = kept.len().saturating_sub(allowed);
            kept.drain(..over);
        }
        let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
            usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
        });
        let mut size = 0;
        let fit = kept.iter().enumerate().take_while(|(i, r)| {
            size += r.content.body.len();
            *i < max && (*i == 0 || size <= bytes)
        });
        let fit = fit.count();
        if fit < kept.len() {
            // The rest waits for its turn.
            let next = &kept[fit];
            let same = |r: &Arc<Record>| Arc::ptr_eq(r, next);
            looked = run.iter().position(same).unwrap_or(looked);
            kept.truncate(fit);
        }
        if let Some(pace) = &mut self.pace {
            pace.took(kept.len());
        }
        (kept, looked)
    }

    fn thinned_chunk(&self, kept: &[Arc<Record>], looked: usize, from: Arc<str>) -> Chunk {
        let skipped = (looked - kept.len()) as u64;
        let gaps = if skipped > 0 {
            vec![self.gap(GapReason::Rate, skipped, true, from)]
        } else {
            Vec::new()
        };
        self.given(kept, gaps)
    }

    /// A step towards the live tail: old messages from the brokers. `None` = look again.
    async fn catch_up(&mut self, wanted: Wanted) -> Result<Option<Chunk>, ApiError> {
        let deadline = Instant::now() + CALL;
        let mut merge = match self.merge.take().filter(|m| !m.is_done()) {
            Some(merge) => merge,
            None => match self.new_merge(deadline).await? {
                Some(merge) => merge,
                None => {
                    tokio::time::sleep(PAUSE).await;
                    return Ok(None);
                }
            },
        };
        let max = usize::try_from(wanted.max)
            .unwrap_or(CHUNK_MESSAGES)
            .min(CHUNK_MESSAGES);
        let bytes = wanted.bytes.map_or(CHUNK_BYTES, |b| {
            usize::try_from(b).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
        });
        let limits = Limits {
            items: max,
            bytes,
            scan: STEP_SCAN,
        };
        let before = merge.places();
        let records = merge.take(&self.state.upstream, limits, deadline).await?;
        let (places, deleted, stuck) = (
            merge.places(),
            merge.take_deleted(),
            !merge.shut().is_empty(),
        );
        let from = self.cursor();
        let mut gaps = Vec::new();
        self.set_places(merge.view(), &places);
        if deleted > 0 {
            gaps.push(self.gap(
                GapReason::Retention,
                deleted,
                self.options.filter.is_none(),
                Arc::clone(&from),
            ));
        }
        let chunk = if self.pace.is_some() || self.options.latest_by_key {
            let (kept, looked) = self.thin_all(&records);
            let mut chunk = self.thinned_chunk(&kept, looked, from);
            gaps.append(&mut chunk.gaps);
            Chunk { gaps, ..chunk }
        } else {
            self.given(&records, gaps)
        };
        if records.len() < max || usize::try_from(wanted.max).is_ok_and(|w| w > max) {
            // More is wanted at once: what was read ahead is kept for it.
            self.merge = (!merge.is_done() && !stuck).then_some(merge);
        }
        if chunk.text.is_some() || !chunk.gaps.is_empty() {
            return Ok(Some(chunk));
        }
        if stuck && before == places {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }

    /// Of old messages what is over the pace is skipped at once.
    fn thin_all(&mut self, run: &[Arc<Record>]) -> (Vec<Arc<Record>>, usize) {
        let mut kept = if self.options.latest_by_key {
            newest_by_key(run, usize::MAX).0
        } else {
            run.to_vec()
        };
        if let Some(pace) = &mut self.pace {
            let over = kept.len().saturating_sub(pace.allowed(Instant::now()));
            kept.drain(..over);
            pace.took(kept.len());
        }
        (kept, run.len())
    }

    /// The brokers as they are, from this feed's places on; `None` while none answers.
    async fn new_merge(&mut self, deadline: Instant) -> Result<Option<Merge>, ApiError> {
        let view = match view::open(&self.state, &self.options.topic, &[], false, deadline).await {
            Ok(Opened { view, .. }) => view,
            Err(error) if error.code().retryable() || error.code() == Code::TopicNotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.tail.learn_now(&self.state, &view);
        let starts: Vec<i64> = {
            let ring = self.tail.ring.read();
            let at =
                |q: &view::QueueView| ring.number(&q.broker, q.id).map_or(0, |n| self.place(n));
            view.queues.iter().map(at).collect()
        };
        let ends: Vec<i64> = view.queues.iter().map(|q| q.max).collect();
        self.set_places(
            &view,
            &starts
                .iter()
                .zip(&ends)
                .map(|(s, e)| *s.min(e))
                .collect::<Vec<_>>(),
        );
        Ok(Some(
            Merge::new(
                view,
                Order::Ascending,
                self.options.filter.clone(),
                &starts,
                &ends,
                BUFFER_MAX,
            )
            .lenient(),
        ))
    }

    /// Whether there is a message that was not given.
    async fn unread(&mut self) -> Result<bool, ApiError> {
        Ok(self.count().await?.0 > 0)
    }

    /// Skips to the newest; the gap, where that skips anything.
    async fn skip(&mut self) -> Result<Option<Gap>, ApiError> {
        let head = self.tail.ring.read().head.clone();
        let (skipped, exact) = self.count_to(&head).await?;
        let from = self.cursor();
        for (queue, head) in head.iter().enumerate() {
            self.move_to(queue, self.place(queue).max(*head));
        }
        (self.number, self.merge) = (None, None);
        self.try_join();
        Ok((skipped > 0).then(|| self.gap(GapReason::Slow, skipped, exact, from)))
    }

    async fn count(&self) -> Result<(u64, bool), ApiError> {
        let head = self.tail.ring.read().head.clone();
        self.count_to(&head).await
    }

    /// Matching messages up to these offsets, and whether all of them were looked at.
    async fn count_to(&self, head: &[i64]) -> Result<(u64, bool), ApiError> {
        let Some(filter) = &self.options.filter else {
            let ahead = head
                .iter()
                .enumerate()
                .map(|(i, h)| u64::try_from(h - self.place(i)).unwrap_or(0));
            return Ok((ahead.sum(), true));
        };
        if self
            .number
            .is_some_and(|n| n >= self.tail.ring.read().first)
        {
            let ring = self.tail.ring.read();
            let batches = (self.number.unwrap_or(0)..ring.end()).filter_map(|n| ring.get(n));
            let within = |b: &Batch, r: &Record| {
                r.offset >= self.place(b.queue) && head.get(b.queue).is_some_and(|h| r.offset < *h)
            };
            let matching = batches.flat_map(|b| {
                b.records
                    .iter()
                    .filter(|r| within(b, r) && wants(Some(filter), r))
            });
            return Ok((matching.count() as u64, true));
        }
        self.count_at_brokers(filter, head).await
    }

    async fn count_at_brokers(
        &self,
        filter: &TagFilter,
        head: &[i64],
    ) -> Result<(u64, bool), ApiError> {
        let deadline = Instant::now() + CALL;
        let masters = self.state.upstream.master_addresses(deadline).await?;
        let queues = self.tail.ring.read().queues.clone();
        let (mut count, mut left) = (0, COUNT_SCAN);
        for (i, queue) in queues.iter().enumerate() {
            let (mut at, end) = (self.place(i), head.get(i).copied().unwrap_or(0));
            let Some(addr) = masters.get(&*queue.broker) else {
                return Ok((count, false));
            };
            while at < end {
                if left == 0 {
                    return Ok((count, false));
                }
                let span = usize::try_from(end - at)
                    .unwrap_or(800)
                    .min(800)
                    .min(usize::try_from(left).unwrap_or(800));
                let place = QueueAt {
                    addr: addr.as_str().into(),
                    broker: Arc::clone(&queue.broker),
                    topic: Arc::clone(&self.options.topic),
                    queue_id: queue.id,
                    offset: at,
                };
                let amount = Amount {
                    messages: span,
                    bytes: 1,
                    scan: span,
                    tags: Some(filter.expression()),
                    wait: Duration::ZERO,
                };
                let Ok(times) = self
                    .state
                    .upstream
                    .read_times(&place, amount, deadline)
                    .await
                else {
                    return Ok((count, false));
                };
                count += times
                    .entries
                    .iter()
                    .filter(|(offset, _)| *offset < end)
                    .count() as u64;
                if times.next <= at {
                    break;
                }
                left = left.saturating_sub(u64::try_from(times.next - at).unwrap_or(left));
                at = times.next;
            }
        }
        Ok((count, true))
    }
}
