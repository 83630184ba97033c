//! Stored records and the lease list of a pop answer -> deliveries.

use super::Scope;
use super::consumer::{Delivery, LastError, Lease};
use super::inflating::{InflateRoom, unreadable};
use crate::error::ApiError;
use crate::receipt::ReceiptKeys;
use crate::render::guess_content_type;
use bytes::Bytes;
use wire::Command;
use wire::inflate::{inflate, inflated_size};
use wire::message::record::RecordView;
use wire::message::{flags, names};

/// A compressed body may not grow beyond this: no message that a gateway takes is larger.
pub(super) const INFLATED_MAX: usize = 16 * 1_024 * 1_024;

/// What a delivery needs besides the answer.
pub(super) struct Context<'a> {
    pub(super) broker: &'a str,
    pub(super) scope: &'a Scope,
    pub(super) group: &'a str,
    pub(super) receipts: &'a ReceiptKeys,
    pub(super) max_attempts: u32,
    pub(super) now_ms: i64,
}

/// The messages of a pop answer, in order, and the leases of those from the first on that there is no room for.
///
/// # Errors
/// `internal` for an answer that cannot be read.
pub(super) fn deliveries(
    response: &Command,
    context: &Context<'_>,
    mut room: InflateRoom,
) -> Result<(Vec<Delivery>, Vec<Lease>), ApiError> {
    let body = response.body.to_bytes();
    let unreadable_because = |why: &str| {
        tracing::error!(broker = context.broker, why, "pop answer cannot be read");
        unreadable()
    };
    let mut leases = response
        .ext
        .get("leases")
        .unwrap_or_default()
        .split(';')
        .filter(|l| !l.is_empty());
    let popped_at: i64 = response
        .ext
        .optional("popTime")
        .ok()
        .flatten()
        .unwrap_or(context.now_ms);
    let (mut out, mut left) = (Vec::new(), Vec::new());
    for record in RecordView::each(&body) {
        let record = record.map_err(|e| unreadable_because(&e.to_string()))?;
        let entry = leases
            .next()
            .and_then(lease_entry)
            .ok_or_else(|| unreadable_because("fewer leases than messages"))?;
        let lease = Lease {
            broker: context.broker.to_owned(),
            topic: record.topic.to_owned(),
            queue_id: entry.queue_id,
            queue_offset: entry.queue_offset,
            lease_id: entry.lease_id,
            attempt: entry.attempt,
            delivered_at_ms: popped_at,
        };
        let content = if left.is_empty() {
            room.content(&record, &body)
        } else {
            None
        };
        match content {
            Some(content) => {
                let until_ms = entry.visible_at_ms;
                out.push(delivery(&record, content, lease, until_ms, context));
            }
            None => left.push(lease),
        }
    }
    Ok((out, left))
}

/// `retryFlag queueId queueOffset leaseId attempt visibleAtMs`
struct LeaseEntry {
    queue_id: i32,
    queue_offset: i64,
    lease_id: u64,
    attempt: u32,
    visible_at_ms: i64,
}

fn lease_entry(text: &str) -> Option<LeaseEntry> {
    let mut parts = text.split(' ');
    let _retry = parts.next()?;
    let entry = LeaseEntry {
        queue_id: parts.next()?.parse().ok()?,
        queue_offset: parts.next()?.parse().ok()?,
        lease_id: parts.next()?.parse().ok()?,
        attempt: parts.next()?.parse().ok()?,
        visible_at_ms: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(entry)
}

fn delivery(
    record: &RecordView<'_>,
    content: Content,
    lease: Lease,
    invisible_until_ms: i64,
    context: &Context<'_>,
) -> Delivery {
    let first_pop = record
        .property(names::FIRST_POP_TIME)
        .and_then(|t| t.parse().ok());
    Delivery {
        receipt: context
            .receipts
            .encode(context.scope, context.group, &lease),
        first_delivered_at_ms: first_pop.unwrap_or(lease.delivered_at_ms),
        lease,
        broker: context.broker.to_owned(),
        invisible_until_ms,
        max_attempts: context.max_attempts,
        last_error: last_error(record),
        message_id: content.message_id,
        topic: content.topic,
        tag: content.tag,
        keys: content.keys,
        ordering_key: content.ordering_key,
        properties: content.properties,
        content_type: content.content_type,
        body: content.body,
        queue_id: content.queue_id,
        queue_offset: content.queue_offset,
        born_at_ms: record.born_ts_ms,
        stored_at_ms: content.stored_at_ms,
        traceparent: content.traceparent,
    }
}

pub(super) fn last_error(record: &RecordView<'_>) -> Option<LastError> {
    let (code, reason) = (
        record.property(names::ERR_CODE),
        record.property(names::ERR_REASON),
    );
    let at_ms = record.property(names::ERR_AT).and_then(|t| t.parse().ok());
    if code.is_none() && reason.is_none() && at_ms.is_none() {
        return None;
    }
    Some(LastError {
        code: code.map(str::to_owned),
        reason: reason.map(str::to_owned),
        at_ms: at_ms.unwrap_or(record.store_ts_ms),
    })
}

/// What a record says about its message, as of the first store.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) message_id: String,
    pub(crate) topic: String,
    pub(crate) tag: Option<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    pub(crate) queue_id: i32,
    pub(crate) queue_offset: i64,
    pub(crate) stored_at_ms: i64,
    pub(crate) traceparent: Option<String>,
}

