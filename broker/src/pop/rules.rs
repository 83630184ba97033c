//! A group's configuration as the lease engine uses it, parsed once per version.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use wire::body::gantry::{Backoff as WireBackoff, GroupSpec, SubscriptionSpec};

use crate::filter::Filter;
use crate::group::{ATTRIBUTE_SPEC, ATTRIBUTE_SUBSCRIPTIONS, GroupConfig};
use crate::table::Entry;

use super::policy::{Backoff, Policy};

/// Most groups whose rules are kept parsed.
const CACHE_MAX: usize = 10_000;

/// What the engine needs to know about one group.
#[derive(Debug)]
pub(crate) struct Rules {
    /// How leases behave.
    pub(crate) policy: Policy,
    /// Version of the configuration.
    pub(crate) version: u64,
    /// Stored subscriptions by topic.
    pub(crate) subscriptions: HashMap<String, Arc<Filter>>,
    /// Ordered delivery was asked for.
    pub(crate) ordered: bool,
}

impl Rules {
    fn parse(config: &GroupConfig) -> Self {
        let spec = config
            .attributes
            .get(ATTRIBUTE_SPEC)
            .and_then(|text| wire::json::from_slice::<GroupSpec>(text.as_bytes()).ok());
        let native = GroupSpec {
            max_attempts: u32::try_from(config.retry_max_times.saturating_add(1))
                .unwrap_or(1)
                .max(1),
            ..GroupSpec::default()
        };
        let spec = spec.unwrap_or(native);
        let subscriptions = config
            .attributes
            .get(ATTRIBUTE_SUBSCRIPTIONS)
            .and_then(|text| wire::json::from_slice::<Vec<SubscriptionSpec>>(text.as_bytes()).ok())
            .unwrap_or_default();
        let filter = |subscription: &SubscriptionSpec| match subscription.kind.as_str() {
            "tag" => {
                Filter::parse(Some("TAG"), Some(&subscription.expression)).unwrap_or(Filter::All)
            }
            _ => Filter::All,
        };
        Rules {
            policy: Policy {
                invisible_ms: spec.invisible_ms,
                max_in_flight: spec.max_in_flight,
                max_attempts: spec.max_attempts,
                backoff: match spec.backoff {
                    WireBackoff::List { delays_ms } => Backoff::List(delays_ms),
                    WireBackoff::Exponential {
                        initial_ms,
                        max_ms,
                        multiplier,
                        jitter,
                    } => Backoff::Exponential {
                        initial_ms,
                        max_ms,
                        multiplier,
                        jitter,
                    },
                },
                dead_letters: spec.dead_letter_enabled,
                paused: spec.paused,
            },
            version: config.version(),
            subscriptions: subscriptions
                .iter()
                .map(|subscription| (subscription.topic.clone(), Arc::new(filter(subscription))))
                .collect(),
            ordered: spec.ordered || config.consume_message_orderly,
        }
    }
}

/// Rules and the configuration they were parsed from.
type Parsed = (Arc<GroupConfig>, Arc<Rules>);

/// Rules by group.
#[derive(Debug, Default)]
pub(crate) struct RuleCache {
    rules: RwLock<HashMap<String, Parsed>>,
}

impl RuleCache {
    /// The rules of a configuration.
    pub(crate) fn of(&self, config: &Arc<GroupConfig>) -> Arc<Rules> {
        if let Some((known, rules)) = self.rules.read().get(&config.group_name)
            && Arc::ptr_eq(known, config)
        {
            return rules.clone();
        }
        let parsed = Arc::new(Rules::parse(config));
        let mut rules = self.rules.write();
        if rules.len() >= CACHE_MAX {
            rules.clear();
        }
        rules.insert(config.group_name.clone(), (config.clone(), parsed.clone()));
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_group_gets_one_delivery_more_than_its_retries() {
        let config = Arc::new(GroupConfig {
            group_name: "g".into(),
            retry_max_times: 2,
            ..GroupConfig::default()
        });
        let cache = RuleCache::default();
        let rules = cache.of(&config);
        assert_eq!(
            (
                rules.policy.max_attempts,
                rules.policy.invisible_ms,
                rules.policy.dead_letters
            ),
            (3, 30_000, true)
        );
        assert!(Arc::ptr_eq(&rules, &cache.of(&config)));
        let other = Arc::new(GroupConfig {
            retry_max_times: 0,
            ..(*config).clone()
        });
        assert_eq!(cache.of(&other).policy.max_attempts, 1);
    }

    #[test]
    fn the_stored_spec_and_subscriptions_win() {
        let mut config = GroupConfig {
            group_name: "g".into(),
            ..GroupConfig::default()
        };
        config.attributes.insert(
            ATTRIBUTE_SPEC.into(),
            r#"{"invisibleMs":2000,"maxAttempts":3,"paused":true}"#.into(),
        );
        config.attributes.insert(
            ATTRIBUTE_SUBSCRIPTIONS.into(),
            r#"[{"topic":"T","kind":"tag","expression":"a||b"},{"topic":"U"}]"#.into(),
        );
        let rules = RuleCache::default().of(&Arc::new(config));
        assert_eq!(
            (
                rules.policy.invisible_ms,
                rules.policy.max_attempts,
                rules.policy.paused
            ),
            (2_000, 3, true)
        );
        assert!(
            rules.subscriptions["T"].matches(Some("b"))
                && !rules.subscriptions["T"].matches(Some("c"))
        );
        assert!(rules.subscriptions["U"].matches(None));
    }
}
