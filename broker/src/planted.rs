//! Faults planted on purpose, to show that the kill -9 checker finds them; only with the feature `planted-faults`.
//!
//! `GANTRY_PLANT` names the fault: `answer-before-append` answers a send, `answer-before-ack` an
//! acknowledgement, and does the work in order [`LATE`] later. What was answered and not yet done
//! when the process is killed is then a broken promise; without a kill nothing can be noticed.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use remoting::Responder;
use wire::{Command, RequestCode, ResponseCode};

use crate::broker::Broker;
use crate::handlers::send;
use crate::handlers::send_request::SendRequest;
use crate::pop;

/// From the answer to the work.
const LATE: Duration = Duration::from_millis(60);
/// Answered and not done; more wait for their turn.
const QUEUED_MAX: usize = 100_000;

struct Job {
    due: Monotonic,
    broker: Arc<Broker>,
    cmd: Command,
}

struct Planter {
    fault: String,
    jobs: SyncSender<Job>,
    /// Next offset by topic and queue, told before it is given.
    next: Mutex<HashMap<(String, i32), i64>>,
}

/// Takes a request that the planted fault is about, and answers it; gives back all others.
pub(crate) fn plant(
    broker: &Arc<Broker>,
    cmd: Command,
    to: Responder,
) -> Option<(Command, Responder)> {
    static PLANTER: OnceLock<Option<Planter>> = OnceLock::new();
    let Some(planter) = PLANTER.get_or_init(start) else {
        return Some((cmd, to));
    };
    let answer = match (planter.fault.as_str(), cmd.request_code()) {
        ("answer-before-append", RequestCode::SendMessageV2) => place(planter, broker, &cmd),
        ("answer-before-ack", RequestCode::AckMessage) => {
            Some(Command::response(ResponseCode::Success))
        }
        _ => None,
    };
    let Some(answer) = answer else {
        return Some((cmd, to));
    };
    let due = broker.clock.monotonic() + LATE;
    planter
        .jobs
        .send(Job {
            due,
            broker: broker.clone(),
            cmd,
        })
        .ok();
    to.send(answer);
    None
}

fn start() -> Option<Planter> {
    let fault = std::env::var("GANTRY_PLANT").ok()?;
    tracing::warn!(
        fault,
        "a fault is planted: this process breaks its promises"
    );
    let (jobs, queue) = sync_channel(QUEUED_MAX);
    std::thread::spawn(move || work(&queue));
    Some(Planter {
        fault,
        jobs,
        next: Mutex::default(),
    })
}

fn work(queue: &Receiver<Job>) {
    for Job { due, broker, cmd } in queue {
        std::thread::sleep(due.since(broker.clock.monotonic()));
        let (to, _answer) = Responder::capture();
        match cmd.request_code() {
            RequestCode::AckMessage => pop::ack(&broker, &cmd, to),
            _ => send::handle(&broker, cmd, to),
        }
    }
}

/// What the answer to a send would say, if the topic is there and the queue is named.
fn place(planter: &Planter, broker: &Arc<Broker>, cmd: &Command) -> Option<Command> {
    let request = SendRequest::parse(cmd).ok()?;
    broker
        .topics
        .get(request.topic)
        .filter(|topic| (0..topic.queue_count()).contains(&request.queue_id))?;
    let mut next = planter.next.lock();
    let key = (request.topic.to_owned(), request.queue_id);
    let end = || {
        broker
            .store
            .queue(request.topic, request.queue_id)
            .max
            .to_wire()
    };
    let offset = next.entry(key).or_insert_with(end);
    let mut answer = Command::response(ResponseCode::Success);
    answer.ext.put("msgId", "00000000000000000000000000000000");
    answer.ext.put("queueId", request.queue_id);
    answer.ext.put("queueOffset", *offset);
    *offset += 1;
    Some(answer)
}
