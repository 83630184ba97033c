//! POP receipts: the texts in which a pop answer says what was leased (RocketMQ 5.4.0 ExtraInfoUtil).
//!
//! ```text
//! extraInfo        ckQueueOffset popTime invisibleTime reviveQid retryFlag brokerName queueId msgQueueOffset
//! startOffsetInfo  retryFlag queueId startOffset            joined by ;
//! msgOffsetInfo    retryFlag queueId offset,offset…         joined by ;
//! orderCountInfo   retryFlag queueId count  or  retryFlag qo<queueId>%<offset> count
//! leases (ours)    retryFlag queueId queueOffset leaseId attempt visibleAtMs   joined by ;
//! entries (ours)   retryFlag queueId queueOffset attempt   joined by ;
//! gap (ours)       queueId from to   joined by ;
//! ```

use core::fmt::Write;

use crate::WireError;

const WHAT: &str = "receipt";

/// `reviveQid` of an ordered pop.
pub const REVIVE_QUEUE_ORDER: i32 = 999;

fn malformed(why: &'static str) -> WireError {
    WireError::Malformed { what: WHAT, why }
}

fn number<T: core::str::FromStr>(text: Option<&str>, why: &'static str) -> Result<T, WireError> {
    text.and_then(|t| t.parse().ok())
        .ok_or_else(|| malformed(why))
}

/// Which topic a popped message lay in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RetryFlag {
    /// The topic asked for.
    #[default]
    Normal,
    /// `%RETRY%group_topic`.
    V1,
    /// `%RETRY%group+topic`.
    V2,
    /// `%RETRY%group`, where consumers that pull give messages back. Only in answers of Gantry.
    Group,
}

impl RetryFlag {
    /// The digit.
    pub fn text(self) -> &'static str {
        match self {
            Self::Normal => "0",
            Self::V1 => "1",
            Self::V2 => "2",
            Self::Group => "3",
        }
    }

    /// From the digit.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, WireError> {
        match text {
            "0" => Ok(Self::Normal),
            "1" => Ok(Self::V1),
            "2" => Ok(Self::V2),
            "3" => Ok(Self::Group),
            _ => Err(malformed("unknown retry flag")),
        }
    }

    /// The topic the message lies in.
    pub fn topic(self, group: &str, topic: &str) -> String {
        match self {
            Self::Normal => topic.to_owned(),
            Self::V1 => format!("%RETRY%{group}_{topic}"),
            Self::V2 => format!("%RETRY%{group}+{topic}"),
            Self::Group => format!("%RETRY%{group}"),
        }
    }
}

/// One receipt, the `extraInfo` of ack and change-invisible requests and the property POP_CK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// First queue offset of the pop.
    pub start_offset: i64,
    /// When it was popped, epoch ms; with offset and queue it names the lease.
    pub pop_time_ms: i64,
    /// For how long, ms.
    pub invisible_ms: i64,
    /// Queue of the revive log.
    pub revive_queue_id: i32,
    /// Which topic.
    pub retry: RetryFlag,
    /// Broker.
    pub broker_name: String,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset of the message; older clients leave it out.
    pub queue_offset: Option<i64>,
}

impl Receipt {
    /// Reads `extraInfo`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with fewer than 7 parts or a part that is no number.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        let mut parts = text.split(' ');
        let receipt = Self {
            start_offset: number(parts.next(), "bad start offset")?,
            pop_time_ms: number(parts.next(), "bad pop time")?,
            invisible_ms: number(parts.next(), "bad invisible time")?,
            revive_queue_id: number(parts.next(), "bad revive queue")?,
            retry: RetryFlag::parse(parts.next().unwrap_or_default())?,
            broker_name: parts
                .next()
                .ok_or_else(|| malformed("no broker name"))?
                .to_owned(),
            queue_id: number(parts.next(), "bad queue id")?,
            queue_offset: match parts.next() {
                None => None,
                offset => Some(number(offset, "bad queue offset")?),
            },
        };
        Ok(receipt)
    }

    /// Writes `extraInfo`.
    pub fn encode(&self) -> String {
        let mut text = format!(
            "{} {} {} {} {} {} {}",
            self.start_offset,
            self.pop_time_ms,
            self.invisible_ms,
            self.revive_queue_id,
            self.retry.text(),
            self.broker_name,
            self.queue_id
        );
        if let Some(offset) = self.queue_offset {
            push(&mut text, format_args!(" {offset}"));
        }
        text
    }
}

fn push(text: &mut String, args: core::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    if text.write_fmt(args).is_err() {
        text.clear();
    }
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push(';');
    }
}

/// One entry of startOffsetInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartOffset {
    /// Which topic.
    pub retry: RetryFlag,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset of the pop there.
    pub start_offset: i64,
}

