//! The messages that members of a group hold, over all brokers, a page at a time; and their release.

use super::consumer::{Lease, Partial, SettleOp, SettleStatus, Settlement, leave_out, left_out};
use super::silence::{GRACE, PATIENCE};
use super::{Scope, Upstream, admin, mapping};
use crate::error::ApiError;
use tokio::time::Instant;
use wire::body::in_flight::{HeldLease, InFlight, Place};
use wire::{Command, RequestCode, ResponseCode};

/// Calls to brokers for one page: what a filter leaves out costs calls too.
const CALLS_MAX: usize = 20;
/// Leases released at a time.
const RELEASE_PAGE: usize = 256;
/// Leases released by one call.
const RELEASE_MAX: usize = 1_000;

/// Which messages in flight are wanted.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// First topic.
    pub topic: Option<String>,
    /// A key of the message.
    pub key: Option<String>,
    /// The member that holds it.
    pub client: Option<String>,
    /// Delivered so long ago, or longer.
    pub older_than_ms: Option<u64>,
}

/// A page of held messages.
#[derive(Debug, Default)]
pub struct InFlightPage {
    /// With the broker of each, by broker, topic popped, queue and offset.
    pub items: Vec<(String, HeldLease)>,
    /// Where the next begins; `None` = the end.
    pub next: Option<(String, Place)>,
    /// Brokers that could not be asked, with the reason.
    pub partial: Vec<(String, &'static str)>,
}

/// What a release did.
#[derive(Debug, Default)]
pub struct Released {
    /// Visible now.
    pub released: usize,
    /// Settled or put back meanwhile.
    pub gone: usize,
    /// Their broker did not answer: they may be released.
    pub unknown: usize,
    /// There are more.
    pub more: bool,
    /// Brokers that could not be asked, with the reason.
    pub partial: Vec<(String, &'static str)>,
}

impl Upstream {
    /// At most `limit` of the messages that members of a group hold.
    ///
    /// # Errors
    /// `group_not_found`, `no_route`, `broker_unavailable` where no broker answers.
    pub async fn in_flight(
        &self,
        group: &str,
        holds: &Holds,
        from: Option<(String, Place)>,
        limit: usize,
        deadline: Instant,
    ) -> Result<InFlightPage, ApiError> {
        let masters = self.master_addresses(deadline).await?;
        let several = masters.len() > 1;
        // One that does not answer must not use up the time for the others.
        let until = |addr: &str| match several {
            true if self.is_silent(addr) => deadline.min(Instant::now() + GRACE),
            true => deadline.min(Instant::now() + PATIENCE),
            false => deadline,
        };
        let (mut page, mut calls, mut answered, mut last) = (InFlightPage::default(), 0, 0, None);
        let (first, mut at) = from.unwrap_or_default();
        for (broker, addr) in masters.range(first.clone()..) {
            if *broker != first {
                at = Place::default();
            }
            loop {
                if page.items.len() >= limit || calls >= CALLS_MAX {
                    page.next = Some((broker.clone(), at));
                    return Ok(page);
                }
                calls += 1;
                let left = limit - page.items.len();
                match self
                    .held_at(addr, group, holds, &at, left, until(addr))
                    .await
                {
                    Ok(found) => {
                        answered += 1;
                        let held = found.leases.into_iter();
                        page.items.extend(held.map(|held| (broker.clone(), held)));
                        let Some(next) = found.next else { break };
                        at = next;
                    }
                    Err(error) => {
                        let Some(reason) = left_out(&error, several) else {
                            return Err(error);
                        };
                        leave_out(&mut page.partial, broker, reason);
                        last = Some(error);
                        break;
                    }
                }
            }
        }
        match last {
            Some(error) if answered == 0 => Err(error),
            _ => Ok(page),
        }
    }

    async fn held_at(
        &self,
        addr: &str,
        group: &str,
        holds: &Holds,
        at: &Place,
        limit: usize,
        deadline: Instant,
    ) -> Result<InFlight, ApiError> {
        let mut command = Command::request(RequestCode::InFlight);
        let ext = &mut command.ext;
        ext.put("group", group);
        ext.put_opt("topic", holds.topic.as_deref());
        ext.put_opt("key", holds.key.as_deref());
        ext.put_opt("client", holds.client.as_deref());
        ext.put_opt("olderThan", holds.older_than_ms);
        ext.put("limit", u64::try_from(limit).unwrap_or(u64::MAX));
        ext.put("fromTopic", &at.topic);
        ext.put("fromQueue", at.queue_id);
        ext.put("fromOffset", at.queue_offset);
        let response = self.call(addr, command, deadline).await?;
        match response.response_code() {
            ResponseCode::Success => admin::body(&response),
            _ => Err(mapping::answer(&response, mapping::About::Group(group))),
        }
    }

    /// Makes the messages visible now, their attempt counted; at most 1,000 of them.
    ///
    /// # Errors
    /// As [`Upstream::in_flight`].
    pub async fn release(
        &self,
        group: &str,
        holds: &Holds,
        deadline: Instant,
    ) -> Result<Released, ApiError> {
        let (mut done, mut from, mut tried) = (Released::default(), None, 0);
        loop {
            let limit = RELEASE_PAGE.min(RELEASE_MAX - tried);
            let page = self.in_flight(group, holds, from, limit, deadline).await;
            let page = match page {
                // What was released stays so.
                Err(error) if tried > 0 => return Err(error.unknown_outcome()),
                page => page?,
            };
            tried += page.items.len();
            let items: Vec<Settlement> = page.items.into_iter().map(settlement).collect();
            for outcome in self.settle(&Scope, group, &items, deadline).await {
                match outcome.status {
                    SettleStatus::Released => done.released += 1,
                    SettleStatus::Unavailable => done.unknown += 1,
                    _ => done.gone += 1,
                }
            }
            merge(&mut done.partial, page.partial);
            from = page.next;
            if from.is_none() || tried >= RELEASE_MAX {
                done.more = from.is_some();
                return Ok(done);
            }
        }
    }
}

fn settlement((broker, held): (String, HeldLease)) -> Settlement {
    Settlement {
        lease: Lease {
            broker,
            topic: held.popped.topic,
            queue_id: held.popped.queue_id,
            queue_offset: held.popped.queue_offset,
            lease_id: held.lease_id,
            attempt: held.attempt,
            delivered_at_ms: held.delivered_at_ms,
        },
        op: SettleOp::Release {
            after_ms: 0,
            member: None,
        },
    }
}

fn merge(partial: &mut Partial, more: Partial) {
    for (broker, reason) in more {
        leave_out(partial, &broker, reason);
    }
}
