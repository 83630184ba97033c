//! The plain list of dead letters: `%DLQ%group` read from its queues, without a lease and without a trace.

use super::consumer::UNREACHABLE;
use super::decode::{self, Content};
use super::inflating::unreadable;
use super::{Partial, Upstream, leave_out, mapping, time_left};
use crate::error::ApiError;
use bytes::Bytes;
use tokio::time::Instant;
use wire::message::names;
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

/// System group under which lists are read (RocketMQ 5.4.0 MixAll.TOOLS_CONSUMER_GROUP).
const READER_GROUP: &str = "TOOLS_CONSUMER";
/// Bit of the pull flag: the subscription is in the header (RocketMQ 5.4.0 PullSysFlag).
const SUBSCRIPTION_IN_HEADER: i32 = 4;
/// Records of one pull.
const PULL_MAX: usize = 32;
/// Bytes of a letter besides its texts.
const LETTER_BYTES: usize = 500;
/// Characters of a preview.
const PREVIEW_MAX: usize = 256;

/// One dead letter.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The message id.
    pub message_id: String,
    /// First topic.
    pub topic: String,
    /// Broker of the first store.
    pub broker: String,
    /// Queue of the first store.
    pub queue_id: i32,
    /// Offset of the first store.
    pub queue_offset: i64,
    /// Deliveries made.
    pub attempts: i64,
    /// Epoch ms.
    pub first_delivered_at_ms: Option<i64>,
    /// Epoch ms.
    pub dead_at_ms: i64,
    /// `maxAttempts`, `rejected`, `expired` or `manual`.
    pub cause: String,
    /// Of the last nack.
    pub code: Option<String>,
    /// Of the last nack.
    pub reason: Option<String>,
    /// Tag.
    pub tag: Option<String>,
    /// Keys.
    pub keys: Vec<String>,
    /// Ordering key.
    pub ordering_key: Option<String>,
    /// The user's properties.
    pub properties: Vec<(String, String)>,
    /// Content type.
    pub content_type: String,
    /// Bytes of the body.
    pub size: usize,
    /// The first characters of a body that is text.
    pub preview: Option<String>,
}

impl DeadLetter {
    /// About what it takes in an answer.
    fn bytes(&self) -> usize {
        let texts = [&self.message_id, &self.topic, &self.content_type];
        let given = [
            &self.code,
            &self.reason,
            &self.tag,
            &self.ordering_key,
            &self.preview,
        ];
        let pairs = self
            .properties
            .iter()
            .map(|(name, value)| name.len() + value.len() + 8);
        LETTER_BYTES
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + given.into_iter().flatten().map(String::len).sum::<usize>()
            + self.keys.iter().map(|key| key.len() + 4).sum::<usize>()
            + pairs.sum::<usize>()
    }
}

/// A page of dead letters and where the next begins: (broker, queue, offset).
#[derive(Debug, Default)]
pub struct DeadPage {
    /// Oldest first within a queue.
    pub items: Vec<DeadLetter>,
    /// `None` = the end.
    pub next: Option<(String, i32, i64)>,
    /// Brokers left out.
    pub(crate) partial: Partial,
}

