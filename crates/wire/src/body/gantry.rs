//! Bodies of Gantry's own requests (codes from 900001 on): topics, groups, subscriptions, settlement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a topic shall be (PUT_TOPIC).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicSpec {
    /// Queues to read from.
    pub read_queues: i32,
    /// Queues to write to.
    pub write_queues: i32,
    /// Bits: 4 read, 2 write.
    pub perm: i32,
    /// RocketMQ attributes such as `message.type`, and Gantry's, which start with `gantry.`.
    pub attributes: BTreeMap<String, String>,
}

impl Default for TopicSpec {
    fn default() -> Self {
        Self {
            read_queues: 4,
            write_queues: 4,
            perm: 6,
            attributes: BTreeMap::new(),
        }
    }
}

/// A topic as it is (answer of PUT_TOPIC and GET_TOPIC).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicDetail {
    /// Name.
    pub topic: String,
    /// Version of the settings, counted by the broker.
    pub version: u64,
    /// Differs once the topic was deleted and made again on this broker; 0 = from before this was kept.
    pub epoch: u64,
    /// Decides between two contents of one version: the greater one stays.
    pub hash: String,
    /// The settings.
    #[serde(flatten)]
    pub spec: TopicSpec,
    /// One entry per queue.
    pub queues: Vec<QueueDetail>,
}

/// Range of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueDetail {
    /// Queue id.
    pub id: i32,
    /// Oldest offset kept.
    pub min_offset: i64,
    /// Next offset to be written.
    pub max_offset: i64,
    /// Store time of the oldest message, epoch ms; -1 without one.
    pub earliest_at_ms: i64,
    /// Store time of the newest message, epoch ms; -1 without one.
    pub latest_at_ms: i64,
}

/// What a consumer group shall be (PUT_GROUP).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// Deliver messages with the same ordering key one after the other.
    pub ordered: bool,
    /// Lease time, ms.
    pub invisible_ms: u64,
    /// Leases at a time, over all queues.
    pub max_in_flight: u32,
    /// `latest`, `earliest`, or a time in epoch ms.
    pub initial_position: String,
    /// Delay before each redelivery.
    pub backoff: Backoff,
    /// Deliveries before a message is dead, 1 to 100.
    pub max_attempts: u32,
    /// Whether dead messages go to the dead-letter topic.
    pub dead_letter_enabled: bool,
    /// How long dead letters outlive their log file, ms; 0 = 14 days.
    pub dead_letter_retention_ms: u64,
    /// What happens to a message out of attempts.
    pub on_exhausted: String,
    /// No deliveries while true.
    pub paused: bool,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// For people and lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self {
            ordered: false,
            invisible_ms: 30_000,
            max_in_flight: 20_000,
            initial_position: "latest".to_owned(),
            backoff: Backoff::default(),
            max_attempts: 16,
            dead_letter_enabled: true,
            dead_letter_retention_ms: 0,
            on_exhausted: "deadLetter".to_owned(),
            paused: false,
            description: String::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// Delay before a redelivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Backoff {
    /// The n-th delay before the n-th redelivery; the last one repeats.
    #[serde(rename_all = "camelCase")]
    List {
        /// Delays, ms.
        delays_ms: Vec<u64>,
    },
    /// `initial * multiplier^n`, at most `max`.
    #[serde(rename_all = "camelCase")]
    Exponential {
        /// First delay, ms.
        initial_ms: u64,
        /// Longest delay, ms.
        max_ms: u64,
        /// Factor per attempt.
        multiplier: f64,
        /// Share of the delay that is random, 0 to 1.
        jitter: f64,
    },
}

/// The delay levels of RocketMQ from 10 s on.
impl Default for Backoff {
    fn default() -> Self {
        let seconds = [
            10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
        ];
        Self::List {
            delays_ms: seconds.iter().map(|s| s * 1000).collect(),
        }
    }
}

/// One subscription of a group (PUT_SUBSCRIPTION).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionSpec {
    /// Topic.
    pub topic: String,
    /// `all` or `tag`.
    pub kind: String,
    /// Tags joined by `||`; `*` for all.
    pub expression: String,
    /// Overrides the group's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_position: Option<String>,
    /// Version, counted by the broker.
    pub version: u64,
    /// When it was made, epoch ms: where a broker that hears of it later lets `latest` begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_at_ms: Option<i64>,
}

impl Default for SubscriptionSpec {
    fn default() -> Self {
        Self {
            topic: String::new(),
            kind: "all".to_owned(),
            expression: "*".to_owned(),
            initial_position: None,
            version: 0,
            made_at_ms: None,
        }
    }
}

