//! What tests of group subscriptions share: subscribing, sending, and what is asked of the messages that come.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Cluster;
use super::client::Socket;

/// Subscribes the group as `s`, which must succeed; `more` are further fields. The answer.
pub(crate) async fn subscribe(
    socket: &mut Socket,
    group: &str,
    topic: &str,
    credit: u32,
    more: Value,
) -> Value {
    let mut frame = json!({"op": "subscribe", "sub": "s", "mode": "group", "group": group, "topic": topic, "credit": credit});
    frame
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().cloned().unwrap_or_default());
    let answer = socket.ask(1, frame).await;
    assert_eq!(answer["op"], "ok", "{answer}");
    answer
}

/// The texts of messages.
pub(crate) fn texts(messages: &[Value]) -> BTreeSet<String> {
    messages
        .iter()
        .map(|message| message["text"].as_str().unwrap().to_owned())
        .collect()
}

/// The receipts of messages, in order.
pub(crate) fn receipts(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["receipt"].as_str().unwrap())
        .collect()
}

/// Sends `m000`, `m001` … over REST. Their texts.
pub(crate) async fn send_many(cluster: &Cluster, topic: &str, count: usize) -> BTreeSet<String> {
    let texts: BTreeSet<String> = (0..count).map(|n| format!("m{n:03}")).collect();
    for text in &texts {
        cluster.gateway.send(topic, text).await;
    }
    texts
}
