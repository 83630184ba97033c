//! Batches over REST on several gateways: sends go to the next gateway when one fails, deliveries are acked on another
//! gateway than gave them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use super::load::{Broker, Load, RECONNECT, TICK, body_for, per_tick, rest_ack};
use super::oracle::Place;
use crate::http::{Answer, Rest, body_of, text};

/// The doors of a fleet.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    pub(super) gateways: Vec<SocketAddr>,
    pub(super) brokers: Vec<Broker>,
}

impl Doors {
    fn clients(&self) -> Vec<Rest> {
        self.gateways.iter().map(|addr| Rest::new(*addr)).collect()
    }

    /// Where the answer of a send says that it lies.
    fn place(&self, sent: &Value) -> Option<Place> {
        let name = text(&sent["queue"], "broker");
        let broker = self.brokers.iter().find(|broker| broker.name == name)?;
        Some(Place {
            queue: broker.first_queue + i32::try_from(sent["queue"]["id"].as_i64()?).ok()?,
            offset: sent["offset"].as_i64()?,
        })
    }
}

/// One delivery: message number, attempt, receipt.
pub(super) type Delivery = (u64, u32, String);

/// Sends `per_second` messages in batches until the load ends, first by the gateway with this number.
pub(super) async fn sender(load: Arc<Load>, doors: Doors, first: usize, per_second: u32) {
    let clients = doors.clients();
    let path = format!("/v1/ns/default/topics/{}/messages/batch", load.topic);
    let burst = per_tick(per_second);
    let mut ticks = interval(TICK);
    let mut at = first;
    while load.sending() {
        ticks.tick().await;
        let numbers: Vec<u64> = (0..burst)
            .map(|_| load.next.fetch_add(1, Ordering::SeqCst))
            .collect();
        let messages: Vec<Value> = numbers
            .iter()
            .map(|number| json!({"text": body_for(*number)}))
            .collect();
        let answer = post(
            &clients[at % clients.len()],
            &path,
            &json!({"messages": messages}),
        )
        .await;
        let results = match &answer {
            Some(answer) => answer.json()["results"].clone(),
            None => Value::Null,
        };
        for (index, number) in numbers.iter().enumerate() {
            let stored = results[index]["status"] == 201;
            load.sent(
                *number,
                stored.then(|| doors.place(&results[index])).flatten(),
            );
        }
        if results.is_null() {
            at += 1;
            sleep(RECONNECT).await;
        }
    }
}

/// Receives from one gateway and acks on the next until the load ends.
pub(super) async fn consumer(load: Arc<Load>, doors: Doors, from: usize) {
    let clients = doors.clients();
    let (giver, settler) = (
        &clients[from % clients.len()],
        &clients[(from + 1) % clients.len()],
    );
    while load.consuming() {
        let Some(deliveries) = receive(&load, giver, "max=256&wait=200ms&invisibleFor=3s").await
        else {
            sleep(RECONNECT).await;
            continue;
        };
        let mut now = Vec::new();
        for (number, attempt, receipt) in deliveries {
            let delivery = (number, attempt, receipt);
            match load.manners(number, attempt) {
                None => {}
                Some(Duration::ZERO) => now.push(delivery),
                Some(after) => {
                    let (load, settler) = (Arc::clone(&load), settler.clone());
                    tokio::spawn(async move {
                        sleep(after).await;
                        rest_ack(&load, &settler, vec![delivery]).await;
                    });
                }
            }
        }
        if !now.is_empty() {
            rest_ack(&load, settler, now).await;
        }
    }
}

/// Receives once and writes down what came; none where no answer did.
pub(super) async fn receive(load: &Load, rest: &Rest, query: &str) -> Option<Vec<Delivery>> {
    let path = format!(
        "/v1/ns/default/groups/{}/receive?topic={}&{query}",
        load.group, load.topic
    );
    let asked = load.moment();
    let answer = rest.call(Method::POST, &path, &[], "").await.ok()?;
    let arrived = load.moment();
    if answer.status != 200 {
        return None;
    }
    let read = |message: Value| {
        let attempt = message["attempt"].as_u64().unwrap_or(0);
        let attempt = u32::try_from(attempt).unwrap_or(0);
        let number = load.delivered(&body_of(&message), attempt, asked, arrived);
        (number, attempt, text(&message, "receipt").to_owned())
    };
    Some(answer.messages().into_iter().map(read).collect())
}

async fn post(rest: &Rest, path: &str, body: &Value) -> Option<Answer> {
    let json = [("content-type", "application/json")];
    rest.call(Method::POST, path, &json, body.to_string())
        .await
        .ok()
}
