//! A RocketMQ remoting client: frames with JSON headers over one connection, many requests in flight.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;

use crate::record::{Record, property_text, records};

pub const SEND: i32 = 310;
pub const SEND_BATCH: i32 = 320;
pub const PULL: i32 = 11;
pub const MAX_OFFSET: i32 = 30;
pub const PUT_TOPIC: i32 = 17;
pub const PUT_GROUP: i32 = 200;
pub const POP: i32 = 200_050;
pub const ACK: i32 = 200_051;
const LIMIT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: i32,
    pub remark: String,
    pub ext: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Answer {
    /// A number among the extension fields.
    pub fn number(&self, name: &str) -> Result<i64> {
        let text = self
            .ext
            .get(name)
            .with_context(|| format!("no field {name} in {:?}", self.ext))?;
        text.parse().with_context(|| format!("{name} is {text}"))
    }

    pub fn expect(self, code: i32) -> Result<Answer> {
        if self.code != code {
            bail!("answered {} {}", self.code, self.remark);
        }
        Ok(self)
    }
}

/// A message of a batch: its body and its properties.
pub type BatchItem<'a> = (Vec<u8>, Vec<(&'a str, &'a str)>);

type Pending = Arc<Mutex<Option<HashMap<i32, oneshot::Sender<Answer>>>>>;

