//! Members that are there without asking for messages: an open subscription keeps its group for the lease kind.

use super::routes::Broker;
use super::silence::PATIENCE;
use super::{Member, Upstream, mapping};
use crate::error::{ApiError, Code};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{Command, RequestCode, ResponseCode};

/// How often a broker is told that a subscription is still open; brokers remember a call for longer.
const EVERY: Duration = Duration::from_secs(15);
/// One round of telling.
const CALL: Duration = Duration::from_secs(5);

/// While it lives, the brokers hear of the member every 15 s.
#[derive(Debug)]
pub struct Presence {
    _over: DropGuard,
}

impl Upstream {
    /// Tells the brokers of the topics that a member is there, and goes on telling them while the answer lives.
    /// `topic` None = all subscribed topics.
    ///
    /// # Errors
    /// `group_mode_conflict` where consumers that pull or push are in the group; as [`Upstream::pop`] otherwise. A broker
    /// that cannot be reached is no error.
    pub async fn present(
        &self,
        group: &str,
        topic: Option<&str>,
        member: &Member,
        deadline: Instant,
    ) -> Result<Presence, ApiError> {
        self.announce(group, topic, member, deadline).await?;
        let over = CancellationToken::new();
        let ended = over.clone();
        let upstream = self.clone();
        let (group, topic, member) = (group.to_owned(), topic.map(str::to_owned), member.clone());
        self.0.options.tracker.spawn(async move {
            loop {
                tokio::select! {
                    () = ended.cancelled() => return,
                    () = upstream.0.options.draining.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
                let deadline = Instant::now() + CALL;
                let told = upstream.announce(&group, topic.as_deref(), &member, deadline);
                if let Err(error) = told.await {
                    tracing::debug!(group, %error, "an open subscription is not announced");
                }
            }
        });
        Ok(Presence {
            _over: over.drop_guard(),
        })
    }

    async fn announce(
        &self,
        group: &str,
        topic: Option<&str>,
        member: &Member,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        let detail = self.group_for_receive(group, topic, deadline).await?;
        let mut told: Vec<(String, Arc<Broker>)> = Vec::new();
        for topic in self.topics_of(&detail, topic) {
            let Some(route) = self.route(&topic, deadline).await? else {
                continue;
            };
            for broker in &route.readable {
                if !told.iter().any(|(_, known)| known.name == broker.name) {
                    told.push((topic.clone(), Arc::clone(broker)));
                }
            }
        }
        let calls = told
            .iter()
            .map(|(topic, broker)| (broker.addr.as_str(), self.word(group, topic, member)));
        let answers = self.ask_each(calls, true, PATIENCE, deadline).await;
        for (answer, (topic, _)) in answers.into_iter().zip(&told) {
            let Some(refusal) = answer
                .ok()
                .filter(|answer| answer.response_code() == ResponseCode::NoPermission)
            else {
                continue;
            };
            let error = mapping::answer(&refusal, mapping::About::Receive(group, topic));
            if error.code() == Code::GroupModeConflict {
                for (topic, broker) in &told {
                    self.leave(group, topic, member, broker);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes back that a member was there: one broker refused the call, and a refused call keeps nobody alive.
    pub(super) fn leave(&self, group: &str, topic: &str, member: &Member, broker: &Arc<Broker>) {
        let command = self.word(group, topic, member).with_ext("leave", "1");
        let (upstream, broker) = (self.clone(), Arc::clone(broker));
        self.0.options.tracker.spawn(async move {
            let deadline = Instant::now() + CALL;
            if let Err(error) = upstream.call(&broker.addr, command, deadline).await {
                tracing::debug!(broker = broker.name, %error, "not told that a member left");
            }
        });
    }

    /// A notification that does not wait: it only says that the member is there, or with `leave` is not.
    fn word(&self, group: &str, topic: &str, member: &Member) -> Command {
        let mut command = Command::request(RequestCode::Notification);
        let ext = &mut command.ext;
        ext.put("consumerGroup", group);
        ext.put("topic", topic);
        ext.put("queueId", "-1");
        ext.put("pollTime", "0");
        ext.put("gantry", "1");
        self.name(member, ext);
        command
    }
}
