//! Topics and groups as lists show them: one question to each master, whatever the number of groups.

use crate::error::ApiError;
use crate::params::{is_system_group, is_system_topic};
use crate::upstream::{Partial, Upstream};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tokio::time::Instant;
use wire::RequestCode;
use wire::body::gantry::{GroupSpec, SubscriptionSpec};
use wire::json::{self, Value};

/// A topic over all masters.
#[derive(Debug, Default)]
pub struct ListedTopic {
    /// Queues on all of them.
    pub queues: i64,
    /// Those of the newest version that one of them has.
    pub attributes: BTreeMap<String, String>,
    version: u64,
}

/// A group in the newest version that one of the masters has.
#[derive(Debug, Default)]
pub struct ListedGroup {
    version: u64,
    attributes: BTreeMap<String, String>,
}

impl ListedGroup {
    fn stored<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        let text = self.attributes.get(name);
        text.and_then(|text| json::from_slice(text.as_bytes()).ok())
            .unwrap_or_default()
    }

    /// Its labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.stored::<GroupSpec>("gantry.spec").labels
    }

    /// Whether a stored subscription of it names the topic.
    #[must_use]
    pub fn reads(&self, topic: &str) -> bool {
        let subscriptions: Vec<SubscriptionSpec> = self.stored("gantry.subscriptions");
        subscriptions.iter().any(|s| s.topic == topic)
    }
}

/// The attributes of a topic or group in a table of a broker, and the version among them.
pub(super) fn attributes(config: &Value) -> (u64, BTreeMap<String, String>) {
    let mut attributes = BTreeMap::new();
    if let Some(Value::Object(list)) = config.get("attributes") {
        for (key, value) in list {
            if let Value::String(value) = value {
                attributes.insert(key.clone(), value.clone());
            }
        }
    }
    let version = attributes.get("gantry.version");
    let version = version.and_then(|text| text.parse().ok()).unwrap_or(0);
    (version, attributes)
}

impl Upstream {
    /// The topics of users, and the brokers left out.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`.
    pub async fn topics(
        &self,
        deadline: Instant,
    ) -> Result<(BTreeMap<String, ListedTopic>, Partial), ApiError> {
        let masters = self.masters(deadline).await?;
        let mut topics: BTreeMap<String, ListedTopic> = BTreeMap::new();
        let (table, partial) = self
            .tables(RequestCode::GetAllTopicConfig, "topicConfigTable", deadline)
            .await?;
        for (name, config) in table {
            if is_system_topic(&name)
                || masters.by_name.contains_key(&name)
                || masters.clusters.contains(&name)
            {
                continue;
            }
            let (version, attributes) = attributes(&config);
            let listed = topics.entry(name).or_default();
            if version >= listed.version {
                (listed.version, listed.attributes) = (version, attributes);
            }
            if let Some(Value::Number(n) | Value::String(n)) = config.get("writeQueueNums") {
                listed.queues += n.parse::<i64>().unwrap_or(0);
            }
        }
        Ok((topics, partial))
    }

    /// The groups of users, and the brokers left out.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`.
    pub async fn groups(
        &self,
        deadline: Instant,
    ) -> Result<(BTreeMap<String, ListedGroup>, Partial), ApiError> {
        let (table, partial) = self
            .tables(
                RequestCode::GetAllSubscriptiongroupConfig,
                "subscriptionGroupTable",
                deadline,
            )
            .await?;
        let mut groups: BTreeMap<String, ListedGroup> = BTreeMap::new();
        for (name, config) in table {
            if is_system_group(&name) {
                continue;
            }
            let (version, attributes) = attributes(&config);
            let listed = groups.entry(name).or_default();
            if version >= listed.version {
                *listed = ListedGroup {
                    version,
                    attributes,
                };
            }
        }
        Ok((groups, partial))
    }
}
