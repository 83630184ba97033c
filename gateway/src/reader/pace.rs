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

/// The newest message of each key in a run, in their order, of at most `max` keys; and how many messages of the run
/// were looked at. The key of a message is its first key, else its ordering key; one without is its own.
pub(crate) fn newest_by_key(run: &[Arc<Record>], max: usize) -> (Vec<Arc<Record>>, usize) {
    let mut newest: HashMap<&str, usize> = HashMap::new();
    let mut alone: Vec<usize> = Vec::new();
    let mut looked = 0;
    for (i, record) in run.iter().enumerate() {
        let content = &record.content;
        let key = content.keys.first().or(content.ordering_key.as_ref());
        let full = newest.len() + alone.len() >= max;
        match key {
            Some(key) if !full || newest.contains_key(key.as_str()) => {
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
            let (kept, looked) = newest_by_key(&run, max);
            (kept.iter().map(|r| r.offset).collect::<Vec<_>>(), looked)
        };
        assert_eq!(kept(9), (vec![1, 2, 3, 4], 5));
        assert_eq!(kept(3), (vec![1, 2, 3], 4));
        assert_eq!(kept(1), (vec![0], 1));
    }
}
