//! What the session does with each operation of a client.

use std::collections::HashSet;
use std::sync::Arc;

use clock::Monotonic;
use openapi::ws::{OkBody, RequestId, ServerFrame};

use super::action::{Action, Refusal, Target};
use super::frame::{Op, Publish, Request, SettleItem, SettleKind, Subscribe};
use super::session::{Orphan, Pending, Session};
use super::subscription::{CREDIT_MAX, Deferred, GivenUp, Subscription};

impl Session {
    pub(super) fn request(&mut self, request: Request, now: Monotonic) {
        let Request { id, sub, op } = request;
        match op {
            Ok(Op::Subscribe(spec)) => {
                if let Some((number, id)) = self.admit(id, &spec.sub, spec.credit) {
                    self.subscribe(number, id, *spec, now);
                }
            }
            Ok(Op::Read(spec)) => {
                if let Some((number, id)) = self.admit(id, &spec.sub, spec.credit) {
                    self.add_reader(number, id, *spec);
                }
            }
            Ok(Op::Credit {
                sub,
                messages,
                bytes,
            }) => self.credit(id, sub, messages, bytes),
            Ok(Op::Settle { sub, kind, items }) => self.client_settle(id, sub, kind, items),
            Ok(Op::Publish(publish)) => self.publish(id, publish),
            Ok(Op::Unsubscribe { sub, release }) => self.unsubscribe(id, sub, release),
            Ok(Op::Ping { t }) => self.send(&ServerFrame::Pong { t, id }),
            Ok(Op::Pong) => {}
            Err(fault) => self.refuse(
                id,
                sub,
                Refusal {
                    code: fault.code,
                    detail: fault.detail,
                    retryable: false,
                },
            ),
        }
    }

    /// An `error` that ends nothing.
    pub(super) fn refuse(&mut self, id: Option<RequestId>, sub: Option<String>, refusal: Refusal) {
        let Refusal {
            code,
            detail,
            retryable,
        } = refusal;
        self.send(&ServerFrame::Error {
            id,
            sub,
            code: code.to_owned(),
            detail,
            retryable,
            fatal: false,
            results: None,
        });
    }

    fn refuse_plain(
        &mut self,
        id: Option<RequestId>,
        sub: String,
        code: &'static str,
        detail: &str,
        retryable: bool,
    ) {
        self.refuse(
            id,
            Some(sub),
            Refusal {
                code,
                detail: detail.to_owned(),
                retryable,
            },
        );
    }

    /// The number of a new subscription, its name taken; `None` where it was refused.
    fn admit(
        &mut self,
        id: Option<RequestId>,
        sub: &str,
        credit: u64,
    ) -> Option<(u32, Option<RequestId>)> {
        let sub = sub.to_owned();
        if self.names.contains_key(&sub) {
            self.refuse_plain(
                id,
                sub,
                "already_subscribed",
                "this socket has a subscription of that name",
                false,
            );
            return None;
        }
        if self.subs.len() + self.readers.len() >= self.settings.subscriptions {
            let detail = format!(
                "at most {} subscriptions on one socket",
                self.settings.subscriptions
            );
            self.refuse_plain(id, sub, "too_many_subscriptions", &detail, false);
            return None;
        }
        if credit > CREDIT_MAX {
            self.overflow(id, sub);
            return None;
        }
        if self.is_draining() {
            self.refuse_plain(
                id,
                sub,
                "draining",
                "this gateway is going away; connect again",
                true,
            );
            return None;
        }
        let number = self.next_sub;
        self.next_sub += 1;
        self.names.insert(sub, number);
        Some((number, id))
    }

    fn subscribe(&mut self, number: u32, id: Option<RequestId>, spec: Subscribe, now: Monotonic) {
        self.out.push(Action::Open {
            sub: number,
            spec: Box::new(spec.clone()),
        });
        self.subs
            .insert(number, Subscription::new(number, spec, id, now));
    }

    fn overflow(&mut self, id: Option<RequestId>, sub: String) {
        let detail = format!(
            "at most {CREDIT_MAX} messages of credit may be outstanding; nothing was added"
        );
        self.refuse_plain(id, sub, "credit_overflow", &detail, false);
    }

    fn credit(&mut self, id: Option<RequestId>, name: String, messages: u64, bytes: Option<u64>) {
        let granted = match self.reader(&name) {
            Some((_, sub)) => Some(sub.grant(messages, bytes)),
            None => self
                .by_name(&name)
                .map(|(_, sub)| sub.grant(messages, bytes)),
        };
        match granted {
            None => self.unknown_sub(id, name),
            Some(false) => self.overflow(id, name),
            Some(true) => {}
        }
    }

