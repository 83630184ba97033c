//! What the session does with each answer from upstream.

use std::collections::HashSet;
use std::sync::Arc;

use clock::Monotonic;
use openapi::messages::QueueRef;
use openapi::ws::{LeaseState, OkBody, ServerFrame, SubscriptionState};
use serde_json::value::RawValue;

use super::action::{Action, Batch, Effect, Opened, Outcome, Refusal};
use super::frame::SettleKind;
use super::session::{Pending, Session};
use super::subscription::Phase;
use crate::upstream::Gap;

impl Session {
    pub(super) fn opened(&mut self, number: u32, result: Result<Opened, Refusal>, now: Monotonic) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        let id = sub.open_id.take();
        match result {
            Ok(Opened {
                adopted,
                gone,
                lag,
                invisible_ms,
            }) => {
                sub.opened(invisible_ms, &adopted, now);
                let sub = sub.spec.sub.clone();
                let adopted = adopted
                    .iter()
                    .map(|lease| lease.receipt.to_string())
                    .collect();
                self.succeed(
                    id,
                    OkBody::Subscribed {
                        sub,
                        adopted,
                        gone,
                        lag,
                    },
                );
            }
            Err(refusal) => {
                let name = sub.spec.sub.clone();
                self.finish(number, Some(0), &HashSet::new());
                self.end_with(id, name, refusal);
            }
        }
    }

    pub(super) fn end_with(
        &mut self,
        id: Option<openapi::ws::RequestId>,
        sub: String,
        refusal: Refusal,
    ) {
        let Refusal {
            code,
            detail,
            retryable,
        } = refusal;
        self.send(&ServerFrame::Error {
            id,
            sub: Some(sub),
            code: code.to_owned(),
            detail,
            retryable,
            fatal: true,
            results: None,
        });
    }

    pub(super) fn popped(&mut self, number: u32, result: Result<Batch, Refusal>, now: Monotonic) {
        match result {
            Ok(batch) => self.batch(number, batch, now),
            Err(refusal) => self.pop_failed(number, refusal, now),
        }
    }

    fn batch(&mut self, number: u32, batch: Batch, now: Monotonic) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        sub.complained = false;
        let (target, name) = (Arc::clone(&sub.target), sub.spec.sub.clone());
        let surplus = sub.popped(batch.items, batch.more, batch.full, now);
        if batch.paused {
            sub.paused(now);
        }
        if sub.phase == Phase::Waiting {
            self.out.push(Action::Wait { sub: number });
        }
        self.give_back(
            Pending::GiveBack,
            &target,
            SettleKind::Suspend,
            surplus,
            None,
        );
        for gap in &batch.gaps {
            self.send(&gap_frame(&name, gap));
        }
        match (batch.paused, batch.partial.is_empty()) {
            (true, _) => self.set_state(
                number,
                SubscriptionState::Paused,
                "the group is paused".to_owned(),
            ),
            (false, true) => self.set_state(number, SubscriptionState::Active, String::new()),
            (false, false) => self.set_state(
                number,
                SubscriptionState::Partial,
                format!("cannot take from {}", batch.partial.join(", ")),
            ),
        }
        if self.is_draining() {
            self.suspend_unsent(number);
        }
    }

    fn pop_failed(&mut self, number: u32, refusal: Refusal, now: Monotonic) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        let name = sub.spec.sub.clone();
        if refusal.retryable {
            sub.retry_later(now);
            let first = !std::mem::replace(&mut sub.complained, true);
            return match refusal.code {
                "too_many_inflight" | "broker_busy" if first => {
                    self.refuse(None, Some(name), refusal)
                }
                "too_many_inflight" | "broker_busy" => {}
                _ => self.set_state(number, SubscriptionState::Partial, refusal.detail),
            };
        }
        let deleted = matches!(
            refusal.code,
            "group_not_found" | "topic_not_found" | "subscription_not_found"
        );
        if deleted {
            self.set_state(number, SubscriptionState::Deleted, refusal.detail.clone());
        }
        if let Some((delivered, target)) = self.finish(number, Some(0), &HashSet::new()) {
            self.give_back(
                Pending::GiveBack,
                &target,
                SettleKind::Release,
                delivered,
                Some(0),
            );
        }
        if !deleted {
            self.end_with(None, name, refusal);
        }
    }

    fn set_state(&mut self, number: u32, state: SubscriptionState, detail: String) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        if std::mem::replace(&mut sub.state, state) != state {
            let sub = sub.spec.sub.clone();
            self.send(&ServerFrame::Status { sub, state, detail });
        }
    }

    pub(super) fn settled(&mut self, token: u64, outcomes: Vec<Outcome>, now: Monotonic) {
        match self.pending.remove(&token) {
            Some(Pending::Client {
                sub,
                name,
                id,
                receipts,
            }) => {
                self.apply(sub, &receipts, &outcomes, now);
                self.release_orphans(&receipts, &outcomes);
                self.report(id, name, outcomes);
                self.undefer(sub);
            }
            Some(Pending::Extension { sub, receipts }) => {
                self.extended(sub, &receipts, &outcomes, now);
                self.release_orphans(&receipts, &outcomes);
            }
            Some(Pending::Unsubscribe { id }) => {
                let released = outcomes
                    .iter()
                    .filter(|outcome| outcome.effect == Effect::Released)
                    .count();
                self.succeed(id, OkBody::Unsubscribed { released });
            }
            Some(Pending::GiveBack | Pending::Publish { .. }) | None => {}
        }
    }

    /// What a client's own request did to the leases held here.
    fn apply(&mut self, number: u32, receipts: &[Arc<str>], outcomes: &[Outcome], now: Monotonic) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        for (receipt, outcome) in receipts.iter().zip(outcomes) {
            sub.busy.remove(receipt);
            match outcome.effect {
                Effect::Over | Effect::Gone | Effect::Released => {
                    sub.forget(receipt);
                    sub.freed(now);
                }
                Effect::Extended { visible_ms } => sub.extended(receipt, visible_ms, now),
                Effect::Limit | Effect::Unchanged => sub.look_again(receipt),
            }
        }
    }

    /// Leases that outlived their subscription and the last request about them.
    fn release_orphans(&mut self, receipts: &[Arc<str>], outcomes: &[Outcome]) {
        if self.orphans.is_empty() {
            return;
        }
        for (receipt, outcome) in receipts.iter().zip(outcomes) {
            let asked = self.pending.values().any(|pending| match pending {
                Pending::Client { receipts, .. } | Pending::Extension { receipts, .. } => {
                    receipts.contains(receipt)
                }
                _ => false,
            });
            let over = matches!(
                outcome.effect,
                Effect::Over | Effect::Gone | Effect::Released
            );
            if asked && !over {
                continue;
            }
            let Some(orphan) = self.orphans.remove(receipt) else {
                continue;
            };
            if !over {
                let receipts = vec![Arc::clone(receipt)];
                let kind = match orphan.after_ms {
                    Some(_) => SettleKind::Release,
                    None => SettleKind::Suspend,
                };
                self.give_back(
                    Pending::GiveBack,
                    &orphan.target,
                    kind,
                    receipts,
                    orphan.after_ms,
                );
            }
        }
    }

    /// One `ok` where all went well and an id was given; one `error` where anything did not.
    fn report(&mut self, id: Option<openapi::ws::RequestId>, sub: String, outcomes: Vec<Outcome>) {
        let failed = outcomes.iter().find_map(|outcome| outcome.refusal.clone());
        let results: Vec<Box<RawValue>> =
            outcomes.into_iter().map(|outcome| outcome.json).collect();
        let Ok(results) = serde_json::value::to_raw_value(&results) else {
            return;
        };
        match failed {
            None => self.succeed(id, OkBody::Settled { results }),
            Some(Refusal {
                code,
                detail,
                retryable,
            }) => {
                let results = Some(results);
                self.send(&ServerFrame::Error {
                    id,
                    sub: Some(sub),
                    code: code.to_owned(),
                    detail,
                    retryable,
                    fatal: false,
                    results,
                });
            }
        }
    }

    /// Lets the requests go that waited for an answer about one of their receipts.
    fn undefer(&mut self, number: u32) {
        while let Some(sub) = self.subs.get_mut(&number) {
            let free = sub.deferred.front().is_some_and(|next| {
                !next
                    .items
                    .iter()
                    .any(|item| sub.busy.contains(&item.receipt))
            });
            let Some(next) = free.then(|| sub.deferred.pop_front()).flatten() else {
                return;
            };
            self.settle_now(number, next);
        }
    }

    fn extended(
        &mut self,
        number: u32,
        receipts: &[Arc<str>],
        outcomes: &[Outcome],
        now: Monotonic,
    ) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        let mut ended = Vec::new();
        for (receipt, outcome) in receipts.iter().zip(outcomes) {
            let over = match outcome.effect {
                Effect::Extended { visible_ms } => {
                    sub.extended(receipt, visible_ms, now);
                    continue;
                }
                // The client's own request about it is on its way and says more.
                _ if sub.busy.contains(receipt) => None,
                Effect::Over | Effect::Gone | Effect::Released => Some(LeaseState::Lost),
                Effect::Limit => Some(LeaseState::Limit),
                Effect::Unchanged => None,
            };
            match over {
                None => sub.not_extended(receipt, now),
                Some(state) => {
                    if sub.forget(receipt) {
                        ended.push((Arc::clone(receipt), state));
                    }
                }
            }
        }
        let name = sub.spec.sub.clone();
        self.tell_ended(&name, &ended);
    }

    pub(super) fn published(
        &mut self,
        token: u64,
        result: Result<std::collections::BTreeMap<String, serde_json::Value>, Refusal>,
    ) {
        let Some(Pending::Publish { id, lane }) = self.pending.remove(&token) else {
            return;
        };
        match result {
            Ok(members) => self.succeed(id, OkBody::Published(members)),
            Err(refusal) => self.refuse(id, None, refusal),
        }
        let Some(lane) = lane else { return };
        let Some((id, publish)) = self
            .lanes
            .get_mut(&lane)
            .and_then(std::collections::VecDeque::pop_front)
        else {
            self.lanes.remove(&lane);
            return;
        };
        let token = self.token(Pending::Publish {
            id,
            lane: Some(lane),
        });
        self.out.push(Action::Publish { token, publish });
    }
}

/// What retention deleted before the group read it.
fn gap_frame(sub: &str, gap: &Gap) -> ServerFrame {
    let offset = |at: i64| u64::try_from(at).unwrap_or(0);
    ServerFrame::Gap {
        sub: sub.to_owned(),
        reason: "retention".to_owned(),
        topic: gap.topic.clone(),
        queue: QueueRef {
            broker: gap.broker.clone(),
            id: gap.queue_id,
        },
        skipped: offset(gap.to).saturating_sub(offset(gap.from)),
        from: offset(gap.from),
        to: offset(gap.to),
    }
}