/// Appends an entry to startOffsetInfo.
pub fn push_start_offset(text: &mut String, entry: StartOffset) {
    separate(text);
    push(
        text,
        format_args!(
            "{} {} {}",
            entry.retry.text(),
            entry.queue_id,
            entry.start_offset
        ),
    );
}

/// Reads startOffsetInfo; empty text has no entries.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn parse_start_offsets(text: &str) -> Result<Vec<StartOffset>, WireError> {
    entries(text)
        .map(|entry| {
            let mut parts = entry.split(' ');
            Ok(StartOffset {
                retry: RetryFlag::parse(parts.next().unwrap_or_default())?,
                queue_id: number(parts.next(), "bad queue id")?,
                start_offset: number(parts.next(), "bad start offset")?,
            })
        })
        .collect()
}

/// One entry of msgOffsetInfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageOffsets {
    /// Which topic.
    pub retry: RetryFlag,
    /// Queue.
    pub queue_id: i32,
    /// Queue offsets of the messages, in body order.
    pub offsets: Vec<i64>,
}

/// Appends an entry to msgOffsetInfo.
pub fn push_message_offsets(text: &mut String, retry: RetryFlag, queue_id: i32, offsets: &[i64]) {
    separate(text);
    push(text, format_args!("{} {}", retry.text(), queue_id));
    for (i, offset) in offsets.iter().enumerate() {
        push(
            text,
            format_args!("{}{offset}", if i == 0 { ' ' } else { ',' }),
        );
    }
}

/// Reads msgOffsetInfo.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn parse_message_offsets(text: &str) -> Result<Vec<MessageOffsets>, WireError> {
    entries(text)
        .map(|entry| {
            let mut parts = entry.split(' ');
            Ok(MessageOffsets {
                retry: RetryFlag::parse(parts.next().unwrap_or_default())?,
                queue_id: number(parts.next(), "bad queue id")?,
                offsets: parts
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .map(|offset| number(Some(offset), "bad queue offset"))
                    .collect::<Result<_, _>>()?,
            })
        })
        .collect()
}

/// Appends the redelivery count of a queue to orderCountInfo.
pub fn push_order_count(text: &mut String, retry: RetryFlag, queue_id: i32, count: i32) {
    separate(text);
    push(text, format_args!("{} {queue_id} {count}", retry.text()));
}

/// Appends the redelivery count of one offset to orderCountInfo.
pub fn push_order_count_at(
    text: &mut String,
    retry: RetryFlag,
    queue_id: i32,
    queue_offset: i64,
    count: i32,
) {
    separate(text);
    push(
        text,
        format_args!("{} qo{queue_id}%{queue_offset} {count}", retry.text()),
    );
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter(|entry| !entry.is_empty())
}

/// One entry of `leases`, the answer of a pop by Gantry's gateway: one per message, in body order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Which topic.
    pub retry: RetryFlag,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset of the message.
    pub queue_offset: i64,
    /// Names the lease.
    pub lease_id: u64,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// When it becomes visible again unless settled, epoch ms.
    pub visible_at_ms: i64,
}

/// Appends an entry to `leases`.
pub fn push_lease(text: &mut String, lease: Lease) {
    separate(text);
    push(
        text,
        format_args!(
            "{} {} {} {} {} {}",
            lease.retry.text(),
            lease.queue_id,
            lease.queue_offset,
            lease.lease_id,
            lease.attempt,
            lease.visible_at_ms
        ),
    );
}

/// Reads `leases`.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn parse_leases(text: &str) -> Result<Vec<Lease>, WireError> {
    entries(text)
        .map(|entry| {
            let mut parts = entry.split(' ');
            Ok(Lease {
                retry: RetryFlag::parse(parts.next().unwrap_or_default())?,
                queue_id: number(parts.next(), "bad queue id")?,
                queue_offset: number(parts.next(), "bad queue offset")?,
                lease_id: number(parts.next(), "bad lease id")?,
                attempt: number(parts.next(), "bad attempt")?,
                visible_at_ms: number(parts.next(), "bad time")?,
            })
        })
        .collect()
}

/// One entry of `entries`, the answer of a peek by Gantry's gateway: one per message, in body order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peeked {
    /// Which topic.
    pub retry: RetryFlag,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset of the message.
    pub queue_offset: i64,
    /// Which delivery the next one would be, 1 for the first.
    pub attempt: u32,
}

/// Appends an entry to `entries`.
pub fn push_peeked(text: &mut String, entry: Peeked) {
    separate(text);
    push(
        text,
        format_args!(
            "{} {} {} {}",
            entry.retry.text(),
            entry.queue_id,
            entry.queue_offset,
            entry.attempt
        ),
    );
}

