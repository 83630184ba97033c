//! The header of a send, in its long and its one-letter form, and the checks that need no disk.

use wire::message::flags;
use wire::message::properties::{PROPERTIES_MAX_BYTES, PropertiesView, names as property};
use wire::{Command, RequestCode, WireError};

use crate::broker::Broker;
use crate::delay;
use crate::error::BrokerError;
use crate::names;
use crate::topic::{MESSAGE_TYPE, TopicConfig};

/// What a send asks for. Texts borrow from the request.
#[derive(Debug)]
pub(crate) struct SendRequest<'a> {
    /// Group of the sender.
    pub(crate) producer_group: &'a str,
    /// Topic.
    pub(crate) topic: &'a str,
    /// Template for a topic that does not exist.
    pub(crate) default_topic: &'a str,
    /// Queues of such a topic.
    pub(crate) default_queues: i32,
    /// Queue, negative = any.
    pub(crate) queue_id: i32,
    /// Message bits.
    pub(crate) sys_flag: i32,
    /// When the producer made the message, ms.
    pub(crate) born_ts_ms: i64,
    /// The user's own bits.
    pub(crate) flag: i32,
    /// Encoded properties.
    pub(crate) properties: &'a str,
    /// How often it was delivered before.
    pub(crate) reconsume_times: i32,
    /// The sender's limit of that.
    pub(crate) max_reconsume_times: Option<i32>,
    /// The body holds several messages.
    pub(crate) batch: bool,
    /// The sender wants the bytes on the disk, whatever the broker's policy.
    pub(crate) want_flushed: bool,
    /// The sender is a gateway, whose messages must be of the topic's type. RocketMQ's broker leaves that to its proxy.
    pub(crate) gantry: bool,
}

impl<'a> SendRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A field is missing or does not parse.
    pub(crate) fn parse(cmd: &'a Command) -> Result<Self, WireError> {
        let v1 = matches!(
            cmd.request_code(),
            RequestCode::SendMessage | RequestCode::SendReplyMessage
        );
        let pick = |long: &'static str, short: &'static str| if v1 { long } else { short };
        let ext = &cmd.ext;
        let text = |field: &'static str| ext.get(field).ok_or(WireError::MissingField { field });
        Ok(Self {
            producer_group: text(pick("producerGroup", "a"))?,
            topic: text(pick("topic", "b"))?,
            default_topic: ext
                .get(pick("defaultTopic", "c"))
                .unwrap_or(names::AUTO_CREATE_TOPIC),
            default_queues: ext
                .optional(pick("defaultTopicQueueNums", "d"))?
                .unwrap_or(4),
            queue_id: ext.required(pick("queueId", "e"))?,
            sys_flag: ext.optional(pick("sysFlag", "f"))?.unwrap_or(0),
            born_ts_ms: ext.required(pick("bornTimestamp", "g"))?,
            flag: ext.optional(pick("flag", "h"))?.unwrap_or(0),
            properties: ext.get(pick("properties", "i")).unwrap_or(""),
            reconsume_times: ext.optional(pick("reconsumeTimes", "j"))?.unwrap_or(0),
            max_reconsume_times: ext.optional(pick("maxReconsumeTimes", "l"))?,
            batch: ext.bool(pick("batch", "m")),
            want_flushed: ext.get("durability") == Some("flushed"),
            gantry: ext.bool("gantry"),
        })
    }

    /// Message bits that a client may set: no transaction kind (the property TRAN_MSG decides), no
    /// inner batch, no host kinds (the addresses decide).
    pub(crate) fn client_sys_flag(&self) -> i32 {
        self.sys_flag & (flags::COMPRESSED | flags::MULTI_TAGS | flags::COMPRESSION_MASK)
    }
}

/// Checks of the topic name, before anything is created.
///
/// # Errors
/// See [`BrokerError`].
pub(crate) fn check_topic(topic: &str) -> Result<(), BrokerError> {
    if names::is_send_forbidden(topic) {
        return Err(BrokerError::Forbidden(format!(
            "Sending message to topic[{}] is forbidden.",
            names::shorten(topic)
        )));
    }
    // A retry topic of leases holds a '+', which no client may use; it may not be sent to either.
    names::check_topic(topic).map_err(BrokerError::Invalid)
}

/// Checks of one body.
///
/// # Errors
/// The body is over the limit.
pub(crate) fn check_body(broker: &Broker, len: usize) -> Result<(), BrokerError> {
    let max = broker.live.message_size_bytes();
    if len > max {
        return Err(BrokerError::MessageTooLarge {
            remark: format!(
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit {max}B, \
                 msg properties length limit 32KB: the body has {len} bytes"
            ),
            limit: max as u64,
            actual: len as u64,
        });
    }
    Ok(())
}

