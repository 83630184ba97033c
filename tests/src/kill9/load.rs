//! The load: senders and consumers on one topic, over remoting or over REST, that write down what they see.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

use super::oracle::{AckOutcome, Acked, Delivered, History, Moment, Place, Sent};
use crate::http::{Rest, body_of, text};
use crate::native::{Native, Popped};

/// How long a delivery is invisible.
pub const INVISIBLE: Duration = Duration::from_secs(3);
pub(super) const TICK: Duration = Duration::from_millis(20);
pub(super) const RECONNECT: Duration = Duration::from_millis(20);
/// One delivery in so many is not acked, so that it comes back.
const FORGET_EVERY: u64 = 40;
/// One delivery in so many is acked only after its lease has ended.
const LATE_EVERY: u64 = 23;
/// Late acks come within this span.
const LATE_SPREAD: Duration = Duration::from_millis(1000);

/// What all tasks of one topic share.
#[derive(Debug)]
pub struct Load {
    pub topic: String,
    pub group: String,
    pub queues: u64,
    clock: AtomicU64,
    pub(super) next: AtomicU64,
    sending: AtomicBool,
    consuming: AtomicBool,
    /// Forget and delay acks: on while the load runs, off while the queues are drained.
    careless: AtomicBool,
    history: Mutex<History>,
    last_delivery: Mutex<Instant>,
}

