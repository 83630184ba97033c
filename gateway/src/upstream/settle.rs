//! Settling: one SETTLE per broker, answers in the order asked.

use super::consumer::{SettleOp, SettleOutcome, SettleStatus, Settlement};
use super::timing::BrokerCall;
use super::{Scope, Upstream, time_left};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tokio::time::Instant;
use wire::body::gantry::{
    SettleItem, SettleOp as WireOp, SettleRequest, SettleResponse, SettleResult,
    SettleStatus as WireStatus,
};
use wire::{Command, RequestCode, ResponseCode, json};

/// Items in one request.
const ITEMS_MAX: usize = 256;
/// One lease in all, from delivery.
pub(crate) const LEASE_MAX_MS: i64 = 12 * 3_600_000;

impl Upstream {
    /// Settles leases of one group; same order, same length as asked. Never fails as a whole: what cannot be reached is
    /// `unavailable`.
    pub async fn settle(
        &self,
        _scope: &Scope,
        group: &str,
        items: &[Settlement],
        deadline: Instant,
    ) -> Vec<SettleOutcome> {
        let mut out = vec![outcome(SettleStatus::Unavailable); items.len()];
        let mut by_broker: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, item) in items.iter().enumerate() {
            if self.beyond_limit(item) {
                out[i] = outcome(SettleStatus::Limit);
            } else {
                by_broker.entry(&item.lease.broker).or_default().push(i);
            }
        }
        let chunks: Vec<(&str, &[usize])> = by_broker
            .iter()
            .flat_map(|(broker, list)| list.chunks(ITEMS_MAX).map(|chunk| (*broker, chunk)))
            .collect();
        let calls = chunks
            .iter()
            .map(|(broker, chunk)| self.settle_at(group, broker, items, chunk, deadline));
        for ((_, chunk), results) in chunks.iter().zip(join_all(calls).await) {
            for (i, result) in chunk.iter().zip(results.unwrap_or_default()) {
                out[*i] = read(&result);
            }
        }
        out
    }

    /// An extension past 12 h in all.
    fn beyond_limit(&self, item: &Settlement) -> bool {
        let SettleOp::Extend {
            invisible_ms: Some(ms),
            ..
        } = item.op
        else {
            return false;
        };
        let now = i64::try_from(self.now_ms()).unwrap_or(i64::MAX);
        let until = now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
        until > item.lease.delivered_at_ms.saturating_add(LEASE_MAX_MS)
    }

    async fn settle_at(
        &self,
        group: &str,
        broker: &str,
        items: &[Settlement],
        chunk: &[usize],
        deadline: Instant,
    ) -> Option<Vec<SettleResult>> {
        let addr = self.master(broker, deadline).await?;
        let request = SettleRequest {
            items: chunk.iter().map(|i| wire_item(&items[*i])).collect(),
        };
        let command = Command::request(RequestCode::Settle)
            .with_ext("group", group)
            .with_body(json::to_vec(&request));
        let left = time_left(deadline).ok()?;
        let call = BrokerCall::begin();
        let response = self.invoke(&addr, command, left).await;
        drop(call);
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "settlement not answered");
                return None;
            }
        };
        match response.response_code() {
            ResponseCode::Success => {
                let answer: SettleResponse = json::from_slice(&response.body.to_bytes()).ok()?;
                (answer.results.len() == chunk.len()).then_some(answer.results)
            }
            // No such group or topic any more: these receipts decide nothing.
            ResponseCode::SubscriptionGroupNotExist | ResponseCode::TopicNotExist => {
                Some(vec![SettleResult::default(); chunk.len()])
            }
            code => {
                tracing::debug!(
                    code = code.code(),
                    remark = response.remark,
                    "settlement refused"
                );
                None
            }
        }
    }
}

fn outcome(status: SettleStatus) -> SettleOutcome {
    SettleOutcome {
        status,
        late: false,
        already: false,
        visible_at_ms: None,
    }
}

fn wire_item(item: &Settlement) -> SettleItem {
    let lease = &item.lease;
    let mut out = SettleItem {
        topic: lease.topic.clone(),
        queue_id: lease.queue_id,
        queue_offset: lease.queue_offset,
        lease_id: lease.lease_id,
        ..SettleItem::default()
    };
    match &item.op {
        SettleOp::Ack => out.op = WireOp::Ack,
        SettleOp::Nack {
            delay_ms,
            code,
            reason,
        } => {
            out.op = WireOp::Nack;
            (out.delay_ms, out.code, out.reason) = (*delay_ms, code.clone(), reason.clone());
        }
        SettleOp::Dead { code, reason } => {
            out.op = WireOp::Dead;
            (out.code, out.reason) = (code.clone(), reason.clone());
        }
        SettleOp::Extend {
            invisible_ms,
            member,
        } => {
            out.op = WireOp::Extend;
            (out.invisible_ms, out.member) = (*invisible_ms, member.clone());
        }
        SettleOp::Release { after_ms, member } => {
            out.op = WireOp::Release;
            out.member.clone_from(member);
            out.invisible_ms = Some(*after_ms);
        }
        SettleOp::Suspend => out.op = WireOp::Suspend,
    }
    out
}

fn read(result: &SettleResult) -> SettleOutcome {
    let status = match result.status {
        WireStatus::Acked => SettleStatus::Acked,
        WireStatus::Nacked => SettleStatus::Nacked,
        WireStatus::DeadLettered => SettleStatus::DeadLettered,
        WireStatus::Extended => SettleStatus::Extended,
        WireStatus::Released => SettleStatus::Released,
        WireStatus::Gone => SettleStatus::Gone,
        WireStatus::Limit => SettleStatus::Limit,
    };
    SettleOutcome {
        status,
        late: result.late,
        already: result.already,
        visible_at_ms: result.visible_at_ms,
    }
}
