//! What one subscription reads: old messages from the brokers until it meets the live tail, then from there. Its place
//! is the offset of every queue; what it is not given is counted.

mod catch_up;
mod count;
mod live;
mod thinned;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::filter::TagFilter;
use super::merge::{Merge, text_of};
use super::origin::{self, Origin};
use super::pace::{Given, Pace};
use super::ring::{Text, encode};
use super::tail::Joined;
use super::view::{self, Opened, TopicView};
use crate::error::ApiError;
use crate::memory::{Held, Whose};
use crate::render::BodyFormat;
use crate::state::AppState;
use crate::upstream::Record;

/// Messages of one chunk.
const CHUNK_MESSAGES: usize = 64;
/// Bytes of bodies in one chunk; a larger message goes alone.
const CHUNK_BYTES: usize = 192 * 1024;
/// Memory taken for a chunk while it is made.
const CHUNK_ROOM: usize = 256 * 1024;
/// A broker call of a feed.
const CALL: Duration = Duration::from_secs(10);

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
    /// Chunks that the socket takes at a time, those of its other readers included.
    pub(crate) turns: Arc<Semaphore>,
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
    /// For `text`.
    pub(crate) room: Option<Room>,
}

/// The memory of a chunk and its turn at the socket, given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    held: Held,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Chunk {
    /// With what was taken for it cut down to what it is.
    fn within(mut self, mut room: Room) -> Self {
        if let Some(text) = &self.text {
            room.held.set(text.items.len());
            self.room = Some(room);
        }
        self
    }
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
    /// Queues of the ring when this feed joined it.
    known: usize,
    /// What was read ahead while catching up, and its memory.
    merge: Option<(Merge, Held)>,
    /// Bytes of a message that did not fit what is taken for a step, until it is given; else 0.
    large: usize,
    pace: Option<Pace>,
    /// What was last given of each key, where only the newest is.
    last: Given,
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
            known: 0,
            merge: None,
            large: 0,
            last: Given::default(),
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

    /// The next messages, or news. Dropping the future loses nothing. `wanted.skip` is cleared once that is done.
    ///
    /// # Errors
    /// What a broker answers for good.
    pub(crate) async fn next(&mut self, wanted: &mut Wanted) -> Result<Chunk, ApiError> {
        if wanted.skip {
            let gap = self.skip().await?;
            wanted.skip = false;
            if let Some(gap) = gap {
                return Ok(Chunk {
                    gaps: vec![gap],
                    ..Chunk::default()
                });
            }
        }
        let wanted = *wanted;
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
                self.plain(wanted).await
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
            let (first, known) = (ring.first, ring.queues.len());
            drop(ring);
            self.known = known;
            (self.number, self.aligned, self.merge) = (Some(first), false, None);
        }
    }

    /// Room for a chunk whose largest message takes so many bytes. Messages stay with the broker, and the ring goes on, while clients have yet to take as many as
    /// the socket or the gateway may hold.
    async fn room(&self, largest: usize) -> Room {
        let turn = self.turn().await;
        Room {
            held: self
                .state
                .answers
                .take(
                    Whose::Topic(&self.options.topic),
                    CHUNK_ROOM.max(text_of(largest)),
                )
                .await,
            _turn: turn,
        }
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.options.turns).acquire_owned().await.ok()
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
            gaps,
            text,
            cursor,
            ..Chunk::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::reader::ring::Ring;
    use crate::reader::view::QueueView;
    use crate::receipt::ReceiptKeys;
    use clock::SystemClock;
    use node::Context;

    /// A feed at the beginning of a ring of one queue.
    fn in_ring(ring: Ring, max_rate: u32) -> Feed {
        let context = Context::quiet(Arc::new(SystemClock::new()));
        let keys = ReceiptKeys::new(&[(1, [7; 32])]);
        let state = AppState::new(Config::default(), &context, keys);
        Feed {
            tail: Joined::for_test(&state, ring),
            state,
            options: FeedOptions {
                topic: "t".into(),
                filter: None,
                format: BodyFormat::Auto,
                max_rate: Some(max_rate),
                latest_by_key: false,
                turns: Arc::new(Semaphore::new(1)),
            },
            places: vec![0],
            number: Some(0),
            aligned: false,
            known: 1,
            merge: None,
            large: 0,
            last: Given::default(),
            pace: Some(Pace::new(max_rate, Instant::now())),
            told: State::Active,
        }
    }

    #[tokio::test]
    async fn a_thinned_feed_gives_what_follows_deleted_messages_in_a_batch() {
        let mut ring = Ring::default();
        ring.add(&QueueView::for_test(0), 0);
        let record = |at| Arc::new(Record::for_test(0, at, 0, None, 1));
        ring.push(0, 7, 5, vec![record(5), record(6)], 1 << 20);
        let mut feed = in_ring(ring, 10);
        let mut wanted = Wanted {
            max: 10,
            bytes: None,
            skip: false,
        };
        let chunk = feed.next(&mut wanted).await.unwrap();
        assert_eq!(
            (chunk.gaps[0].reason, chunk.gaps[0].skipped),
            (GapReason::Retention, 5)
        );
        let chunk = feed.next(&mut wanted).await.unwrap();
        assert_eq!(chunk.text.map(|text| text.count), Some(2));
    }

    fn size<F>(_: impl FnOnce(Feed, Wanted) -> F) -> usize {
        size_of::<F>()
    }

    /// A waiting reader is part of an idle socket, which may take 16 KiB in all.
    #[test]
    fn a_reader_that_waits_takes_little_memory() {
        let waiting = size(|mut feed, mut wanted| async move { feed.next(&mut wanted).await });
        assert!(waiting < 6 * 1024, "{waiting} bytes");
    }
}
