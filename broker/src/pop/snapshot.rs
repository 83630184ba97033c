//! The state of all queues as one JSON text, with the log position replay has to start from.

use serde::{Deserialize, Serialize};
use wire::message::record::body_crc;

use super::lease::{DeadCause, Fault, Hold, Lease, LeaseId};
use super::queue::QueueState;
use super::tombs::{Ended, Horizon, Tomb};

/// Version of the file; another is refused.
const FORMAT: u32 = 1;

/// A whole snapshot.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    format: u32,
    /// Start-up epoch the writer ran in.
    pub epoch: u16,
    /// Replay from here: the log's end, read before the first queue was copied.
    pub replay_from: u64,
    /// The queues.
    pub queues: Vec<QueueSnapshot>,
}

/// One queue of one group.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSnapshot {
    /// Consumer group.
    pub group: String,
    /// Topic of the queue.
    pub topic: String,
    /// Queue id.
    pub queue_id: i32,
    next: u64,
    applied: u64,
    last_pop_time: i64,
    horizon: (u64, i64),
    /// Log position after the last record that moved `next`.
    #[serde(default)]
    placed: u64,
    /// Retries stored below this log position are void.
    #[serde(default, skip_serializing_if = "is_zero")]
    void: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    in_flight: Vec<LeaseSnapshot>,
    /// offset, lease, pop time, how, when
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tombs: Vec<(u64, u64, i64, u8, i64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LeaseSnapshot {
    o: u64,
    id: u64,
    pt: i64,
    at: i64,
    a: u32,
    so: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    h: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fa: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Snapshot {
    /// A snapshot to be filled.
    pub fn new(epoch: u16, replay_from: u64) -> Self {
        Snapshot {
            format: FORMAT,
            epoch,
            replay_from,
            queues: Vec::new(),
        }
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Only what JSON encoding itself reports.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let state = serde_json::to_vec(self)?;
        let mut text = head(&state).into_bytes();
        text.extend_from_slice(&state);
        text.push(b'}');
        Ok(text)
    }

    /// Reads the text of the file. `None` when it is damaged or of another format: the log tells it all again.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let state = text.get(HEAD_BYTES..)?.strip_suffix(b"}")?;
        if text.get(..HEAD_BYTES)? != head(state).as_bytes() {
            return None;
        }
        serde_json::from_slice::<Snapshot>(state)
            .ok()
            .filter(|snapshot| snapshot.format == FORMAT)
    }
}

/// Bytes of [`head`].
const HEAD_BYTES: usize = 26;

/// What stands before the state: its checksum, so that a flipped digit is not taken for another lease.
fn head(state: &[u8]) -> String {
    format!("{{\"crc\":\"{:08x}\",\"state\":", body_crc(state))
}

impl QueueSnapshot {
    /// Copies a queue.
    pub fn take(group: &str, topic: &str, queue_id: i32, state: &QueueState) -> Self {
        let horizon = state.tombs.horizon();
        let tomb = |tomb: &Tomb| {
            (
                tomb.offset,
                tomb.id.0,
                tomb.pop_time_ms,
                ended_code(tomb.ended),
                tomb.at_ms,
            )
        };
        QueueSnapshot {
            group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            next: state.next,
            applied: state.applied,
            last_pop_time: state.last_pop_time_ms,
            horizon: (horizon.id.0, horizon.pop_time_ms),
            placed: state.placed,
            void: state.retries_void_below,
            in_flight: state
                .in_flight()
                .map(|(offset, lease)| lease_out(offset, lease))
                .collect(),
            tombs: state.tombs.iter().map(tomb).collect(),
        }
    }

    /// The queue as it was copied.
    pub fn restore(&self) -> QueueState {
        let horizon = Horizon {
            id: LeaseId(self.horizon.0),
            pop_time_ms: self.horizon.1,
        };
        let mut state = QueueState::new(self.next, horizon, self.applied);
        state.last_pop_time_ms = self.last_pop_time;
        state.placed = self.placed;
        state.retries_void_below = self.void;
        for entry in &self.in_flight {
            state.insert(entry.o, lease_in(entry));
        }
        for &(offset, id, pop_time_ms, ended, at_ms) in &self.tombs {
            state.tombs.bury(Tomb {
                offset,
                id: LeaseId(id),
                pop_time_ms,
                ended: ended_of(ended),
                at_ms,
            });
        }
        state
    }
}

fn lease_out(offset: u64, lease: &Lease) -> LeaseSnapshot {
    let (h, fault) = match &lease.hold {
        Hold::Held => ("", None),
        Hold::Nacked(fault) => ("n", Some(fault)),
        Hold::Suspended => ("s", None),
        Hold::Dead(DeadCause::MaxAttempts, fault) => ("m", Some(fault)),
        Hold::Dead(DeadCause::Rejected, fault) => ("r", Some(fault)),
    };
    LeaseSnapshot {
        o: offset,
        id: lease.id.0,
        pt: lease.pop_time_ms,
        at: lease.visible_at_ms,
        a: lease.attempt,
        so: lease.start,
        h: h.to_owned(),
        code: fault.and_then(|fault| fault.code.clone()),
        reason: fault.and_then(|fault| fault.reason.clone()),
        fa: fault.map(|fault| fault.at_ms),
        m: lease.member.as_deref().map(str::to_owned),
    }
}

fn lease_in(entry: &LeaseSnapshot) -> Lease {
    let fault = || {
        Box::new(Fault {
            code: entry.code.clone(),
            reason: entry.reason.clone(),
            at_ms: entry.fa.unwrap_or_default(),
        })
    };
    let hold = match entry.h.as_str() {
        "n" => Hold::Nacked(fault()),
        "s" => Hold::Suspended,
        "m" => Hold::Dead(DeadCause::MaxAttempts, fault()),
        "r" => Hold::Dead(DeadCause::Rejected, fault()),
        _ => Hold::Held,
    };
    Lease {
        id: LeaseId(entry.id),
        pop_time_ms: entry.pt,
        visible_at_ms: entry.at,
        attempt: entry.a,
        start: entry.so,
        hold,
        member: entry.m.as_deref().map(Into::into),
    }
}

fn ended_code(ended: Ended) -> u8 {
    match ended {
        Ended::Acked => 0,
        Ended::Returned => 1,
        Ended::Dead => 2,
    }
}

fn ended_of(code: u8) -> Ended {
    match code {
        0 => Ended::Acked,
        2 => Ended::Dead,
        _ => Ended::Returned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let snapshot = Snapshot::new(3, 77);
        let text = snapshot.encode().unwrap();
        assert_eq!(
            Snapshot::decode(&text).map(|read| (read.epoch, read.replay_from)),
            Some((3, 77))
        );
        for at in 0..text.len() * 8 {
            let mut damaged = text.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(Snapshot::decode(&damaged).is_none(), "bit {at}");
        }
        for end in 0..text.len() {
            assert!(Snapshot::decode(&text[..end]).is_none());
        }
    }
}
