//! The message record: the layout in the commit log, which is sent as it is in pull and pop answers.
//!
//! ```text
//! at  0 i32 size          20 i64 queue offset       56 i64 store time (ms)      76 i64 prepared offset
//!     4 i32 magic         28 i64 physical offset    64 i32 store host           84 i32 n, body
//!     8 i32 body crc      36 i32 sys flag              i32 store port              u8 or i16 n, topic
//!    12 i32 queue id      40 i64 born time (ms)     72 i32 reconsume times         i16 n, properties
//!    16 i32 flag          48 i32 born host, i32 port
//! ```
//!
//! A host that is IPv6 takes 16 bytes instead of 4 and shifts what follows; a sys flag bit says so. The
//! magic says whether the topic length has one byte (V1) or two (V2, topics over 127 bytes).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flags::{BORN_HOST_V6, STORE_HOST_V6};
use super::properties::{PROPERTIES_MAX_BYTES, PropertiesView, names};
use super::reader::Reader;
use crate::WireError;

/// Magic of a record whose topic length is one byte.
pub const MAGIC_V1: i32 = -626_843_481;
/// Magic of a record whose topic length is two bytes.
pub const MAGIC_V2: i32 = -626_843_477;
/// Magic of the filler at the end of a log file.
pub const MAGIC_BLANK: i32 = -875_286_124;
/// Longest topic of a V1 record, bytes.
pub const TOPIC_V1_MAX_BYTES: usize = 127;
/// Bytes of a V1 record with IPv4 hosts and no topic, body or properties.
pub const RECORD_MIN_BYTES: usize = 91;

const WHAT: &str = "message record";
const AT_QUEUE_OFFSET: usize = 20;
const AT_PHYSICAL_OFFSET: usize = 28;
const AT_SYS_FLAG: usize = 36;
const AT_STORE_TIME_V4: usize = 56;

/// What a record says, before it has a place in the log.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields<'a> {
    /// Topic, at most 32767 bytes.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Bits of [`super::flags`]; the two host bits are set from the hosts.
    pub sys_flag: i32,
    /// When the client made it, epoch ms.
    pub born_ts_ms: i64,
    /// Who sent it.
    pub born_host: SocketAddr,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often it was put back.
    pub reconsume_times: i32,
    /// Commit-log offset of the half message; 0 otherwise.
    pub prepared_offset: i64,
    /// Body as stored (possibly compressed).
    pub body: &'a [u8],
    /// Encoded properties, at most 32767 bytes.
    pub properties: &'a [u8],
}

/// The sum in a record: CRC-32 of the stored body without its top bit.
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

fn host_bytes(host: SocketAddr) -> usize {
    if host.is_ipv6() { 20 } else { 8 }
}

/// Size of the encoded record, bytes.
pub fn record_size(fields: &RecordFields<'_>) -> usize {
    let hosts = host_bytes(fields.born_host) + host_bytes(fields.store_host);
    let topic_length = if fields.topic.len() > TOPIC_V1_MAX_BYTES {
        2
    } else {
        1
    };
    RECORD_MIN_BYTES - 1 - 16
        + hosts
        + topic_length
        + fields.topic.len()
        + fields.body.len()
        + fields.properties.len()
}