/// What the properties of a message ask of the broker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Delay level, 0 = none; at most 18.
    pub(crate) delay_level: usize,
    /// The producer's id of the message is there.
    pub(crate) has_uniq_key: bool,
    /// Half message of a transaction.
    pub(crate) transaction: bool,
    /// Delivery at an arbitrary time.
    pub(crate) timer: bool,
    /// It has an ordering key.
    pub(crate) ordering_key: bool,
}

impl Wishes {
    /// Reads them.
    pub(crate) fn of(properties: &[u8]) -> Self {
        let mut wishes = Self::default();
        for (name, value) in PropertiesView::new(properties).iter() {
            match name {
                property::DELAY => {
                    let level = value.parse::<i64>().unwrap_or(0).max(0);
                    wishes.delay_level = usize::try_from(level)
                        .unwrap_or(usize::MAX)
                        .min(delay::LEVELS);
                }
                property::UNIQ_KEY => wishes.has_uniq_key = true,
                property::SHARDING_KEY => wishes.ordering_key = true,
                property::TRAN_MSG => wishes.transaction = value.eq_ignore_ascii_case("true"),
                property::TIMER_DELAY_SEC
                | property::TIMER_DELAY_MS
                | property::TIMER_DELIVER_MS => wishes.timer = true,
                _ => {}
            }
        }
        wishes
    }

    /// Refuses a message of a gateway that is not of the topic's type.
    ///
    /// # Errors
    /// [`BrokerError::MessageType`].
    pub(crate) fn check_type(
        &self,
        request: &SendRequest<'_>,
        topic: &TopicConfig,
    ) -> Result<(), BrokerError> {
        if !request.gantry {
            return Ok(());
        }
        let kind = topic.attributes.get(MESSAGE_TYPE).map(String::as_str);
        let what = match (kind, self.ordering_key) {
            (Some("NORMAL"), true) => "of type normal: it takes no orderingKey",
            (Some("FIFO"), false) => "of type ordered: every message needs an orderingKey",
            _ => return Ok(()),
        };
        let name = names::shorten(request.topic);
        Err(BrokerError::MessageType(format!(
            "topic '{name}' is {what}"
        )))
    }

    /// Refuses what this broker cannot do yet, so that it never becomes a plain message.
    ///
    /// # Errors
    /// Not built yet.
    pub(crate) fn check_supported(&self) -> Result<(), BrokerError> {
        if self.transaction {
            return Err(BrokerError::NotSupported(
                "a transactional message (property TRAN_MSG)",
            ));
        }
        if self.timer {
            return Err(BrokerError::NotSupported(
                "delivery at an arbitrary time (properties TIMER_*)",
            ));
        }
        Ok(())
    }
}

/// Checks the size of encoded properties, the broker's own included.
///
/// # Errors
/// Over the limit of the record.
pub(crate) fn check_properties(len: usize) -> Result<(), BrokerError> {
    if len > PROPERTIES_MAX_BYTES {
        return Err(BrokerError::MessageIllegal(format!(
            "the message is illegal: its properties have {len} bytes, the limit is {PROPERTIES_MAX_BYTES}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_missing_fields_are_named() {
        let mut cmd = Command::request(RequestCode::SendMessageV2);
        for (name, value) in [
            ("a", "g"),
            ("b", "t"),
            ("e", "-1"),
            ("g", "5"),
            ("i", "TAGS\u{1}x"),
            ("m", "1"),
        ] {
            cmd.ext.put(name, value);
        }
        let request = SendRequest::parse(&cmd).unwrap();
        assert_eq!(
            (request.topic, request.queue_id, request.batch),
            ("t", -1, true)
        );
        cmd.code = RequestCode::SendMessage.code();
        let error = SendRequest::parse(&cmd).unwrap_err();
        assert!(error.to_string().contains("producerGroup"), "{error}");
        cmd.code = RequestCode::SendMessageV2.code();
        cmd.ext.put("e", "2147483648");
        assert!(
            SendRequest::parse(&cmd)
                .unwrap_err()
                .to_string()
                .contains('e')
        );
    }

    #[test]
    fn what_is_not_built_is_seen() {
        assert!(
            Wishes::of(b"TRAN_MSG\x01true\x02")
                .check_supported()
                .is_err()
        );
        assert!(
            Wishes::of(b"TIMER_DELIVER_MS\x0199\x02")
                .check_supported()
                .is_err()
        );
        let wishes = Wishes::of(b"DELAY\x01999\x02UNIQ_KEY\x01k\x02");
        assert_eq!((wishes.delay_level, wishes.has_uniq_key), (18, true));
        assert_eq!(Wishes::of(b"DELAY\x01x\x02").delay_level, 0);
        assert_eq!(Wishes::of(b"DELAY\x01-1\x02").delay_level, 0);
    }
}