impl Content {
    /// About what it takes in memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.message_id, &self.topic, &self.content_type];
        let given = [&self.tag, &self.ordering_key, &self.traceparent];
        let lists = self
            .properties
            .iter()
            .map(|(name, value)| 64 + name.len() + value.len());
        self.body.len()
            + texts.iter().map(|t| t.len()).sum::<usize>()
            + given.into_iter().flatten().map(String::len).sum::<usize>()
            + self.keys.iter().map(|k| 32 + k.len()).sum::<usize>()
            + lists.sum::<usize>()
    }
}

/// The content of a record, and how many bytes were inflated for it; `None` where those were more than `max`.
pub(super) fn content_within(
    record: &RecordView<'_>,
    source: &Bytes,
    max: usize,
) -> Option<(Content, usize)> {
    let (body, inflated) = body(record, source, max)?;
    Some((with_body(record, body), inflated))
}

/// The content of a record.
pub(super) fn content(record: &RecordView<'_>, source: &Bytes) -> Content {
    let whole = body(record, source, INFLATED_MAX);
    let body = whole.map_or_else(|| source.slice_ref(record.body), |(body, _)| body);
    with_body(record, body)
}

/// What [`Content::bytes`] is for a record at most; its body is inflated and not kept.
pub(super) fn bytes_of(record: &RecordView<'_>, source: &Bytes) -> usize {
    let stored = with_body(record, source.slice_ref(record.body));
    let body = if is_deflated(record) {
        inflated_size(record.body, INFLATED_MAX).unwrap_or(INFLATED_MAX)
    } else {
        record.body.len()
    };
    // A content type is guessed by the body.
    const TYPE_MAX: usize = 64;
    stored.bytes() - record.body.len() + body + TYPE_MAX
}

fn with_body(record: &RecordView<'_>, body: Bytes) -> Content {
    let mut content = Content {
        message_id: String::new(),
        topic: record.topic.to_owned(),
        tag: None,
        keys: Vec::new(),
        ordering_key: None,
        properties: Vec::new(),
        content_type: String::new(),
        body,
        queue_id: record.queue_id,
        queue_offset: record.queue_offset,
        stored_at_ms: record.store_ts_ms,
        traceparent: None,
    };
    let mut origin_id = None;
    for (name, value) in record.properties().iter() {
        match name {
            names::UNIQ_KEY => content.message_id = value.to_owned(),
            names::ORIGIN_MESSAGE_ID => origin_id = Some(value),
            names::TAGS => content.tag = Some(value.to_owned()),
            names::KEYS => {
                content.keys = value
                    .split(' ')
                    .filter(|k| !k.is_empty())
                    .map(str::to_owned)
                    .collect()
            }
            names::SHARDING_KEY => content.ordering_key = Some(value.to_owned()),
            names::CONTENT_TYPE => content.content_type = value.to_owned(),
            names::TRACE_PARENT => content.traceparent = Some(value.to_owned()),
            names::RETRY_TOPIC | names::DLQ_ORIGIN_TOPIC => content.topic = value.to_owned(),
            names::ORIGIN => {
                let mut parts = value.split(' ');
                let mut number = || parts.next().and_then(|p| p.parse::<i64>().ok());
                if let (Some(queue), Some(offset), Some(stored)) = (number(), number(), number()) {
                    content.queue_id = i32::try_from(queue).unwrap_or(content.queue_id);
                    content.queue_offset = offset;
                    content.stored_at_ms = stored;
                }
            }
            other if names::is_reserved(other) => {}
            other => content
                .properties
                .push((other.to_owned(), value.to_owned())),
        }
    }
    if content.message_id.is_empty() {
        content.message_id = origin_id.map_or_else(
            || format!("{}-{}", record.queue_id, record.physical_offset),
            str::to_owned,
        );
    }
    if content.content_type.is_empty() {
        content.content_type = guess_content_type(&content.body).to_owned();
    }
    content
}

/// Whether a native client compressed the body with zlib.
pub(super) fn is_deflated(record: &RecordView<'_>) -> bool {
    const COMPRESSION_TYPE: i32 = 0x700;
    const ZLIB: i32 = 0x300;
    let kind = record.sys_flag & COMPRESSION_TYPE;
    record.sys_flag & flags::COMPRESSED != 0 && (kind == 0 || kind == ZLIB)
}

/// The body, inflated where it is deflated, and the bytes inflated for it; `None` where they are more than `max`. Other
/// compressions, and what cannot be inflated within the bound of a message, are given as they are.
fn body(record: &RecordView<'_>, source: &Bytes, max: usize) -> Option<(Bytes, usize)> {
    if !is_deflated(record) {
        return Some((source.slice_ref(record.body), 0));
    }
    match inflate(record.body, max.min(INFLATED_MAX), "body") {
        Ok(mut out) => {
            out.shrink_to_fit();
            let inflated = out.len();
            Some((out.into(), inflated))
        }
        // How far it went is not known.
        Err(_) => (max >= INFLATED_MAX).then(|| (source.slice_ref(record.body), INFLATED_MAX)),
    }
}
