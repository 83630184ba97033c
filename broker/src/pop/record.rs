//! Lease facts as JSON bodies of log records, with the keys of RocketMQ 5.4.0's PopCheckPoint, AckMsg and BatchAckMsg.
//!
//! ```text
//! tag ck      {"so","pt","it","bm":0,"n","q","t","c","ro":0,"d":[...],"bn"} + ours: "e" epoch, "nx" next, "ra" attempts, "m" member
//! tag ack     {"ao","so","c","t","q","pt","bn"} + ours: "id" lease, "n" now
//! tag bAck    the same with "ao":-1 and "aol":[...]
//! tag settle  {"c","n","p":[{"t","q","i":[{"o","id","w",...}]}]}   any mix, several queues
//! tag pos     {"c","t","q","nx","v","n"}                            a seek, or a start position
//! tag forget  {"c"?,"t"?,"n"}                                       group or topic deleted
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::apply::{Change, Event, What};
use super::lease::{DeadCause, Fault, LeaseId};

/// TAGS of a check point.
pub const TAG_CK: &str = "ck";
/// TAGS of one ack.
pub const TAG_ACK: &str = "ack";
/// TAGS of several acks of one check point.
pub const TAG_BATCH_ACK: &str = "bAck";
/// TAGS of any other settlement.
pub const TAG_SETTLE: &str = "settle";
/// TAGS of a position.
pub const TAG_POSITION: &str = "pos";
/// TAGS of a deletion.
pub const TAG_FORGET: &str = "forget";

/// One event and the queue it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEvent {
    /// Topic whose queue it is (a retry topic for retries).
    pub topic: String,
    /// Queue id.
    pub queue_id: i32,
    /// What happened.
    pub event: Event,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Events of queues of one group.
    Events {
        /// The group.
        group: String,
        /// At most one per queue.
        events: Vec<QueueEvent>,
    },
    /// Everything of a group, of a topic, or of a group on a topic is gone.
    Forget {
        /// The group, any if absent.
        group: Option<String>,
        /// The topic, any if absent.
        topic: Option<String>,
    },
}

#[derive(Serialize, Deserialize)]
struct CkBody {
    bm: i64,
    bn: String,
    c: String,
    d: Vec<i64>,
    it: i64,
    n: i64,
    pt: i64,
    q: i32,
    ro: i64,
    so: i64,
    t: String,
    e: u16,
    nx: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ra: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct AckBody {
    ao: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aol: Vec<i64>,
    bn: String,
    c: String,
    pt: i64,
    q: i32,
    so: i64,
    t: String,
    id: u64,
    n: i64,
}

#[derive(Serialize, Deserialize)]
struct SettleBody {
    c: String,
    n: i64,
    p: Vec<SettlePart>,
}

#[derive(Serialize, Deserialize)]
struct SettlePart {
    t: String,
    q: i32,
    i: Vec<SettleEntry>,
}

#[derive(Serialize, Deserialize, Default)]
struct SettleEntry {
    o: u64,
    id: u64,
    w: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fa: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct PositionBody {
    c: String,
    t: String,
    q: i32,
    nx: u64,
    v: bool,
    n: i64,
}

#[derive(Serialize, Deserialize)]
struct ForgetBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<String>,
    n: i64,
}

/// A record ready to be appended: its tag, its unique key and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// TAGS property.
    pub tag: &'static str,
    /// UNIQ_KEY property.
    pub key: String,
    /// JSON.
    pub body: Vec<u8>,
}

/// What a pop gave out of one queue; the lease id follows from where the record lands.
#[derive(Debug, Clone, Copy)]
pub struct CheckPoint<'a> {
    /// Consumer group.
    pub group: &'a str,
    /// Popped topic.
    pub topic: &'a str,
    /// Popped queue.
    pub queue_id: i32,
    /// Start-up epoch of this broker.
    pub epoch: u16,
    /// Epoch ms.
    pub pop_time_ms: i64,
    /// ms.
    pub invisible_ms: u64,
    /// Where the next pop begins.
    pub next: u64,
    /// Offset and attempt of each message, ascending, not empty.
    pub messages: &'a [(u64, u32)],
    /// Who gets them.
    pub member: Option<&'a Arc<str>>,
}

