//! Thinning of a live tail: so many messages a second, or the newest of each key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::Record;

/// Messages of a key that come within this time are conflated.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// A bucket that fills with `rate` messages a second and holds those of one second.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: f64,
    tokens: f64,
    filled: Instant,
}

impl Pace {
    /// Full; `rate` is at least 1.
    pub(crate) fn new(rate: u32, now: Instant) -> Self {
        let rate = f64::from(rate.max(1));
        Self {
            rate,
            tokens: rate,
            filled: now,
        }
    }

    /// Messages that may go now.
    pub(crate) fn allowed(&mut self, now: Instant) -> usize {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * self.rate).min(self.rate);
        self.filled = now;
        // At most u32::MAX, and not negative.
        self.tokens as usize
    }

    /// So many went.
    pub(crate) fn took(&mut self, count: usize) {
        self.tokens -= count as f64;
    }

    /// When the next may go.
    pub(crate) fn next(&self) -> Instant {
        let missing = (1.0 - self.tokens).max(0.0) / self.rate;
        self.filled + Duration::from_secs_f64(missing) + Duration::from_millis(1)
    }
}

/// Keys that [`Given`] remembers.
const KEYS_MAX: usize = 4_096;
/// A message stored longer before another than this, ms, did not come late: a clock was set back.
const LATE_MS: i64 = 10_000;

/// Where a message stands in the order of storing: time, then broker, queue and offset.
type Stored = (i64, Arc<str>, i32, i64);

fn stored(record: &Record) -> Stored {
    let broker = Arc::clone(&record.broker);
    (record.stored_at_ms, broker, record.queue_id, record.offset)
}

/// The key of a message is its first key, else its ordering key.
fn key(record: &Record) -> Option<&str> {
    let content = &record.content;
    let key = content.keys.first().or(content.ordering_key.as_ref());
    key.map(String::as_str)
}

/// What was last given of each key: an older message, which came later from its queue, is not given after it.
#[derive(Debug, Default)]
pub(crate) struct Given(HashMap<String, Stored>);

impl Given {
    /// These were given, in this order.
    pub(crate) fn add(&mut self, records: &[Arc<Record>]) {
        for record in records {
            let Some(key) = key(record) else { continue };
            if self.0.len() >= KEYS_MAX && !self.0.contains_key(key) {
                // Half of them, those stored first: what comes later than that may be given in its turn.
                let mut times: Vec<i64> = self.0.values().map(|(at, ..)| *at).collect();
                let (_, middle, _) = times.select_nth_unstable(KEYS_MAX / 2);
                let middle = *middle;
                self.0.retain(|_, (at, ..)| *at > middle);
            }
            self.0.insert(key.to_owned(), stored(record));
        }
    }

    fn is_older(&self, key: &str, record: &Record) -> bool {
        let of_this_queue =
            |(_, broker, queue, _): &Stored| *broker == record.broker && *queue == record.queue_id;
        self.0.get(key).is_some_and(|given| {
            let late = given.0.saturating_sub(record.stored_at_ms) <= LATE_MS;
            late && !of_this_queue(given) && stored(record) < *given
        })
    }
}

/// Brings what came from several queues, each named by a number, into the order of storing; each queue keeps its own.
pub(crate) fn in_order(run: Vec<(usize, Arc<Record>)>) -> Vec<(usize, Arc<Record>)> {
    let mut last: HashMap<usize, i64> = HashMap::new();
    let mut timed: Vec<(i64, (usize, Arc<Record>))> = Vec::with_capacity(run.len());
    for (queue, record) in run {
        // The clock may have been set back.
        let at = last.entry(queue).or_insert(i64::MIN);
        *at = record.stored_at_ms.max(*at);
        timed.push((*at, (queue, record)));
    }
    timed.sort_by(|(at, (_, a)), (other, (_, b))| {
        let place = |r: &Record| (Arc::clone(&r.broker), r.queue_id);
        at.cmp(other).then_with(|| place(a).cmp(&place(b)))
    });
    timed.into_iter().map(|(_, record)| record).collect()
}

