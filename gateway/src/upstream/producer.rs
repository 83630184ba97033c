//! Sending: queue choice, the broker call, what its answer means.

use super::routes::{Broker, Route};
use super::select::by_key;
use super::timing::BrokerCall;
use super::{Scope, Upstream, mapping};
use crate::error::{ApiError, Code, Outcome};
use crate::params::new_ulid;
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;
use wire::message::batch::{BatchEntry, encode_batch};
use wire::message::properties::{PROPERTIES_MAX_BYTES, names, push};
use wire::{Command, RequestCode, ResponseCode};

/// The durability a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// In the leader's page cache.
    Buffered,
    /// fsynced on the leader.
    Flushed,
    /// Confirmed by the in-sync set.
    Replicated,
}

/// A checked message, ready to be sent.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// A ULID; made by [`Upstream::send`] where it is empty.
    pub message_id: String,
    /// The stored bytes.
    pub body: Bytes,
    /// Always set.
    pub content_type: String,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Decides the queue.
    pub ordering_key: Option<String>,
    /// The user's properties, in the order given.
    pub properties: Vec<(String, String)>,
    /// None = the topic's and broker's policy.
    pub durability: Option<Durability>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// A fixed queue: broker name and queue id (diagnostics).
    pub queue: Option<(String, i32)>,
}

/// Where and how a message was stored.
#[derive(Clone, Debug)]
pub struct Sent {
    /// ULID.
    pub message_id: String,
    /// Broker name.
    pub broker: String,
    /// Queue of that broker.
    pub queue_id: i32,
    /// Offset in the queue.
    pub queue_offset: i64,
    /// Store time, epoch ms.
    pub stored_at_ms: i64,
    /// Reached: `buffered` or `flushed`.
    pub durability: &'static str,
}

/// Producer group of the gateways, as brokers see it.
const PRODUCER_GROUP: &str = "GANTRY_GATEWAY";
/// Brokers tried for one message without a fixed queue.
const TRIES_MAX: usize = 3;

impl Upstream {
    /// Stores one message. Creates the topic where `autoCreate` is on. Retries another broker only when nothing was
    /// written to the first.
    ///
    /// # Errors
    /// `topic_not_found`, `message_too_large`, `broker_busy`, `broker_unavailable`, `broker_timeout` (outcome unknown),
    /// `durability_not_confirmed` (outcome unknown) …
    pub async fn send(
        &self,
        _scope: &Scope,
        topic: &str,
        draft: &Draft,
        deadline: Instant,
    ) -> Result<Sent, ApiError> {
        let message_id = self.id_of(draft);
        let properties = encode_properties(draft, &message_id)?;
        let payload = Payload {
            code: RequestCode::SendMessageV2,
            body: draft.body.clone(),
            properties: &properties,
            durability: draft.durability,
        };
        let fixed = Fixed {
            queue: draft.queue.as_ref(),
            key: draft.ordering_key.as_deref(),
        };
        let stored = self
            .store(topic, &payload, fixed, deadline)
            .await
            .map_err(|e| with_id(e, &message_id))?;
        Ok(Sent {
            message_id,
            ..stored
        })
    }

    /// Stores several messages in one queue, all or none, with consecutive offsets. All have the same ordering key or
    /// none.
    ///
    /// # Errors
    /// As [`Upstream::send`].
    pub async fn send_atomic(
        &self,
        _scope: &Scope,
        topic: &str,
        drafts: &[Draft],
        deadline: Instant,
    ) -> Result<Vec<Sent>, ApiError> {
        let ids: Vec<String> = drafts.iter().map(|d| self.id_of(d)).collect();
        let properties = drafts
            .iter()
            .zip(&ids)
            .map(|(d, id)| encode_properties(d, id))
            .collect::<Result<Vec<_>, _>>()?;
        let entries = drafts.iter().zip(&properties).map(|(d, p)| BatchEntry {
            flag: 0,
            body: &d.body,
            properties: p.as_bytes(),
        });
        let body = encode_batch(entries)
            .map_err(|e| ApiError::new(Code::RequestTooLarge, e.to_string()))?;
        let payload = Payload {
            code: RequestCode::SendBatchMessage,
            body: body.into(),
            properties: "",
            durability: drafts.iter().filter_map(|d| d.durability).max(),
        };
        let first = drafts.first();
        let fixed = Fixed {
            queue: first.and_then(|d| d.queue.as_ref()),
            key: first.and_then(|d| d.ordering_key.as_deref()),
        };
        let stored = self.store(topic, &payload, fixed, deadline).await?;
        let sent = |(i, message_id): (i64, String)| Sent {
            message_id,
            queue_offset: stored.queue_offset + i,
            ..stored.clone()
        };
        Ok((0..).zip(ids).map(sent).collect())
    }