/// A group as it is (answer of PUT_GROUP, GET_GROUP, PUT_ and DELETE_SUBSCRIPTION).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupDetail {
    /// Name.
    pub group: String,
    /// Version of the settings, counted by the broker.
    pub version: u64,
    /// Decides between two contents of one version: the greater one stays.
    pub hash: String,
    /// The settings.
    pub spec: GroupSpec,
    /// What it reads.
    pub subscriptions: Vec<SubscriptionSpec>,
}

/// How far a group is (answer of GROUP_LAG).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupLag {
    /// Per queue of every subscribed topic and of its retry topic.
    pub queues: Vec<QueueLag>,
    /// Dead letters not yet dealt with.
    pub dlq_open: u64,
    /// Messages a second given out in the last minute, redeliveries included.
    pub rate_out: f64,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueLag {
    /// Topic; the retry topic for retries.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// True for a retry topic.
    pub retry: bool,
    /// Oldest offset kept.
    pub min_offset: i64,
    /// Everything below is settled.
    pub ack_floor: i64,
    /// Next offset to deliver.
    pub next_deliver: i64,
    /// Next offset to be written.
    pub max_offset: i64,
    /// Leases held.
    pub in_flight: u64,
    /// Nacked or expired and not yet put back.
    pub waiting: u64,
    /// Store time of the message at `next_deliver`, epoch ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ready_at_ms: Option<i64>,
}

/// Settlements of one group (SETTLE).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SettleRequest {
    /// In the order in which they are applied.
    pub items: Vec<SettleItem>,
}

/// The answer of SETTLE: same order, same length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SettleResponse {
    /// One result per item.
    pub results: Vec<SettleResult>,
}

/// What shall become of a leased message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SettleOp {
    /// Done.
    #[default]
    Ack,
    /// Deliver again after `delay_ms` or the group's backoff.
    Nack,
    /// To the dead-letter topic at once.
    Dead,
    /// Keep the lease `invisible_ms` from now.
    Extend,
    /// Visible after `invisible_ms` (0 = at once), attempt counted; never lengthens the lease.
    Release,
    /// Visible at once, attempt not counted.
    Suspend,
}

/// One settlement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SettleItem {
    /// Topic whose queue was popped; the retry topic for a retry.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset of the message.
    pub queue_offset: i64,
    /// The lease, from the pop answer.
    pub lease_id: u64,
    /// What to do.
    pub op: SettleOp,
    /// For nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// For extend and release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invisible_ms: Option<u64>,
    /// Why, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For extend: the lease counts for this member from now on. For release: only if it counts for this member, else
    /// the answer is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SettleStatus {
    /// Done with.
    Acked,
    /// Will come again.
    Nacked,
    /// In the dead-letter topic.
    DeadLettered,
    /// Lease prolonged.
    Extended,
    /// Given back.
    Released,
    /// No such lease (any more).
    #[default]
    Gone,
    /// Refused: a limit is reached.
    Limit,
}

/// Result of one settlement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SettleResult {
    /// What became of it.
    pub status: SettleStatus,
    /// The lease had expired but nobody else had the message yet.
    pub late: bool,
    /// It had been settled the same way before.
    pub already: bool,
    /// When the message is visible again, epoch ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible_at_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn bodies_round_trip() {
        let detail = GroupDetail {
            group: "g".into(),
            subscriptions: vec![SubscriptionSpec::default()],
            ..GroupDetail::default()
        };
        assert_eq!(
            json::from_slice::<GroupDetail>(&json::to_vec(&detail)).unwrap(),
            detail
        );
        let topic = TopicDetail {
            topic: "t".into(),
            version: 3,
            queues: vec![QueueDetail::default()],
            ..TopicDetail::default()
        };
        let bytes = json::to_vec(&topic);
        assert!(String::from_utf8_lossy(&bytes).contains("\"readQueues\":4"));
        assert_eq!(json::from_slice::<TopicDetail>(&bytes).unwrap(), topic);
        let spec = GroupSpec {
            backoff: Backoff::Exponential {
                initial_ms: 1,
                max_ms: 2,
                multiplier: 2.0,
                jitter: 0.1,
            },
            ..GroupSpec::default()
        };
        assert_eq!(
            json::from_slice::<GroupSpec>(&json::to_vec(&spec)).unwrap(),
            spec
        );
        let result = SettleResult {
            status: SettleStatus::DeadLettered,
            ..SettleResult::default()
        };
        assert!(String::from_utf8_lossy(&json::to_vec(&result)).contains("deadLettered"));
    }
}
