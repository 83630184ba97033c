//! Code 28: numbers of the running broker, under the names that `mqadmin` parses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use remoting::Connection;
use serde::Serialize;
use store::PhysicalOffset;
use wire::Command;
use wire::message::record::RecordView;

use super::json_answer;
use crate::broker::Broker;
use crate::durability::Waiter;
use crate::error::BrokerError;
use crate::metrics::PUT_SPANS;
use crate::names;
use crate::settings::Key;

/// Protocol release this broker follows.
const VERSION: &str = "V5_4_0";

#[derive(Debug, Serialize)]
struct Table {
    table: BTreeMap<String, String>,
}

/// Answers the table.
pub(crate) fn get(
    broker: &Arc<Broker>,
    _cmd: &Command,
    _conn: &Arc<Connection>,
) -> Result<Command, BrokerError> {
    let mut table = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        table.insert(key.to_owned(), value);
    };
    let now_ms = broker.now_ms();
    put("brokerVersionDesc", VERSION.to_owned());
    put("brokerVersion", wire::version::OURS.to_string());
    put(
        "brokerActive",
        (!broker.stopping.is_cancelled()).to_string(),
    );
    put("bootTimestamp", broker.started_ms.to_string());
    put(
        "runtime",
        duration_text(now_ms.saturating_sub(broker.started_ms)),
    );
    put("startAcceptSendRequestTimeStamp", "0".to_owned());
    counters(broker, &mut put);
    log(broker, &mut put);
    queues(broker, &mut put);
    disk(broker, &mut put);
    for (level, next) in broker.delay.progress() {
        let queue_id = i32::try_from(level - 1).unwrap_or(0);
        let max = broker.store.queue(names::SCHEDULE_TOPIC, queue_id).max;
        put(
            &format!("scheduleMessageOffset_{level}"),
            format!("{next},{max}"),
        );
    }
    Ok(json_answer(&Table { table }))
}

/// Totals and rates. The counters start with the process, so what was before it is not in them.
fn counters(broker: &Broker, put: &mut impl FnMut(&str, String)) {
    let metrics = &broker.metrics;
    let stored = metrics.put_messages.get();
    let read = metrics.get_messages.get();
    let day = broker.day_totals();
    put("msgPutTotalTodayNow", stored.to_string());
    put("msgPutTotalTodayMorning", day.put_today.to_string());
    put("msgPutTotalYesterdayMorning", day.put_yesterday.to_string());
    put("msgGetTotalTodayNow", read.to_string());
    put("msgGetTotalTodayMorning", day.get_today.to_string());
    put("msgGetTotalYesterdayMorning", day.get_yesterday.to_string());
    put("putMessageTimesTotal", stored.to_string());
    put(
        "putMessageFailedTimes",
        metrics.put_failures.get().to_string(),
    );
    put("putMessageSizeTotal", metrics.put_bytes.get().to_string());
    let average = if stored == 0 {
        0.0
    } else {
        metrics.put_bytes.get() as f64 / stored as f64
    };
    put("putMessageAverageSize", format!("{average:?}"));
    put(
        "putMessageEntireTimeMax",
        metrics.put_max_ms.load(Ordering::Relaxed).to_string(),
    );
    let spans: Vec<String> = PUT_SPANS
        .iter()
        .zip(&metrics.put_spans)
        .map(|((_, name), count)| format!("[{name}]:{}", count.load(Ordering::Relaxed)))
        .collect();
    put("putMessageDistributeTime", spans.join(" "));
    let rates = metrics.rates();
    put("putTps", rates.put);
    put("getFoundTps", rates.found.clone());
    put("getMissTps", rates.missed);
    put("getTotalTps", rates.found);
    put("getTransferredTps", rates.transferred);
}

fn log(broker: &Broker, put: &mut impl FnMut(&str, String)) {
    let store = &broker.store;
    let written = store.written();
    put("commitLogMinOffset", store.min_physical().to_string());
    put("commitLogMaxOffset", written.to_string());
    put(
        "dispatchBehindBytes",
        written.since(store.dispatched()).to_string(),
    );
    put("dispatchMaxBuffer", "0".to_owned());
    put(
        "remainHowManyDataToFlush",
        bytes_text(written.since(store.flushed())),
    );
    put("remainTransientStoreBufferNumbs", i32::MAX.to_string());
    put(
        "pageCacheLockTimeMills",
        if store.busy() { "1000" } else { "0" }.to_owned(),
    );
    put(
        "earliestMessageTimeStamp",
        earliest(broker, store.min_physical()).to_string(),
    );
    for key in ["timerReadBehind", "timerOffsetBehind", "timerCongestNum"] {
        put(key, "0".to_owned());
    }
    for key in ["timerEnqueueTps", "timerDequeueTps"] {
        put(key, "0.0".to_owned());
    }
}

fn earliest(broker: &Broker, at: PhysicalOffset) -> i64 {
    match broker.store.record_at(at) {
        Ok(Some(record)) => RecordView::parse(&record).map_or(-1, |view| view.store_ts_ms),
        Ok(None) | Err(_) => -1,
    }
}

/// There are no thread pools with queues: what waits is counted where it waits.
fn queues(broker: &Broker, put: &mut impl FnMut(&str, String)) {
    let live = &broker.live;
    let classes = [
        (
            "send",
            broker.durability.waiting(Waiter::Send),
            live.get(Key::Sends),
        ),
        ("pull", 0, live.get(Key::LongPolls)),
        ("litePull", 0, live.get(Key::LongPolls)),
        ("query", 0, live.get(Key::Admin)),
        (
            "ack",
            broker.durability.waiting(Waiter::Settle),
            live.get(Key::Acks),
        ),
    ];
    for (class, size, capacity) in classes {
        put(&format!("{class}ThreadPoolQueueSize"), size.to_string());
        put(
            &format!("{class}ThreadPoolQueueCapacity"),
            capacity.to_string(),
        );
        put(
            &format!("{class}ThreadPoolQueueHeadWaitTimeMills"),
            "0".to_owned(),
        );
    }
    put("EndTransactionQueueSize", "0".to_owned());
    put("EndTransactionThreadPoolQueueCapacity", "0".to_owned());
    put("longPolls", broker.holds.len().to_string());
}

fn disk(broker: &Broker, put: &mut impl FnMut(&str, String)) {
    let usage = broker.store.disk_usage().ok();
    let (total, free) = usage.map_or((0, 0), |usage| (usage.total_bytes, usage.free_bytes));
    let ratio = usage.map_or(0.0, |usage| usage.ratio());
    put(
        "commitLogDirCapacity",
        format!(
            "Total : {}, Free : {}.",
            bytes_text(total),
            bytes_text(free)
        ),
    );
    let log = broker.store.root().join("commitlog");
    for key in [
        "commitLogDiskRatio".to_owned(),
        format!("commitLogDiskRatio_{}", log.display()),
        "consumeQueueDiskRatio".to_owned(),
    ] {
        put(&key, format!("{ratio:.2}"));
    }
}

/// `[ d days, h hours, m minutes, s seconds ]`
fn duration_text(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    format!(
        "[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]",
        seconds % 60
    )
}

/// `6.2 KiB`
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_form_that_tools_parse() {
        assert_eq!(
            duration_text(90_061_000),
            "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
        );
        assert_eq!(bytes_text(262), "262 B");
        assert_eq!(bytes_text(6_349), "6.2 KiB");
    }
}