/// Appends a whole record to `out`, with queue offset, physical offset and store time zero:
/// [`patch_record`] sets them when the place in the log is known.
///
/// # Errors
/// [`WireError::TooLong`] when a part is longer than its length field can say; `out` is unchanged then.
pub fn encode_record(fields: &RecordFields<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    let long = |what, size, limit| WireError::TooLong { what, size, limit };
    let size = record_size(fields);
    let total = i32::try_from(size).map_err(|_| long("record", size, 2_147_483_647))?;
    let body_len =
        i32::try_from(fields.body.len()).map_err(|_| long("body", size, 2_147_483_647))?;
    let properties_len = i16::try_from(fields.properties.len())
        .map_err(|_| long("properties", fields.properties.len(), PROPERTIES_MAX_BYTES))?;
    let topic_len =
        i16::try_from(fields.topic.len()).map_err(|_| long("topic", fields.topic.len(), 32_767))?;
    let short_topic = u8::try_from(topic_len).ok().filter(|len| *len <= 127);
    let mut sys_flag = fields.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6);
    if fields.born_host.is_ipv6() {
        sys_flag |= BORN_HOST_V6;
    }
    if fields.store_host.is_ipv6() {
        sys_flag |= STORE_HOST_V6;
    }

    out.reserve(size);
    put_i32(out, total);
    put_i32(
        out,
        if short_topic.is_some() {
            MAGIC_V1
        } else {
            MAGIC_V2
        },
    );
    out.extend_from_slice(&body_crc(fields.body).to_be_bytes());
    put_i32(out, fields.queue_id);
    put_i32(out, fields.flag);
    put_i64(out, 0);
    put_i64(out, 0);
    put_i32(out, sys_flag);
    put_i64(out, fields.born_ts_ms);
    put_host(out, fields.born_host);
    put_i64(out, 0);
    put_host(out, fields.store_host);
    put_i32(out, fields.reconsume_times);
    put_i64(out, fields.prepared_offset);
    put_i32(out, body_len);
    out.extend_from_slice(fields.body);
    match short_topic {
        Some(len) => out.push(len),
        None => out.extend_from_slice(&topic_len.to_be_bytes()),
    }
    out.extend_from_slice(fields.topic.as_bytes());
    out.extend_from_slice(&properties_len.to_be_bytes());
    out.extend_from_slice(fields.properties);
    Ok(())
}

fn put_i32(out: &mut Vec<u8>, n: i32) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put_i64(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put_host(out: &mut Vec<u8>, host: SocketAddr) {
    match host.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&u32::from(host.port()).to_be_bytes());
}

/// Sets what is known only under the put lock. `rec` starts with a record of [`encode_record`].
pub fn patch_record(rec: &mut [u8], queue_offset: i64, physical_offset: i64, store_ts_ms: i64) {
    let sys_flag = rec
        .get(AT_SYS_FLAG..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| i32::from_be_bytes(*b));
    let shift = if sys_flag & BORN_HOST_V6 != 0 { 12 } else { 0 };
    let mut set = |at: usize, n: i64| {
        if let Some(slot) = rec.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
            *slot = n.to_be_bytes();
        }
    };
    set(AT_QUEUE_OFFSET, queue_offset);
    set(AT_PHYSICAL_OFFSET, physical_offset);
    set(AT_STORE_TIME_V4 + shift, store_ts_ms);
}