impl CheckPoint<'_> {
    /// First offset given out.
    pub fn start(&self) -> u64 {
        self.messages
            .first()
            .map_or(self.next, |&(offset, _)| offset)
    }

    /// The record of this pop.
    ///
    /// # Errors
    /// Only what JSON encoding itself reports.
    pub fn draft(&self, broker: &str) -> Result<Draft, serde_json::Error> {
        let start = self.start();
        let plain = self.messages.iter().all(|&(_, attempt)| attempt == 1);
        let body = CkBody {
            bm: 0,
            bn: broker.to_owned(),
            c: self.group.to_owned(),
            d: self
                .messages
                .iter()
                .map(|&(offset, _)| signed(offset - start))
                .collect(),
            it: signed(self.invisible_ms),
            n: signed(self.messages.len() as u64),
            pt: self.pop_time_ms,
            q: self.queue_id,
            ro: 0,
            so: signed(start),
            t: self.topic.to_owned(),
            e: self.epoch,
            nx: self.next,
            ra: if plain {
                Vec::new()
            } else {
                self.messages.iter().map(|&(_, attempt)| attempt).collect()
            },
            m: self.member.map(|member| member.to_string()),
        };
        let key = format!(
            "{}@{}@{start}@{}@{}@{broker}@ck",
            self.topic, self.queue_id, self.group, self.pop_time_ms
        );
        Ok(Draft {
            tag: TAG_CK,
            key,
            body: serde_json::to_vec(&body)?,
        })
    }

    /// The event of the record that landed at `position`.
    pub fn event(&self, position: u64) -> Event {
        Event::Leased {
            id: LeaseId::new(self.epoch, position),
            start: self.start(),
            next: self.next,
            pop_time_ms: self.pop_time_ms,
            invisible_ms: self.invisible_ms,
            messages: self.messages.to_vec(),
            member: self.member.cloned(),
        }
    }
}

/// One queue's part of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Topic of the queue.
    pub topic: String,
    /// Queue id.
    pub queue_id: i32,
    /// First offset of the check point, and its pop time, when all changes belong to one.
    pub check_point: Option<(u64, i64)>,
    /// What to write.
    pub changes: Vec<Change>,
}

/// The one record of a settlement of `group`: Apache's ack form when it is acks of one check point, else our own.
///
/// # Errors
/// Only what JSON encoding itself reports.
pub fn settle_draft(
    group: &str,
    broker: &str,
    at_ms: i64,
    parts: &[Part],
) -> Result<Draft, serde_json::Error> {
    if let [
        Part {
            topic,
            queue_id,
            check_point: Some((start, pop_time_ms)),
            changes,
        },
    ] = parts
        && let Some(first) = changes.first()
        && changes
            .iter()
            .all(|change| change.what == What::Acked && change.id == first.id)
    {
        let single = changes.len() == 1;
        let body = AckBody {
            ao: if single { signed(first.offset) } else { -1 },
            aol: if single {
                Vec::new()
            } else {
                changes.iter().map(|change| signed(change.offset)).collect()
            },
            bn: broker.to_owned(),
            c: group.to_owned(),
            pt: *pop_time_ms,
            q: *queue_id,
            so: signed(*start),
            t: topic.clone(),
            id: first.id.0,
            n: at_ms,
        };
        let (tag, offset) = if single {
            (TAG_ACK, signed(first.offset))
        } else {
            (TAG_BATCH_ACK, -1)
        };
        let key = format!("{topic}@{queue_id}@{offset}@{group}@{pop_time_ms}@{broker}@{tag}");
        return Ok(Draft {
            tag,
            key,
            body: serde_json::to_vec(&body)?,
        });
    }
    let part = |part: &Part| SettlePart {
        t: part.topic.clone(),
        q: part.queue_id,
        i: part.changes.iter().map(entry).collect(),
    };
    let body = SettleBody {
        c: group.to_owned(),
        n: at_ms,
        p: parts.iter().map(part).collect(),
    };
    Ok(Draft {
        tag: TAG_SETTLE,
        key: format!("{group}@{at_ms}@{broker}@settle"),
        body: serde_json::to_vec(&body)?,
    })
}

/// The record that fixes where delivery of a queue continues.
///
/// # Errors
/// Only what JSON encoding itself reports.
pub fn position_draft(
    group: &str,
    topic: &str,
    queue_id: i32,
    next: u64,
    void: bool,
    at_ms: i64,
) -> Result<Draft, serde_json::Error> {
    let body = PositionBody {
        c: group.to_owned(),
        t: topic.to_owned(),
        q: queue_id,
        nx: next,
        v: void,
        n: at_ms,
    };
    let key = format!("{topic}@{queue_id}@{next}@{group}@{at_ms}@pos");
    Ok(Draft {
        tag: TAG_POSITION,
        key,
        body: serde_json::to_vec(&body)?,
    })
}

/// The record of a deleted group, topic, or subscription.
///
/// # Errors
/// Only what JSON encoding itself reports.
pub fn forget_draft(
    group: Option<&str>,
    topic: Option<&str>,
    at_ms: i64,
) -> Result<Draft, serde_json::Error> {
    let body = ForgetBody {
        c: group.map(str::to_owned),
        t: topic.map(str::to_owned),
        n: at_ms,
    };
    let key = format!(
        "{}@{}@{at_ms}@forget",
        topic.unwrap_or("*"),
        group.unwrap_or("*")
    );
    Ok(Draft {
        tag: TAG_FORGET,
        key,
        body: serde_json::to_vec(&body)?,
    })
}

