//! Merges the queues of a topic in the order of storing (time, then broker, queue, offset), forwards or backwards, with
//! bounded memory. The order within a queue is strict whatever the times say.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use super::filter::TagFilter;
use super::view::TopicView;
use crate::error::{ApiError, Code};
use crate::upstream::{Amount, Page, QueueAt, Record, Times};

/// Messages of one page.
const PAGE_MESSAGES: usize = 64;
/// Bytes of one page; one larger message is still read where there is memory for it.
const PAGE_BYTES: usize = 256 * 1024;
/// Entries that one page looks at.
const PAGE_SCAN: usize = 800;
/// Pages asked for at once.
const PARALLEL: usize = 32;

/// A message with its text takes up to 7 bytes for each 3 of its own: a body as base64 has 4.
const MEMORY: (usize, usize) = (7, 3);

/// The memory for a message of so many bytes and its text.
pub(crate) fn memory_of(bytes: usize) -> usize {
    bytes.div_ceil(MEMORY.1).saturating_mul(MEMORY.0)
}

/// The memory for the text alone.
pub(crate) fn text_of(bytes: usize) -> usize {
    memory_of(bytes) - bytes
}

/// Where pages come from: the brokers, or a test.
pub(crate) trait Source: Sync {
    /// A page of one queue.
    fn page(
        &self,
        at: QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Page, ApiError>> + Send;
    /// Store times of one queue.
    fn times(
        &self,
        at: QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Times, ApiError>> + Send;
}

impl Source for crate::upstream::Upstream {
    async fn page(
        &self,
        at: QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> Result<Page, ApiError> {
        self.read_queue(&at, amount, deadline).await
    }

    async fn times(
        &self,
        at: QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> Result<Times, ApiError> {
        self.read_times(&at, amount, deadline).await
    }
}

/// Direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// When [`Merge::take`] stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Messages.
    pub(crate) items: usize,
    /// Bytes of bodies; one message is given in any case.
    pub(crate) bytes: usize,
    /// Messages examined.
    pub(crate) scan: u64,
}

/// One queue on its way from `start` to `end`.
#[derive(Debug)]
struct Lane {
    start: i64,
    /// Fetched so far: forwards the next offset, backwards one past the next.
    at: i64,
    end: i64,
    /// Fetched and not taken, in the order of taking.
    buffer: VecDeque<Arc<Record>>,
    /// Nothing beyond the buffer was stored before (backwards: after) this; none = not known.
    bound: Option<i64>,
    /// Messages of one backward page; shrinks where they are large.
    window: i64,
    /// Left out: its broker does not answer.
    shut: bool,
}

impl Lane {
    fn bytes(&self) -> usize {
        self.buffer.iter().map(|r| r.bytes).sum()
    }
}

/// A merge under way.
#[derive(Debug)]
pub(crate) struct Merge {
    view: TopicView,
    order: Order,
    filter: Option<TagFilter>,
    lanes: Vec<Lane>,
    /// Bytes the buffers may hold together.
    buffer_max: usize,
    /// Bytes there are for what is read and taken.
    memory: usize,
    /// Bytes of the messages taken in this call of [`Merge::take`].
    out: usize,
    /// The next message takes so many bytes, for which there is no memory.
    needed: Option<usize>,
    /// Entries looked at for the filter in this call of [`Merge::take`].
    examined: u64,
    /// Deleted messages passed over and not told yet.
    deleted: u64,
    deleted_in_all: u64,
    /// Brokers that do not answer are left out instead of failing the read.
    lenient: bool,
}

impl Merge {
    /// From `starts` to `ends` (same order as the view's queues), both bounds between messages. What lies below a
    /// queue's oldest message counts as deleted.
    pub(crate) fn new(
        view: TopicView,
        order: Order,
        filter: Option<TagFilter>,
        starts: &[i64],
        ends: &[i64],
        buffer_max: usize,
    ) -> Self {
        let mut merge = Self {
            order,
            filter,
            lanes: Vec::with_capacity(view.queues.len()),
            buffer_max,
            memory: usize::MAX,
            out: 0,
            needed: None,
            examined: 0,
            deleted: 0,
            deleted_in_all: 0,
            lenient: false,
            view,
        };
        for (i, queue) in merge.view.queues.iter().enumerate() {
            let given = |of: &[i64]| of.get(i).copied().unwrap_or(0);
            let (start, end) = (given(starts), given(ends));
            let (start, end) = match order {
                // A place beyond the end: the broker lost its tail and goes on from here.
                Order::Ascending => (start.min(queue.max), end.min(queue.max)),
                Order::Descending => (start.min(queue.max), end.max(queue.min)),
            };
            let mut lane = Lane {
                start,
                at: start,
                end,
                buffer: VecDeque::new(),
                bound: None,
                window: 16,
                shut: false,
            };
            if order == Order::Ascending && start < queue.min {
                let to = queue.min;
                merge.deleted += u64::try_from(to - start).unwrap_or(0);
                lane.at = to;
            }
            merge.lanes.push(lane);
        }
        merge.deleted_in_all = merge.deleted;
        merge
    }

    /// Leaves out brokers that do not answer; their places stay.
    pub(crate) fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// With so many bytes for what is read and taken. A message beyond a page is read only where it fits with its text.
    pub(crate) fn within(&mut self, memory: usize) {
        self.memory = memory;
    }

    /// Nothing was taken, because the next message takes so many bytes: [`memory_of`] is to be had first.
    pub(crate) fn needed(&self) -> Option<usize> {
        self.needed
    }

    /// The offsets reached, queue by queue.
    pub(crate) fn places(&self) -> Vec<i64> {
        self.lanes.iter().map(|lane| self.place(lane)).collect()
    }

    fn place(&self, lane: &Lane) -> i64 {
        match (self.order, lane.buffer.front()) {
            (Order::Ascending, Some(first)) => first.offset,
            (Order::Descending, Some(first)) => first.offset + 1,
            (_, None) => lane.at,
        }
    }

    /// The view this reads.
    pub(crate) fn view(&self) -> &TopicView {
        &self.view
    }

    /// Nothing is left up to the ends.
    pub(crate) fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| self.finished(lane))
    }

    /// Bytes read ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.lanes.iter().map(Lane::bytes).sum()
    }

