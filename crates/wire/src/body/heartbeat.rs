//! HeartbeatData (34) and CheckClientRequest (46).

use serde::{Deserialize, Serialize};

use super::object;
use crate::message::tags::java_string_hash;

/// How a group is served, in ordinal order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConsumeType {
    /// Pull consumers.
    #[serde(rename = "CONSUME_ACTIVELY")]
    Actively,
    /// Push consumers.
    #[default]
    #[serde(rename = "CONSUME_PASSIVELY")]
    Passively,
    /// POP consumers.
    #[serde(rename = "CONSUME_POP")]
    Pop,
}

/// Who gets a message, in ordinal order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MessageModel {
    /// Every member.
    #[serde(rename = "BROADCASTING")]
    Broadcasting,
    /// One member.
    #[default]
    #[serde(rename = "CLUSTERING")]
    Clustering,
}

/// Where a new group starts, in ordinal order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConsumeFromWhere {
    /// At the end.
    #[default]
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET")]
    LastOffset,
    /// Old.
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST")]
    LastOffsetAndFromMinWhenBootFirst,
    /// Old.
    #[serde(rename = "CONSUME_FROM_MIN_OFFSET")]
    MinOffset,
    /// Old.
    #[serde(rename = "CONSUME_FROM_MAX_OFFSET")]
    MaxOffset,
    /// At the beginning.
    #[serde(rename = "CONSUME_FROM_FIRST_OFFSET")]
    FirstOffset,
    /// At a time.
    #[serde(rename = "CONSUME_FROM_TIMESTAMP")]
    Timestamp,
}

/// One subscription of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Old.
    pub class_filter_mode: bool,
    /// Hashes of the tags. Clients get them wrong: see [`Self::codes`].
    pub code_set: Vec<i32>,
    /// `TAG` (also when empty) or `SQL92`.
    pub expression_type: String,
    /// The expression.
    pub sub_string: String,
    /// Version, epoch ms.
    pub sub_version: i64,
    /// The tags of the expression.
    pub tags_set: Vec<String>,
    /// Topic.
    pub topic: String,
}

impl Default for SubscriptionData {
    fn default() -> Self {
        Self {
            class_filter_mode: false,
            code_set: Vec::new(),
            expression_type: "TAG".to_owned(),
            sub_string: "*".to_owned(),
            sub_version: 0,
            tags_set: Vec::new(),
            topic: String::new(),
        }
    }
}

impl SubscriptionData {
    /// A subscription by tags (`a || b`; `*` or empty for all), with tags and hashes filled in.
    pub fn tags(topic: impl Into<String>, expression: &str, version_ms: i64) -> Self {
        let expression = expression.trim();
        let all = expression.is_empty() || expression == "*";
        let mut tags_set: Vec<String> = Vec::new();
        if !all {
            for tag in expression
                .split("||")
                .map(str::trim)
                .filter(|tag| !tag.is_empty())
            {
                if !tags_set.iter().any(|t| t == tag) {
                    tags_set.push(tag.to_owned());
                }
            }
        }
        let code_set = tags_set.iter().map(|tag| java_string_hash(tag)).collect();
        let sub_string = if all {
            "*".to_owned()
        } else {
            expression.to_owned()
        };
        Self {
            sub_string,
            tags_set,
            code_set,
            sub_version: version_ms,
            topic: topic.into(),
            ..Self::default()
        }
    }

    /// True for tag filters.
    pub fn is_tag(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type.eq_ignore_ascii_case("TAG")
    }

    /// True when every message passes.
    pub fn is_all(&self) -> bool {
        self.is_tag()
            && (self.sub_string.is_empty() || self.sub_string == "*")
            && self.tags_set.is_empty()
    }

    /// Hashes of the tags, computed anew: the Go client hashes other bytes than Java for non-ASCII tags.
    pub fn codes(&self) -> Vec<i32> {
        self.tags_set
            .iter()
            .map(|tag| java_string_hash(tag))
            .collect()
    }
}

object! {
    /// A producer group of a client.
    ProducerData {
        /// Group.
        group_name: String,
    }
}

object! {
    /// A consumer group of a client.
    ConsumerData {
        /// Where a new group starts.
        consume_from_where: ConsumeFromWhere,
        /// How it is served.
        consume_type: ConsumeType,
        /// Group.
        group_name: String,
        /// Who gets a message.
        message_model: MessageModel,
        /// What it reads.
        subscription_data_set: Vec<SubscriptionData>,
        /// Unit mode.
        unit_mode: bool,
    }
}

object! {
    /// Who a client is and what it does.
    HeartbeatData {
        /// Client.
        #[serde(rename = "clientID")]
        client_id: String,
        /// Its consumer groups.
        consumer_data_set: Vec<ConsumerData>,
        /// Hash of the subscriptions; 0 in the old form.
        heartbeat_fingerprint: i32,
        /// Its producer groups.
        producer_data_set: Vec<ProducerData>,
        /// The subscriptions are left out: as in the last full heartbeat.
        without_sub: bool,
    }
}

object! {
    /// CHECK_CLIENT_CONFIG 46.
    CheckClientRequest {
        /// Client.
        client_id: String,
        /// Group.
        group: String,
        /// Namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The subscription to check.
        #[serde(skip_serializing_if = "Option::is_none")]
        subscription_data: Option<SubscriptionData>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn ordinals_names_and_strings_are_read() {
        let text = r#"{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":"1","groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"7","tagsSet":["A"],"topic":"T"}],"unitMode":"false"}]}
"#;
        let data: HeartbeatData = json::from_slice(text.as_bytes()).unwrap();
        let consumer = data.consumer_data_set.first().unwrap();
        assert_eq!(consumer.consume_from_where, ConsumeFromWhere::FirstOffset);
        assert_eq!(consumer.consume_type, ConsumeType::Passively);
        assert_eq!(consumer.message_model, MessageModel::Broadcasting);
        let subscription = consumer.subscription_data_set.first().unwrap();
        assert_eq!(
            (subscription.sub_version, subscription.code_set.as_slice()),
            (7, [65].as_slice())
        );
        let lower: ConsumerData = json::from_slice(br#"{"messageModel":"broadcasting"}"#).unwrap();
        assert_eq!(lower.message_model, MessageModel::Broadcasting);
        assert!(json::from_slice::<ConsumerData>(br#"{"messageModel":"x"}"#).is_err());
    }

    #[test]
    fn tag_expressions_are_taken_apart() {
        let data = SubscriptionData::tags("T", "A || B||A", 5);
        assert_eq!((data.tags_set.len(), data.codes()), (2, vec![65, 66]));
        assert!(SubscriptionData::tags("T", " * ", 5).is_all());
        assert!(!data.is_all());
    }
}
