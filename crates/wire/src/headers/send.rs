//! SEND_MESSAGE 10 (long names), SEND_MESSAGE_V2 310 and SEND_BATCH_MESSAGE 320 (one-letter names), the
//! replies 324 and 325, and their answers.

use crate::{Command, ExtFields, FromExt, Header, RequestCode, WireError};

/// What a broker without a configured region says.
pub const DEFAULT_REGION: &str = "DefaultRegion";
/// Template topic that clients name for automatic creation.
pub const DEFAULT_TEMPLATE_TOPIC: &str = "TBW102";
/// Ext field: how durable the answer is (`buffered`, `flushed`); in requests, how durable it must be.
pub const DURABILITY: &str = "durability";
/// Ext field: store time, epoch ms.
pub const STORED_AT: &str = "storedAt";
/// Ext field of every send answer: region.
pub const MSG_REGION: &str = "MSG_REGION";
/// Ext field of every send answer: trace switch.
pub const TRACE_ON: &str = "TRACE_ON";

/// A message to be stored; the body is the message's, or a client batch when `batch` is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendRequest {
    /// Producer group.
    pub producer_group: String,
    /// Topic.
    pub topic: String,
    /// Template for automatic creation.
    pub default_topic: String,
    /// Queues of a topic so created.
    pub default_topic_queue_nums: i32,
    /// Queue; below 0 the broker chooses.
    pub queue_id: i32,
    /// Bits of [`crate::message::flags`].
    pub sys_flag: i32,
    /// When the client made it, epoch ms.
    pub born_ts_ms: i64,
    /// The user's flag.
    pub flag: i32,
    /// Encoded properties.
    pub properties: Option<String>,
    /// How often it was put back already.
    pub reconsume_times: Option<i32>,
    /// Unit mode.
    pub unit_mode: bool,
    /// Limit of put-backs.
    pub max_reconsume_times: Option<i32>,
    /// The body is a batch. This decides, not the request code; old C++ clients say `1`.
    pub batch: bool,
    /// Broker the client thinks it talks to.
    pub broker_name: Option<String>,
}