/// The newest message of each key in a run, in their order, of at most `max` keys; and how many messages of the run
/// were looked at. A message without a key is its own; one older than what was given of its key is left out.
pub(crate) fn newest_by_key(
    run: &[Arc<Record>],
    given: &Given,
    max: usize,
) -> (Vec<Arc<Record>>, usize) {
    let mut newest: HashMap<&str, usize> = HashMap::new();
    let mut alone: Vec<usize> = Vec::new();
    let mut looked = 0;
    for (i, record) in run.iter().enumerate() {
        let full = newest.len() + alone.len() >= max;
        match key(record) {
            Some(key) if given.is_older(key, record) => {}
            Some(key) if !full || newest.contains_key(key) => {
                newest.insert(key, i);
            }
            None if !full => alone.push(i),
            Some(_) | None => break,
        }
        looked = i + 1;
    }
    let mut kept: Vec<usize> = newest.into_values().chain(alone).collect();
    kept.sort_unstable();
    (
        kept.into_iter().map(|i| Arc::clone(&run[i])).collect(),
        looked,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_rate_and_saves_one_second() {
        let start = Instant::now();
        let mut pace = Pace::new(10, start);
        assert_eq!(pace.allowed(start), 10);
        pace.took(10);
        assert_eq!(pace.allowed(start), 0);
        assert_eq!(pace.next() - start, Duration::from_millis(101));
        assert_eq!(pace.allowed(start + Duration::from_millis(350)), 3);
        assert_eq!(pace.allowed(start + Duration::from_secs(60)), 10);
    }

    #[test]
    fn the_newest_of_each_key_is_kept_in_order() {
        let message = |offset, key: Option<&str>| {
            let mut record = Record::for_test(0, offset, 0, None, 1);
            record.content.keys = key.into_iter().map(str::to_owned).collect();
            Arc::new(record)
        };
        let run = [
            message(0, Some("a")),
            message(1, Some("b")),
            message(2, None),
            message(3, Some("a")),
            message(4, None),
        ];
        let kept = |max| {
            let (kept, looked) = newest_by_key(&run, &Given::default(), max);
            (kept.iter().map(|r| r.offset).collect::<Vec<_>>(), looked)
        };
        assert_eq!(kept(9), (vec![1, 2, 3, 4], 5));
        assert_eq!(kept(3), (vec![1, 2, 3], 4));
        assert_eq!(kept(1), (vec![0], 1));
    }

    #[test]
    fn what_is_newer_is_told_by_the_time_of_storing() {
        let message = |queue, offset, at| {
            let mut record = Record::for_test(queue, offset, at, None, 1);
            record.content.keys = vec!["k".to_owned()];
            (queue as usize, Arc::new(record))
        };
        // In the order of arrival; the clock was set back in queue 1.
        let run = in_order(vec![
            message(2, 0, 30),
            message(2, 1, 40),
            message(1, 0, 20),
            message(1, 1, 10),
            message(0, 0, 30),
        ]);
        let places: Vec<_> = run.iter().map(|(q, r)| (*q, r.offset)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (0, 0), (2, 0), (2, 1)]);
        let only = |run: &[(usize, Arc<Record>)], given: &Given| {
            let records: Vec<_> = run.iter().map(|(_, r)| Arc::clone(r)).collect();
            newest_by_key(&records, given, 9)
        };
        let mut given = Given::default();
        let (kept, looked) = only(&run, &given);
        assert_eq!((kept.len(), kept[0].stored_at_ms, looked), (1, 40, 5));
        given.add(&kept);
        // A queue whose answer comes only now.
        let late = [message(3, 0, 35), message(3, 1, 40)];
        let (kept, looked) = only(&late, &given);
        assert_eq!((kept.len(), kept[0].queue_id, looked), (1, 3, 2));
        assert!(only(&late[..1], &given).0.is_empty());
        // Clocks that were set back hide nothing.
        assert_eq!(only(&[message(2, 2, 39)], &given).0.len(), 1);
        given.add(&[message(2, 3, 20_000).1]);
        assert_eq!(only(&late[..1], &given).0.len(), 1);
    }

    #[test]
    fn so_many_keys_are_remembered_and_those_stored_last() {
        let mut given = Given::default();
        for at in 0..10_000 {
            let mut record = Record::for_test(0, at, at, None, 1);
            record.content.keys = vec![at.to_string()];
            given.add(&[Arc::new(record)]);
        }
        assert!(given.0.len() <= KEYS_MAX && given.0.len() >= KEYS_MAX / 2);
        assert!(given.0.contains_key("9999") && !given.0.contains_key("0"));
    }
}
