//! Message properties: `name 0x01 value 0x02`, repeated (RocketMQ MessageDecoder).

use std::collections::HashMap;

use crate::WireError;

/// Between a name and its value.
pub const NAME_END: char = '\u{1}';
/// After a value.
pub const VALUE_END: char = '\u{2}';
/// The longest property section a record can carry, bytes: its length field is a signed 16-bit number.
pub const PROPERTIES_MAX_BYTES: usize = 32_767;

/// Up to this many entries are searched one by one while reading.
const SCAN_MAX: usize = 32;

/// Names with a meaning.
pub mod names {
    macro_rules! names {
        ($($(#[$m:meta])* $ident:ident = $text:literal,)*) => {
            $($(#[$m])* pub const $ident: &str = $text;)*
            /// Every name RocketMQ or Gantry gives a meaning to; users may not set them.
            pub const RESERVED: &[&str] = &[$($text,)*];
        };
    }
    names! {
        /// User keys, joined by a space.
        KEYS = "KEYS",
        /// Tag.
        TAGS = "TAGS",
        /// `false`: the sender does not wait for flush or replicas.
        WAIT = "WAIT",
        /// Delay level, 1 to 18.
        DELAY = "DELAY",
        /// First topic of a retried message.
        RETRY_TOPIC = "RETRY_TOPIC",
        /// Group whose retry this is (POP).
        ORIGIN_GROUP = "ORIGIN_GROUP",
        /// Topic while parked elsewhere.
        REAL_TOPIC = "REAL_TOPIC",
        /// Queue id while parked elsewhere.
        REAL_QID = "REAL_QID",
        /// `true` on a half message.
        TRAN_MSG = "TRAN_MSG",
        /// Producer group.
        PGROUP = "PGROUP",
        /// Set by clients from the pull answer.
        MIN_OFFSET = "MIN_OFFSET",
        /// Set by clients from the pull answer.
        MAX_OFFSET = "MAX_OFFSET",
        /// Legacy.
        BUYER_ID = "BUYER_ID",
        /// Legacy.
        TRANSFER_FLAG = "TRANSFER_FLAG",
        /// Legacy.
        CORRECTION_FLAG = "CORRECTION_FLAG",
        /// Legacy.
        MQ2_FLAG = "MQ2_FLAG",
        /// Id of the first copy of a retried message.
        ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID",
        /// Retry count when resent through a normal send.
        RECONSUME_TIME = "RECONSUME_TIME",
        /// Limit of the above.
        MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES",
        /// Region id.
        MSG_REGION = "MSG_REGION",
        /// Trace switch.
        TRACE_ON = "TRACE_ON",
        /// Client message id.
        UNIQ_KEY = "UNIQ_KEY",
        /// More about the client id.
        EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO",
        /// Client side.
        CONSUME_START_TIME = "CONSUME_START_TIME",
        /// Number of messages in an inner batch.
        INNER_NUM = "INNER_NUM",
        /// First offset of an inner batch.
        INNER_BASE = "INNER_BASE",
        /// De-duplication data.
        DUP_INFO = "DUP_INFO",
        /// Seconds in which a transaction is not asked about.
        CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS",
        /// Half-queue offset of the first put.
        TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET",
        /// Transaction id.
        TRANSACTION_ID = "__transactionId__",
        /// How often a transaction was asked about.
        TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES",
        /// Namespace id.
        INSTANCE_ID = "INSTANCE_ID",
        /// Request-reply correlation.
        CORRELATION_ID = "CORRELATION_ID",
        /// Client id that waits for a reply.
        REPLY_TO_CLIENT = "REPLY_TO_CLIENT",
        /// Request-reply time limit, ms.
        TTL = "TTL",
        /// When a request arrived at the broker.
        ARRIVE_TIME = "ARRIVE_TIME",
        /// When a reply was pushed.
        PUSH_REPLY_TIME = "PUSH_REPLY_TIME",
        /// Cluster name, added by the broker.
        CLUSTER = "CLUSTER",
        /// `reply` on replies.
        MSG_TYPE = "MSG_TYPE",
        /// POP receipt.
        POP_CK = "POP_CK",
        /// Offset of the POP check point.
        POP_CK_OFFSET = "POP_CK_OFFSET",
        /// Time of the first pop, ms.
        FIRST_POP_TIME = "1ST_POP_TIME",
        /// Ordering key.
        SHARDING_KEY = "__SHARDINGKEY",
        /// Static topics.
        FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID",
        /// Static topics.
        REDIRECT = "REDIRECT",
        /// Fan-out to light queues.
        INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH",
        /// Fan-out to light queues.
        INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET",
        /// Trace context.
        TRACE_CONTEXT = "TRACE_CONTEXT",
        /// Requested delay, seconds.
        TIMER_DELAY_SEC = "TIMER_DELAY_SEC",
        /// Requested delay, ms.
        TIMER_DELAY_MS = "TIMER_DELAY_MS",
        /// Requested delivery time, epoch ms.
        TIMER_DELIVER_MS = "TIMER_DELIVER_MS",
        /// Timer bookkeeping.
        TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS",
        /// Timer bookkeeping.
        TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS",
        /// Timer bookkeeping.
        TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES",
        /// Timer bookkeeping.
        TIMER_OUT_MS = "TIMER_OUT_MS",
        /// Timer bookkeeping.
        TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY",
        /// Timer bookkeeping.
        TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL",
        /// Timer bookkeeping.
        TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL",
        /// Transaction bookkeeping.
        TRANS_OFFSET = "TRANS_OFFSET",
        /// Priority.
        PRIORITY = "_SYS_MSG_PRIORITY_",
        /// Born host, from a proxy.
        BORN_HOST = "__BORNHOST",
        /// Born time, from a proxy.
        BORN_TIMESTAMP = "BORN_TIMESTAMP",
        /// Appended checksum.
        CRC32 = "__CRC32#",
        /// First topic of a dead letter.
        DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC",
        /// First id of a dead letter.
        DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID",
        /// Gantry: `queueId queueOffset storeTsMs` of the first store.
        ORIGIN = "__ORIGIN",
        /// Gantry: code of the last negative settlement.
        ERR_CODE = "__ERR_CODE",
        /// Gantry: reason of the last negative settlement.
        ERR_REASON = "__ERR_REASON",
        /// Gantry: time of the last negative settlement, ms.
        ERR_AT = "__ERR_AT",
        /// Gantry: `leaseId queueId queueOffset topic` of the lease this record ends.
        LEASE = "__LEASE",
        /// Gantry: `maxAttempts`, `rejected` or `manual`.
        DEAD_CAUSE = "__DEAD_CAUSE",
        /// Gantry: when the letter became dead, ms.
        DEAD_AT = "__DEAD_AT",
        /// Gantry: content type of the body.
        CONTENT_TYPE = "__CT",
        /// Gantry: W3C trace parent.
        TRACE_PARENT = "__TRACEPARENT",
    }

    /// True for names users may not set: the listed ones and everything that starts with `__`.
    pub fn is_reserved(name: &str) -> bool {
        name.starts_with("__") || RESERVED.contains(&name)
    }
}

/// Properties in order of arrival, owned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: Vec<(String, String)>,
}

impl Properties {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads property text; a missing last separator is fine. Entries with an empty name or value, or
    /// without a separator, are dropped. Of a repeated name the last value counts.
    pub fn parse(text: &str) -> Self {
        Self::read(entries(text))
    }

    /// Collects what was read. Many entries are told apart by hashing, so that a text of megabytes
    /// costs no more than its length.
    fn read<'t>(entries: impl Iterator<Item = (&'t str, &'t str)>) -> Self {
        let mut properties = Self::new();
        let mut places = HashMap::new();
        for (name, value) in entries {
            let known = if properties.entries.len() < SCAN_MAX {
                properties.entries.iter().position(|(n, _)| n == name)
            } else {
                if places.is_empty() {
                    places.extend(
                        properties
                            .entries
                            .iter()
                            .enumerate()
                            .map(|(i, (n, _))| (n.clone(), i)),
                    );
                }
                places.get(name).copied()
            };
            match known.and_then(|at| properties.entries.get_mut(at)) {
                Some((_, slot)) => *slot = value.to_owned(),
                None => {
                    if !places.is_empty() {
                        places.insert(name.to_owned(), properties.entries.len());
                    }
                    properties.entries.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        properties
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// Sets a value; an empty one removes the name, as the encoding cannot say it. Separators inside
    /// are left out, since old readers drop or cut such entries.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (clean(name.into()), clean(value.into()));
        if value.is_empty() || name.is_empty() {
            self.remove(&name);
            return;
        }
        match self.entries.iter_mut().find(|(n, _)| *n == name) {
            Some((_, slot)) => *slot = value,
            None => self.entries.push((name, value)),
        }
    }

    /// Removes a name and gives its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.entries.iter().position(|(n, _)| n == name)?;
        Some(self.entries.remove(at).1)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text, ending with the value separator (empty without entries).
    pub fn encode(&self) -> String {
        let len = self
            .entries
            .iter()
            .map(|(n, v)| n.len() + v.len() + 2)
            .sum();
        let mut text = String::with_capacity(len);
        for (name, value) in &self.entries {
            push(&mut text, name, value);
        }
        text
    }

    /// The text, refused when a record cannot hold it.
    ///
    /// # Errors
    /// [`WireError::TooLong`].
    pub fn encode_checked(&self) -> Result<String, WireError> {
        let text = self.encode();
        if text.len() > PROPERTIES_MAX_BYTES {
            return Err(WireError::TooLong {
                what: "properties",
                size: text.len(),
                limit: PROPERTIES_MAX_BYTES,
            });
        }
        Ok(text)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(iter: I) -> Self {
        let mut properties = Self::new();
        for (name, value) in iter {
            properties.set(name, value);
        }
        properties
    }
}

/// Appends one entry to property text whose last entry may lack its separator.
pub fn push(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() && !text.ends_with(VALUE_END) {
        text.push(VALUE_END);
    }
    text.push_str(name);
    text.push(NAME_END);
    text.push_str(value);
    text.push(VALUE_END);
}

fn clean(text: String) -> String {
    if text.contains([NAME_END, VALUE_END]) {
        text.replace([NAME_END, VALUE_END], "")
    } else {
        text
    }
}

fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(VALUE_END)
        .filter_map(|entry| entry.split_once(NAME_END))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

/// Properties read in place, without copies. Entries that are not UTF-8 are skipped.
#[derive(Debug, Clone, Copy)]
pub struct PropertiesView<'a> {
    bytes: &'a [u8],
}

impl<'a> PropertiesView<'a> {
    /// Over encoded properties.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Names and values in order; a repeated name comes again.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.bytes.split(|b| *b == 2).filter_map(|entry| {
            let (name, value) = entry.split_at_checked(entry.iter().position(|b| *b == 1)?)?;
            let value = value.get(1..)?;
            let pair = (
                core::str::from_utf8(name).ok()?,
                core::str::from_utf8(value).ok()?,
            );
            (!name.is_empty() && !value.is_empty()).then_some(pair)
        })
    }

    /// The value of a name; of a repeated one the last.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.bytes
            .split(|b| *b == 2)
            .filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(&[1]))
            .rfind(|value| !value.is_empty())
            .and_then(|value| core::str::from_utf8(value).ok())
    }

