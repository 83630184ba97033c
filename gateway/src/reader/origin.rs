//! Where a reader begins and ends: `earliest`, `latest`, a time, the last n messages, a cursor.

use futures_util::StreamExt;
use futures_util::stream;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

use super::cursor::Cursor;
use super::filter::TagFilter;
use super::merge::Source;
use super::view::TopicView;
use crate::error::{ApiError, Code};
use crate::params::parse_time;
use crate::signing::Signer;
use crate::state::AppState;
use crate::upstream::Amount;

/// Most messages of `last:n`.
const LAST_MAX: u64 = 10_000;
/// Entries looked at to find the last n that match a filter.
const LAST_SCAN: usize = 20_000;
/// Entries of one look.
const LOOK_MAX: usize = 800;
/// Requests at once.
const PARALLEL: usize = 32;

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The oldest message kept.
    Earliest,
    /// What comes from now on.
    Latest,
    /// Messages stored at this time or later, epoch ms.
    Time(i64),
    /// The newest so many that match.
    Last(u64),
    /// Where another read stopped.
    Cursor(Cursor),
}

/// Where to end, exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// What there is now.
    Now,
    /// Before messages stored at this time or later, epoch ms.
    Time(i64),
    /// Before this place.
    Cursor(Cursor),
}

impl Origin {
    /// Reads `from`.
    ///
    /// # Errors
    /// `invalid_cursor`, `invalid_field` for a bad n, `invalid_time` for anything else.
    pub(crate) fn parse(
        keys: &Signer,
        topic: &str,
        text: &str,
        pointer: &str,
    ) -> Result<Self, ApiError> {
        if Cursor::is_meant(text) {
            return Cursor::decode(keys, topic, text, pointer).map(Self::Cursor);
        }
        match text {
            "earliest" => return Ok(Self::Earliest),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Some(count) = text.strip_prefix("last:") {
            let digits =
                !count.is_empty() && count.len() <= 9 && count.bytes().all(|b| b.is_ascii_digit());
            return match count.parse::<u64>() {
                Ok(n) if digits && (1..=LAST_MAX).contains(&n) => Ok(Self::Last(n)),
                _ => {
                    let detail = format!("last:<n> takes a whole number between 1 and {LAST_MAX}");
                    Err(ApiError::field(Code::InvalidField, pointer, detail)
                        .with("limit", LAST_MAX))
                }
            };
        }
        parse_time(text).map(Self::Time).ok_or_else(|| {
            let detail = "from is earliest, latest, last:<n>, a cursor, or a time such as 2026-11-29T16:30:21.123Z";
            ApiError::field(Code::InvalidTime, pointer, detail)
        })
    }
}

impl Until {
    /// Reads `to`.
    ///
    /// # Errors
    /// `invalid_cursor`, `invalid_time`.
    pub(crate) fn parse(
        keys: &Signer,
        topic: &str,
        text: &str,
        pointer: &str,
    ) -> Result<Self, ApiError> {
        if Cursor::is_meant(text) {
            return Cursor::decode(keys, topic, text, pointer).map(Self::Cursor);
        }
        parse_time(text).map(Self::Time).ok_or_else(|| {
            let detail = "to is a cursor, or a time such as 2026-11-29T16:30:21.123Z";
            ApiError::field(Code::InvalidTime, pointer, detail)
        })
    }
}

/// The first offsets to read, queue by queue.
///
/// # Errors
/// `cursor_expired`, and what the brokers fail with.
pub(crate) async fn starts(
    state: &AppState,
    view: &TopicView,
    origin: &Origin,
    filter: Option<&TagFilter>,
    deadline: Instant,
) -> Result<Vec<i64>, ApiError> {
    match origin {
        Origin::Earliest => Ok(view.queues.iter().map(|q| q.min).collect()),
        Origin::Latest => Ok(view.queues.iter().map(|q| q.max).collect()),
        Origin::Time(ms) => at_time(state, view, *ms, deadline).await,
        Origin::Cursor(cursor) => view.places(&cursor.brokers),
        Origin::Last(n) => last(&state.upstream, view, *n, filter, deadline).await,
    }
}

/// One past the last offsets to read.
///
/// # Errors
/// As [`starts`].
pub(crate) async fn ends(
    state: &AppState,
    view: &TopicView,
    until: &Until,
    deadline: Instant,
) -> Result<Vec<i64>, ApiError> {
    match until {
        Until::Now => Ok(view.queues.iter().map(|q| q.max).collect()),
        Until::Time(ms) => at_time(state, view, *ms, deadline).await,
        Until::Cursor(cursor) => view.places(&cursor.brokers),
    }
}

async fn at_time(
    state: &AppState,
    view: &TopicView,
    epoch_ms: i64,
    deadline: Instant,
) -> Result<Vec<i64>, ApiError> {
    let mut places: Vec<i64> = view.queues.iter().map(|q| q.min).collect();
    let asked = view
        .queues
        .iter()
        .enumerate()
        .filter(|(_, q)| q.max > q.min && q.earliest_at_ms < epoch_ms);
    let looks: Vec<_> = asked
        .filter_map(|(i, _)| Some((i, view.at(i, 0)?)))
        .map(|(i, at)| async move { (i, state.upstream.offset_at(&at, epoch_ms, deadline).await) })
        .collect();
    let answers: Vec<_> = stream::iter(looks)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    for (i, answer) in answers {
        places[i] = answer?.max(view.queues[i].min);
    }
    Ok(places)
}

/// One queue on its way back from its end.
struct Back {
    /// Everything from here on was looked at.
    low: i64,
    /// Entries of the next look without a filter; grows.
    window: usize,
    /// Matches looked at and not picked, oldest first.
    times: VecDeque<(i64, i64)>,
    /// Lowest match picked.
    place: i64,
    min: i64,
}

impl Back {
    /// The next match is not known, and there may be one.
    fn is_open(&self) -> bool {
        self.times.is_empty() && self.low > self.min
    }
}

/// The places of the last `n` matching messages in the order of storing. With a filter at most [`LAST_SCAN`] messages
/// are looked at; what was found by then counts.
async fn last(
    source: &impl Source,
    view: &TopicView,
    n: u64,
    filter: Option<&TagFilter>,
    deadline: Instant,
) -> Result<Vec<i64>, ApiError> {
    let wanted = usize::try_from(n).unwrap_or(usize::MAX);
    let share = wanted.div_ceil(view.queues.len().max(1));
    let mut backs: Vec<Back> = view
        .queues
        .iter()
        .map(|q| Back {
            low: q.max,
            window: share.saturating_mul(2).clamp(16, LOOK_MAX),
            times: VecDeque::new(),
            place: q.max,
            min: q.min,
        })
        .collect();
    let mut left = filter.map_or(usize::MAX, |_| LAST_SCAN);
    // Every queue's newest match has to be known before the newest of all is.
    let all: Vec<usize> = (0..backs.len()).collect();
    look_back(source, view, &mut backs, all, &mut left, filter, deadline).await?;
    let newest = |backs: &[Back], i: usize| backs[i].times.back().map(|(_, at)| (*at, i));
    let mut ends: BinaryHeap<(i64, usize)> =
        (0..backs.len()).filter_map(|i| newest(&backs, i)).collect();
    for picked in 0..n {
        let Some((_, index)) = ends.pop() else { break };
        if let Some((offset, _)) = backs[index].times.pop_back() {
            backs[index].place = offset;
        }
        look_back(
            source,
            view,
            &mut backs,
            vec![index],
            &mut left,
            filter,
            deadline,
        )
        .await?;
        ends.extend(newest(&backs, index));
        if picked % 1_000 == 999 {
            tokio::task::yield_now().await;
        }
    }
    Ok(backs.into_iter().map(|b| b.place).collect())
}

/// Finds the next match of these queues, where it is not known. `left` is what may still be looked at.
async fn look_back(
    source: &impl Source,
    view: &TopicView,
    backs: &mut [Back],
    mut asked: Vec<usize>,
    left: &mut usize,
    filter: Option<&TagFilter>,
    deadline: Instant,
) -> Result<(), ApiError> {
    let tags = filter.map(TagFilter::expression);
    loop {
        asked.retain(|i| backs[*i].is_open());
        let share = *left / asked.len().max(1);
        if asked.is_empty() || share == 0 {
            return Ok(());
        }
        let mut looks = Vec::new();
        for i in asked.iter().copied() {
            let back = &mut backs[i];
            let window = match filter {
                Some(_) => share.min(LOOK_MAX),
                None => back.window,
            };
            back.window = (back.window * 2).min(LOOK_MAX);
            let low = back.min.max(back.low - i64::try_from(window).unwrap_or(0));
            let span = usize::try_from(back.low - low).unwrap_or(0);
            *left -= span.min(*left);
            let Some(at) = view.at(i, low) else { continue };
            let amount = Amount {
                messages: span,
                bytes: 1,
                room: usize::MAX,
                scan: span,
                tags,
                wait: Duration::ZERO,
            };
            looks.push(async move { (i, low, source.times(at, amount, deadline).await) });
        }
        let answers: Vec<_> = stream::iter(looks)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        for (i, low, answer) in answers {
            let (answer, back) = (answer?, &mut backs[i]);
            if answer.next < low || answer.entries.is_empty() && answer.next > back.low {
                back.min = back.low;
                continue;
            }
            let fresh = answer
                .entries
                .into_iter()
                .filter(|(offset, _)| *offset >= low && *offset < back.low);
            back.times = fresh.collect();
            back.low = low;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::view::QueueView;
    use crate::upstream::{Page, QueueAt, Times};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Store times of the messages of each queue; every second matches a filter.
    struct Queues {
        times: Vec<Vec<i64>>,
        looks: AtomicUsize,
        entries: AtomicUsize,
    }

    impl Source for Queues {
        async fn page(&self, _: QueueAt, _: Amount<'_>, _: Instant) -> Result<Page, ApiError> {
            unreachable!("only times are asked for")
        }

        async fn times(&self, at: QueueAt, of: Amount<'_>, _: Instant) -> Result<Times, ApiError> {
            let queue = &self.times[usize::try_from(at.queue_id).unwrap()];
            let low = usize::try_from(at.offset).unwrap();
            let range = low..queue.len().min(low + of.scan);
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.entries.fetch_add(range.len(), Ordering::Relaxed);
            Ok(Times {
                next: range.end as i64,
                entries: range
                    .filter(|i| of.tags.is_none() || i % 2 == 0)
                    .map(|i| (i as i64, queue[i]))
                    .collect(),
            })
        }
    }

    /// The places, the looks, and the entries looked at.
    fn find(times: Vec<Vec<i64>>, n: u64, filter: Option<&str>) -> (Vec<i64>, usize, usize) {
        let queue = |(id, times): (usize, &Vec<i64>)| QueueView {
            broker: "a".into(),
            addr: "x".into(),
            id: i32::try_from(id).unwrap(),
            min: 0,
            max: times.len() as i64,
            earliest_at_ms: 0,
            epoch: 1,
        };
        let view = TopicView {
            topic: "t".into(),
            queues: times.iter().enumerate().map(queue).collect(),
        };
        let source = Queues {
            times,
            looks: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
        };
        let filter = filter.map(|f| TagFilter::parse(f, "").unwrap().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let found = runtime
            .unwrap()
            .block_on(last(&source, &view, n, filter.as_ref(), end));
        let (looks, entries) = (source.looks.into_inner(), source.entries.into_inner());
        (found.unwrap(), looks, entries)
    }

    #[test]
    fn the_newest_of_all_queues_are_found_with_few_looks() {
        // The first queue has what is newest, so that the shares of the others are looked at in vain.
        let times = vec![(5_000..15_000).collect(), (0..10_000).collect(), vec![7]];
        let (places, looks, _) = find(times, 10_000, None);
        assert_eq!(places, [2_500, 7_500, 1]);
        assert!(looks < 40, "{looks}");
        let many: Vec<Vec<i64>> = (0..500)
            .map(|q| (0..100).map(|i| i * 500 + q).collect())
            .collect();
        let (places, looks, entries) = find(many, 10, None);
        assert_eq!(places[489..492], [100, 99, 99]);
        assert!(
            looks < 520 && entries < 10_000,
            "{looks} looks, {entries} entries"
        );
    }

    #[test]
    fn with_a_filter_no_more_is_looked_at_than_the_bound() {
        let (places, _, _) = find(vec![(0..100).collect()], 10, Some("x"));
        assert_eq!(places, [80]);
        let queues = vec![(0..50_000).collect(); 3];
        let (_, _, entries) = find(queues, 10_000, Some("x"));
        assert!((15_000..=LAST_SCAN).contains(&entries), "{entries}");
    }
}
