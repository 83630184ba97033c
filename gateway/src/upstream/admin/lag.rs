//! How far a group is, asked of all masters.

use super::body;
use crate::error::ApiError;
use crate::upstream::consumer::{Partial, UNREACHABLE, leave_out, left_out};
use crate::upstream::{Upstream, mapping};
use tokio::time::Instant;
use wire::body::gantry::{GroupLag, QueueLag};
use wire::{Command, RequestCode, ResponseCode};

/// How far a group is on each broker that said so, and the brokers that could not be asked.
#[derive(Debug, Default)]
pub struct Lag {
    /// By broker name.
    pub brokers: Vec<(String, GroupLag)>,
    /// Left out, with the reason.
    pub partial: Partial,
}

/// Whether a queue is of this topic, or of the retries of it.
#[must_use]
pub fn is_of_topic(queue: &QueueLag, topic: &str) -> bool {
    let head = queue.topic.strip_suffix(topic);
    head.is_some_and(|head| head.is_empty() || queue.retry && head.ends_with('+'))
}

impl Upstream {
    /// How far a group is, per broker.
    ///
    /// # Errors
    /// `group_not_found`, `no_route`, `broker_unavailable` where no broker can say.
    pub async fn lag(&self, group: &str, deadline: Instant) -> Result<Lag, ApiError> {
        let command = Command::request(RequestCode::GroupLag).with_ext("group", group);
        let (mut lag, mut last) = (Lag::default(), None);
        let mut missing = self.masters_of_late(&*self.masters(deadline).await?);
        for (broker, answer) in self.all_masters(&command, deadline).await? {
            missing.remove(&broker);
            let response = match answer {
                Ok(response) if response.response_code() == ResponseCode::Success => response,
                refused => {
                    let about = mapping::About::Group(group);
                    let error = refused.map_or_else(|e| e, |r| mapping::answer(&r, about));
                    let reason = left_out(&error, true).unwrap_or(UNREACHABLE);
                    leave_out(&mut lag.partial, &broker, reason);
                    last = Some(error);
                    continue;
                }
            };
            let peers = response.ext.get("peers").unwrap_or_default().split(',');
            missing.extend(peers.filter(|name| !name.is_empty()).map(str::to_owned));
            lag.brokers.push((broker, body(&response)?));
        }
        for (broker, _) in &lag.brokers {
            missing.remove(broker);
        }
        for broker in &missing {
            leave_out(&mut lag.partial, broker, UNREACHABLE);
        }
        match last {
            Some(error) if lag.brokers.is_empty() => Err(error),
            _ => Ok(lag),
        }
    }
}