/// Reads the record at log `position`. `None` for records of other software (Apache's have no epoch) and for bodies that
/// do not parse.
pub fn decode(tag: &str, body: &[u8], position: u64) -> Option<Record> {
    match tag {
        TAG_CK => decode_ck(&serde_json::from_slice(body).ok()?, position),
        TAG_ACK | TAG_BATCH_ACK => decode_ack(serde_json::from_slice(body).ok()?),
        TAG_SETTLE => decode_settle(serde_json::from_slice(body).ok()?),
        TAG_POSITION => {
            let body: PositionBody = serde_json::from_slice(body).ok()?;
            Some(one(
                body.c,
                body.t,
                body.q,
                Event::Positioned {
                    next: body.nx,
                    void: body.v,
                    at_ms: body.n,
                },
            ))
        }
        TAG_FORGET => {
            let body: ForgetBody = serde_json::from_slice(body).ok()?;
            Some(Record::Forget {
                group: body.c,
                topic: body.t,
            })
        }
        _ => None,
    }
}

fn decode_ck(body: &CkBody, position: u64) -> Option<Record> {
    let start = u64::try_from(body.so).ok()?;
    let message = |(index, &distance): (usize, &i64)| {
        Some((
            start.checked_add_signed(distance)?,
            body.ra.get(index).copied().unwrap_or(1),
        ))
    };
    let event = Event::Leased {
        id: LeaseId::new(body.e, position),
        start,
        next: body.nx,
        pop_time_ms: body.pt,
        invisible_ms: u64::try_from(body.it).ok()?,
        messages: body
            .d
            .iter()
            .enumerate()
            .map(message)
            .collect::<Option<Vec<_>>>()?,
        member: body.m.as_deref().map(Into::into),
    };
    Some(one(body.c.clone(), body.t.clone(), body.q, event))
}

fn decode_ack(body: AckBody) -> Option<Record> {
    let offsets = if body.aol.is_empty() {
        vec![body.ao]
    } else {
        body.aol
    };
    let change = |offset: i64| {
        Some(Change {
            offset: u64::try_from(offset).ok()?,
            id: LeaseId(body.id),
            what: What::Acked,
        })
    };
    let changes = offsets
        .into_iter()
        .map(change)
        .collect::<Option<Vec<_>>>()?;
    Some(one(
        body.c,
        body.t,
        body.q,
        Event::Settled {
            at_ms: body.n,
            changes,
        },
    ))
}

fn decode_settle(body: SettleBody) -> Option<Record> {
    let mut events = Vec::with_capacity(body.p.len());
    for part in body.p {
        let changes = part
            .i
            .into_iter()
            .map(|entry| change(entry, body.n))
            .collect::<Option<Vec<_>>>()?;
        events.push(QueueEvent {
            topic: part.t,
            queue_id: part.q,
            event: Event::Settled {
                at_ms: body.n,
                changes,
            },
        });
    }
    Some(Record::Events {
        group: body.c,
        events,
    })
}

fn one(group: String, topic: String, queue_id: i32, event: Event) -> Record {
    Record::Events {
        group,
        events: vec![QueueEvent {
            topic,
            queue_id,
            event,
        }],
    }
}

fn entry(change: &Change) -> SettleEntry {
    let mut entry = SettleEntry {
        o: change.offset,
        id: change.id.0,
        ..SettleEntry::default()
    };
    let (w, at, fault) = match &change.what {
        What::Acked => ("a", None, None),
        What::Visible(ms) | What::Adopted(ms, _) => ("v", Some(*ms), None),
        What::Nacked(ms, fault) => ("n", Some(*ms), Some(fault)),
        What::Suspended => ("s", None, None),
        What::Dead(DeadCause::MaxAttempts, fault) => ("m", None, Some(fault)),
        What::Dead(DeadCause::Rejected, fault) => ("r", None, Some(fault)),
        What::Dropped => ("x", None, None),
    };
    entry.w = w.to_owned();
    entry.at = at;
    if let What::Adopted(_, member) = &change.what {
        entry.m = Some(member.to_string());
    }
    if let Some(fault) = fault {
        entry.code.clone_from(&fault.code);
        entry.reason.clone_from(&fault.reason);
        entry.fa = Some(fault.at_ms);
    }
    entry
}

fn change(entry: SettleEntry, now_ms: i64) -> Option<Change> {
    let fault = Fault {
        code: entry.code,
        reason: entry.reason,
        at_ms: entry.fa.unwrap_or(now_ms),
    };
    let what = match entry.w.as_str() {
        "a" => What::Acked,
        "v" => match entry.m {
            Some(member) => What::Adopted(entry.at?, member.into()),
            None => What::Visible(entry.at?),
        },
        "n" => What::Nacked(entry.at?, fault),
        "s" => What::Suspended,
        "m" => What::Dead(DeadCause::MaxAttempts, fault),
        "r" => What::Dead(DeadCause::Rejected, fault),
        "x" => What::Dropped,
        _ => return None,
    };
    Some(Change {
        offset: entry.o,
        id: LeaseId(entry.id),
        what,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