    fn by_name(&mut self, name: &str) -> Option<(u32, &mut Subscription)> {
        let number = *self.names.get(name)?;
        self.subs.get_mut(&number).map(|sub| (number, sub))
    }

    fn unknown_sub(&mut self, id: Option<RequestId>, name: String) {
        self.refuse_plain(
            id,
            name,
            "unknown_sub",
            "this socket has no subscription of that name",
            false,
        );
    }

    fn client_settle(
        &mut self,
        id: Option<RequestId>,
        name: String,
        kind: SettleKind,
        items: Vec<SettleItem>,
    ) {
        if self.reader(&name).is_some() {
            let detail = "this subscription is a reader: its messages have no receipts to settle";
            return self.refuse_plain(id, name, "invalid_field", detail, false);
        }
        let Some((number, sub)) = self.by_name(&name) else {
            return self.unknown_sub(id, name);
        };
        let conflict =
            !sub.deferred.is_empty() || items.iter().any(|item| sub.busy.contains(&item.receipt));
        if conflict {
            sub.deferred.push_back(Deferred { id, kind, items });
        } else {
            self.settle_now(number, Deferred { id, kind, items });
        }
    }

    /// Hands a client's settle request upstream.
    pub(super) fn settle_now(&mut self, number: u32, request: Deferred) {
        let Some(sub) = self.subs.get_mut(&number) else {
            return;
        };
        let receipts: Vec<Arc<str>> = request
            .items
            .iter()
            .map(|item| Arc::clone(&item.receipt))
            .collect();
        sub.busy.extend(receipts.iter().cloned());
        let (name, target) = (sub.spec.sub.clone(), Arc::clone(&sub.target));
        self.settle(
            Pending::Client {
                sub: number,
                name,
                id: request.id,
                receipts,
            },
            &target,
            request.kind,
            request.items,
        );
    }

    fn publish(&mut self, id: Option<RequestId>, publish: Box<Publish>) {
        let lane = publish
            .ordering_key
            .as_ref()
            .map(|key| (publish.ns.clone(), publish.topic.clone(), key.clone()));
        if let Some(lane) = &lane {
            if let Some(behind) = self.lanes.get_mut(lane) {
                return behind.push_back((id, publish));
            }
            self.lanes
                .insert(lane.clone(), std::collections::VecDeque::new());
        }
        let token = self.token(Pending::Publish { id, lane });
        self.out.push(Action::Publish { token, publish });
    }

    fn unsubscribe(&mut self, id: Option<RequestId>, name: String, release: bool) {
        if let Some((number, _)) = self.reader(&name) {
            self.end_reader(number);
            return self.succeed(id, OkBody::Unsubscribed { released: 0 });
        }
        let Some((number, _)) = self.by_name(&name) else {
            return self.unknown_sub(id, name);
        };
        let after = release.then_some(0);
        let Some((delivered, target)) = self.finish(number, after, &HashSet::new()) else {
            return;
        };
        if delivered.is_empty() || !release {
            return self.succeed(id, OkBody::Unsubscribed { released: 0 });
        }
        let pending = Pending::Unsubscribe { id };
        self.give_back(pending, &target, SettleKind::Release, delivered, after);
    }

    /// Ends a subscription: what is unsent goes back uncounted, what waits to be settled is settled;
    /// the delivered leases are returned. With `after_ms`, leases that the client asked something about
    /// are released so when the answer leaves them alive.
    pub(super) fn finish(
        &mut self,
        number: u32,
        after_ms: Option<u64>,
        unwritten: &HashSet<Arc<str>>,
    ) -> Option<(Vec<Arc<str>>, Arc<Target>)> {
        let sub = self.subs.get_mut(&number)?;
        let GivenUp {
            delivered,
            unsent,
            asked,
        } = sub.give_up(unwritten);
        let (deferred, target, name) = (
            std::mem::take(&mut sub.deferred),
            Arc::clone(&sub.target),
            sub.spec.sub.clone(),
        );
        if let Some(after_ms) = after_ms {
            let orphan = || Orphan {
                target: Arc::clone(&target),
                after_ms: Some(after_ms),
            };
            self.orphans
                .extend(asked.into_iter().map(|receipt| (receipt, orphan())));
        }
        for request in deferred {
            self.settle_now(number, request);
        }
        self.give_back(
            Pending::GiveBack,
            &target,
            SettleKind::Suspend,
            unsent,
            None,
        );
        self.names.remove(&name);
        self.subs.remove(&number);
        self.out.push(Action::Forget { sub: number });
        Some((delivered, target))
    }

    /// `ok`, where the client gave an id.
    pub(super) fn succeed(&mut self, id: Option<RequestId>, body: OkBody) {
        if let Some(id) = id {
            self.send(&ServerFrame::Ok { id, body });
        }
    }
}