    /// Whether a message for this topic has somewhere to go. Creates the topic where `autoCreate` is on.
    ///
    /// # Errors
    /// `topic_not_found`, `no_route`.
    pub async fn check_route(&self, topic: &str, deadline: Instant) -> Result<(), ApiError> {
        self.route_for_send(topic, deadline).await.map(|_| ())
    }

    /// A new message id.
    #[must_use]
    pub fn new_message_id(&self) -> String {
        new_ulid(self.now_ms())
    }

    fn id_of(&self, draft: &Draft) -> String {
        if draft.message_id.is_empty() {
            new_ulid(self.now_ms())
        } else {
            draft.message_id.clone()
        }
    }

    async fn route_for_send(&self, topic: &str, deadline: Instant) -> Result<Arc<Route>, ApiError> {
        match self.route(topic, deadline).await? {
            Some(route) => Ok(route),
            None if self.0.options.auto_create => {
                self.create_topic(topic, deadline).await?;
                let route = self.route(topic, deadline).await?;
                route.ok_or_else(|| {
                    ApiError::new(
                        Code::NoRoute,
                        format!("topic '{topic}' was created but has no route yet"),
                    )
                })
            }
            None => Err(ApiError::new(
                Code::TopicNotFound,
                format!("topic '{topic}' does not exist; create it with PUT"),
            )),
        }
    }

    fn pick(
        &self,
        topic: &str,
        route: &Route,
        fixed: Fixed<'_>,
        tried: &[String],
    ) -> Result<(Arc<Broker>, i32), ApiError> {
        let unwritable = || {
            ApiError::new(
                Code::NoRoute,
                format!("topic '{topic}' has no writable queue on a broker that can be reached"),
            )
        };
        if let Some((broker, id)) = fixed.queue {
            let known = route
                .writable
                .iter()
                .find(|(b, i)| b.name == *broker && i == id);
            let missing = || {
                ApiError::field(
                    Code::InvalidField,
                    "/queue",
                    format!("topic '{topic}' has no writable queue {id} on '{broker}'"),
                )
            };
            return known.cloned().ok_or_else(missing);
        }
        if let Some(key) = fixed.key {
            let (broker, id, gone) = by_key(route, key).ok_or_else(unwritable)?;
            return if gone {
                Err(super::consumer::unregistered(&broker.name))
            } else {
                Ok((broker, id))
            };
        }
        let entry = self.0.routes.entry(topic);
        let now = self.0.options.clock.monotonic();
        self.0
            .selector
            .next(&entry, route, tried, |addr| self.is_silent(addr), now)
            .ok_or_else(unwritable)
    }

    async fn store(
        &self,
        topic: &str,
        payload: &Payload<'_>,
        fixed: Fixed<'_>,
        deadline: Instant,
    ) -> Result<Sent, ApiError> {
        let mut route = self.route_for_send(topic, deadline).await?;
        let mut tried: Vec<String> = Vec::new();
        let mut refreshed = false;
        let mut last = None;
        while tried.len() < TRIES_MAX {
            let Ok((broker, queue_id)) = self.pick(topic, &route, fixed, &tried) else {
                return Err(match last {
                    Some(error) => error,
                    None => self
                        .pick(topic, &route, fixed, &[])
                        .err()
                        .unwrap_or_else(mapping::out_of_time),
                });
            };
            let command = self.command(topic, payload, &broker.name, queue_id);
            let left = super::time_left(deadline).map_err(|e| last.take().unwrap_or(e))?;
            let call = BrokerCall::begin();
            let answer = self.invoke(&broker.addr, command, left).await;
            drop(call);
            let error = match answer {
                Ok(response) => match read(&response, &broker.name, topic) {
                    Ok(sent) => return Ok(sent),
                    Err(error) => {
                        let code = response.response_code();
                        // A queue that we chose and that is not there: the topic was made anew with fewer.
                        let stale = code == ResponseCode::InvalidParameter && fixed.queue.is_none();
                        let moved = matches!(
                            code,
                            ResponseCode::TopicNotExist
                                | ResponseCode::NotLeaderForQueue
                                | ResponseCode::GoAway
                        );
                        if (moved || stale) && !refreshed {
                            refreshed = true;
                            route = match self.refresh_route(topic, deadline).await? {
                                Some(fresh) => fresh,
                                None => self.route_for_send(topic, deadline).await?,
                            };
                            last = Some(error);
                            continue;
                        }
                        // Busy or closing: nothing was stored there, another broker may have room.
                        if !matches!(
                            error.code(),
                            Code::BrokerBusy | Code::BrokerUnavailable | Code::StorageFull
                        ) {
                            return Err(error);
                        }
                        error
                    }
                },
                Err(error) => {
                    let mapped = mapping::remoting(&error);
                    if !error.retryable() {
                        self.0
                            .selector
                            .avoid(&broker.name, self.0.options.clock.monotonic());
                        return Err(mapped);
                    }
                    mapped
                }
            };
            self.0
                .selector
                .avoid(&broker.name, self.0.options.clock.monotonic());
            if fixed.queue.is_some() || fixed.key.is_some() {
                // It may be elsewhere by the next try.
                self.doubt_route(topic);
                return Err(error);
            }
            last = Some(error);
            tried.push(broker.name.clone());
            if let Ok(Some(fresh)) = self.refresh_route(topic, deadline).await {
                route = fresh;
            }
        }
        Err(last.unwrap_or_else(mapping::out_of_time))
    }