/// A record read in place.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    /// Whether the topic length has two bytes.
    pub v2: bool,
    /// The body's sum as stored.
    pub body_crc: u32,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Position in the queue.
    pub queue_offset: i64,
    /// Position in the log, bytes.
    pub physical_offset: i64,
    /// Bits of [`super::flags`].
    pub sys_flag: i32,
    /// When the client made it, epoch ms.
    pub born_ts_ms: i64,
    /// Who sent it.
    pub born_host: SocketAddr,
    /// When the broker stored it, epoch ms.
    pub store_ts_ms: i64,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often it was put back.
    pub reconsume_times: i32,
    /// Commit-log offset of the half message.
    pub prepared_offset: i64,
    /// Body as stored.
    pub body: &'a [u8],
    /// Topic.
    pub topic: &'a str,
    /// Encoded properties.
    pub properties_bytes: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Reads the record at the front of `bytes`; what follows it is ignored. The checksum is not
    /// compared: see [`Self::check_crc`].
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let malformed = |why| WireError::Malformed { what: WHAT, why };
        let size = Reader::new(bytes, WHAT).i32()?;
        let size = usize::try_from(size).map_err(|_| malformed("negative size"))?;
        let bytes = Reader::new(bytes, WHAT).take(size)?;
        let mut at = Reader::new(bytes, WHAT);
        at.i32()?;
        let v2 = match at.i32()? {
            MAGIC_V1 => false,
            MAGIC_V2 => true,
            _ => return Err(malformed("unknown magic")),
        };
        let body_crc = u32::from_be_bytes(at.octets()?);
        let queue_id = at.i32()?;
        let flag = at.i32()?;
        let queue_offset = at.i64()?;
        let physical_offset = at.i64()?;
        let sys_flag = at.i32()?;
        let born_ts_ms = at.i64()?;
        let born_host = host(&mut at, sys_flag & BORN_HOST_V6 != 0)?;
        let store_ts_ms = at.i64()?;
        let store_host = host(&mut at, sys_flag & STORE_HOST_V6 != 0)?;
        let reconsume_times = at.i32()?;
        let prepared_offset = at.i64()?;
        let body = at.sized_i32()?;
        let topic = if v2 {
            at.sized_i16()?
        } else {
            let len = at.u8()?;
            at.take(usize::from(len))?
        };
        let topic = core::str::from_utf8(topic).map_err(|_| malformed("topic is not UTF-8"))?;
        let properties_bytes = at.sized_i16()?;
        if !at.is_empty() {
            return Err(malformed("size is larger than its parts"));
        }
        Ok(Self {
            bytes,
            v2,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_ts_ms,
            born_host,
            store_ts_ms,
            store_host,
            reconsume_times,
            prepared_offset,
            body,
            topic,
            properties_bytes,
        })
    }

    /// Reads the record and compares its checksum.
    ///
    /// # Errors
    /// As [`Self::parse`], and [`WireError::Checksum`].
    pub fn parse_checked(bytes: &'a [u8]) -> Result<Self, WireError> {
        let view = Self::parse(bytes)?;
        view.check_crc()?;
        Ok(view)
    }

    /// Compares the body with its checksum.
    ///
    /// # Errors
    /// [`WireError::Checksum`].
    pub fn check_crc(&self) -> Result<(), WireError> {
        let actual = body_crc(self.body);
        if actual == self.body_crc {
            return Ok(());
        }
        Err(WireError::Checksum {
            what: "message body",
            expected: self.body_crc,
            actual,
        })
    }

    /// The whole record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Size of the record, bytes.
    pub fn total_size(&self) -> usize {
        self.bytes.len()
    }

    /// The properties, read in place.
    pub fn properties(&self) -> PropertiesView<'a> {
        PropertiesView::new(self.properties_bytes)
    }

    /// One property.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        self.properties().get(name)
    }

    /// Tag.
    pub fn tags(&self) -> Option<&'a str> {
        self.property(names::TAGS)
    }

    /// Keys, joined by spaces.
    pub fn keys(&self) -> Option<&'a str> {
        self.property(names::KEYS)
    }

    /// The client's message id.
    pub fn uniq_key(&self) -> Option<&'a str> {
        self.property(names::UNIQ_KEY)
    }

    /// The fields again, to store the message anew.
    pub fn fields(&self) -> RecordFields<'a> {
        RecordFields {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_ts_ms: self.born_ts_ms,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_offset: self.prepared_offset,
            body: self.body,
            properties: self.properties_bytes,
        }
    }

    /// Every record of a pull or pop body, in order; stops after the first error.
    pub fn each(bytes: &'a [u8]) -> impl Iterator<Item = Result<RecordView<'a>, WireError>> {
        let mut rest = bytes;
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let view = RecordView::parse(rest);
            rest = match &view {
                Ok(view) => rest.get(view.total_size()..).unwrap_or_default(),
                Err(_) => &[],
            };
            Some(view)
        })
    }
}

fn host(at: &mut Reader<'_>, v6: bool) -> Result<SocketAddr, WireError> {
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::from(at.octets::<16>()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(at.octets::<4>()?))
    };
    let port = u16::try_from(at.i32()?).map_err(|_| WireError::Malformed {
        what: WHAT,
        why: "port is out of range",
    })?;
    Ok(SocketAddr::new(ip, port))
}

/// What stands at a position of the log, by size and magic alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordScan {
    /// A record of this many bytes, if it parses.
    Record(usize),
    /// Filler of this many bytes to the end of the file.
    Blank(usize),
    /// Neither: zeros of a fresh file, or damage.
    End,
}

impl RecordScan {
    /// Classifies the bytes at a log position; at least 8 are needed to be anything but the end.
    pub fn at(bytes: &[u8]) -> Self {
        let mut at = Reader::new(bytes, WHAT);
        let (Ok(size), Ok(magic)) = (at.i32(), at.i32()) else {
            return Self::End;
        };
        let Ok(size) = usize::try_from(size) else {
            return Self::End;
        };
        match magic {
            MAGIC_V1 | MAGIC_V2 if size >= RECORD_MIN_BYTES => Self::Record(size),
            MAGIC_BLANK if size >= 8 => Self::Blank(size),
            _ => Self::End,
        }
    }
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
