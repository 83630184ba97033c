//! A group and its lag as they are shown.

use super::answer;
use crate::params::{format_duration, format_time};
use crate::render::Members;
use crate::upstream::{Lag, default_group, etag};
use axum::http::StatusCode;
use axum::response::Response;
use wire::body::gantry::{Backoff, GroupDetail, GroupLag, QueueLag};

/// The same as it is shown.
pub(super) fn shown_position(text: &str) -> String {
    text.parse::<i64>()
        .map_or_else(|_| text.to_owned(), format_time)
}

pub(super) fn queue_lag(out: &mut Vec<u8>, broker: &str, queue: &QueueLag, detail: &GroupDetail) {
    // A retry topic is shown under the topic it belongs to.
    let topic = if queue.retry {
        queue
            .topic
            .rsplit_once('+')
            .map_or(queue.topic.as_str(), |(_, t)| t)
    } else {
        &queue.topic
    };
    let filtered = detail
        .subscriptions
        .iter()
        .any(|s| s.topic == topic && s.kind != "all");
    let ready = (queue.max_offset - queue.next_deliver.max(queue.min_offset)).max(0);
    let mut object = Members::open(out);
    object.text("topic", topic);
    object.queue("queue", broker, queue.queue_id);
    object.boolean("retry", queue.retry);
    object.number("minOffset", queue.min_offset);
    object.number("ackFloor", queue.ack_floor);
    object.number("nextDeliver", queue.next_deliver);
    object.number("maxOffset", queue.max_offset);
    object.number("ready", ready);
    object.number(
        "inFlight",
        i64::try_from(queue.in_flight).unwrap_or(i64::MAX),
    );
    object.number(
        "retrying",
        i64::try_from(queue.waiting).unwrap_or(i64::MAX) + if queue.retry { ready } else { 0 },
    );
    object.time_or_null("oldestReadyAt", queue.oldest_ready_at_ms);
    object.boolean("exact", !filtered);
    object.close();
}

/// Sums over queues and brokers.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(super) ready: i64,
    pub(super) in_flight: i64,
    pub(super) retrying: i64,
    pub(super) dlq_open: i64,
    pub(super) oldest_ready_at_ms: Option<i64>,
    rate_out: f64,
}

impl Totals {
    pub(crate) fn of(brokers: &[(String, GroupLag)]) -> Self {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut totals = Self::default();
        for (_, lag) in brokers {
            totals.dlq_open += whole(lag.dlq_open);
            totals.rate_out += lag.rate_out;
            for queue in &lag.queues {
                totals.oldest_ready_at_ms = totals
                    .oldest_ready_at_ms
                    .into_iter()
                    .chain(queue.oldest_ready_at_ms)
                    .min();
                let ready = (queue.max_offset - queue.next_deliver.max(queue.min_offset)).max(0);
                totals.in_flight += whole(queue.in_flight);
                totals.retrying += whole(queue.waiting) + if queue.retry { ready } else { 0 };
                totals.ready += if queue.retry { 0 } else { ready };
            }
        }
        totals
    }

    /// Open dead letters.
    pub(crate) fn dlq_open(&self) -> i64 {
        self.dlq_open
    }

    /// Messages not settled yet.
    pub(crate) fn lag(&self) -> i64 {
        self.ready + self.in_flight + self.retrying
    }

    /// Appends them to an answer.
    pub(super) fn show(&self, object: &mut Members<'_>) {
        object.number("lag", self.lag());
        object.number("ready", self.ready);
        object.number("inFlight", self.in_flight);
        object.number("retrying", self.retrying);
    }
}

/// The whole group.
pub(super) fn document(
    status: StatusCode,
    detail: &GroupDetail,
    lag: Option<&Lag>,
    pending: &[String],
    now_ms: i64,
) -> Response {
    let spec = &detail.spec;
    let mut out = Vec::with_capacity(1_024);
    let mut object = Members::open(&mut out);
    object.text("name", &detail.group);
    object.boolean("ordered", spec.ordered);
    object.text("invisibleFor", &format_duration(spec.invisible_ms));
    object.number("maxInFlight", i64::from(spec.max_in_flight));
    object.text("initialPosition", &shown_position(&spec.initial_position));
    let mut retry = Members::open(object.member("retry"));
    retry.number("maxAttempts", i64::from(spec.max_attempts));
    show_backoff(retry.member("backoff"), &spec.backoff);
    retry.close();
    let mut dead = Members::open(object.member("deadLetter"));
    dead.boolean("enabled", spec.dead_letter_enabled);
    let kept_ms = match spec.dead_letter_retention_ms {
        0 => default_group().dead_letter_retention_ms,
        ms => ms,
    };
    dead.text("retention", &format_duration(kept_ms));
    dead.close();
    object.text("onExhausted", "dlq");
    object.boolean("paused", spec.paused);
    object.text("description", &spec.description);
    let labels: Vec<(String, String)> = spec.labels.clone().into_iter().collect();
    object.map("labels", &labels);
    let list = object.member("subscriptions");
    list.push(b'[');
    for (i, subscription) in detail.subscriptions.iter().enumerate() {
        if i > 0 {
            list.push(b',');
        }
        super::subscriptions::show(list, subscription);
    }
    list.push(b']');
    if let Some(lag) = lag {
        let totals = Totals::of(&lag.brokers);
        let mut stats = Members::open(object.member("stats"));
        totals.show(&mut stats);
        stats.number("dlqOpen", totals.dlq_open);
        match totals.oldest_ready_at_ms {
            Some(at) => stats.text(
                "oldestReadyAge",
                &format_duration(u64::try_from(now_ms - at).unwrap_or(0)),
            ),
            None => stats.raw("oldestReadyAge", b"null"),
        }
        let rate = (totals.rate_out * 1_000.0).round() / 1_000.0;
        stats.raw("rateOut", rate.to_string().as_bytes());
        answer::partial(stats.member("partial"), &lag.partial);
        stats.close();
        // Only ordered groups block keys.
        object.raw("blockedKeys", b"[]");
    }
    object.text("etag", &etag(detail.version));
    if !pending.is_empty() {
        object.texts("pending", pending);
    }
    object.close();
    answer::versioned(status, out, detail.version)
}

fn show_backoff(out: &mut Vec<u8>, backoff: &Backoff) {
    let mut object = Members::open(out);
    match backoff {
        Backoff::List { delays_ms } => {
            object.text("kind", "list");
            let delays: Vec<String> = delays_ms.iter().map(|ms| format_duration(*ms)).collect();
            object.texts("delays", &delays);
        }
        Backoff::Exponential {
            initial_ms,
            max_ms,
            multiplier,
            jitter,
        } => {
            object.text("kind", "exponential");
            object.text("initial", &format_duration(*initial_ms));
            object.text("max", &format_duration(*max_ms));
            object.raw("multiplier", multiplier.to_string().as_bytes());
            object.raw("jitter", jitter.to_string().as_bytes());
        }
    }
    object.close();
}