    fn command(&self, topic: &str, payload: &Payload<'_>, broker: &str, queue_id: i32) -> Command {
        let mut command = Command::request(payload.code);
        let ext = &mut command.ext;
        ext.put("a", PRODUCER_GROUP);
        ext.put("b", topic);
        // No template: a topic that was deleted meanwhile must not be made again by a send to its old route.
        ext.put("c", "");
        ext.put("d", "0");
        ext.put("e", queue_id);
        ext.put("f", "0");
        ext.put("g", self.now_ms());
        ext.put("h", "0");
        ext.put("i", payload.properties);
        ext.put("j", "0");
        ext.put("k", "false");
        ext.put("m", payload.code == RequestCode::SendBatchMessage);
        ext.put("n", broker);
        ext.put("gantry", true);
        if payload.durability == Some(Durability::Flushed) {
            ext.put("durability", "flushed");
        }
        command.with_body(payload.body.clone())
    }
}

/// What is stored.
struct Payload<'a> {
    code: RequestCode,
    body: Bytes,
    properties: &'a str,
    durability: Option<Durability>,
}

/// What leaves no choice of queue.
#[derive(Clone, Copy)]
struct Fixed<'a> {
    queue: Option<&'a (String, i32)>,
    key: Option<&'a str>,
}

/// A failure that may have stored the message names it.
fn with_id(error: ApiError, message_id: &str) -> ApiError {
    if error.fault().outcome == Some(Outcome::Unknown) {
        error.with("messageId", message_id)
    } else {
        error
    }
}

fn read(response: &Command, broker: &str, topic: &str) -> Result<Sent, ApiError> {
    if response.response_code() != ResponseCode::Success {
        return Err(mapping::answer(response, mapping::About::Send(topic)));
    }
    let ext = &response.ext;
    let malformed = |e: wire::WireError| {
        ApiError::new(
            Code::Internal,
            format!("the broker's answer cannot be read: {e}"),
        )
        .unknown_outcome()
    };
    Ok(Sent {
        message_id: String::new(),
        broker: broker.to_owned(),
        queue_id: ext.required("queueId").map_err(malformed)?,
        queue_offset: ext.required("queueOffset").map_err(malformed)?,
        stored_at_ms: ext
            .optional("storedAt")
            .map_err(malformed)?
            .unwrap_or_default(),
        durability: match ext.get("durability") {
            Some("flushed") => "flushed",
            Some("replicated") => "replicated",
            Some("memory") => "memory",
            _ => "buffered",
        },
    })
}

/// The property text of a message.
fn encode_properties(draft: &Draft, message_id: &str) -> Result<String, ApiError> {
    let mut text = String::with_capacity(
        96 + draft
            .properties
            .iter()
            .map(|(n, v)| n.len() + v.len() + 2)
            .sum::<usize>(),
    );
    push(&mut text, names::UNIQ_KEY, message_id);
    if let Some(tag) = &draft.tag {
        push(&mut text, names::TAGS, tag);
    }
    if !draft.keys.is_empty() {
        push(&mut text, names::KEYS, &draft.keys.join(" "));
    }
    if let Some(key) = &draft.ordering_key {
        push(&mut text, names::SHARDING_KEY, key);
    }
    push(&mut text, names::CONTENT_TYPE, &draft.content_type);
    if let Some(trace) = &draft.traceparent {
        push(&mut text, names::TRACE_PARENT, trace);
    }
    for (name, value) in &draft.properties {
        push(&mut text, name, value);
    }
    // What the broker and later retries add must fit too.
    const SPARE: usize = 4_096;
    if text.len() + SPARE > PROPERTIES_MAX_BYTES {
        return Err(ApiError::new(
            Code::PropertiesTooLarge,
            "properties, keys, tag and content type together are too long",
        ));
    }
    Ok(text)
}