impl Upstream {
    /// Dead letters of a group from a position on; a page stops early above `max_bytes`, at least one letter.
    ///
    /// # Errors
    /// `no_route`, `broker_unavailable`, `broker_timeout`.
    pub async fn dead_letters(
        &self,
        group: &str,
        from: Option<(String, i32, i64)>,
        limit: usize,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<DeadPage, ApiError> {
        let topic = format!("%DLQ%{group}");
        let (mut brokers, partial) = self.topic_in_part(&topic, deadline).await?;
        // Positions are in the order of the names.
        brokers.sort_by(|a, b| a.broker.cmp(&b.broker));
        let mut page = DeadPage {
            partial,
            ..DeadPage::default()
        };
        let mut bytes = 0;
        for holder in &brokers {
            let Some(addr) = self.master(&holder.broker, deadline).await else {
                leave_out(&mut page.partial, &holder.broker, UNREACHABLE);
                continue;
            };
            for queue in &holder.detail.queues {
                let here = (holder.broker.as_str(), queue.id);
                let start = match &from {
                    Some((broker, id, offset)) => match here.cmp(&(broker.as_str(), *id)) {
                        std::cmp::Ordering::Less => continue,
                        std::cmp::Ordering::Equal => (*offset).max(queue.min_offset),
                        std::cmp::Ordering::Greater => queue.min_offset,
                    },
                    None => queue.min_offset,
                };
                let mut at = start;
                while at < queue.max_offset {
                    if page.items.len() >= limit {
                        page.next = Some((holder.broker.clone(), queue.id, at));
                        return Ok(page);
                    }
                    let want = (limit - page.items.len()).min(PULL_MAX);
                    let pulled = self.pull_dead(&addr, &topic, here, at, want, deadline);
                    let (letters, next) = pulled.await?;
                    for (offset, letter) in letters {
                        bytes += letter.bytes();
                        if bytes > max_bytes && !page.items.is_empty() {
                            page.next = Some((holder.broker.clone(), queue.id, offset));
                            return Ok(page);
                        }
                        page.items.push(letter);
                    }
                    at = next;
                }
            }
        }
        Ok(page)
    }

    /// One pull of a queue of a broker: letters with their offsets, and the next offset.
    async fn pull_dead(
        &self,
        addr: &str,
        topic: &str,
        (broker, queue_id): (&str, i32),
        offset: i64,
        max: usize,
        deadline: Instant,
    ) -> Result<(Vec<(i64, DeadLetter)>, i64), ApiError> {
        let mut command = Command::request(RequestCode::PullMessage);
        let ext = &mut command.ext;
        ext.put("consumerGroup", READER_GROUP);
        ext.put("topic", topic);
        ext.put("queueId", queue_id);
        ext.put("queueOffset", offset);
        ext.put("maxMsgNums", u64::try_from(max).unwrap_or(1));
        ext.put("sysFlag", SUBSCRIPTION_IN_HEADER);
        ext.put("commitOffset", "0");
        ext.put("suspendTimeoutMillis", "0");
        ext.put("subscription", "*");
        ext.put("subVersion", "0");
        ext.put("expressionType", "TAG");
        let response = self
            .invoke(addr, command, time_left(deadline)?)
            .await
            .map_err(|e| mapping::remoting(&e))?;
        let next: Option<i64> = response.ext.optional("nextBeginOffset").ok().flatten();
        match response.response_code() {
            ResponseCode::Success => {
                let (body, broker) = (response.body.to_bytes(), broker.to_owned());
                let read = move || letters(&body, &broker);
                let letters = self
                    .reading(&response.body.to_bytes(), deadline, read)
                    .await?;
                let last = letters.last().map_or(offset, |(at, _)| at + 1);
                Ok((letters, next.unwrap_or(last).max(offset + 1)))
            }
            ResponseCode::PullNotFound
            | ResponseCode::PullRetryImmediately
            | ResponseCode::PullOffsetMoved => {
                let next = next.filter(|n| *n > offset).unwrap_or(i64::MAX);
                Ok((Vec::new(), next))
            }
            _ => Err(mapping::answer(&response, mapping::About::Topic(topic))),
        }
    }
}

/// The letters of an answer and their offsets; only one body is inflated at a time.
///
/// # Errors
/// `internal` for an answer that cannot be read.
fn letters(body: &Bytes, broker: &str) -> Result<Vec<(i64, DeadLetter)>, ApiError> {
    let letter = |record: RecordView<'_>| {
        let content = decode::content(&record, body);
        (record.queue_offset, letter(&record, broker, content))
    };
    RecordView::each(body)
        .map(|record| record.map(letter).map_err(|_| unreadable()))
        .collect()
}

fn preview(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    Some(text.chars().take(PREVIEW_MAX).collect())
}

fn letter(record: &RecordView<'_>, broker: &str, content: Content) -> DeadLetter {
    let number = |name: &str| record.property(name).and_then(|t| t.parse::<i64>().ok());
    DeadLetter {
        message_id: content.message_id,
        topic: content.topic,
        broker: broker.to_owned(),
        queue_id: content.queue_id,
        queue_offset: content.queue_offset,
        // Put back n times = delivered n times for a letter that used up its attempts.
        attempts: i64::from(record.reconsume_times).max(1),
        first_delivered_at_ms: number(names::FIRST_POP_TIME),
        dead_at_ms: number(names::DEAD_AT).unwrap_or(record.store_ts_ms),
        cause: record
            .property(names::DEAD_CAUSE)
            .unwrap_or("maxAttempts")
            .to_owned(),
        code: record.property(names::ERR_CODE).map(str::to_owned),
        reason: record.property(names::ERR_REASON).map(str::to_owned),
        tag: content.tag,
        keys: content.keys,
        ordering_key: content.ordering_key,
        properties: content.properties,
        content_type: content.content_type,
        size: content.body.len(),
        preview: preview(&content.body),
    }
}