    /// Brokers left out.
    pub(crate) fn shut(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for (lane, queue) in self.lanes.iter().zip(&self.view.queues) {
            if lane.shut && !names.contains(&queue.broker) {
                names.push(Arc::clone(&queue.broker));
            }
        }
        names
    }

    fn finished(&self, lane: &Lane) -> bool {
        lane.buffer.is_empty()
            && match self.order {
                Order::Ascending => lane.at >= lane.end,
                Order::Descending => lane.at <= lane.end,
            }
    }

    /// Messages between start and the places reached, without those deleted.
    pub(crate) fn passed(&self) -> u64 {
        let by = |lane: &Lane| u64::try_from((self.place(lane) - lane.start).abs()).unwrap_or(0);
        let all: u64 = self.lanes.iter().map(by).sum();
        all.saturating_sub(self.deleted_in_all)
    }

    /// Deleted messages passed over since the last call.
    pub(crate) fn take_deleted(&mut self) -> u64 {
        std::mem::take(&mut self.deleted)
    }

    /// The next messages.
    ///
    /// # Errors
    /// What the source fails with. Nothing is lost: the places stay.
    pub(crate) async fn take(
        &mut self,
        source: &impl Source,
        limits: Limits,
        deadline: Instant,
    ) -> Result<Vec<Arc<Record>>, ApiError> {
        let mut taken: Vec<Arc<Record>> = Vec::new();
        let mut bytes = 0;
        (self.examined, self.out, self.needed) = (0, 0, None);
        self.prime(source, deadline).await?;
        while taken.len() < limits.items {
            let Some(index) = self.next_lane() else { break };
            let Some(first) = self.lanes[index].buffer.front() else {
                if self.filter.is_some() && self.examined >= limits.scan {
                    break;
                }
                let wanted = limits.items - taken.len();
                let scan = usize::try_from(limits.scan.saturating_sub(self.examined))
                    .unwrap_or(usize::MAX);
                let large = self.fetch(source, index, wanted, scan, deadline).await?;
                if large.is_some_and(|bytes| !self.make_room(bytes)) {
                    break;
                }
                continue;
            };
            let size = first.content.body.len();
            if !taken.is_empty() && bytes + size > limits.bytes {
                break;
            }
            bytes += size;
            if let Some(record) = self.lanes[index].buffer.pop_front() {
                self.out += record.bytes;
                taken.push(record);
            }
            if self.filter.is_none() && taken.len() as u64 >= limits.scan {
                break;
            }
        }
        Ok(taken)
    }

