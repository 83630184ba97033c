//! Opens a group subscription: checks the names, looks group and lag up, adopts leases of an earlier socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::body::gantry::{GroupLag, QueueLag};

use super::action::{Adopted, Opened};
use super::frame::Subscribe;
use super::jobs::{Done, Feed};
use crate::error::{ApiError, Code};
use crate::params::{check_group, check_namespace, check_topic};
use crate::state::AppState;
use crate::upstream::{Lease, Presence, Scope, SettleOp, SettleStatus, Settlement, is_of_topic};

const CALL: Duration = Duration::from_secs(10);

pub(super) async fn open(state: AppState, feed: Arc<Feed>, sub: u32, spec: Box<Subscribe>) -> Done {
    let result = look_up(&state, &feed, &spec).await;
    Done::Opened { sub, result }
}

async fn look_up(
    state: &AppState,
    feed: &Feed,
    spec: &Subscribe,
) -> Result<(Opened, Presence), ApiError> {
    check_namespace(&spec.ns)?;
    check_group(&spec.group)?;
    if let Some(topic) = &spec.topic {
        check_topic(topic)?;
    }
    let deadline = Instant::now() + CALL;
    let topic = spec.topic.as_deref();
    let upstream = &state.upstream;
    let group = upstream
        .group_for_receive(&spec.group, topic, deadline)
        .await?;
    let invisible_ms = spec.invisible_ms.unwrap_or(group.spec.invisible_ms);
    let presence = upstream
        .present(&spec.group, topic, &feed.member, deadline)
        .await?;
    let (adopted, gone) = adopt(state, feed, spec, invisible_ms).await?;
    let lag = unsettled(&upstream.lag(&spec.group, deadline).await?.brokers, topic);
    let opened = Opened {
        adopted,
        gone,
        lag,
        invisible_ms,
    };
    Ok((opened, presence))
}

/// Messages of the topic, or of all of the group, that are not settled yet; with a filter an upper bound.
fn unsettled(lags: &[(String, GroupLag)], topic: Option<&str>) -> u64 {
    let counts = |queue: &&QueueLag| topic.is_none_or(|topic| is_of_topic(queue, topic));
    let queues = lags.iter().flat_map(|(_, lag)| &lag.queues).filter(counts);
    queues
        .map(|queue| {
            u64::try_from(queue.max_offset - queue.next_deliver).unwrap_or(0)
                + queue.in_flight
                + queue.waiting
        })
        .sum()
}

/// Extends each receipt of `resume`: those that still hold their lease go on here. Both lists keep the order given.
async fn adopt(
    state: &AppState,
    feed: &Feed,
    spec: &Subscribe,
    invisible_ms: u64,
) -> Result<(Vec<Adopted>, Vec<String>), ApiError> {
    let decode = |receipt: &String| state.receipts.decode(&Scope, &spec.group, receipt).ok();
    let leases: Vec<Option<Lease>> = spec.resume.iter().map(decode).collect();
    let extend = |lease: &Lease| Settlement {
        lease: lease.clone(),
        op: SettleOp::Extend {
            invisible_ms: Some(invisible_ms),
            member: Some(feed.member.label.clone()),
        },
    };
    let asked: Vec<Settlement> = leases.iter().flatten().map(extend).collect();
    let answers = if asked.is_empty() {
        Vec::new()
    } else {
        let deadline = Instant::now() + CALL;
        state
            .upstream
            .settle(&Scope, &spec.group, &asked, deadline)
            .await
    };
    let (mut answers, mut adopted, mut gone) = (answers.iter(), Vec::new(), Vec::new());
    for (receipt, lease) in spec.resume.iter().zip(&leases) {
        let answer = lease.as_ref().and_then(|_| answers.next());
        match answer.map(|answer| answer.status) {
            Some(SettleStatus::Extended) => adopted.push(Adopted {
                receipt: receipt.as_str().into(),
                broker: lease.as_ref().map_or("", |lease| &lease.broker).into(),
            }),
            Some(SettleStatus::Unavailable) => {
                let detail = "a broker whose leases are to be resumed cannot be reached";
                return Err(ApiError::new(Code::BrokerUnavailable, detail));
            }
            _ => gone.push(receipt.clone()),
        }
    }
    Ok((adopted, gone))
}
