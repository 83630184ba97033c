//! Reading one queue without a group: pages of messages, store times, places by time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

use super::decode::{self, Content};
use super::inflating::{InflateRoom, unreadable};
use super::{Upstream, mapping};
use crate::error::ApiError;

/// Bit of the pull flag: wait for a message (RocketMQ 5.4.0 PullSysFlag).
const SUSPEND: i32 = 2;
/// The answer may be this much later than the wait asked for.
const WAIT_SLACK: Duration = Duration::from_secs(5);

/// Bytes of a record besides its content.
const OVERHEAD: usize = 512;

/// A stored message as a reader sees it: where it lies, and what the producer gave.
#[derive(Debug)]
pub struct Record {
    /// Broker it lies on.
    pub broker: Arc<str>,
    /// Queue there.
    pub queue_id: i32,
    /// Offset in that queue.
    pub offset: i64,
    /// Epoch ms.
    pub stored_at_ms: i64,
    /// Epoch ms.
    pub born_at_ms: i64,
    /// About what it takes in memory.
    pub bytes: usize,
    pub(crate) content: Content,
}

#[cfg(test)]
impl Record {
    /// A message of so many bytes, its key the offset.
    pub(crate) fn for_test(
        queue_id: i32,
        offset: i64,
        at_ms: i64,
        tag: Option<&str>,
        bytes: usize,
    ) -> Self {
        Self {
            broker: "a".into(),
            queue_id,
            offset,
            stored_at_ms: at_ms,
            born_at_ms: at_ms,
            bytes: bytes + OVERHEAD,
            content: Content {
                message_id: format!("{queue_id}-{offset}"),
                topic: "t".to_owned(),
                tag: tag.map(str::to_owned),
                keys: Vec::new(),
                ordering_key: None,
                properties: Vec::new(),
                content_type: "text/plain".to_owned(),
                body: vec![b'x'; bytes].into(),
                queue_id,
                queue_offset: offset,
                stored_at_ms: at_ms,
                traceparent: None,
            },
        }
    }
}

/// Where to read.
#[derive(Clone, Debug)]
pub(crate) struct QueueAt {
    /// `host:port` of the master.
    pub(crate) addr: Arc<str>,
    /// Its name.
    pub(crate) broker: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
}

/// How much to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount<'a> {
    /// Messages, 1–256 (times: 800).
    pub(crate) messages: usize,
    /// Bytes; a first larger message is still given, up to `room`.
    pub(crate) bytes: usize,
    /// What a first message may take in memory, bytes.
    pub(crate) room: usize,
    /// Entries looked at, at most 800.
    pub(crate) scan: usize,
    /// Tags as the broker reads them (it compares hashes); none = all.
    pub(crate) tags: Option<&'a str>,
    /// Wait so long for a first message.
    pub(crate) wait: Duration,
}

/// What a read gave.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) records: Vec<Arc<Record>>,
    /// Where the next read begins.
    pub(crate) next: i64,
    /// Store time of the message at `next`, where there is one; epoch ms.
    pub(crate) next_stored_at_ms: Option<i64>,
    /// Messages between the offset asked for and `next` that retention has deleted.
    pub(crate) deleted: u64,
    /// What the message at `next` takes in memory, bytes, where it is a first one that takes more than the room.
    pub(crate) large: Option<usize>,
}

/// What a read of store times gave.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Offset and store time (epoch ms) of the matching messages.
    pub(crate) entries: Vec<(i64, i64)>,
    /// Where the next read begins.
    pub(crate) next: i64,
}