/// One connection. A request that has no answer when it ends fails; whether it took effect is then unknown.
#[derive(Debug)]
pub struct Native {
    out: tokio::sync::Mutex<OwnedWriteHalf>,
    pending: Pending,
    opaque: AtomicI32,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for Native {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Native {
    pub async fn connect(addr: SocketAddr) -> Result<Native> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let reader = tokio::spawn(read_answers(read, Arc::clone(&pending)));
        Ok(Native {
            out: tokio::sync::Mutex::new(write),
            pending,
            opaque: AtomicI32::new(1),
            reader,
        })
    }

    /// Sends a request and waits for its answer, at most ten seconds.
    pub async fn call(&self, code: i32, ext: Value, body: &[u8]) -> Result<Answer> {
        let opaque = self.opaque.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = oneshot::channel();
        match self.pending.lock().as_mut() {
            Some(open) => open.insert(opaque, done),
            None => bail!("connection is closed"),
        };
        let frame = frame(code, opaque, 0, ext, body)?;
        self.out.lock().await.write_all(&frame).await?;
        tokio::time::timeout(LIMIT, answer)
            .await
            .context("no answer in time")?
            .context("connection ended before the answer")
    }

    /// Sends a request that is not answered.
    pub async fn oneway(&self, code: i32, ext: Value, body: &[u8]) -> Result<()> {
        let frame = frame(
            code,
            self.opaque.fetch_add(1, Ordering::Relaxed),
            2,
            ext,
            body,
        )?;
        Ok(self.out.lock().await.write_all(&frame).await?)
    }

    pub async fn put_topic(&self, topic: &str, queues: u32) -> Result<()> {
        let ext = json!({"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": false});
        self.call(PUT_TOPIC, ext, b"").await?.expect(0).map(drop)
    }

    /// Creates a subscription group with as many retries.
    pub async fn put_group(&self, group: &str, retries: u32) -> Result<()> {
        let body = json!({"groupName": group, "consumeEnable": true, "consumeFromMinEnable": true, "consumeBroadcastEnable": true,
            "retryQueueNums": 1, "retryMaxTimes": retries, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1});
        self.call(PUT_GROUP, json!({}), body.to_string().as_bytes())
            .await?
            .expect(0)
            .map(drop)
    }

    /// Sends one message to a queue (-1: the broker chooses); the answer carries msgId, queueId, queueOffset.
    pub async fn send(
        &self,
        topic: &str,
        queue: i32,
        body: &[u8],
        properties: &[(&str, &str)],
    ) -> Result<Answer> {
        self.call(SEND, send_header(topic, queue, properties), body)
            .await
    }

    /// Sends a batch as a Java client does: one request, the messages one behind the other.
    pub async fn send_batch(
        &self,
        topic: &str,
        queue: i32,
        messages: &[BatchItem<'_>],
    ) -> Result<Answer> {
        let mut body = BytesMut::new();
        for (payload, properties) in messages {
            let properties = property_text(properties);
            let size = 4 * 5 + payload.len() + 2 + properties.len();
            body.put_i32(i32::try_from(size)?);
            body.put_slice(&[0; 12]); // magic, CRC, flag: filled in by the broker
            body.put_i32(i32::try_from(payload.len())?);
            body.put_slice(payload);
            body.put_i16(i16::try_from(properties.len())?);
            body.put_slice(properties.as_bytes());
        }
        let mut header = send_header(topic, queue, &[]);
        header["m"] = json!("true");
        self.call(SEND_BATCH, header, &body).await
    }

    /// All messages of a queue from an offset on, in order, and where the queue ends.
    pub async fn read_queue(&self, topic: &str, queue: i32) -> Result<(Vec<Record>, i64)> {
        let range = json!({"topic": topic, "queueId": queue});
        let end = self
            .call(MAX_OFFSET, range, b"")
            .await?
            .expect(0)?
            .number("offset")?;
        let mut all: Vec<Record> = Vec::new();
        let mut at = 0;
        while at < end {
            let ext = json!({"consumerGroup": "reader", "topic": topic, "queueId": queue, "queueOffset": at, "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
                "expressionType": "TAG"});
            let answer = self.call(PULL, ext, b"").await?;
            let next = answer.number("nextBeginOffset")?;
            if answer.code == 0 {
                all.extend(records(answer.body)?);
            }
            if next <= at {
                bail!(
                    "pull at {at} of {end} answered {} and goes on at {next}",
                    answer.code
                );
            }
            at = next;
        }
        Ok((all, end))
    }

    /// Pops without waiting. An empty list where there is nothing.
    pub async fn pop(
        &self,
        broker: &str,
        group: &str,
        topic: &str,
        max: u32,
        invisible_ms: u64,
    ) -> Result<Vec<Popped>> {
        let ext = json!({"consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": max, "invisibleTime": invisible_ms,
            "pollTime": 0, "bornTime": now_ms(), "initMode": 0, "expType": "TAG", "exp": "*", "order": "false"});
        let answer = self.call(POP, ext, b"").await?;
        match answer.code {
            0 => popped(broker, group, topic, &answer),
            210 => Ok(Vec::new()),
            code => bail!("pop answered {code} {}", answer.remark),
        }
    }

    /// Acknowledges one delivery; the answer's code says what became of it.
    pub async fn ack(&self, group: &str, message: &Popped) -> Result<Answer> {
        let ext = json!({"consumerGroup": group, "topic": message.lease_topic, "queueId": message.lease_queue,
            "offset": message.lease_offset, "extraInfo": message.extra_info});
        self.call(ACK, ext, b"").await
    }
}

/// A delivery by POP: the message and what an ack must name.
#[derive(Clone, Debug)]
pub struct Popped {
    pub record: Record,
    pub extra_info: String,
    lease_topic: String,
    lease_queue: i32,
    lease_offset: i64,
}

/// What RocketMQ's `MQClientAPIImpl.processPopResponse` does: a message of a retry topic brings its POP_CK, for others it
/// is put together from the answer's fields.
fn popped(broker: &str, group: &str, topic: &str, answer: &Answer) -> Result<Vec<Popped>> {
    let field = |name: &str| answer.ext.get(name).map(String::as_str).unwrap_or_default();
    let mut starts: HashMap<(&str, &str), &str> = HashMap::new();
    for entry in field("startOffsetInfo").split(';') {
        let mut parts = entry.split(' ');
        if let (Some(retry), Some(queue), Some(start)) = (parts.next(), parts.next(), parts.next())
        {
            starts.insert((retry, queue), start);
        }
    }
    let mut all = Vec::new();
    for record in records(answer.body.clone())? {
        let extra_info = match record.properties.get("POP_CK") {
            Some(check_point) => check_point.clone(),
            None => {
                let queue = record.queue.to_string();
                let start = starts
                    .get(&("0", queue.as_str()))
                    .with_context(|| format!("no start of queue {queue}"))?;
                let (pop, invisible, revive) =
                    (field("popTime"), field("invisibleTime"), field("reviveQid"));
                format!(
                    "{start} {pop} {invisible} {revive} 0 {broker} {queue} {}",
                    record.offset
                )
            }
        };
        let parts: Vec<&str> = extra_info.split(' ').collect();
        let &[_, _, _, _, retry, _, queue, offset] = parts.as_slice() else {
            bail!("extra info {extra_info:?}")
        };
        let lease_topic = match retry {
            "0" => topic.to_owned(),
            "1" => format!("%RETRY%{group}_{topic}"),
            _ => format!("%RETRY%{group}+{topic}"),
        };
        let (lease_queue, lease_offset) = (queue.parse()?, offset.parse()?);
        all.push(Popped {
            record,
            lease_topic,
            lease_queue,
            lease_offset,
            extra_info,
        });
    }
    Ok(all)
}

fn send_header(topic: &str, queue: i32, properties: &[(&str, &str)]) -> Value {
    json!({"a": "native-producer", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": now_ms(), "h": 0,
        "i": property_text(properties), "j": 0, "k": "false", "m": "false"})
}

#[expect(
    clippy::disallowed_methods,
    reason = "the date of a request; nothing is measured by it"
)]
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// A frame as bytes: `length | header length | JSON header | body`. Flag 2 is one-way.
pub fn frame(code: i32, opaque: i32, flag: i32, ext: Value, body: &[u8]) -> Result<BytesMut> {
    // extension fields are text on the wire, whatever they mean
    let ext: Map<String, Value> = match ext {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect(),
        _ => Map::new(),
    };
    let header =
        json!({"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 493})
        .to_string();
    let mut out = BytesMut::with_capacity(8 + header.len() + body.len());
    out.put_i32(i32::try_from(4 + header.len() + body.len())?);
    out.put_i32(i32::try_from(header.len())?);
    out.put_slice(header.as_bytes());
    out.put_slice(body);
    Ok(out)
}

fn text(value: Value) -> Value {
    match value {
        Value::String(_) => value,
        other => Value::String(other.to_string()),
    }
}

/// Hands answers to their requests until the connection ends; requests of the server (such as a change of the group's
/// members) are not answered.
async fn read_answers(mut read: OwnedReadHalf, pending: Pending) {
    let mut buffer = BytesMut::with_capacity(1 << 16);
    loop {
        while let Some((opaque, answer)) = take_answer(&mut buffer) {
            let waiting = pending
                .lock()
                .as_mut()
                .and_then(|open| open.remove(&opaque));
            if let Some(waiting) = waiting {
                let _gone = waiting.send(answer);
            }
        }
        if !matches!(read.read_buf(&mut buffer).await, Ok(1..)) {
            break;
        }
    }
    pending.lock().take();
}

fn take_answer(buffer: &mut BytesMut) -> Option<(i32, Answer)> {
    let length = usize::try_from(
        buffer
            .first_chunk::<4>()
            .map(|head| i32::from_be_bytes(*head))?,
    )
    .ok()?;
    if buffer.len() < 4 + length {
        return None;
    }
    let mut frame = buffer.split_to(4 + length).freeze();
    frame.advance(4);
    let header_length = usize::try_from(frame.get_i32() & 0x00FF_FFFF).ok()?;
    let header: Value = serde_json::from_slice(&frame.split_to(header_length)).ok()?;
    let ext = header["extFields"].as_object().cloned().unwrap_or_default();
    let ext = ext
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
        .collect();
    let code = i32::try_from(header["code"].as_i64()?).ok()?;
    let opaque = i32::try_from(header["opaque"].as_i64()?).ok()?;
    let remark = header["remark"].as_str().unwrap_or_default().to_owned();
    Some((
        opaque,
        Answer {
            code,
            remark,
            ext,
            body: frame,
        },
    ))
}