/// Field names in the order of the struct.
struct Names([&'static str; 14]);

const V1: Names = Names([
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "brokerName",
]);
const V2: Names = Names([
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
]);

impl SendRequest {
    /// Reads the header with the names that go with the request's code: long for 10 and 324, one
    /// letter for the rest.
    ///
    /// # Errors
    /// [`WireError::MissingField`], [`WireError::InvalidField`].
    pub fn from_command(cmd: &Command) -> Result<Self, WireError> {
        match cmd.request_code() {
            RequestCode::SendMessage | RequestCode::SendReplyMessage => Self::decode_v1(&cmd.ext),
            _ => Self::decode(&cmd.ext),
        }
    }

    /// Reads the long names.
    ///
    /// # Errors
    /// As [`Self::from_command`].
    pub fn decode_v1(ext: &ExtFields) -> Result<Self, WireError> {
        Self::read(ext, &V1)
    }

    /// Writes the long names.
    pub fn encode_v1(&self, ext: &mut ExtFields) {
        self.write(ext, &V1);
    }

    fn read(ext: &ExtFields, names: &Names) -> Result<Self, WireError> {
        let [
            group,
            topic,
            template,
            queues,
            queue,
            sys,
            born,
            flag,
            properties,
            times,
            unit,
            max,
            batch,
            broker,
        ] = names.0;
        let number = |field| ext.optional::<i32>(field);
        Ok(Self {
            producer_group: ext.required(group)?,
            topic: ext.required(topic)?,
            default_topic: ext.optional(template)?.unwrap_or_default(),
            default_topic_queue_nums: number(queues)?.unwrap_or(4),
            queue_id: ext.required(queue)?,
            sys_flag: number(sys)?.unwrap_or(0),
            born_ts_ms: ext.required(born)?,
            flag: number(flag)?.unwrap_or(0),
            properties: ext.optional(properties)?,
            reconsume_times: number(times)?,
            unit_mode: ext.bool(unit),
            max_reconsume_times: number(max)?,
            batch: ext.bool(batch),
            broker_name: ext.optional(broker)?,
        })
    }

    fn write(&self, ext: &mut ExtFields, names: &Names) {
        let [
            group,
            topic,
            template,
            queues,
            queue,
            sys,
            born,
            flag,
            properties,
            times,
            unit,
            max,
            batch,
            broker,
        ] = names.0;
        ext.put(group, &self.producer_group);
        ext.put(topic, &self.topic);
        ext.put(template, &self.default_topic);
        ext.put(queues, self.default_topic_queue_nums);
        ext.put(queue, self.queue_id);
        ext.put(sys, self.sys_flag);
        ext.put(born, self.born_ts_ms);
        ext.put(flag, self.flag);
        ext.put_opt(properties, self.properties.as_deref());
        ext.put_opt(times, self.reconsume_times);
        ext.put(unit, self.unit_mode);
        ext.put_opt(max, self.max_reconsume_times);
        ext.put(batch, self.batch);
        ext.put_opt(broker, self.broker_name.as_deref());
    }
}

/// The one-letter names.
impl Header for SendRequest {
    fn decode(ext: &ExtFields) -> Result<Self, WireError> {
        Self::read(ext, &V2)
    }

    fn encode(&self, ext: &mut ExtFields) {
        self.write(ext, &V2);
    }
}

super::header! {
    /// Answer of a send that stored something: codes 0, 10, 11 and 12 all carry it, and clients read it.
    SendResponse {
        /// Offset message id; for a batch the ids joined by commas.
        msg_id: String = "msgId",
        /// Queue the message went to.
        queue_id: i32 = "queueId",
        /// Queue offset; of the first message of a batch.
        queue_offset: i64 = "queueOffset",
        /// UNIQ_KEY of the message.
        transaction_id: Option<String> = "transactionId",
        /// UNIQ_KEY of the batch.
        batch_uniq_id: Option<String> = "batchUniqId",
        /// Handle to recall a timed message.
        recall_handle: Option<String> = "recallHandle",
        /// Region.
        region: Option<String> = "MSG_REGION",
        /// Trace switch.
        trace_on: Option<String> = "TRACE_ON",
        /// `buffered` or `flushed` (Gantry).
        durability: Option<String> = "durability",
        /// Store time, epoch ms (Gantry).
        stored_at_ms: Option<i64> = "storedAt",
    }
}

/// What an answer to a refused send carries: region and trace switch alone.
pub fn put_region(ext: &mut ExtFields) {
    ext.put(MSG_REGION, DEFAULT_REGION);
    ext.put(TRACE_ON, "true");
}

/// The durability a sender asks for, if any.
pub fn asked_durability(ext: &ExtFields) -> Option<String> {
    ext.get(DURABILITY).and_then(String::from_ext)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_name_sets_round_trip() {
        let request = SendRequest {
            producer_group: "pg".into(),
            topic: "T".into(),
            default_topic: DEFAULT_TEMPLATE_TOPIC.into(),
            default_topic_queue_nums: 4,
            queue_id: -1,
            born_ts_ms: 9,
            properties: Some("a\u{1}b\u{2}".into()),
            batch: true,
            ..SendRequest::default()
        };
        let mut ext = ExtFields::new();
        request.encode(&mut ext);
        assert_eq!(
            (ext.get("b"), ext.get("m"), ext.get("l")),
            (Some("T"), Some("true"), None)
        );
        assert_eq!(SendRequest::decode(&ext).unwrap(), request);
        let mut cmd = Command::request(RequestCode::SendMessage);
        request.encode_v1(&mut cmd.ext);
        assert_eq!(cmd.ext.get("producerGroup"), Some("pg"));
        assert_eq!(SendRequest::from_command(&cmd).unwrap(), request);
    }

    #[test]
    fn cpp_booleans_and_missing_fields() {
        let mut ext = ExtFields::new();
        for (name, value) in [("a", "g"), ("b", "T"), ("e", "0"), ("g", "1"), ("m", "1")] {
            ext.put(name, value);
        }
        assert!(SendRequest::decode(&ext).unwrap().batch);
        ext.remove("b");
        assert_eq!(
            SendRequest::decode(&ext),
            Err(WireError::MissingField { field: "b" })
        );
    }
}
