//! Statistics: topics (202), groups (208, 317), brokers (315).

use std::collections::BTreeMap;

use super::object;
use super::queue::QueueMap;

object! {
    /// Answer of 202.
    TopicStatsTable {
        /// By queue.
        offset_table: QueueMap<TopicOffset>,
        /// Messages per second.
        topic_put_tps: f64,
    }
}

object! {
    /// Range of a queue.
    TopicOffset {
        /// Store time of the newest message, epoch ms; 0 without one.
        last_update_timestamp: i64,
        /// Next offset to be written.
        max_offset: i64,
        /// Oldest offset kept.
        min_offset: i64,
    }
}

object! {
    /// Answer of 208.
    ConsumeStats {
        /// Messages per second.
        consume_tps: f64,
        /// By queue.
        offset_table: QueueMap<OffsetProgress>,
    }
}

object! {
    /// How far a group is in a queue.
    OffsetProgress {
        /// Next offset to be written.
        broker_offset: i64,
        /// Committed offset.
        consumer_offset: i64,
        /// Store time of the last consumed message, epoch ms; 0 without one.
        last_timestamp: i64,
        /// Offset of the last pull.
        pull_offset: i64,
    }
}

object! {
    /// Answer of 317.
    ConsumeStatsList {
        /// The broker.
        #[serde(skip_serializing_if = "Option::is_none")]
        broker_addr: Option<String>,
        /// One map per group, with one entry per topic.
        consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
        /// Messages behind.
        total_diff: i64,
        /// Messages pulled and not committed.
        total_inflight_diff: i64,
    }
}

object! {
    /// Answer of 315.
    BrokerStatsData {
        /// Of a day.
        stats_day: StatsItem,
        /// Of an hour.
        stats_hour: StatsItem,
        /// Of a minute.
        stats_minute: StatsItem,
    }
}

object! {
    /// A sum over a span.
    StatsItem {
        /// Average per call.
        avgpt: f64,
        /// Sum.
        sum: i64,
        /// Per second.
        tps: f64,
    }
}
