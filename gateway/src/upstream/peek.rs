//! What a group would be given next, from every broker, without a lease and without a trace.

use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

use super::consumer::{LastError, UNREACHABLE, leave_out, left_out, unregistered};
use super::decode::{self, Content};
use super::inflating::{InflateRoom, unreadable};
use super::routes::Broker;
use super::silence::PATIENCE;
use super::{Upstream, mapping};
use crate::error::{ApiError, Code};

/// A message that would be delivered next.
#[derive(Debug)]
pub struct Peeked {
    /// Broker it lies on.
    pub broker: String,
    /// The delivery it would be; 1 = the first.
    pub attempt: u32,
    /// Of the last nack.
    pub last_error: Option<LastError>,
    /// Epoch ms.
    pub born_at_ms: i64,
    pub(crate) content: Content,
}

/// What the brokers would give next.
#[derive(Debug, Default)]
pub struct PeekPage {
    /// In the order of the first store.
    pub messages: Vec<Peeked>,
    /// The group is paused: nothing is given at present.
    pub paused: bool,
    /// There is more than was asked for.
    pub more: bool,
    /// Brokers that could not be looked at, with the reason.
    pub partial: Vec<(String, &'static str)>,
}

impl Upstream {
    /// At most `limit` of the next messages of a group, of one topic or all it subscribes; stops early above
    /// `max_bytes` of bodies, at least one message.
    ///
    /// # Errors
    /// `group_not_found`, `topic_not_found`, `subscription_not_found`, `broker_unavailable` where no broker answers.
    pub async fn peek(
        &self,
        group: &str,
        topic: Option<&str>,
        limit: usize,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<PeekPage, ApiError> {
        let (detail, _) = self.get_group(group, deadline).await?;
        let mut asked: Vec<(String, Arc<Broker>)> = Vec::new();
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for name in self.topics_of(&detail, topic) {
            match self.route(&name, deadline).await? {
                Some(route) => {
                    gone.extend(route.gone.iter().map(|gone| gone.broker.name.clone()));
                    let brokers = route.readable.iter().map(Arc::clone);
                    asked.extend(brokers.map(|broker| (name.clone(), broker)));
                }
                None if topic.is_some() => {
                    let detail = format!("topic '{name}' does not exist");
                    return Err(ApiError::new(Code::TopicNotFound, detail));
                }
                None => {}
            }
        }
        let share = (max_bytes / asked.len().max(1)).max(1);
        let calls = asked.iter().map(|(topic, broker)| {
            let command = Command::request(RequestCode::PeekMessage)
                .with_ext("gantry", "true")
                .with_ext("consumerGroup", group)
                .with_ext("topic", topic)
                .with_ext("queueId", "-1")
                .with_ext("maxMsgNums", u64::try_from(limit).unwrap_or(1))
                .with_ext("maxBytes", u64::try_from(share).unwrap_or(1));
            (broker.addr.as_str(), command)
        });
        let answers = self.ask_each(calls, false, PATIENCE, deadline).await;
        let pages = answers.into_iter().zip(&asked);
        let pages = pages.map(|(answer, (topic, broker))| async move {
            let answer = answer?;
            let (broker, group, topic) = (broker.name.clone(), group.to_owned(), topic.clone());
            let body = answer.body.to_bytes();
            let read = move || read(&answer, &broker, &group, &topic, share);
            self.reading(&body, deadline, read).await
        });
        let several = asked.len() > 1;
        let (mut page, mut last) = (PeekPage::default(), None);
        for (answer, (_, broker)) in join_all(pages).await.into_iter().zip(&asked) {
            match answer {
                Ok(part) => {
                    page.messages.extend(part.messages);
                    page.paused |= part.paused;
                    page.more |= part.more;
                }
                Err(error) => {
                    let Some(reason) = left_out(&error, several) else {
                        return Err(error);
                    };
                    leave_out(&mut page.partial, &broker.name, reason);
                    last = Some((last.map_or(1, |(n, _)| n + 1), error));
                }
            }
        }
        match (last, gone.first()) {
            (Some((failed, error)), _) if failed == asked.len() => return Err(error),
            (None, Some(broker)) if asked.is_empty() => return Err(unregistered(broker)),
            _ => {}
        }
        for name in &gone {
            leave_out(&mut page.partial, name, UNREACHABLE);
        }
        page.messages.sort_by(|a, b| place(a).cmp(&place(b)));
        let mut bytes = 0;
        let fit = page.messages.iter().take(limit).take_while(|m| {
            let first = bytes == 0;
            bytes += m.content.body.len();
            first || bytes <= max_bytes
        });
        let fit = fit.count();
        page.more |= fit < page.messages.len();
        page.messages.truncate(fit);
        Ok(page)
    }
}

/// The order of the first store.
fn place(message: &Peeked) -> (i64, &str, i32, i64) {
    let c = &message.content;
    (c.stored_at_ms, &message.broker, c.queue_id, c.queue_offset)
}

fn read(
    answer: &Command,
    broker: &str,
    group: &str,
    topic: &str,
    max_bytes: usize,
) -> Result<PeekPage, ApiError> {
    let mut page = PeekPage {
        paused: answer.ext.bool("paused"),
        ..PeekPage::default()
    };
    match answer.response_code() {
        ResponseCode::Success => {}
        ResponseCode::PullNotFound | ResponseCode::PollingTimeout => return Ok(page),
        _ => {
            let about = mapping::About::Receive(group, topic);
            return Err(mapping::answer(answer, about));
        }
    }
    let left: Option<i64> = answer.ext.optional("restNum").ok().flatten();
    page.more = left.is_some_and(|n| n > 0);
    let entries = answer.ext.get("entries").unwrap_or_default();
    // `retryFlag queueId queueOffset attempt`, one a message in body order.
    let mut attempts = entries
        .split(';')
        .map(|e| e.rsplit(' ').next()?.parse::<u32>().ok());
    let body = answer.body.to_bytes();
    let mut room = InflateRoom::new(max_bytes);
    for record in RecordView::each(&body) {
        let record = record.map_err(|_| unreadable())?;
        let Some(content) = room.content(&record, &body) else {
            page.more = true;
            break;
        };
        page.messages.push(Peeked {
            broker: broker.to_owned(),
            attempt: attempts.next().flatten().ok_or_else(unreadable)?,
            last_error: decode::last_error(&record),
            born_at_ms: record.born_ts_ms,
            content,
        });
    }
    Ok(page)
}