    /// A copy to change.
    pub fn to_owned(&self) -> Properties {
        Properties::read(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_endings_are_read() {
        for text in [
            "a\u{1}1\u{2}b\u{1}x\u{1}y\u{2}",
            "a\u{1}1\u{2}b\u{1}x\u{1}y",
        ] {
            let properties = Properties::parse(text);
            assert_eq!(properties.get("a"), Some("1"));
            assert_eq!(properties.len(), 2);
        }
        assert_eq!(
            PropertiesView::new(b"a\x011\x02b\x01x\x01y").get("b"),
            Some("x\u{1}y")
        );
    }

    #[test]
    fn broken_entries_are_dropped() {
        let text = "\u{2}\u{1}v\u{2}n\u{1}\u{2}plain\u{2}k\u{1}v";
        let properties = Properties::parse(text);
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("k", "v")]);
        let view = PropertiesView::new(text.as_bytes());
        assert_eq!(view.iter().collect::<Vec<_>>(), [("k", "v")]);
        assert_eq!(view.get("n"), None);
    }

    #[test]
    fn writes_end_with_a_separator() {
        let mut properties = Properties::new();
        assert_eq!(properties.encode(), "");
        properties.set("TAGS", "a");
        properties.set("KEYS", "x\u{2}y");
        properties.set("TAGS", "b");
        properties.set("gone", "");
        assert_eq!(properties.encode(), "TAGS\u{1}b\u{2}KEYS\u{1}xy\u{2}");
        assert_eq!(Properties::parse(&properties.encode()), properties);
        let mut text = "a\u{1}1".to_owned();
        push(&mut text, "b", "2");
        assert_eq!(text, "a\u{1}1\u{2}b\u{1}2\u{2}");
    }

    #[test]
    fn many_entries_are_read_in_order() {
        let text: String = (0..100)
            .chain([5])
            .map(|i| format!("n{i}\u{1}{}\u{2}", i + 1))
            .collect();
        let properties = Properties::parse(&text);
        assert_eq!(
            (
                properties.len(),
                properties.get("n5"),
                properties.get("n99")
            ),
            (100, Some("6"), Some("100"))
        );
        assert_eq!(properties.iter().nth(40), Some(("n40", "41")));
        assert_eq!(PropertiesView::new(text.as_bytes()).to_owned(), properties);
    }

    #[test]
    fn reserved_names_are_known() {
        assert!(names::is_reserved("UNIQ_KEY") && names::is_reserved("__anything"));
        assert!(!names::is_reserved("colour"));
    }
}