impl Load {
    pub fn new(topic: &str, group: &str, queues: u64) -> Arc<Load> {
        Arc::new(Load {
            topic: topic.to_owned(),
            group: group.to_owned(),
            queues,
            clock: AtomicU64::new(1),
            next: AtomicU64::new(1),
            sending: AtomicBool::new(true),
            consuming: AtomicBool::new(true),
            careless: AtomicBool::new(true),
            history: Mutex::new(History::default()),
            last_delivery: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn moment(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Ends the sending; consumers go on and settle all they get.
    pub fn drain(&self) {
        self.sending.store(false, Ordering::SeqCst);
        self.careless.store(false, Ordering::SeqCst);
        *self.last_delivery.lock() = Instant::now();
    }

    /// How long no message has been delivered.
    pub fn quiet(&self) -> Duration {
        self.last_delivery.lock().elapsed()
    }

    pub fn end(&self) {
        self.consuming.store(false, Ordering::SeqCst);
    }

    pub fn history(&self) -> History {
        self.history.lock().clone()
    }

    /// Answered sends, deliveries and answered acks so far.
    pub fn counts(&self) -> (usize, usize, usize) {
        let history = self.history.lock();
        let sends = history
            .sent
            .iter()
            .filter(|sent| sent.answered.is_some())
            .count();
        let acks = history
            .acked
            .iter()
            .filter(|ack| ack.outcome != AckOutcome::Unknown)
            .count();
        (sends, history.delivered.len(), acks)
    }

    pub(super) fn sent(&self, message: u64, answered: Option<Place>) {
        self.history.lock().sent.push(Sent { message, answered });
    }

    pub(super) fn delivered(
        &self,
        body: &[u8],
        attempt: u32,
        asked: Moment,
        arrived: Moment,
    ) -> u64 {
        let message = number_of(body);
        let intact = body == body_for(message).as_bytes();
        self.history.lock().delivered.push(Delivered {
            message,
            attempt,
            asked,
            arrived,
            intact,
        });
        *self.last_delivery.lock() = Instant::now();
        message
    }

    fn acked(&self, message: u64, attempt: u32, asked: Moment, outcome: AckOutcome) {
        self.history.lock().acked.push(Acked {
            message,
            attempt,
            asked,
            outcome,
        });
    }

    /// What to do with a delivery: none = forget it, else ack it after so long.
    pub(super) fn manners(&self, message: u64, attempt: u32) -> Option<Duration> {
        let dice = (message.wrapping_mul(31) + u64::from(attempt))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            >> 32;
        if !self.careless.load(Ordering::SeqCst) {
            return Some(Duration::ZERO);
        }
        if dice.is_multiple_of(FORGET_EVERY) {
            return None;
        }
        if dice.is_multiple_of(LATE_EVERY) {
            // from just before the lease ends until its message must have been put back
            return Some(
                INVISIBLE - LATE_SPREAD / 10
                    + LATE_SPREAD
                        .mul_f64(f64::from(u16::try_from(dice & 0xFFFF).unwrap_or(0)) / 65_536.0),
            );
        }
        Some(Duration::ZERO)
    }

    pub(super) fn sending(&self) -> bool {
        self.sending.load(Ordering::SeqCst)
    }

    pub(super) fn consuming(&self) -> bool {
        self.consuming.load(Ordering::SeqCst)
    }
}

/// The body of a message: its number, a colon and digits that follow from the number; 60 to 1,000 bytes.
pub fn body_for(message: u64) -> String {
    let mut state = message.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let length = 60 + usize::try_from(message % 940).unwrap_or_default();
    let mut body = format!("{message}:");
    while body.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.push_str(&format!("{state:016x}"));
    }
    body
}

/// The number a body begins with; 0, which is never sent, where it begins otherwise.
pub fn number_of(body: &[u8]) -> u64 {
    let digits = body.split(|byte| *byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

async fn connect(addr: SocketAddr, go_on: impl Fn() -> bool) -> Option<Native> {
    while go_on() {
        if let Ok(connection) = Native::connect(addr).await {
            return Some(connection);
        }
        sleep(RECONNECT).await;
    }
    None
}

/// A broker as the load sees it.
#[derive(Clone, Debug)]
pub struct Broker {
    pub addr: SocketAddr,
    pub name: String,
    /// Added to its queue ids, so that queues of several brokers are told apart.
    pub first_queue: i32,
}

/// Sends `per_second` messages by remoting until the load ends. Unanswered ones count as sent with unknown outcome.
pub async fn native_sender(load: Arc<Load>, broker: Broker, per_second: u32) {
    let burst = per_tick(per_second);
    let mut ticks = interval(TICK);
    while let Some(connection) = connect(broker.addr, || load.sending()).await {
        loop {
            ticks.tick().await;
            let numbers: Vec<u64> = (0..burst)
                .map(|_| load.next.fetch_add(1, Ordering::SeqCst))
                .collect();
            let sends = numbers
                .iter()
                .map(|number| native_send(&load, &connection, broker.first_queue, *number));
            let answered = join_all(sends).await;
            if !load.sending() || answered.contains(&false) {
                break;
            }
        }
    }
}

async fn native_send(load: &Load, connection: &Native, first_queue: i32, message: u64) -> bool {
    let queue = i32::try_from(message % load.queues).unwrap_or_default();
    let key = message.to_string();
    let answer = connection
        .send(
            &load.topic,
            queue,
            body_for(message).as_bytes(),
            &[("KEYS", &key)],
        )
        .await;
    let place = match &answer {
        Ok(answer) if answer.code == 0 => {
            match (answer.number("queueId"), answer.number("queueOffset")) {
                (Ok(queue), Ok(offset)) => Some(Place {
                    queue: first_queue + i32::try_from(queue).unwrap_or(-1),
                    offset,
                }),
                _ => None,
            }
        }
        _ => None,
    };
    load.sent(message, place);
    answer.is_ok()
}

/// Pops and acks by remoting until the load ends.
pub async fn native_consumer(load: Arc<Load>, broker: Broker) {
    let invisible = u64::try_from(INVISIBLE.as_millis()).unwrap_or_default();
    while let Some(connection) = connect(broker.addr, || load.consuming())
        .await
        .map(Arc::new)
    {
        while load.consuming() {
            let asked = load.moment();
            let Ok(popped) = connection
                .pop(&broker.name, &load.group, &load.topic, 32, invisible)
                .await
            else {
                break;
            };
            let arrived = load.moment();
            if popped.is_empty() {
                sleep(TICK).await;
            }
            for message in popped {
                let attempt = u32::try_from(message.record.reconsume_times).unwrap_or_default() + 1;
                let number = load.delivered(&message.record.body, attempt, asked, arrived);
                if let Some(after) = load.manners(number, attempt) {
                    let (load, connection) = (Arc::clone(&load), Arc::clone(&connection));
                    tokio::spawn(async move {
                        native_ack(&load, &connection, number, attempt, &message, after).await
                    });
                }
            }
        }
        sleep(RECONNECT).await;
    }
}

async fn native_ack(
    load: &Load,
    connection: &Native,
    number: u64,
    attempt: u32,
    message: &Popped,
    after: Duration,
) {
    sleep(after).await;
    let asked = load.moment();
    let outcome = match connection.ack(&load.group, message).await {
        Ok(answer) if answer.code == 0 => AckOutcome::Settled(load.moment()),
        // busy or closing promises nothing
        Ok(answer) if matches!(answer.code, 1 | 2 | 14) => AckOutcome::Unknown,
        Ok(_) => AckOutcome::Gone,
        Err(_) => AckOutcome::Unknown,
    };
    load.acked(number, attempt, asked, outcome);
}

/// Sends `per_second` messages over REST until the load ends.
pub async fn rest_sender(load: Arc<Load>, gateway: SocketAddr, per_second: u32) {
    let rest = Rest::new(gateway);
    let burst = per_tick(per_second);
    let mut ticks = interval(TICK);
    while load.sending() {
        ticks.tick().await;
        let numbers: Vec<u64> = (0..burst)
            .map(|_| load.next.fetch_add(1, Ordering::SeqCst))
            .collect();
        join_all(
            numbers
                .iter()
                .map(|number| rest_send(&load, &rest, *number)),
        )
        .await;
    }
}

async fn rest_send(load: &Load, rest: &Rest, message: u64) {
    let path = format!("/v1/ns/default/topics/{}/messages", load.topic);
    let body = json!({"text": body_for(message)}).to_string();
    let answer = rest
        .call(
            hyper::Method::POST,
            &path,
            &[("content-type", "application/json")],
            body,
        )
        .await;
    let place = match answer {
        Ok(answer) if answer.status == 201 => {
            let receipt = answer.json();
            let queue = receipt["queue"]["id"]
                .as_i64()
                .and_then(|queue| i32::try_from(queue).ok());
            match (queue, receipt["offset"].as_i64()) {
                (Some(queue), Some(offset)) => Some(Place { queue, offset }),
                _ => None,
            }
        }
        _ => None,
    };
    load.sent(message, place);
}

/// Receives and acks over REST until the load ends.
pub async fn rest_consumer(load: Arc<Load>, gateway: SocketAddr) {
    let rest = Rest::new(gateway);
    let path = format!(
        "/v1/ns/default/groups/{}/receive?topic={}&max=32&wait=200ms&invisibleFor=3s",
        load.group, load.topic
    );
    while load.consuming() {
        let asked = load.moment();
        let answer = rest.call(hyper::Method::POST, &path, &[], "").await;
        let arrived = load.moment();
        let Some(messages) = answer
            .ok()
            .filter(|answer| answer.status == 200)
            .map(|answer| answer.messages())
        else {
            sleep(RECONNECT).await;
            continue;
        };
        let mut now = Vec::new();
        for message in &messages {
            let attempt = message["attempt"]
                .as_u64()
                .and_then(|attempt| u32::try_from(attempt).ok())
                .unwrap_or(0);
            let number = load.delivered(&body_of(message), attempt, asked, arrived);
            let delivery = (number, attempt, text(message, "receipt").to_owned());
            match load.manners(number, attempt) {
                None => {}
                Some(Duration::ZERO) => now.push(delivery),
                Some(after) => {
                    let (load, rest) = (Arc::clone(&load), rest.clone());
                    tokio::spawn(async move {
                        sleep(after).await;
                        rest_ack(&load, &rest, vec![delivery]).await;
                    });
                }
            }
        }
        if !now.is_empty() {
            rest_ack(&load, &rest, now).await;
        }
    }
}

/// Acks deliveries and writes down what was answered; gives the statuses too.
pub(super) async fn rest_ack(
    load: &Load,
    rest: &Rest,
    deliveries: Vec<(u64, u32, String)>,
) -> Vec<String> {
    let receipts: Vec<&str> = deliveries
        .iter()
        .map(|(_, _, receipt)| receipt.as_str())
        .collect();
    let path = format!("/v1/ns/default/groups/{}/ack", load.group);
    let body = json!({"receipts": receipts}).to_string();
    let asked = load.moment();
    let answer = rest
        .call(
            hyper::Method::POST,
            &path,
            &[("content-type", "application/json")],
            body,
        )
        .await;
    let at = load.moment();
    let results = answer
        .map(|answer| answer.json()["results"].clone())
        .unwrap_or(Value::Null);
    let mut statuses = Vec::with_capacity(deliveries.len());
    for (index, (number, attempt, _)) in deliveries.iter().enumerate() {
        let status = text(&results[index], "status");
        let outcome = match status {
            "acked" => AckOutcome::Settled(at),
            "gone" => AckOutcome::Gone,
            _ => AckOutcome::Unknown,
        };
        load.acked(*number, *attempt, asked, outcome);
        statuses.push(status.to_owned());
    }
    statuses
}

pub(super) fn per_tick(per_second: u32) -> u32 {
    let ticks = u32::try_from(1000 / TICK.as_millis()).unwrap_or(1);
    (per_second / ticks).max(1)
}

#[cfg(test)]
mod tests {
    use super::{body_for, number_of};

    #[test]
    fn a_body_names_its_message() {
        for message in [1, 7, 939, 940, u64::MAX] {
            let body = body_for(message);
            assert_eq!(number_of(body.as_bytes()), message);
            assert!((60..=1016).contains(&body.len()));
        }
        assert_eq!(number_of(b"junk"), 0);
        assert_ne!(body_for(1), body_for(2));
    }
}
