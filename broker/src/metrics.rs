//! Numbers of the broker: counters for `/metrics`, rates for the runtime information of code 28.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::broker::Broker;

/// Groups with a lag of their own; those beyond are left out.
const LAG_GROUPS_MAX: usize = 1_000;
/// Seconds between two looks at the lag of all groups.
const LAG_EVERY: u64 = 10;

/// Label of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

/// Longest time in ms of each span of `putMessageDistributeTime`, and its name (RocketMQ 5.4.0 `StoreStatsService`).
pub(crate) const PUT_SPANS: [(u64, &str); 13] = [
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1_000, "500ms~1s"),
    (2_000, "1~2s"),
    (3_000, "2~3s"),
    (4_000, "3~4s"),
    (5_000, "4~5s"),
    (10_000, "5~10s"),
    (u64::MAX, "10s~"),
];

/// Longest window of a rate, in seconds; one sample a second.
const WINDOW_SECONDS: usize = 600;

/// Counters; cheap to raise from any thread.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Time of one append, in seconds.
    append_seconds: Histogram,
    /// Bytes appended and not yet synced.
    flush_lag_bytes: Gauge,
    /// Bytes appended and not yet visible in queues.
    dispatch_lag_bytes: Gauge,
    /// Pulls that wait for messages.
    long_polls: Gauge,
    /// Sends that wait for the disk.
    sends_waiting: Gauge,
    /// Messages that each group has not read.
    consumer_lag: Family<GroupLabel, Gauge>,
    /// Messages stored for clients.
    pub(crate) put_messages: Counter,
    /// Bytes of records stored for clients.
    pub(crate) put_bytes: Counter,
    /// Sends refused or failed.
    pub(crate) put_failures: Counter,
    /// Messages given to pulls.
    pub(crate) get_messages: Counter,
    /// Bytes given to pulls.
    pub(crate) get_bytes: Counter,
    /// Pulls that found something.
    pub(crate) get_found: Counter,
    /// Pulls that found nothing.
    pub(crate) get_missed: Counter,
    /// Delayed messages delivered.
    pub(crate) delayed: Counter,
    /// Messages that went to a dead-letter topic.
    pub(crate) dead_letters: Counter,
    /// Heartbeats or pulls refused since leases live in the group.
    pub(crate) group_mode_conflicts: Counter,
    /// Pulls and pops that read old messages.
    pub(crate) cold_reads: Counter,
    /// Requests refused for overload.
    pub(crate) busy: Counter,
    /// Puts by how long they took; the bounds are [`PUT_SPANS`].
    pub(crate) put_spans: [AtomicU64; PUT_SPANS.len()],
    /// Longest put in ms.
    pub(crate) put_max_ms: AtomicU64,
    samples: Mutex<VecDeque<(Monotonic, [u64; 4])>>,
    rounds: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            append_seconds: Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            flush_lag_bytes: Gauge::default(),
            dispatch_lag_bytes: Gauge::default(),
            long_polls: Gauge::default(),
            sends_waiting: Gauge::default(),
            consumer_lag: Family::default(),
            put_messages: Counter::default(),
            put_bytes: Counter::default(),
            put_failures: Counter::default(),
            get_messages: Counter::default(),
            get_bytes: Counter::default(),
            get_found: Counter::default(),
            get_missed: Counter::default(),
            delayed: Counter::default(),
            dead_letters: Counter::default(),
            group_mode_conflicts: Counter::default(),
            cold_reads: Counter::default(),
            busy: Counter::default(),
            put_spans: Default::default(),
            put_max_ms: AtomicU64::new(0),
            samples: Mutex::new(VecDeque::new()),
            rounds: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Registers the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let list: [(&str, &str, &Counter); 12] = [
            (
                "put_messages",
                "Messages stored for clients",
                &self.put_messages,
            ),
            (
                "put_bytes",
                "Bytes of records stored for clients",
                &self.put_bytes,
            ),
            (
                "put_failures",
                "Sends refused or failed",
                &self.put_failures,
            ),
            (
                "get_messages",
                "Messages given to pulls",
                &self.get_messages,
            ),
            ("get_bytes", "Bytes given to pulls", &self.get_bytes),
            ("get_found", "Pulls that found something", &self.get_found),
            ("get_missed", "Pulls that found nothing", &self.get_missed),
            ("delayed", "Delayed messages delivered", &self.delayed),
            (
                "dead_letters",
                "Messages that went to a dead-letter topic",
                &self.dead_letters,
            ),
            (
                "group_mode_conflicts",
                "Native requests refused since leases live in the group",
                &self.group_mode_conflicts,
            ),
            (
                "cold_reads",
                "Pulls and pops that read old messages, on threads of their own",
                &self.cold_reads,
            ),
            ("busy", "Requests refused for overload", &self.busy),
        ];
        for (name, help, counter) in list {
            registry.register(name, help, counter.clone());
        }
        let gauges: [(&str, &str, &Gauge); 4] = [
            (
                "flush_lag_bytes",
                "Bytes appended and not yet on the disk",
                &self.flush_lag_bytes,
            ),
            (
                "dispatch_lag_bytes",
                "Bytes appended and not yet visible in queues",
                &self.dispatch_lag_bytes,
            ),
            (
                "long_polls",
                "Pulls that wait for messages",
                &self.long_polls,
            ),
            (
                "sends_waiting",
                "Sends that wait for the disk",
                &self.sends_waiting,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "append_seconds",
            "Time of one append to the log",
            self.append_seconds.clone(),
        );
        registry.register(
            "consumer_lag_messages",
            "Messages that a group has not read, by committed offset",
            self.consumer_lag.clone(),
        );
    }

    /// Sets the gauges; called about once a second.
    pub(crate) fn show(&self, broker: &Broker) {
        let gauge = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let store = &broker.store;
        let written = store.written();
        gauge(&self.flush_lag_bytes, written.since(store.flushed()));
        gauge(&self.dispatch_lag_bytes, written.since(store.dispatched()));
        gauge(&self.long_polls, broker.holds.len() as u64);
        gauge(
            &self.sends_waiting,
            broker.durability.waiting(crate::durability::Waiter::Send) as u64,
        );
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        if round.is_multiple_of(LAG_EVERY) {
            self.show_lag(broker);
        }
    }

    /// Lag of every group with committed offsets. A group that is gone keeps no number.
    fn show_lag(&self, broker: &Broker) {
        self.consumer_lag.clear();
        for (group, topics) in broker.offsets.snapshot(LAG_GROUPS_MAX) {
            let lag: u64 = topics
                .iter()
                .flat_map(|(topic, queues)| queues.iter().map(move |queue| (topic, queue)))
                .map(|(topic, (queue_id, offset))| {
                    let max = broker.store.queue(topic, *queue_id).max.to_wire();
                    u64::try_from(max.saturating_sub(*offset)).unwrap_or(0)
                })
                .sum();
            let label = GroupLabel { group };
            self.consumer_lag
                .get_or_create(&label)
                .set(i64::try_from(lag).unwrap_or(i64::MAX));
        }
    }

    /// Takes one sample of the rates; called about once a second.
    pub(crate) fn sample(&self, now: Monotonic) {
        let mut samples = self.samples.lock();
        if samples.len() > WINDOW_SECONDS {
            samples.pop_front();
        }
        samples.push_back((
            now,
            [
                self.put_messages.get(),
                self.get_found.get(),
                self.get_missed.get(),
                self.get_messages.get(),
            ],
        ));
    }

    /// Rates of the last 10, 60 and 600 s, in the text form of code 28: `v10 v60 v600`.
    pub(crate) fn rates(&self) -> Rates {
        let samples = self.samples.lock();
        let text = |index: usize| {
            [10, 60, WINDOW_SECONDS]
                .map(|window| format!("{:?}", rate(&samples, window, index)))
                .join(" ")
        };
        Rates {
            put: text(0),
            found: text(1),
            missed: text(2),
            transferred: text(3),
        }
    }

    /// Notes how long a put took.
    pub(crate) fn put_took(&self, time: Duration) {
        self.append_seconds.observe(time.as_secs_f64());
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.put_max_ms.fetch_max(ms, Ordering::Relaxed);
        let span = PUT_SPANS.iter().position(|(bound, _)| ms <= *bound);
        if let Some(count) = span.and_then(|span| self.put_spans.get(span)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// See [`Metrics::rates`].
#[derive(Debug)]
pub(crate) struct Rates {
    /// Messages stored a second.
    pub(crate) put: String,
    /// Pulls that found something, a second.
    pub(crate) found: String,
    /// Pulls that found nothing, a second.
    pub(crate) missed: String,
    /// Messages given out a second.
    pub(crate) transferred: String,
}

fn rate(samples: &VecDeque<(Monotonic, [u64; 4])>, window: usize, index: usize) -> f64 {
    let Some((end, last)) = samples.back() else {
        return 0.0;
    };
    let back = samples.len().saturating_sub(1 + window);
    let Some((start, first)) = samples.get(back) else {
        return 0.0;
    };
    let seconds = end.since(*start).as_secs_f64();
    let (Some(first), Some(last)) = (first.get(index), last.get(index)) else {
        return 0.0;
    };
    if seconds <= 0.0 {
        0.0
    } else {
        last.saturating_sub(*first) as f64 / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_their_window() {
        let metrics = Metrics::default();
        let mut now = Monotonic::ZERO;
        for second in 0..100u64 {
            metrics.sample(now);
            metrics
                .put_messages
                .inc_by(if second >= 50 { 10 } else { 0 });
            now = now + Duration::from_secs(1);
        }
        metrics.sample(now);
        let rates = metrics.rates();
        assert!(rates.put.starts_with("10.0 "), "{}", rates.put);
        assert_eq!(rates.found, "0.0 0.0 0.0");
    }
}