/// Reads `entries`.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn parse_peeked(text: &str) -> Result<Vec<Peeked>, WireError> {
    entries(text)
        .map(|entry| {
            let mut parts = entry.split(' ');
            Ok(Peeked {
                retry: RetryFlag::parse(parts.next().unwrap_or_default())?,
                queue_id: number(parts.next(), "bad queue id")?,
                queue_offset: number(parts.next(), "bad queue offset")?,
                attempt: number(parts.next(), "bad attempt")?,
            })
        })
        .collect()
}

/// One entry of `gap`: queue offsets `[from, to)` that retention deleted before the group read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Queue of the topic asked for.
    pub queue_id: i32,
    /// First lost offset.
    pub from: i64,
    /// First offset that is still there.
    pub to: i64,
}

/// Appends an entry to `gap`.
pub fn push_gap(text: &mut String, gap: Gap) {
    separate(text);
    push(
        text,
        format_args!("{} {} {}", gap.queue_id, gap.from, gap.to),
    );
}

/// Reads `gap`.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn parse_gaps(text: &str) -> Result<Vec<Gap>, WireError> {
    entries(text)
        .map(|entry| {
            let mut parts = entry.split(' ');
            Ok(Gap {
                queue_id: number(parts.next(), "bad queue id")?,
                from: number(parts.next(), "bad offset")?,
                to: number(parts.next(), "bad offset")?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_round_trip() {
        let text = "0 1795975491417 11000 3 0 broker-a 2 17";
        let receipt = Receipt::parse(text).unwrap();
        assert_eq!(
            (
                receipt.queue_id,
                receipt.queue_offset,
                receipt.revive_queue_id
            ),
            (2, Some(17), 3)
        );
        assert_eq!(receipt.encode(), text);
        assert_eq!(Receipt::parse("0 1 2 3 0 b 2").unwrap().queue_offset, None);
        for bad in [
            "",
            "0 1 2 3 0 b",
            "0 1 2 3 9 b 2",
            "x 1 2 3 0 b 2",
            "0 1 2 3 0 b 2 y",
        ] {
            assert!(Receipt::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pop_infos_round_trip() {
        let mut starts = String::new();
        push_start_offset(
            &mut starts,
            StartOffset {
                retry: RetryFlag::Normal,
                queue_id: 0,
                start_offset: 5,
            },
        );
        push_start_offset(
            &mut starts,
            StartOffset {
                retry: RetryFlag::V2,
                queue_id: 1,
                start_offset: 0,
            },
        );
        assert_eq!(starts, "0 0 5;2 1 0");
        assert_eq!(parse_start_offsets(&starts).unwrap().len(), 2);
        let mut offsets = String::new();
        push_message_offsets(&mut offsets, RetryFlag::Normal, 0, &[5, 6]);
        push_message_offsets(&mut offsets, RetryFlag::V1, 1, &[0]);
        assert_eq!(offsets, "0 0 5,6;1 1 0");
        assert_eq!(
            parse_message_offsets(&offsets)
                .unwrap()
                .first()
                .unwrap()
                .offsets,
            [5, 6]
        );
        assert!(
            parse_message_offsets("0 0").is_err() && parse_start_offsets("").unwrap().is_empty()
        );
        let mut counts = String::new();
        push_order_count_at(&mut counts, RetryFlag::Normal, 0, 2, 1);
        push_order_count(&mut counts, RetryFlag::Normal, 0, 0);
        assert_eq!(counts, "0 qo0%2 1;0 0 0");
    }

    #[test]
    fn leases_round_trip() {
        let lease = Lease {
            retry: RetryFlag::V2,
            queue_id: 1,
            queue_offset: 2,
            lease_id: u64::MAX,
            attempt: 4,
            visible_at_ms: 5,
        };
        let mut text = String::new();
        push_lease(&mut text, lease);
        push_lease(&mut text, lease);
        assert_eq!(parse_leases(&text).unwrap(), [lease, lease]);
    }

    #[test]
    fn peeked_entries_and_gaps_round_trip() {
        let entry = Peeked {
            retry: RetryFlag::Group,
            queue_id: 1,
            queue_offset: 2,
            attempt: 3,
        };
        let mut text = String::new();
        push_peeked(&mut text, entry);
        push_peeked(&mut text, entry);
        assert_eq!(text, "3 1 2 3;3 1 2 3");
        assert_eq!(parse_peeked(&text).unwrap(), [entry, entry]);
        let gap = Gap {
            queue_id: 4,
            from: 5,
            to: 9,
        };
        let mut text = String::new();
        push_gap(&mut text, gap);
        push_gap(&mut text, gap);
        assert_eq!(text, "4 5 9;4 5 9");
        assert_eq!(parse_gaps(&text).unwrap(), [gap, gap]);
        assert!(parse_gaps("1 2").is_err() && parse_peeked("0 0 0").is_err());
    }
}