impl Upstream {
    /// Messages of one queue from an offset on.
    ///
    /// # Errors
    /// `topic_not_found`, `broker_busy`, `broker_unavailable`, `broker_timeout`.
    pub(crate) async fn read_queue(
        &self,
        at: &QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> Result<Page, ApiError> {
        let mut command = request(at, amount);
        if !amount.wait.is_zero() {
            command.ext.put("sysFlag", SUSPEND);
            let ms = u64::try_from(amount.wait.as_millis()).unwrap_or(0);
            command.ext.put("suspendTimeoutMillis", ms);
        }
        let until = deadline.min(Instant::now() + amount.wait + WAIT_SLACK);
        let response = self.call(&at.addr, command, until).await?;
        let (next, deleted) = passed(&response, at)?;
        let page = Page {
            next,
            deleted,
            next_stored_at_ms: response.ext.optional("nextStoredAt").ok().flatten(),
            ..Page::default()
        };
        let (body, broker) = (response.body.to_bytes(), Arc::clone(&at.broker));
        let (bytes, room) = (amount.bytes, amount.room);
        let read = move || filled(page, &body, &broker, bytes, room);
        self.reading(&response.body.to_bytes(), until, read).await
    }

    /// Offsets and store times of matching messages, tags compared as texts.
    ///
    /// # Errors
    /// As [`Upstream::read_queue`].
    pub(crate) async fn read_times(
        &self,
        at: &QueueAt,
        amount: Amount<'_>,
        deadline: Instant,
    ) -> Result<Times, ApiError> {
        let mut command = request(at, amount);
        command.ext.put("times", "1");
        let response = self.call(&at.addr, command, deadline).await?;
        let (next, _) = passed(&response, at)?;
        let entries = response.ext.get("entries").unwrap_or_default();
        let entries = entries.split(';').filter(|e| !e.is_empty()).map(|entry| {
            let (offset, time) = entry.split_once(' ')?;
            Some((offset.parse().ok()?, time.parse().ok()?))
        });
        let entries = entries.collect::<Option<Vec<_>>>().ok_or_else(unreadable)?;
        Ok(Times { entries, next })
    }

    /// The first offset of a queue whose message was stored at this time (epoch ms) or later; the end where none was.
    ///
    /// # Errors
    /// As [`Upstream::read_queue`].
    pub(crate) async fn offset_at(
        &self,
        at: &QueueAt,
        epoch_ms: i64,
        deadline: Instant,
    ) -> Result<i64, ApiError> {
        let command = Command::request(RequestCode::SearchOffsetByTimestamp)
            .with_ext("topic", &*at.topic)
            .with_ext("queueId", at.queue_id)
            .with_ext("timestamp", epoch_ms)
            .with_ext("boundaryType", "lower");
        let response = self.call(&at.addr, command, deadline).await?;
        if response.response_code() != ResponseCode::Success {
            let about = mapping::About::Topic(&at.topic);
            return Err(mapping::answer(&response, about));
        }
        let offset: Option<i64> = response.ext.optional("offset").ok().flatten();
        offset.map(|o| o.max(0)).ok_or_else(unreadable)
    }
}

/// The page with the records of an answer. It ends before a body that inflates beyond `bytes` in all, which the broker
/// did not count; a first one is given if it fits the room.
///
/// # Errors
/// `internal` for an answer that cannot be read.
fn filled(
    mut page: Page,
    body: &Bytes,
    broker: &Arc<str>,
    bytes: usize,
    room: usize,
) -> Result<Page, ApiError> {
    let mut inflate = InflateRoom::new(bytes).with_first(room);
    for record in RecordView::each(body) {
        let record = record.map_err(|_| unreadable())?;
        let first = page.records.is_empty();
        let content = inflate.content(&record, body);
        let fits = |content: &Content| !first || content.bytes() + OVERHEAD <= room;
        let Some(content) = content.filter(fits) else {
            page.next = record.queue_offset;
            page.next_stored_at_ms = Some(record.store_ts_ms);
            page.large = first.then(|| decode::bytes_of(&record, body) + OVERHEAD);
            break;
        };
        page.records.push(Arc::new(Record {
            broker: Arc::clone(broker),
            queue_id: record.queue_id,
            offset: record.queue_offset,
            stored_at_ms: record.store_ts_ms,
            born_at_ms: record.born_ts_ms,
            bytes: content.bytes() + OVERHEAD,
            content,
        }));
    }
    Ok(page)
}

fn request(at: &QueueAt, amount: Amount<'_>) -> Command {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX).clamp(1, 1 << 30);
    let mut command = Command::request(RequestCode::PullMessage);
    let ext = &mut command.ext;
    ext.put("gantry", "1");
    ext.put("reader", "1");
    ext.put("consumerGroup", "GANTRY_READER");
    ext.put("topic", &*at.topic);
    ext.put("queueId", at.queue_id);
    ext.put("queueOffset", at.offset);
    ext.put("maxMsgNums", count(amount.messages));
    ext.put("maxMsgBytes", count(amount.bytes));
    ext.put("maxScan", count(amount.scan));
    ext.put("subscription", amount.tags.unwrap_or("*"));
    command
}

/// Where a pull went on to, and how many messages on the way are deleted.
fn passed(response: &Command, at: &QueueAt) -> Result<(i64, u64), ApiError> {
    let next: Option<i64> = response.ext.optional("nextBeginOffset").ok().flatten();
    let removed: Option<u64> = response.ext.optional("removed").ok().flatten();
    match response.response_code() {
        ResponseCode::Success | ResponseCode::PullRetryImmediately => {
            let next = next.ok_or_else(unreadable)?;
            Ok((next, removed.unwrap_or(0)))
        }
        ResponseCode::PullNotFound => Ok((at.offset, 0)),
        // Below the first message: that much is gone. Beyond the end: the broker lost its tail, what it has is read.
        ResponseCode::PullOffsetMoved => {
            let next = next.ok_or_else(unreadable)?;
            Ok((next, u64::try_from(next - at.offset).unwrap_or(0)))
        }
        _ => Err(mapping::answer(response, mapping::About::Topic(&at.topic))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use wire::message::flags;
    use wire::message::record::{RecordFields, encode_record, patch_record};

    fn stored(offset: i64, inflated: usize, properties: &str) -> Vec<u8> {
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        deflated.write_all(&vec![b'x'; inflated]).unwrap();
        let host = "127.0.0.1:1".parse().unwrap();
        let fields = RecordFields {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag: flags::COMPRESSED,
            born_ts_ms: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_offset: 0,
            body: &deflated.finish().unwrap(),
            properties: properties.as_bytes(),
        };
        let mut out = Vec::new();
        encode_record(&fields, &mut out).unwrap();
        patch_record(&mut out, offset, 0, 100 + offset);
        out
    }

    fn page(records: &[Vec<u8>], bytes: usize) -> Page {
        let whole = Page {
            next: 9,
            ..Page::default()
        };
        let body = records.concat().into();
        filled(whole, &body, &"a".into(), bytes, usize::MAX).unwrap()
    }

    #[test]
    fn a_first_message_beyond_the_room_is_measured_and_not_given() {
        let records: Vec<_> = (5..7).map(|at| stored(at, 100_000, "")).collect();
        let body = records.concat().into();
        let within = |room| filled(Page::default(), &body, &"a".into(), 10, room).unwrap();
        let none = within(99_000);
        assert_eq!(
            (none.records.len(), none.next, none.next_stored_at_ms),
            (0, 5, Some(105))
        );
        let large = none.large.unwrap();
        assert!((100_000..102_000).contains(&large), "{large}");
        let one = within(large);
        assert_eq!((one.records.len(), one.next, one.large), (1, 6, None));
        let bomb = filled(
            Page::default(),
            &stored(5, 17 << 20, "").into(),
            &"a".into(),
            10,
            1 << 20,
        );
        assert!(bomb.unwrap().large.unwrap() > 16 << 20);
    }

    #[test]
    fn a_page_counts_bodies_as_they_are_inflated() {
        let records: Vec<_> = (5..9).map(|at| stored(at, 100_000, "")).collect();
        let whole = page(&records, 400_000);
        assert_eq!((whole.records.len(), whole.next), (4, 9));
        assert!(whole.records[0].bytes > 100_000);
        let cut = page(&records, 250_000);
        assert_eq!(
            (cut.records.len(), cut.next, cut.next_stored_at_ms),
            (2, 7, Some(107))
        );
        let one = page(&records, 10);
        assert_eq!((one.records.len(), one.next), (1, 6));
        let described = page(
            &[stored(5, 1, &format!("k\u{1}{}\u{2}", "v".repeat(5_000)))],
            10,
        );
        assert!(described.records[0].bytes > 5_000);
    }

    #[test]
    fn a_body_beyond_what_a_message_may_have_is_left_as_it_is() {
        let bombs = page(&[stored(5, 17 << 20, ""), stored(6, 1, "")], 8 << 20);
        assert!(bombs.records[0].content.body.len() < 1 << 20);
        assert_eq!(bombs.next, 6, "it counts as what was inflated of it");
    }
}
