//! One counter with its past: how much came in the last minute, hour and day.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;

/// A minute is looked back on in steps of this many seconds.
const MINUTE_STEP: u64 = 10;
/// An hour, likewise.
const HOUR_STEP: u64 = 600;
/// A day, likewise.
const DAY_STEP: u64 = 3_600;
/// Shortest time over which a rate is told, so that a burst at the start is no rate.
const RATE_MIN: Duration = Duration::from_secs(1);

/// What a counter said at some time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Monotonic,
    sum: u64,
    times: u64,
}

/// What came in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// How much.
    pub(crate) sum: u64,
    /// How much a second.
    pub(crate) per_second: f64,
    /// How much at a time.
    pub(crate) per_time: f64,
}

#[derive(Debug)]
struct Past {
    minute: VecDeque<Sample>,
    hour: VecDeque<Sample>,
    day: VecDeque<Sample>,
}

/// A counter and its past.
#[derive(Debug)]
pub(crate) struct Series {
    sum: AtomicU64,
    times: AtomicU64,
    past: Mutex<Past>,
}

impl Series {
    /// A counter that begins now.
    pub(crate) fn new(now: Monotonic) -> Self {
        let begin = || {
            VecDeque::from([Sample {
                at: now,
                ..Sample::default()
            }])
        };
        Self {
            sum: AtomicU64::new(0),
            times: AtomicU64::new(0),
            past: Mutex::new(Past {
                minute: begin(),
                hour: begin(),
                day: begin(),
            }),
        }
    }

    /// Counts `amount`, once.
    pub(crate) fn add(&self, amount: u64) {
        self.sum.fetch_add(amount, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self, at: Monotonic) -> Sample {
        Sample {
            at,
            sum: self.sum.load(Ordering::Relaxed),
            times: self.times.load(Ordering::Relaxed),
        }
    }

    /// Notes where the counter stands; to be called every ten seconds or so.
    pub(crate) fn sample(&self, at: Monotonic) {
        let sample = self.now(at);
        let mut past = self.past.lock();
        keep(&mut past.minute, sample, MINUTE_STEP, 60);
        keep(&mut past.hour, sample, HOUR_STEP, 3_600);
        keep(&mut past.day, sample, DAY_STEP, 86_400);
    }

    /// The last minute, hour and day, up to now.
    pub(crate) fn windows(&self, now: Monotonic) -> [Window; 3] {
        let last = self.now(now);
        let past = self.past.lock();
        [(&past.minute, 60), (&past.hour, 3_600), (&past.day, 86_400)].map(|(samples, seconds)| {
            // The youngest that is at least that old, so that a window is never shorter than it says.
            let first = samples
                .iter()
                .rfind(|sample| now.since(sample.at).as_secs() >= seconds)
                .or_else(|| samples.front());
            first.map_or_else(Window::default, |first| between(first, &last))
        })
    }

    /// Whether nothing came within the last day.
    pub(crate) fn is_idle(&self, now: Monotonic) -> bool {
        let last = self.sum.load(Ordering::Relaxed);
        let past = self.past.lock();
        past.day.front().is_some_and(|first| {
            now.since(first.at).as_secs() >= 86_400 - DAY_STEP && first.sum == last
        })
    }
}

/// Adds a sample when its step has passed, and drops all but one of those that are as old as the span.
fn keep(samples: &mut VecDeque<Sample>, sample: Sample, step: u64, span: u64) {
    let due = samples
        .back()
        .is_none_or(|last| sample.at.since(last.at).as_secs() >= step);
    if !due {
        return;
    }
    samples.push_back(sample);
    while samples
        .get(1)
        .is_some_and(|second| sample.at.since(second.at).as_secs() >= span)
    {
        samples.pop_front();
    }
}

fn between(first: &Sample, last: &Sample) -> Window {
    let sum = last.sum.saturating_sub(first.sum);
    let times = last.times.saturating_sub(first.times);
    let seconds = last.at.since(first.at).max(RATE_MIN).as_secs_f64();
    Window {
        sum,
        per_second: sum as f64 / seconds,
        per_time: if times == 0 {
            0.0
        } else {
            sum as f64 / times as f64
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_came_in_them() {
        let mut now = Monotonic::ZERO;
        let series = Series::new(now);
        // An hour and a half of 5 every ten seconds, in one call each.
        for _ in 0..540 {
            series.add(5);
            now = now + Duration::from_secs(10);
            series.sample(now);
        }
        let [minute, hour, day] = series.windows(now);
        assert_eq!((minute.sum, hour.sum, day.sum), (30, 1_800, 2_700));
        assert!((minute.per_second - 0.5).abs() < 1e-9 && (day.per_time - 5.0).abs() < 1e-9);
        // Then silence.
        for _ in 0..7 {
            now = now + Duration::from_secs(10);
            series.sample(now);
        }
        let [minute, hour, _] = series.windows(now);
        assert_eq!(minute.sum, 0);
        assert!(hour.sum >= 1_700, "{hour:?}");
        assert!(!series.is_idle(now));
    }

    #[test]
    fn a_young_counter_is_told_at_once_and_an_old_silent_one_is_idle() {
        let mut now = Monotonic::ZERO;
        let series = Series::new(now);
        series.add(3);
        let [minute, _, _] = series.windows(now);
        assert_eq!((minute.sum, minute.per_second), (3, 3.0));
        for _ in 0..26 {
            now = now + Duration::from_secs(3_600);
            series.sample(now);
        }
        assert!(series.is_idle(now));
        assert_eq!(series.windows(now)[2].sum, 0);
    }
}