    /// The lane whose next message, as far as is known, comes first.
    fn next_lane(&self) -> Option<usize> {
        let key = |lane: &Lane| match (
            self.order,
            lane.buffer.front().map(|r| r.stored_at_ms).or(lane.bound),
        ) {
            (_, None) => i64::MIN,
            (Order::Ascending, Some(at)) => at,
            (Order::Descending, Some(at)) => -at,
        };
        let open = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| !lane.shut && !self.finished(lane));
        match self.order {
            Order::Ascending => open.min_by_key(|(i, lane)| (key(lane), *i)),
            Order::Descending => open.min_by_key(|(i, lane)| (key(lane), usize::MAX - *i)),
        }
        .map(|(i, _)| i)
    }

    /// Finds out when the next message of each queue was stored, where that is not known.
    async fn prime(&mut self, source: &impl Source, deadline: Instant) -> Result<(), ApiError> {
        let unknown: Vec<usize> = (0..self.lanes.len())
            .filter(|i| {
                let lane = &self.lanes[*i];
                !lane.shut && lane.buffer.is_empty() && lane.bound.is_none() && !self.finished(lane)
            })
            .collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        let looks: Vec<_> = unknown
            .into_iter()
            .map(|i| self.look(source, i, deadline))
            .collect();
        let answers: Vec<_> = stream::iter(looks)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        for (index, answer) in answers {
            match answer {
                Ok(bound) => self.lanes[index].bound = bound,
                Err(error) => self.fail(index, error)?,
            }
        }
        Ok(())
    }

    /// The store time of the next message of a queue.
    fn look<'a, S: Source>(
        &self,
        source: &'a S,
        index: usize,
        deadline: Instant,
    ) -> impl Future<Output = (usize, Result<Option<i64>, ApiError>)> + Send + use<'a, S> {
        let lane = &self.lanes[index];
        let offset = match self.order {
            Order::Ascending => lane.at,
            Order::Descending => lane.at - 1,
        };
        let at = self.view.at(index, offset);
        async move {
            let Some(at) = at else {
                return (index, Ok(None));
            };
            let one = Amount {
                messages: 1,
                bytes: 1,
                room: usize::MAX,
                scan: 1,
                tags: None,
                wait: std::time::Duration::ZERO,
            };
            let answer = source.times(at, one, deadline).await;
            (
                index,
                answer.map(|times| times.entries.first().map(|(_, at)| *at)),
            )
        }
    }

    fn fail(&mut self, index: usize, error: ApiError) -> Result<(), ApiError> {
        let passing = matches!(
            error.code(),
            Code::BrokerUnavailable | Code::BrokerTimeout | Code::BrokerBusy
        );
        if !(self.lenient && passing) {
            return Err(error);
        }
        let broker = self.view.queues.get(index).map(|q| Arc::clone(&q.broker));
        for (lane, queue) in self.lanes.iter_mut().zip(&self.view.queues) {
            lane.shut |= Some(&queue.broker) == broker.as_ref();
        }
        Ok(())
    }

    async fn fetch(
        &mut self,
        source: &impl Source,
        index: usize,
        wanted: usize,
        scan: usize,
        deadline: Instant,
    ) -> Result<Option<usize>, ApiError> {
        let fetched = match self.order {
            Order::Ascending => self.forward(source, index, wanted, scan, deadline).await,
            Order::Descending => self.backward(source, index, scan, deadline).await,
        };
        match fetched {
            Ok(None) => self.evict(index),
            Ok(large) => return Ok(large),
            Err(error) => self.fail(index, error)?,
        }
        Ok(None)
    }

    /// The most that one message may take: a page in any case.
    fn room(&self) -> usize {
        let left = self.memory.saturating_sub(self.ahead() + self.out);
        (left / MEMORY.0 * MEMORY.1).max(PAGE_BYTES)
    }

    /// For a next message of so many bytes, by forgetting what was read ahead; false where that does not help.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.out > 0 {
            return false;
        }
        if self.ahead() == 0 {
            self.needed = Some(bytes);
            return false;
        }
        for index in 0..self.lanes.len() {
            self.forget(index);
        }
        true
    }

    /// The size of the next message where there is no room for it.
    async fn forward(
        &mut self,
        source: &impl Source,
        index: usize,
        wanted: usize,
        scan: usize,
        deadline: Instant,
    ) -> Result<Option<usize>, ApiError> {
        let open = self
            .lanes
            .iter()
            .filter(|lane| !self.finished(lane))
            .count()
            .max(1);
        let tags = self.filter.as_ref().map(TagFilter::expression);
        let lane = &self.lanes[index];
        let left = usize::try_from(lane.end - lane.at).unwrap_or(PAGE_MESSAGES);
        let messages = if tags.is_some() {
            PAGE_MESSAGES
        } else {
            (wanted.div_ceil(open) + 1).min(PAGE_MESSAGES).min(left)
        };
        let amount = Amount {
            messages,
            bytes: PAGE_BYTES,
            room: self.room(),
            scan: scan.min(PAGE_SCAN).min(left),
            tags,
            wait: std::time::Duration::ZERO,
        };
        let Some(at) = self.view.at(index, lane.at) else {
            return Ok(None);
        };
        let page = source.page(at, amount, deadline).await?;
        let lane = &mut self.lanes[index];
        if page.next <= lane.at && page.records.is_empty() && page.large.is_none() {
            // The broker has less than it said: nothing more is to be had here now.
            lane.end = lane.at.min(lane.end);
            return Ok(None);
        }
        if self.filter.is_some() {
            self.examined += u64::try_from(page.next.min(lane.end) - lane.at).unwrap_or(0);
        }
        self.deleted += page.deleted;
        self.deleted_in_all += page.deleted;
        for record in page.records {
            let wanted = self
                .filter
                .as_ref()
                .is_none_or(|f| f.matches(record.content.tag.as_deref()));
            if record.offset >= lane.at && record.offset < lane.end && wanted {
                lane.buffer.push_back(record);
            }
        }
        lane.at = page.next.min(lane.end).max(lane.at);
        lane.bound = page.next_stored_at_ms;
        Ok(page.large.filter(|_| page.next < lane.end))
    }

    /// Reads the messages just below, a window that fits one page. The size of the next message where there is no room
    /// for it.
    async fn backward(
        &mut self,
        source: &impl Source,
        index: usize,
        scan: usize,
        deadline: Instant,
    ) -> Result<Option<usize>, ApiError> {
        let tags = self.filter.as_ref().map(TagFilter::expression);
        let lane = &self.lanes[index];
        let most = if tags.is_some() {
            PAGE_SCAN
        } else {
            PAGE_MESSAGES
        };
        let most = i64::try_from(most.min(scan.max(1))).unwrap_or(1);
        let low = lane.end.max(lane.at - lane.window.min(most)).max(0);
        let span = usize::try_from(lane.at - low).unwrap_or(1);
        let amount = Amount {
            messages: span.min(256),
            bytes: PAGE_BYTES,
            room: self.room(),
            scan: span,
            tags,
            wait: std::time::Duration::ZERO,
        };
        let Some(at) = self.view.at(index, low) else {
            return Ok(None);
        };
        let page = source.page(at, amount, deadline).await?;
        let lane = &mut self.lanes[index];
        if page.deleted > 0 {
            // Retention has passed this far: what is below is gone, the rest of the window is read anew.
            lane.end = lane.end.max(page.next.min(lane.at));
            lane.bound = None;
            return Ok(None);
        }
        let cut = page.next > low || page.large.is_some();
        if page.next < lane.at && cut && span > 1 {
            lane.window = (i64::try_from(span).unwrap_or(2) / 2).max(1);
            return Ok(None);
        }
        if page.large.is_some() {
            return Ok(page.large);
        }
        if page.next <= low {
            lane.end = lane.at;
            return Ok(None);
        }
        if self.filter.is_some() {
            self.examined += span as u64;
        }
        for record in page.records.into_iter().rev() {
            let wanted = self
                .filter
                .as_ref()
                .is_none_or(|f| f.matches(record.content.tag.as_deref()));
            if record.offset >= low && record.offset < lane.at && wanted {
                lane.buffer.push_back(record);
            }
        }
        (lane.at, lane.window, lane.bound) = (low, (lane.window * 2).min(most.max(1)), None);
        if !self.finished(&self.lanes[index]) {
            let (_, bound) = self.look(source, index, deadline).await;
            self.lanes[index].bound = bound?;
        }
        Ok(None)
    }

    /// Over the bound, what would be taken last is forgotten; it is read again when its turn comes.
    fn evict(&mut self, keep: usize) {
        let mut held = self.ahead();
        while held > self.buffer_max {
            let sign = if self.order == Order::Ascending {
                1
            } else {
                -1
            };
            let last = self
                .lanes
                .iter()
                .enumerate()
                .filter(|(i, lane)| *i != keep && !lane.buffer.is_empty())
                .max_by_key(|(_, lane)| lane.buffer.front().map(|r| sign * r.stored_at_ms));
            let Some((index, _)) = last else { return };
            held -= self.lanes[index].bytes();
            self.forget(index);
        }
    }

    /// What was read ahead of a queue is read again when its turn comes.
    fn forget(&mut self, index: usize) {
        let place = self.place(&self.lanes[index]);
        let lane = &mut self.lanes[index];
        if let Some(first) = lane.buffer.front() {
            lane.bound = Some(first.stored_at_ms);
            (lane.at, lane.buffer) = (place, VecDeque::new());
        }
    }
}
